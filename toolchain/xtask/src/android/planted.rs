//! Whether the check of programs and libraries finds what it is for: deviations that are planted in a copy of
//! a good one, one at a time.

use super::check::{self, Libraries};
use super::form::Form;
use super::target::API;
use crate::failure::{Failure, Result};

use object::elf::{self, DynamicTag, ProgramType};
use std::fs;
use std::path::Path;

/// Something that a program, or a library, must not be.
struct Deviation {
    what: &'static str,
    /// Words of the flaw that the check must report.
    found_as: &'static str,
    /// Makes it of a good program; `None` where that has not what is to be changed.
    plant: fn(&mut Changed) -> Option<()>,
}

/// Every kind of flaw that `check.rs` knows of programs, and the ways to it.
const OF_PROGRAMS: &[Deviation] = &[
    Deviation { what: "no ELF file", found_as: "no ELF file", plant: |it| it.put(0, b"\x7fELG") },
    Deviation { what: "x86-64", found_as: "not for arm64", plant: |it| it.put(18, &62_u16.to_le_bytes()) },
    Deviation {
        what: "a fixed address",
        found_as: "fixed address",
        plant: |it| it.put(16, &2_u16.to_le_bytes()),
    },
    Deviation {
        what: "a start in data",
        found_as: "has no code",
        plant: |it| it.put(24, &8_u64.pow(12).to_le_bytes()),
    },
    Deviation {
        what: "the loader of glibc",
        found_as: "its loader is",
        plant: |it| {
            let at = it.segment(elf::PT_INTERP)?;
            it.put(it.word(at + 8)?, b"/lib/ld-linux.so.2\0\0\0")
        },
    },
    Deviation {
        what: "no loader",
        found_as: "its loader is",
        plant: |it| it.retype(elf::PT_INTERP, elf::PT_NULL),
    },
    Deviation {
        what: "pages of 4 KiB",
        found_as: "pages of 16384",
        plant: |it| {
            let at = it.segment(elf::PT_LOAD)?;
            it.put(at + 48, &4096_u64.to_le_bytes())
        },
    },
    Deviation {
        what: "a segment between pages",
        found_as: "pages of 16384",
        plant: |it| {
            // The last is data: nothing else is read from there.
            let at = *it.segments(elf::PT_LOAD).last()?;
            let address = it.word(at + 16)? as u64;
            it.put(at + 16, &(address + 4096).to_le_bytes())
        },
    },
    Deviation {
        what: "code that can be written",
        found_as: "written and executed",
        plant: |it| {
            let at = it.segment(elf::PT_LOAD)?;
            it.put(at + 4, &7_u32.to_le_bytes())
        },
    },
    Deviation {
        what: "thread-locals in a segment",
        found_as: "thread-locals",
        plant: |it| it.retype(elf::PT_PHDR, elf::PT_TLS),
    },
    Deviation {
        what: "a stack that runs",
        found_as: "stack",
        plant: |it| {
            let at = it.segment(elf::PT_GNU_STACK)?;
            it.put(at + 4, &7_u32.to_le_bytes())
        },
    },
    Deviation {
        what: "no word about the stack",
        found_as: "stack",
        plant: |it| it.retype(elf::PT_GNU_STACK, elf::PT_NULL),
    },
    Deviation {
        what: "no RELRO",
        found_as: "stays writable",
        plant: |it| it.retype(elf::PT_GNU_RELRO, elf::PT_NULL),
    },
    Deviation {
        what: "another system's note",
        found_as: "no note",
        plant: |it| {
            let at = it.find(b"Android\0")?;
            it.put(at, b"Windows")
        },
    },
    Deviation {
        what: "a newer API level",
        found_as: "level 30, not 28",
        plant: |it| {
            let at = it.find(b"Android\0")?;
            it.put(at + 8, &30_u32.to_le_bytes())
        },
    },
    Deviation {
        what: "a table without frames",
        found_as: "no frame",
        plant: |it| {
            let at = it.segment(elf::PT_GNU_EH_FRAME)?;
            it.put(it.word(at + 8)? + 8, &0_u32.to_le_bytes())
        },
    },
    Deviation {
        what: "no table of frames",
        found_as: "no frame",
        plant: |it| it.retype(elf::PT_GNU_EH_FRAME, elf::PT_NULL),
    },
    Deviation {
        what: "no unwinder",
        found_as: "without an unwinder",
        plant: |it| {
            while let Some(at) = it.find(b"\0_Unwind_RaiseException\0") {
                it.put(at + 1, b"x")?;
            }
            Some(())
        },
    },
    Deviation {
        what: "text relocations",
        found_as: "changes its code",
        plant: |it| it.replace(elf::DT_DEBUG, elf::DT_TEXTREL),
    },
    Deviation {
        what: "text relocations by a flag",
        found_as: "changes its code",
        plant: |it| it.flag(elf::DT_FLAGS, 0, 4),
    },
    Deviation { what: "RPATH", found_as: "RPATH", plant: |it| it.replace(elf::DT_DEBUG, elf::DT_RPATH) },
    Deviation {
        what: "RUNPATH",
        found_as: "RUNPATH",
        plant: |it| it.replace(elf::DT_DEBUG, elf::DT_RUNPATH),
    },
    Deviation { what: "RELR", found_as: "form RELR", plant: |it| it.replace(elf::DT_DEBUG, elf::DT_RELR) },
    Deviation {
        what: "Android's REL",
        found_as: "(REL)",
        plant: |it| it.replace(elf::DT_DEBUG, elf::DT_ANDROID_REL),
    },
    Deviation {
        what: "Android's RELA",
        found_as: "(RELA)",
        plant: |it| it.replace(elf::DT_DEBUG, elf::DT_ANDROID_RELA),
    },
    Deviation {
        what: "Android's RELR",
        found_as: "(RELR)",
        plant: |it| it.replace(elf::DT_DEBUG, elf::DT_ANDROID_RELR),
    },
    Deviation { what: "lazy binding", found_as: "not bound", plant: |it| it.flag(elf::DT_FLAGS_1, 1, 0) },
    Deviation {
        what: "no word about PIE",
        found_as: "any address",
        plant: |it| it.flag(elf::DT_FLAGS_1, 0x0800_0000, 0),
    },
    Deviation {
        what: "no dynamic entries",
        found_as: "no dynamic entries",
        plant: |it| it.retype(elf::PT_DYNAMIC, elf::PT_NULL),
    },
    Deviation {
        what: "a library of glibc",
        found_as: "the library libz.so",
        plant: |it| {
            let at = it.find(b"\0libc.so\0")?;
            it.put(at + 1, b"libz.so")
        },
    },
    Deviation {
        what: "no GNU hash table",
        found_as: "no GNU hash",
        plant: |it| it.replace(elf::DT_GNU_HASH, elf::DT_DEBUG),
    },
    Deviation {
        what: "a function of API 30",
        found_as: "needs statx",
        plant: |it| {
            let at = it.find(b"\0abort\0")?;
            it.put(at + 1, b"statx")
        },
    },
    Deviation {
        what: "another start",
        found_as: "does not call __libc_init",
        plant: |it| {
            let at = it.find(b"\0__libc_init\0")?;
            it.put(at + 1, b"__libc_main")
        },
    },
];

/// The flaws that only libraries can have.
const OF_LIBRARIES: &[Deviation] = &[
    Deviation {
        what: "no name",
        found_as: "called ``",
        plant: |it| it.replace(elf::DT_SONAME, elf::DT_DEBUG),
    },
    Deviation {
        what: "another name",
        found_as: "it is called `libhexfla_",
        plant: |it| {
            let at = it.find(b"\0libhexflash_")?;
            it.put(at + 1, b"libhexfla_")
        },
    },
    Deviation {
        what: "a name of others",
        found_as: "do not begin with",
        plant: |it| {
            let at = it.find(b"\0hexflash_small_sum\0")?;
            it.put(at + 1, b"openflash")
        },
    },
    Deviation {
        what: "a loader",
        found_as: "names a loader",
        plant: |it| it.retype(elf::PT_PHDR, elf::PT_INTERP),
    },
    Deviation {
        what: "a start",
        found_as: "as only programs do",
        plant: |it| {
            // A name that the library needs, and no shorter.
            let at = it.find(b"\0pthread_create\0")?;
            it.put(at + 1, b"__libc_init\0")
        },
    },
];

/// Plants each in a copy of a good file, and sees that the check finds it.
pub fn are_found(file: &Path, form: Form) -> Result<()> {
    let good = fs::read(file).map_err(|error| {
        Failure::failed(format!("{} cannot be read ({error})", file.display()), "build it again")
    })?;
    let missed = missed(&good, form);
    if missed.is_empty() {
        println!("{} deviations that were planted in it are found", deviations(form).len());
        return Ok(());
    }
    Err(Failure::failed(
        format!("{}: planted in it and not found: {}", file.display(), missed.join(", ")),
        "toolchain/xtask/src/android/check.rs looks for them",
    ))
}

/// Deviations of a form. What programs and libraries have in common is planted in programs.
fn deviations(form: Form) -> &'static [Deviation] {
    match form {
        Form::Program { .. } => OF_PROGRAMS,
        Form::Library { .. } => OF_LIBRARIES,
    }
}

/// Deviations that the check does not find, or that cannot be planted.
fn missed(good: &[u8], form: Form) -> Vec<&'static str> {
    let is_missed = |deviation: &&Deviation| {
        let mut copy = Changed(good.to_vec());
        let planted = (deviation.plant)(&mut copy).is_some();
        let flaws = check::flaws(&copy.0, form, API, Libraries::StandIns);
        !planted || !flaws.iter().any(|flaw| flaw.contains(deviation.found_as))
    };
    deviations(form).iter().filter(is_missed).map(|deviation| deviation.what).collect()
}

/// A file that is changed: the bytes of an ELF file for 64 bits.
struct Changed(Vec<u8>);

impl Changed {
    fn put(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        self.0.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        Some(())
    }

    /// The 64 bits at a place of the file.
    fn word(&self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?)).ok()
    }

    fn half(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        self.0.windows(bytes.len()).position(|window| window == bytes)
    }

    /// The places of program headers of a kind.
    fn segments(&self, kind: ProgramType) -> Vec<usize> {
        let count = self.half(56).unwrap_or_default() as usize & 0xffff;
        let places = (0..count).filter_map(|i| Some(self.word(32)? + 56 * i));
        places.filter(|at| self.half(*at) == Some(kind.0)).collect()
    }

    fn segment(&self, kind: ProgramType) -> Option<usize> {
        self.segments(kind).first().copied()
    }

    fn retype(&mut self, from: ProgramType, to: ProgramType) -> Option<()> {
        let at = self.segment(from)?;
        self.put(at, &to.0.to_le_bytes())
    }

    /// The place of a dynamic entry.
    fn entry(&self, tag: DynamicTag) -> Option<usize> {
        let segment = self.segment(elf::PT_DYNAMIC)?;
        let (start, bytes) = (self.word(segment + 8)?, self.word(segment + 32)?);
        (start..start + bytes).step_by(16).find(|at| self.word(*at) == Some(tag.0 as usize))
    }

    fn replace(&mut self, from: DynamicTag, to: DynamicTag) -> Option<()> {
        let at = self.entry(from)?;
        self.put(at, &to.0.to_le_bytes())
    }

    /// Takes flags away from an entry, and adds others.
    fn flag(&mut self, tag: DynamicTag, without: usize, with: usize) -> Option<()> {
        let at = self.entry(tag)?;
        let flags = self.word(at + 8)? & !without | with;
        self.put(at + 8, &(flags as u64).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Form = Form::Program { name: "good" };
    /// Address of `_Unwind_RaiseException`, at which the program starts, too.
    const CODE: u64 = 0x40;

    /// A file that grows.
    #[derive(Default)]
    struct File(Vec<u8>);

    impl File {
        /// Appends words of 64 bits; gives their place, which is their address, too, and their bytes.
        fn words(&mut self, words: &[u64]) -> [u64; 2] {
            self.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
        }

        fn bytes(&mut self, bytes: &[u8]) -> [u64; 2] {
            self.0.resize(self.0.len().next_multiple_of(8), 0);
            let place = self.0.len() as u64;
            self.0.extend(bytes);
            [place, bytes.len() as u64]
        }
    }

    /// Two numbers of 32 bits in one of 64.
    fn pair(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    /// The smallest file that the check has nothing against. Nothing in it runs.
    fn good() -> Vec<u8> {
        const HEADERS: usize = 9;
        let mut file = File(vec![0; 64 + 56 * HEADERS]);
        let interpreter = file.bytes(b"/system/bin/linker64\0");
        let note = file.bytes(b"\x08\0\0\0\x04\0\0\0\x01\0\0\0Android\0\x1c\0\0\0");
        let names = b"\0libc.so\0abort\0getrandom\0__libc_init\0";
        let strings = file.bytes(names);
        let name = |text: &[u8]| names.windows(text.len()).position(|it| it == text).unwrap() as u32;
        let needed = [&b"abort"[..], b"getrandom", b"__libc_init"].map(|text| [pair(name(text), 0x12), 0, 0]);
        let symbols = file.words(&[&[0; 3], needed.as_flattened()].concat());
        let hash = file.words(&[pair(1, 4), pair(1, 0), 0, 0]);
        let entries = [
            (elf::DT_NEEDED, name(b"libc.so").into()),
            (elf::DT_FLAGS, 8),
            (elf::DT_FLAGS_1, 0x0800_0001),
            (elf::DT_DEBUG, 0),
            (elf::DT_STRTAB, strings[0]),
            (elf::DT_SYMTAB, symbols[0]),
            (elf::DT_GNU_HASH, hash[0]),
            (elf::DT_NULL, 0),
        ];
        let dynamic = file.words(&entries.map(|(tag, value)| [tag.0 as u64, value]).concat());
        let table = file.0.len().next_multiple_of(8) as u64;
        let start = CODE.wrapping_sub(table) as u32;
        let frames = file.words(&[pair(0x3b03_1b01, 0), pair(1, start), 0]);
        // What a debugger reads: a table of two symbols, and their names.
        let known = file.words(&[0, 0, 0, pair(1, 0x0001_0012), CODE, 4]);
        let known_names = file.bytes(b"\0_Unwind_RaiseException\0");
        let section = |kind, [place, bytes]: [u64; 2], link, info, size| {
            [pair(0, kind), 0, 0, place, bytes, pair(link, info), 8, size]
        };
        let sections = [[0; 8], section(2, known, 2, 1, 24), section(3, known_names, 0, 0, 0)];
        let sections = file.words(sections.as_flattened());

        let header = |kind: ProgramType, flags, [place, bytes]: [u64; 2], address, align| {
            [pair(kind.0, flags), place, address, address, bytes, bytes, align]
        };
        let whole = [0, file.0.len() as u64];
        let of = |kind, flags, part: [u64; 2], align| header(kind, flags, part, part[0], align);
        let headers: [[u64; 7]; HEADERS] = [
            of(elf::PT_PHDR, 4, [64, 56 * HEADERS as u64], 8),
            of(elf::PT_INTERP, 4, interpreter, 1),
            of(elf::PT_LOAD, 5, whole, 0x4000),
            header(elf::PT_LOAD, 6, [0, 8], 0x4000, 0x4000),
            of(elf::PT_DYNAMIC, 6, dynamic, 8),
            header(elf::PT_GNU_RELRO, 4, [0, 8], 0x4000, 1),
            of(elf::PT_GNU_EH_FRAME, 4, frames, 4),
            of(elf::PT_GNU_STACK, 6, [0, 0], 0),
            of(elf::PT_NOTE, 4, note, 4),
        ];
        let first = [
            u64::from_le_bytes(*b"\x7fELF\x02\x01\x01\0"),
            0,
            pair(0x00b7_0003, 1),
            CODE,
            64,
            sections[0],
            pair(0, 0x0038_0040),
            pair(0x0040_0000 | HEADERS as u32, 0x0002_0003),
        ];
        let mut head = File::default();
        head.words(&first);
        head.words(headers.as_flattened());
        file.0[..head.0.len()].copy_from_slice(&head.0);
        file.0
    }

    #[test]
    fn a_good_program_has_no_flaw() {
        assert_eq!(check::flaws(&good(), PROGRAM, API, Libraries::StandIns), [""; 0]);
    }

    #[test]
    fn each_deviation_is_found() {
        assert_eq!(missed(&good(), PROGRAM), [""; 0]);
    }

    #[test]
    fn a_name_is_refused_where_the_level_is_older_than_it() {
        let flaws = check::flaws(&good(), PROGRAM, 27, Libraries::StandIns);
        assert!(flaws.iter().any(|flaw| flaw == "it needs getrandom, which API 28 brought"), "{flaws:?}");
        assert_eq!(flaws.len(), 2, "the note says 28: {flaws:?}");
    }

    #[test]
    fn the_ndk_may_need_what_is_not_listed() {
        let mut copy = Changed(good());
        let at = copy.find(b"abort").unwrap();
        copy.put(at, b"qsort").unwrap();
        assert_eq!(check::flaws(&copy.0, PROGRAM, API, Libraries::OfNdk), [""; 0]);
        assert_eq!(check::flaws(&copy.0, PROGRAM, API, Libraries::StandIns).len(), 1);
    }

    #[test]
    fn damage_is_a_flaw_and_no_crash() {
        let good = good();
        for end in 0..good.len() {
            assert!(!check::flaws(&good[..end], PROGRAM, API, Libraries::StandIns).is_empty(), "{end} bytes");
        }
        for at in 0..good.len() {
            for planted in [0, 0x7f, 0xff] {
                let mut damaged = good.clone();
                damaged[at] = planted;
                check::flaws(&damaged, PROGRAM, API, Libraries::StandIns);
            }
        }
    }
}
