//! What a skel library must be for the DSP's loader, read from the built file.

use crate::failure::{Failure, Result};
use object::elf::{PF_W, PF_X, PT_LOAD};
use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use std::fs;
use std::path::Path;

/// Largest library, in bytes of the file that are loaded: well above what it is today, 1.2 MB. Much more
/// would be a kernel that is compiled many times over.
const MAX_LOADED: u64 = 2 << 20;
/// What the DSP's loader maps at a time.
const PAGE: u64 = 4096;

/// Symbols that the DSP's image or its libraries bring, and why we need them. Nothing else may stay
/// undefined: the loader would refuse the library, on the phone only.
const ALLOWED: &[(&str, &str)] = &[
    ("HAP_mmap", "maps a buffer of the host, where HAP_mmap2 is missing, as up to v73"),
    ("HAP_mmap2", "the same, without a limit of 2 GiB, from v75 on"),
    ("HAP_munmap", "ends a mapping of HAP_mmap"),
    ("HAP_munmap2", "ends a mapping of HAP_mmap2"),
    ("HAP_power_set", "votes for clocks while there is work"),
    ("abort", "ends the process on a panic"),
    ("compute_resource_acquire", "VTCM"),
    ("compute_resource_acquire_cached", "takes VTCM back that was lent to others"),
    ("compute_resource_attr_get_vtcm_ptr_v2", "VTCM"),
    ("compute_resource_attr_init", "VTCM"),
    ("compute_resource_attr_set_cache_mode", "VTCM that can be lent to others"),
    ("compute_resource_attr_set_hmx_param", "the matrix unit; the library does without where it is missing"),
    ("compute_resource_attr_set_release_callback", "tells when others want it"),
    ("compute_resource_attr_set_serialize", "others may have other resources meanwhile"),
    ("compute_resource_attr_set_vtcm_param_v2", "VTCM"),
    ("compute_resource_hmx_lock", "the matrix unit, for the thread that drives it"),
    ("compute_resource_hmx_unlock", "gives it back"),
    ("compute_resource_release", "VTCM"),
    ("compute_resource_release_cached", "lends VTCM to others"),
    ("dspqueue_close", "the message queue"),
    ("dspqueue_import", "the message queue"),
    ("dspqueue_read", "the message queue"),
    ("dspqueue_write", "the message queue"),
    ("qurt_futex_wait", "workers sleep between programs"),
    ("qurt_futex_wake", "and are woken"),
    ("qurt_hvx_lock", "a thread needs a vector context"),
    ("qurt_hvx_unlock", "and gives it back"),
    ("qurt_mem_cache_clean", "memory shared with the host is not coherent"),
    ("qurt_thread_create", "workers"),
    ("qurt_thread_join", "workers"),
];

/// Checks a library that was built for the architecture `arch` (0x73 for v73).
pub fn check(file: &Path, arch: u32, entry: &str) -> Result<()> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("{} cannot be read ({error})", file.display()), "build it again")
    };
    let data = fs::read(file).map_err(|error| unreadable(&error))?;
    let elf = ElfFile32::<LittleEndian>::parse(&*data).map_err(|error| unreadable(&error))?;
    let flaws = flaws(&elf, arch, entry);
    if flaws.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not what a DSP would load: {}", file.display(), flaws.join("; ")),
        "see linker/ and the list in toolchain/xtask/src/skel.rs",
    ))
}

fn flaws(elf: &ElfFile32<'_, LittleEndian>, arch: u32, entry: &str) -> Vec<String> {
    let endian = elf.endian();
    let mut flaws = Vec::new();
    let flags = elf.elf_header().e_flags(endian);
    if flags.0 != arch {
        flaws.push(format!("its architecture flags are {flags:#x}, not {arch:#x}"));
    }
    let names = |wanted: fn(&object::read::elf::ElfSymbol32<'_, '_, LittleEndian>) -> bool| -> Vec<&str> {
        elf.dynamic_symbols().filter(wanted).filter_map(|symbol| symbol.name().ok()).collect()
    };
    let exported = names(|symbol| symbol.is_definition() && symbol.is_global());
    if exported != [entry] {
        flaws.push(format!("it exports {exported:?} and not just {entry}"));
    }
    for name in names(|symbol| symbol.is_undefined() && symbol.name().is_ok_and(|name| !name.is_empty())) {
        if !ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
            flaws.push(format!("it needs {name}, which the DSP is not known to have"));
        }
    }
    let mut loaded = 0;
    for segment in elf.elf_program_headers().iter().filter(|segment| segment.p_type(endian) == PT_LOAD) {
        let flags = segment.p_flags(endian);
        let [offset, address, align] =
            [segment.p_offset(endian), segment.p_vaddr(endian), segment.p_align(endian)].map(u64::from);
        loaded += u64::from(segment.p_filesz(endian));
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
    flaws
}

#[cfg(test)]
mod tests {
    use super::ALLOWED;

    #[test]
    fn the_list_is_sorted_and_has_reasons() {
        assert!(ALLOWED.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
