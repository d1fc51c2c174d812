//! The symbols that a skel library takes from the DSP.

use std::ops::RangeInclusive;

/// The library that memory and `abort` come from; ggml-hexagon's name it, too.
pub const LIBC: &str = "libc.so";
/// The symbols that come from [`LIBC`].
pub const FROM_LIBC: [&str; 3] = ["abort", "free", "memalign"];

/// A symbol that stays undefined until the DSP loads the library.
pub(super) struct Import {
    pub name: &'static str,
    /// The use that the library makes of it.
    pub reason: &'static str,
    /// Images that may have it, by their version.
    pub images: RangeInclusive<u16>,
    /// Whether the library does without it.
    pub weak: bool,
}

const fn strong(name: &'static str, reason: &'static str) -> Import {
    Import { name, reason, images: 0..=u16::MAX, weak: false }
}

const fn weak(name: &'static str, images: RangeInclusive<u16>, reason: &'static str) -> Import {
    Import { name, reason, images, weak: true }
}

const ANY: RangeInclusive<u16> = 0..=u16::MAX;

/// Symbols that the DSP's image or its libraries bring, and why we need them. Nothing else may stay
/// undefined: the loader would refuse the library, on the phone only.
pub(super) const IMPORTS: &[Import] = &[
    weak("HAP_debug_v2", ANY, "the DSP's log, for who looks for a failure"),
    weak("HAP_mmap", 0..=0x73, "maps a buffer of the host, where HAP_mmap2 is missing"),
    weak("HAP_mmap2", 0x75..=u16::MAX, "the same, without a limit of 2 GiB"),
    weak("HAP_munmap", 0..=0x73, "ends a mapping of HAP_mmap"),
    weak("HAP_munmap2", 0x75..=u16::MAX, "ends a mapping of HAP_mmap2"),
    strong("HAP_power_set", "votes for clocks while there is work"),
    strong("abort", "ends the process on a panic"),
    strong("compute_resource_acquire", "VTCM"),
    strong("compute_resource_acquire_cached", "takes VTCM back that was lent to others"),
    strong("compute_resource_attr_get_vtcm_ptr_v2", "VTCM"),
    strong("compute_resource_attr_init", "VTCM"),
    weak("compute_resource_attr_init_v2", ANY, "VTCM, with attributes of 160 bytes"),
    strong("compute_resource_attr_set_cache_mode", "VTCM that can be lent to others"),
    weak("compute_resource_attr_set_hmx_param", ANY, "the matrix unit"),
    strong("compute_resource_attr_set_release_callback", "tells when others want it"),
    strong("compute_resource_attr_set_serialize", "others may have other resources meanwhile"),
    strong("compute_resource_attr_set_vtcm_param_v2", "VTCM"),
    weak("compute_resource_hmx_lock", ANY, "the matrix unit, for the thread that drives it"),
    weak("compute_resource_hmx_unlock", ANY, "gives it back"),
    strong("compute_resource_release", "VTCM"),
    strong("compute_resource_release_cached", "lends VTCM to others"),
    weak("compute_resource_update_priority", ANY, "lets others of the same priority ask for VTCM"),
    strong("dspqueue_close", "the message queue"),
    strong("dspqueue_import", "the message queue"),
    strong("dspqueue_peek", "waits for a message"),
    strong("dspqueue_read_noblock", "the message queue"),
    strong("dspqueue_write", "the message queue"),
    strong("free", "gives memory back at the end of a session"),
    strong("memalign", "memory for programs, and stacks"),
    strong("qurt_futex_wait", "workers sleep between programs"),
    strong("qurt_futex_wake", "and are woken"),
    weak("qurt_hvx_lock", ANY, "a thread takes a vector context, where QuRT does not give it by itself"),
    weak("qurt_hvx_unlock", ANY, "and gives it back"),
    strong("qurt_mem_cache_clean", "memory shared with the host is not coherent"),
    strong("qurt_sleep", "naps between two looks for a message"),
    strong("qurt_thread_create", "workers"),
    strong("qurt_thread_get_id", "this thread, for its priority"),
    strong("qurt_thread_get_priority", "FastRPC's priority, which ours is made from"),
    strong("qurt_thread_join", "workers"),
    weak("sysmon_set_dcvs_v3_protected_bus_corners", 0x79..=u16::MAX, "votes for the bus, from v79 on"),
];

/// Imports that no image of the version `arch` (0x73 for v73) has.
pub fn absent(arch: u16) -> impl Iterator<Item = &'static str> {
    IMPORTS.iter().filter(move |import| !import.images.contains(&arch)).map(|import| import.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_reasons() {
        assert!(IMPORTS.is_sorted_by(|a, b| a.name < b.name));
        assert!(IMPORTS.iter().all(|import| !import.reason.is_empty()));
    }

    #[test]
    fn images_of_a_version_have_one_way_to_map() {
        for arch in [0x68, 0x69, 0x73] {
            let absent: Vec<_> = absent(arch).collect();
            assert_eq!(absent, ["HAP_mmap2", "HAP_munmap2", "sysmon_set_dcvs_v3_protected_bus_corners"]);
        }
        assert_eq!(absent(0x79).collect::<Vec<_>>(), ["HAP_mmap", "HAP_munmap"]);
    }
}
