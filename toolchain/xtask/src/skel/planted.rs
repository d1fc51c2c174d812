//! Whether the check of skels finds what it is for: deviations that are planted in a copy of a sound library,
//! one at a time.

use std::fs;
use std::path::Path;

use object::elf::{
    DT_FLAGS, DT_NEEDED, DT_RELA, DT_RUNPATH, DT_STRTAB, DT_SYMBOLIC, DT_SYMTAB, PT_GNU_STACK,
};

use super::check::{DT_HEXAGON_VER, flaws};
use super::edit::{
    E_FLAGS, E_PHNUM, E_PHOFF, P_FLAGS, P_MEMSZ, P_VADDR, PROGRAM_HEADER, VALUE, add, find, segment, set,
    tag, word,
};
use crate::failure::{Failure, Result};

/// Makes each deviation in a copy of a sound library, and sees it found for what it is.
pub fn planted_are_found(file: &Path, arch: u16, entry: &str) -> Result<()> {
    let failed = |what: String| Failure::failed(what, "see toolchain/xtask/src/skel/planted.rs");
    let sound = fs::read(file).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    for Deviation { what, found_as, plant } in DEVIATIONS {
        let mut data = sound.clone();
        if plant(&mut data).is_none() || data == sound {
            return Err(failed(format!("{what}: it cannot be planted in {}", file.display())));
        }
        let flaws = flaws(&data, arch, entry).map_err(|error| failed(format!("{what}: {error}")))?;
        if !flaws.iter().any(|flaw| flaw.contains(found_as)) {
            return Err(failed(format!(
                "{what}: the check of a copy of {} says `{}`, and not `{found_as}`",
                file.display(),
                flaws.join("; ")
            )));
        }
    }
    println!("{}: {} planted deviations from its shape are found", file.display(), DEVIATIONS.len());
    Ok(())
}

/// Something that a library must not be: no phone is known to load one.
struct Deviation {
    what: &'static str,
    /// Words of the flaw that the check must report.
    found_as: &'static str,
    /// Makes it of a sound library; `None` where that has not what is to be changed.
    plant: fn(&mut [u8]) -> Option<()>,
}

/// Every kind of flaw that `check.rs` knows.
const DEVIATIONS: &[Deviation] = &[
    Deviation {
        what: "code of another version",
        found_as: "architecture flags",
        plant: |data| add(data, E_FLAGS, 4),
    },
    Deviation {
        what: "a segment for the table of segments",
        found_as: "segments are of the kinds",
        plant: |data| {
            let table = word(data, E_PHOFF)?;
            set(data, E_PHOFF, table.checked_sub(PROGRAM_HEADER as u32)?)?;
            add(data, E_PHNUM, 1)
        },
    },
    Deviation {
        what: "a segment for the stack",
        found_as: "segments are of the kinds",
        plant: |data| set(data, segment(data, 2)?, PT_GNU_STACK.0),
    },
    Deviation {
        what: "a segment that is written and executed",
        found_as: "written and executed",
        plant: |data| add(data, segment(data, 1)? + P_FLAGS, 1),
    },
    Deviation {
        what: "a segment that begins within a page",
        found_as: "does not start a page",
        plant: |data| add(data, segment(data, 1)? + P_VADDR, 16),
    },
    Deviation {
        what: "more memory than there is at first",
        found_as: "bytes of memory",
        plant: |data| set(data, segment(data, 1)? + P_MEMSZ, 6 << 20),
    },
    Deviation {
        what: "a flag where the others have a tag",
        found_as: "dynamic section has",
        plant: |data| set(data, tag(data, DT_SYMBOLIC.0 as u32)?, DT_FLAGS.0 as u32),
    },
    Deviation {
        what: "no version of the ABI",
        found_as: "version of the ABI",
        plant: |data| set(data, tag(data, DT_HEXAGON_VER)?, DT_RUNPATH.0 as u32),
    },
    Deviation {
        what: "another library",
        found_as: "needs the libraries",
        plant: |data| add(data, tag(data, DT_NEEDED.0 as u32)? + VALUE, 1),
    },
    Deviation {
        what: "a relocation of another kind",
        found_as: "the relocation at",
        plant: |data| {
            let first = word(data, tag(data, DT_RELA.0 as u32)? + VALUE)? as usize;
            *data.get_mut(first + 4)? = 6;
            Some(())
        },
    },
    Deviation {
        what: "an import that nobody has",
        found_as: "not known to have",
        plant: |data| {
            let at = find(data, b"\0qurt_sleep\0")?;
            *data.get_mut(at + 1)? = b'Q';
            Some(())
        },
    },
    Deviation {
        what: "an import without which it would not load",
        found_as: "does not load without",
        plant: |data| {
            let names = word(data, tag(data, DT_STRTAB.0 as u32)? + VALUE)? as usize;
            let symbols = word(data, tag(data, DT_SYMTAB.0 as u32)? + VALUE)? as usize;
            let name = (find(data, b"\0HAP_debug_v2\0")? + 1).checked_sub(names)? as u32;
            let symbol = (symbols..names).step_by(16).find(|&at| word(data, at) == Some(name))?;
            // Global, and no type, where it was weak.
            *data.get_mut(symbol + 12)? = 0x10;
            Some(())
        },
    },
];
