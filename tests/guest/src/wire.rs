//! What a thread of the guest and `hexflash-pd` say to one another, over a connection of the thread's own: a
//! question, and an answer that may name something to do.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Functions that a skel may import. The guest has an entry for each, in this order.
pub const IMPORTS: [&str; 41] = [
    "qurt_futex_wait",
    "qurt_futex_wake",
    "HAP_debug_v2",
    "HAP_mmap",
    "HAP_mmap2",
    "HAP_munmap",
    "HAP_munmap2",
    "HAP_power_set",
    "abort",
    "compute_resource_acquire",
    "compute_resource_acquire_cached",
    "compute_resource_attr_get_vtcm_ptr_v2",
    "compute_resource_attr_init",
    "compute_resource_attr_init_v2",
    "compute_resource_attr_set_cache_mode",
    "compute_resource_attr_set_hmx_param",
    "compute_resource_attr_set_release_callback",
    "compute_resource_attr_set_serialize",
    "compute_resource_attr_set_vtcm_param_v2",
    "compute_resource_hmx_lock",
    "compute_resource_hmx_unlock",
    "compute_resource_release",
    "compute_resource_release_cached",
    "compute_resource_update_priority",
    "dspqueue_close",
    "dspqueue_import",
    "dspqueue_peek",
    "dspqueue_read_noblock",
    "dspqueue_write",
    "free",
    "memalign",
    "qurt_hvx_lock",
    "qurt_hvx_unlock",
    "qurt_mem_cache_clean",
    "qurt_sleep",
    "qurt_thread_create",
    "qurt_thread_get_id",
    "qurt_thread_get_priority",
    "qurt_thread_join",
    "sysmon_set_dcvs_v3_protected_bus_corners",
    CALLBACKS,
];

/// The entry behind those of functions: where the thread begins that a queue's library has for callbacks. It
/// asks again and again, and calls what the answers name.
pub const CALLBACKS: &str = "callbacks of dspqueue";
/// The place of [`CALLBACKS`].
pub const CALLBACK: u32 = IMPORTS.len() as u32 - 1;

/// The first two of [`IMPORTS`]: the guest sleeps and wakes by itself.
pub const FUTEX_WAIT: u32 = 0;
/// See [`FUTEX_WAIT`].
pub const FUTEX_WAKE: u32 = 1;
/// Bytes from one entry of [`IMPORTS`] to the next.
pub const ENTRY_BYTES: u32 = 16;

/// Questions beyond those of [`IMPORTS`], whose number is their place.
pub mod ask {
    /// A thread begins: its number (0 for the first), and where the entries of [`IMPORTS`](super::IMPORTS)
    /// begin.
    pub const BEGIN: u32 = 0x100;
    /// It ends.
    pub const END: u32 = 0x101;
    /// The first thread asks what comes next, and says what came of the last.
    pub const NEXT: u32 = 0x102;
    /// It cannot go on: signal, address of the instruction, address that it touched.
    pub const FAULT: u32 = 0x103;
    /// It goes to sleep while its DMA engine is at work.
    pub const SLEEP: u32 = 0x104;
}

/// What to do before the answer counts; the words are its arguments.
pub mod act {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// Map memory: address, bytes, file, access (1 read, 2 write, 4 execute).
    pub const MAP: u32 = 1;
    /// Unmap it: address, bytes.
    pub const UNMAP: u32 = 2;
    /// Change the access to it: address, bytes, access.
    pub const PROTECT: u32 = 3;
    /// Start a thread: function, argument, end of its stack, number.
    pub const CLONE: u32 = 4;
    /// Wait until a thread has ended: its number.
    pub const JOIN: u32 = 5;
    /// Call a function: it, two arguments.
    pub const CALL: u32 = 6;
    /// Take a vector context (1), or give it back (0).
    pub const CONTEXT: u32 = 7;
    /// Call the skel's entry: function, handle (two words), scalars, arguments, end of the stack.
    pub const INVOKE: u32 = 8;
    /// End the process.
    pub const EXIT: u32 = 9;
    /// Take the matrix unit (1, address and bytes of VTCM), or give it back (0).
    pub const MATRIX_UNIT: u32 = 10;
}

/// A question.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ask {
    /// What is asked.
    pub what: u32,
    /// Where a call of the skel returns to.
    pub from: u32,
    /// Its arguments that are not in registers lie here.
    pub stack: u32,
    /// The status word of the thread's DMA engine, as `dmpause` gives it: 0 if it is idle.
    pub dma: u32,
    /// The arguments.
    pub registers: [u32; 6],
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// What the call gives.
    pub value: u32,
    /// What is to be done before.
    pub act: u32,
    /// Its arguments.
    pub words: [u32; 6],
}

/// Pages of the emulated machine: mappings begin and end there.
pub const PAGE: usize = 64 << 10;
