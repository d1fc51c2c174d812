//! The check of a skel library, read from the built file.

use super::imports::{IMPORTS, Import, LIBC};
use crate::failure::{Failure, Result};
use object::elf::{
    DT_HASH, DT_JMPREL, DT_NEEDED, DT_PLTGOT, DT_PLTREL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELAENT,
    DT_RELASZ, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_SYMBOLIC, DT_SYMENT, DT_SYMTAB, PF_W, PF_X, PT_DYNAMIC,
    PT_LOAD,
};
use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, RelocationFlags};
use std::fs;
use std::path::Path;

/// Largest library, in bytes of the file that are loaded: well above what it is today, 1.2 MB. Much more
/// would be a kernel that is compiled many times over.
const MAX_LOADED: u64 = 2 << 20;
/// Most bytes in memory: the first memory of a process that runs unsigned libraries is 5 MB (FastRPC's
/// `remote.h`), and FastRPC itself needs some of it.
const MAX_IN_MEMORY: u64 = 3 << 20;
/// Bytes of a page, as the DSP's loader maps them.
const PAGE: u64 = 4096;
/// The tag that says which version of Hexagon's ABI a library is for, and what all that load on phones say.
pub(super) const DT_HEXAGON_VER: u32 = 0x7000_0001;
pub(super) const HEXAGON_VER: u32 = 3;

/// Checks a library that was built for the architecture `arch` (0x73 for v73).
pub fn check(file: &Path, arch: u16, entry: &str) -> Result<()> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("{} cannot be read ({error})", file.display()), "build it again")
    };
    let data = fs::read(file).map_err(|error| unreadable(&error))?;
    let flaws = flaws(&data, arch, entry).map_err(|error| unreadable(&error))?;
    if flaws.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not what a DSP would load: {}", file.display(), flaws.join("; ")),
        "see linker/ and the list in toolchain/xtask/src/skel/imports.rs",
    ))
}

pub(super) fn flaws(data: &[u8], arch: u16, entry: &str) -> object::Result<Vec<String>> {
    let elf = Elf::parse(data)?;
    let mut flaws = symbol_flaws(&elf, arch, entry);
    flaws.extend(segment_flaws(&elf));
    flaws.extend(dynamic_flaws(&elf));
    Ok(flaws)
}

type Elf<'a> = ElfFile32<'a, LittleEndian>;

/// Deviations of what the library exports and needs.
fn symbol_flaws(elf: &Elf<'_>, arch: u16, entry: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    let flags = elf.elf_header().e_flags(elf.endian());
    if flags.0 != u32::from(arch) {
        flaws.push(format!("its architecture flags are {flags:#x}, not {arch:#x}"));
    }
    let exported = elf.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    let exported: Vec<&str> = exported.filter_map(|symbol| symbol.name().ok()).collect();
    if exported != [entry] {
        flaws.push(format!("it exports {exported:?} and not just {entry}"));
    }
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_undefined()) {
        let Some(name) = symbol.name().ok().filter(|name| !name.is_empty()) else { continue };
        match IMPORTS.iter().find(|import| import.name == name) {
            None => flaws.push(format!("it needs {name}, which the DSP is not known to have")),
            Some(import) if !import.images.contains(&arch) => {
                flaws.push(format!("it needs {name}, which images of v{arch:x} lack"));
            }
            Some(import) if import.weak && !symbol.is_weak() => {
                let Import { reason, .. } = import;
                flaws.push(format!("it does not load without {name} ({reason}), and could do without"));
            }
            Some(_) => {}
        }
    }
    flaws
}

/// Two segments that are loaded, one to execute and one to write, and the dynamic section; nothing else.
fn segment_flaws(elf: &Elf<'_>) -> Vec<String> {
    let endian = elf.endian();
    let mut flaws = Vec::new();
    let headers = elf.elf_program_headers();
    let kinds: Vec<_> = headers.iter().map(|segment| segment.p_type(endian)).collect();
    if kinds != [PT_LOAD, PT_LOAD, PT_DYNAMIC] {
        flaws.push(format!("its segments are of the kinds {kinds:x?}, not two to load and a dynamic one"));
    }
    let (mut loaded, mut end) = (0, 0);
    for segment in headers.iter().filter(|segment| segment.p_type(endian) == PT_LOAD) {
        let flags = segment.p_flags(endian);
        let [offset, address, align] =
            [segment.p_offset(endian), segment.p_vaddr(endian), segment.p_align(endian)].map(u64::from);
        loaded += u64::from(segment.p_filesz(endian));
        end = end.max(address + u64::from(segment.p_memsz(endian)));
        if flags & (PF_W | PF_X) == PF_W | PF_X {
            flaws.push(format!("the segment at {address:#x} can be written and executed"));
        }
        if align != PAGE || offset % PAGE != 0 || address % PAGE != 0 {
            flaws.push(format!("the segment at {address:#x} does not start a page of {PAGE} bytes"));
        }
    }
    if loaded > MAX_LOADED {
        flaws.push(format!("it loads {loaded} bytes, more than {MAX_LOADED}"));
    }
    if end > MAX_IN_MEMORY {
        flaws.push(format!("it takes {end} bytes of memory, more than {MAX_IN_MEMORY}"));
    }
    flaws
}

/// Tags that a dynamic section may have: those of the libraries that load on phones.
const TAGS: [object::elf::DynamicTag; 16] = [
    DT_NEEDED,
    DT_SONAME,
    DT_SYMBOLIC,
    DT_HASH,
    DT_SYMTAB,
    DT_SYMENT,
    DT_STRTAB,
    DT_STRSZ,
    DT_PLTGOT,
    DT_RELACOUNT,
    DT_PLTREL,
    DT_JMPREL,
    DT_PLTRELSZ,
    DT_RELA,
    DT_RELASZ,
    DT_RELAENT,
];

/// Deviations of the libraries that the loader must bring, and of the relocations that it must do.
fn dynamic_flaws(elf: &Elf<'_>) -> Vec<String> {
    /// Addresses of the library's own, of functions and data by the table, and of functions that are called.
    const RELATIVE: u32 = 35;
    const GLOB_DAT: u32 = 33;
    const JMP_SLOT: u32 = 34;
    let mut flaws = Vec::new();
    let Ok(table) = elf.elf_dynamic_table() else { return vec!["it has no dynamic section".to_owned()] };
    let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    let needed: Vec<_> = needed.filter_map(|entry| table.string(entry).ok()).collect();
    if needed != [LIBC.as_bytes()] {
        let needed: Vec<_> = needed.iter().map(|name| String::from_utf8_lossy(name)).collect();
        flaws.push(format!("it needs the libraries {needed:?} and not just {LIBC}"));
    }
    for entry in &table {
        if !TAGS.contains(&entry.tag) && entry.tag.0 != i64::from(DT_HEXAGON_VER) {
            flaws.push(format!("its dynamic section has {:?}, which no library has that loads", entry.tag));
        }
    }
    let version = table.iter().find(|entry| entry.tag.0 == i64::from(DT_HEXAGON_VER)).map(|entry| entry.val);
    if version != Some(HEXAGON_VER.into()) {
        flaws.push(format!("its version of the ABI is {version:?}, not {HEXAGON_VER}"));
    }
    for (at, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        match relocation.flags() {
            RelocationFlags::Elf { r_type } if [RELATIVE, GLOB_DAT, JMP_SLOT].contains(&r_type.0) => {}
            other => {
                flaws.push(format!("the relocation at {at:#x} is of a kind that is not known: {other:?}"))
            }
        }
    }
    flaws
}
