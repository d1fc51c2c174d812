//! The check that Android's loader takes a program or a library, from API 28 on. It reads the file as the
//! loader does: by segments and dynamic entries. Only the unwinder's frames, and the names that a library
//! shows, are looked up by sections, before they are stripped.

use std::fs;
use std::path::Path;

use object::elf::{self, DynamicTag, FileHeader64, PF_W, PF_X, ProgramHeader64, ProgramType, Sym64};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym};
use object::{LittleEndian, Object, ObjectSymbol, pod};

use super::form::Form;
use super::libraries;
use super::target::API;
use crate::failure::{Failure, Result};

/// Android's loader for 64 bits.
const LOADER: &[u8] = b"/system/bin/linker64";
/// The largest page of a phone.
const PAGE: u64 = 16 << 10;
/// Function that every program calls first, in its start code.
const START: &str = "__libc_init";
/// Function that a panic calls. Its own frame is the first that is unwound.
const RAISE: &str = "_Unwind_RaiseException";
/// Name and type of the note with the API level.
const NOTE: (&[u8], u32) = (b"Android", 1);
/// The largest number of names that is believed.
const MAX_NAMES: usize = 10_000;

/// A part of a file, or what is wrong there.
type Read<T> = std::result::Result<T, &'static str>;

/// Libraries that a program was linked with in the place of Android's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libraries {
    /// The stand-ins of `libraries.rs`: a name that is not there was never looked up.
    StandIns,
    /// The NDK's, which have all names of the right API level.
    OfNdk,
}

/// Dynamic entries that a program must not have, and why.
const UNWANTED: [(DynamicTag, &str); 7] = [
    (elf::DT_TEXTREL, "changes its code when it is loaded, which Android refuses"),
    (elf::DT_RPATH, "looks for libraries in folders of the machine that built it (RPATH)"),
    (elf::DT_RUNPATH, "looks for libraries in folders of the machine that built it (RUNPATH)"),
    (elf::DT_RELR, "has relocations in the form RELR, which API 30 brought"),
    (elf::DT_ANDROID_REL, "has relocations in a form of Android's own (REL)"),
    (elf::DT_ANDROID_RELA, "has relocations in a form of Android's own (RELA)"),
    (elf::DT_ANDROID_RELR, "has relocations in a form of Android's own (RELR)"),
];

/// Checks a file that still has its names.
pub fn check(file: &Path, form: Form, linked: Libraries) -> Result<()> {
    let data = fs::read(file).map_err(|error| {
        Failure::failed(format!("{} cannot be read ({error})", file.display()), "build it again")
    })?;
    let flaws = flaws(&data, form, API, linked);
    if flaws.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not what Android loads from API {API} on: {}", file.display(), flaws.join("; ")),
        "see toolchain/xtask/src/android/",
    ))
}

/// Flaws of a file of this form for this API level.
pub fn flaws(data: &[u8], form: Form, api: u32, linked: Libraries) -> Vec<String> {
    let elf = match ElfFile64::<LittleEndian>::parse(data) {
        Ok(elf) => elf,
        Err(error) => return vec![format!("it is no ELF file for 64 bits ({error})")],
    };
    let mut flaws = Vec::new();
    if let Err(damage) = (Loaded { elf, data, form }).look(api, linked, &mut flaws) {
        flaws.push(format!("it is damaged: it has {damage}"));
    }
    flaws
}

struct Loaded<'a> {
    elf: ElfFile64<'a, LittleEndian>,
    data: &'a [u8],
    form: Form,
}

impl<'a> Loaded<'a> {
    fn look(&self, api: u32, linked: Libraries, flaws: &mut Vec<String>) -> Read<()> {
        self.look_at_header(flaws);
        match self.form {
            Form::Program { .. } => self.look_at_start(flaws),
            Form::Library { prefix, .. } => self.look_at_shown(prefix, flaws),
        }
        self.look_at_segments(flaws);
        self.look_at_note(api, flaws);
        self.look_at_frames(flaws);
        let entries = self.dynamic_entries()?;
        self.look_at_entries(&entries, flaws)?;
        self.look_at_names(&entries, api, linked, flaws)
    }

    fn segments(&self) -> &'a [ProgramHeader64<LittleEndian>] {
        self.elf.elf_program_headers()
    }

    fn segment(&self, kind: ProgramType) -> Option<&'a ProgramHeader64<LittleEndian>> {
        self.segments().iter().find(|segment| segment.p_type(LittleEndian) == kind)
    }

    /// The loaded bytes from an address on.
    fn at(&self, address: u64) -> Read<&'a [u8]> {
        let loaded = self.segments().iter().filter(|it| it.p_type(LittleEndian) == elf::PT_LOAD);
        let mut found = loaded.filter_map(|segment| {
            let data = segment.data(LittleEndian, self.data).ok()?;
            data.get(usize::try_from(address.checked_sub(segment.p_vaddr(LittleEndian))?).ok()?..)
        });
        found.find(|data| !data.is_empty()).ok_or("an address that is not loaded")
    }

    fn look_at_header(&self, flaws: &mut Vec<String>) {
        let header: &FileHeader64<LittleEndian> = self.elf.elf_header();
        if header.e_machine(LittleEndian) != elf::EM_AARCH64 {
            flaws.push("it is not for arm64".to_owned());
        }
        if header.e_type(LittleEndian) != elf::ET_DYN {
            flaws.push("it is for a fixed address".to_owned());
        }
    }

    /// A program names its loader, and where that starts it.
    fn look_at_start(&self, flaws: &mut Vec<String>) {
        let loader = self.segment(elf::PT_INTERP).and_then(|it| it.data(LittleEndian, self.data).ok());
        let loader = loader.unwrap_or_default();
        if loader.strip_suffix(b"\0") != Some(LOADER) {
            flaws.push(format!("its loader is `{}`", String::from_utf8_lossy(loader).trim_end_matches('\0')));
        }
        let entry = self.elf.elf_header().e_entry(LittleEndian);
        let runs = |segment: &&ProgramHeader64<LittleEndian>| {
            let start = segment.p_vaddr(LittleEndian);
            segment.p_type(LittleEndian) == elf::PT_LOAD
                && segment.p_flags(LittleEndian) & PF_X == PF_X
                && entry >= start
                && entry - start < segment.p_filesz(LittleEndian)
        };
        if entry == 0 || !self.segments().iter().any(|segment| runs(&segment)) {
            flaws.push(format!("it starts at {entry:#x}, where it has no code"));
        }
    }

    /// A library shows names of its own alone: others would be taken for those of another library.
    fn look_at_shown(&self, prefix: &str, flaws: &mut Vec<String>) {
        if self.segment(elf::PT_INTERP).is_some() {
            flaws.push("it names a loader, as only programs do".to_owned());
        }
        let shown = self.elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
        let mut names: Vec<_> = shown.map(|symbol| symbol.name().unwrap_or_default()).collect();
        if names.is_empty() {
            flaws.push("it shows no names".to_owned());
        }
        names.retain(|name| !name.starts_with(prefix));
        if !names.is_empty() {
            flaws.push(format!("it shows names that do not begin with `{prefix}`: {}", names.join(", ")));
        }
    }

    fn look_at_segments(&self, flaws: &mut Vec<String>) {
        for segment in self.segments() {
            let [offset, address, align] = [
                segment.p_offset(LittleEndian),
                segment.p_vaddr(LittleEndian),
                segment.p_align(LittleEndian),
            ];
            let flags = segment.p_flags(LittleEndian);
            match segment.p_type(LittleEndian) {
                elf::PT_LOAD => {
                    if align < PAGE || align % PAGE != 0 || offset % PAGE != address % PAGE {
                        flaws.push(format!("the segment at {address:#x} does not fit pages of {PAGE} bytes"));
                    }
                    if flags & (PF_W | PF_X) == PF_W | PF_X {
                        flaws.push(format!("the segment at {address:#x} can be written and executed"));
                    }
                }
                // Rust's target for Android does without, by keys of pthread.
                elf::PT_TLS => flaws.push(format!(
                    "it has thread-locals in a segment, aligned to {align}: API 29 brought that, for 64 and \
                     more"
                )),
                _ => {}
            }
        }
        match self.segment(elf::PT_GNU_STACK) {
            Some(stack) if stack.p_flags(LittleEndian) & PF_X != PF_X => {}
            _ => flaws.push("its stack can be executed".to_owned()),
        }
        if self.segment(elf::PT_GNU_RELRO).is_none() {
            flaws.push("what relocations have changed stays writable".to_owned());
        }
    }

    fn look_at_note(&self, api: u32, flaws: &mut Vec<String>) {
        let mut found = None;
        for segment in self.segments() {
            let Ok(Some(mut notes)) = segment.notes(LittleEndian, self.data) else { continue };
            while let Ok(Some(note)) = notes.next() {
                // The NDK's has words about itself behind the level.
                if (note.name(), note.n_type(LittleEndian).0) == NOTE
                    && let Some(level) = note.desc().first_chunk()
                {
                    found = Some(u32::from_le_bytes(*level));
                }
            }
        }
        match found {
            Some(level) if level == api => {}
            Some(level) => flaws.push(format!("its note says API level {level}, not {api}")),
            None => flaws.push("it has no note with an API level".to_owned()),
        }
    }

    /// A panic unwinds from inside of the unwinder: without a frame there it ends the process instead. That
    /// happened when `ld.lld -r --gc-sections` had taken the unwinder's frames for garbage.
    fn look_at_frames(&self, flaws: &mut Vec<String>) {
        let raise = self.elf.symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(RAISE));
        let Some(raise) = raise else {
            flaws.push(format!("it has no {RAISE}: is it stripped already, or without an unwinder?"));
            return;
        };
        if !self.frames().is_some_and(|starts| starts.contains(&raise.address())) {
            flaws.push(format!("no frame is known at {RAISE}, so that no panic can be unwound"));
        }
    }

    /// The addresses where functions with a frame begin, from the table that unwinders search.
    fn frames(&self) -> Option<Vec<u64>> {
        /// The table's usual form: a version, four bytes for an address, four for the count, and a sorted
        /// list of pairs of 32 bits, which count from the table.
        const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let segment = self.segment(elf::PT_GNU_EH_FRAME)?;
        let table = segment.data(LittleEndian, self.data).ok()?.strip_prefix(&FORM)?;
        let count = u32::from_le_bytes(*table.get(4..)?.first_chunk()?);
        let (pairs, _) = table.get(8..)?.as_chunks::<8>();
        let start = |&[a, b, c, d, ..]: &[u8; 8]| {
            segment.p_vaddr(LittleEndian).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
        };
        Some(pairs.iter().take(usize::try_from(count).ok()?).map(start).collect())
    }

    fn dynamic_entries(&self) -> Read<Vec<(DynamicTag, u64)>> {
        let segment = self.segment(elf::PT_DYNAMIC).ok_or("no dynamic entries")?;
        let entries = segment.dynamic(LittleEndian, self.data).ok().flatten().unwrap_or_default();
        let pairs = entries.iter().map(|it| (it.d_tag(LittleEndian), it.d_val(LittleEndian)));
        Ok(pairs.take_while(|(tag, _)| *tag != elf::DT_NULL).collect())
    }

    fn look_at_entries(&self, entries: &[(DynamicTag, u64)], flaws: &mut Vec<String>) -> Read<()> {
        for (tag, why) in UNWANTED {
            if value(entries, tag).is_some() {
                flaws.push(format!("it {why}"));
            }
        }
        let flags = |tag| value(entries, tag).unwrap_or_default();
        if flags(elf::DT_FLAGS) & elf::DF_TEXTREL.0 != 0 {
            flaws.push("it changes its code when it is loaded, as its flags say".to_owned());
        }
        if flags(elf::DT_FLAGS_1) & elf::DF_1_NOW.0 == 0 {
            flaws.push("it is not bound when it starts".to_owned());
        }
        let strings = self.at(value(entries, elf::DT_STRTAB).unwrap_or_default())?;
        match self.form {
            Form::Program { .. } => {
                if flags(elf::DT_FLAGS_1) & elf::DF_1_PIE.0 == 0 {
                    flaws.push("its flags do not say that it is a program for any address".to_owned());
                }
            }
            Form::Library { file, .. } => {
                let name = value(entries, elf::DT_SONAME).map(|offset| text(strings, offset)).transpose()?;
                if name != Some(file) {
                    flaws.push(format!("it is called `{}`, not `{file}`", name.unwrap_or_default()));
                }
            }
        }
        for (_, offset) in entries.iter().filter(|(tag, _)| *tag == elf::DT_NEEDED) {
            let library = text(strings, *offset)?;
            if !libraries::LIBRARIES.contains(&library) {
                flaws.push(format!("it needs the library {library}"));
            }
        }
        Ok(())
    }

    fn look_at_names(
        &self,
        entries: &[(DynamicTag, u64)],
        api: u32,
        linked: Libraries,
        flaws: &mut Vec<String>,
    ) -> Read<()> {
        let Some(hash) = value(entries, elf::DT_GNU_HASH) else {
            flaws.push("it has no GNU hash table".to_owned());
            return Ok(());
        };
        // Names that are needed come before the first that the table has.
        let first = self.at(hash)?.get(4..).and_then(|it| it.first_chunk());
        let first = u32::from_le_bytes(*first.ok_or("a hash table that is too short")?);
        let strings = self.at(value(entries, elf::DT_STRTAB).unwrap_or_default())?;
        let symbols = self.at(value(entries, elf::DT_SYMTAB).unwrap_or_default())?;
        let count = usize::try_from(first).unwrap_or(usize::MAX).min(MAX_NAMES);
        let (symbols, _) = pod::slice_from_bytes::<Sym64<LittleEndian>>(symbols, count)
            .map_err(|()| "a table of symbols that is too short")?;
        let mut starts = false;
        for symbol in symbols.iter().skip(1).filter(|symbol| symbol.is_undefined(LittleEndian)) {
            let name = text(strings, symbol.st_name(LittleEndian).into())?;
            starts |= name == START;
            match libraries::since(name) {
                Some(level) if level > api => {
                    flaws.push(format!("it needs {name}, which API {level} brought"))
                }
                None if linked == Libraries::StandIns => {
                    flaws.push(format!("it needs {name}, which nobody has looked up for API {api}"));
                }
                _ => {}
            }
        }
        match self.form {
            Form::Program { .. } if !starts => {
                flaws.push(format!("it does not call {START}, by which programs of Android start"));
            }
            Form::Library { .. } if starts => flaws.push(format!("it calls {START}, as only programs do")),
            _ => {}
        }
        Ok(())
    }
}

/// The value of the first entry of a kind.
fn value(entries: &[(DynamicTag, u64)], wanted: DynamicTag) -> Option<u64> {
    entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value)
}

/// The text at an offset, to its NUL.
fn text(strings: &[u8], offset: u64) -> Read<&str> {
    let bytes = usize::try_from(offset).ok().and_then(|offset| strings.get(offset..));
    let bytes = bytes.and_then(|bytes| bytes.split(|&byte| byte == 0).next());
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or("a name that is no text")
}
