//! What the DSP's image gives to libraries: QuRT, HAP, the resource manager, `dspqueue`.
//!
//! Written from the published interfaces; not run on a phone yet. `cargo xtask hexagon` holds the list of
//! these symbols against what the library leaves undefined.

use core::ffi::{c_char, c_void};

/// Attributes of a thread.
#[repr(C)]
pub(super) struct ThreadAttributes {
    pub(super) name: [c_char; 16],
    pub(super) tcb_partition: u8,
    pub(super) stid: u8,
    pub(super) priority: u16,
    pub(super) autostack: u8,
    pub(super) bus_priority: u8,
    pub(super) timetest_id: u16,
    pub(super) stack_bytes: u32,
    pub(super) stack: *mut c_void,
    pub(super) detach_state: u16,
}

#[cfg(target_pointer_width = "32")]
const _: () = assert!(size_of::<ThreadAttributes>() == 36);

/// Attributes of a resource request; only the manager looks inside.
#[repr(C, align(8))]
pub(super) struct ResourceAttributes(pub(super) [u64; 8]);

/// A handle of `dspqueue`.
pub(super) type RawQueue = *mut c_void;

/// A buffer that a packet names.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct QueueBuffer {
    pub(super) fd: u32,
    pub(super) size: u32,
    pub(super) offset: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
}
const _: () = assert!(size_of::<QueueBuffer>() == 24);

/// A request of `HAP_power_set`: its type in byte 0, what goes with it from byte 8.
#[repr(C, align(8))]
pub(super) struct PowerRequest(pub(super) [u8; 120]);

unsafe extern "C" {
    #[cfg(target_arch = "hexagon")]
    pub(in super::super) fn abort() -> !;

    pub(super) fn qurt_thread_create(
        id: *mut u32,
        attributes: *const ThreadAttributes,
        entry: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> i32;
    pub(super) fn qurt_thread_join(id: u32, status: *mut i32) -> i32;
    pub(super) fn qurt_futex_wait(word: *const u32, value: i32) -> i32;
    pub(super) fn qurt_futex_wake(word: *const u32, threads: i32) -> i32;
    /// Addresses and lengths are words of the machine; the enums are registers.
    pub(super) fn qurt_mem_cache_clean(address: usize, bytes: usize, op: u32, kind: u32) -> i32;
    pub(super) fn qurt_hvx_lock(mode: u32) -> i32;
    pub(super) fn qurt_hvx_unlock() -> i32;

    pub(super) fn HAP_power_set(context: *mut c_void, request: *mut PowerRequest) -> i32;

    pub(super) fn compute_resource_attr_init(attributes: *mut ResourceAttributes) -> i32;
    pub(super) fn compute_resource_attr_set_serialize(attributes: *mut ResourceAttributes, on: u8) -> i32;
    pub(super) fn compute_resource_attr_set_cache_mode(attributes: *mut ResourceAttributes, on: u8) -> i32;
    pub(super) fn compute_resource_attr_set_release_callback(
        attributes: *mut ResourceAttributes,
        callback: unsafe extern "C" fn(u32, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    pub(super) fn compute_resource_attr_set_vtcm_param_v2(
        attributes: *mut ResourceAttributes,
        bytes: u32,
        page: u32,
        least: u32,
    ) -> i32;
    pub(super) fn compute_resource_attr_get_vtcm_ptr_v2(
        attributes: *mut ResourceAttributes,
        address: *mut *mut u8,
        bytes: *mut u32,
    ) -> i32;
    pub(super) fn compute_resource_acquire(attributes: *mut ResourceAttributes, timeout_us: u32) -> u32;
    pub(super) fn compute_resource_release(context: u32) -> i32;
    pub(super) fn compute_resource_acquire_cached(context: u32, timeout_us: u32) -> i32;
    pub(super) fn compute_resource_release_cached(context: u32) -> i32;

    pub(super) fn dspqueue_import(
        id: u64,
        packet: *const c_void,
        error: *const c_void,
        context: *mut c_void,
        queue: *mut RawQueue,
    ) -> i32;
    pub(super) fn dspqueue_close(queue: RawQueue) -> i32;
    pub(super) fn dspqueue_read(
        queue: RawQueue,
        flags: *mut u32,
        max_buffers: u32,
        buffers: *mut u32,
        buffer: *mut QueueBuffer,
        max_message: u32,
        message_bytes: *mut u32,
        message: *mut u8,
        timeout_us: u32,
    ) -> i32;
    pub(super) fn dspqueue_write(
        queue: RawQueue,
        flags: u32,
        buffers: u32,
        buffer: *mut QueueBuffer,
        message_bytes: u32,
        message: *const u8,
        timeout_us: u32,
    ) -> i32;
}

/// Functions that images may lack: a library that could not do without them would not load there.
macro_rules! optional {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(super) fn $name() -> Option<unsafe extern "C" fn($($type),*) -> $result> {
            #[cfg(target_arch = "hexagon")]
            {
                unsafe extern "C" {
                    #[linkage = "extern_weak"]
                    static $name: Option<unsafe extern "C" fn($($type),*) -> $result>;
                }
                // SAFETY: the loader writes the function's address, or 0, which is `None`, before anything
                // of the library runs.
                unsafe { $name }
            }
            #[cfg(not(target_arch = "hexagon"))]
            {
                unsafe extern "C" {
                    fn $name($($argument: $type),*) -> $result;
                }
                Some($name)
            }
        }
    )+};
}

optional! {
    /// Asks for the matrix unit, too.
    fn compute_resource_attr_set_hmx_param(attributes: *mut ResourceAttributes, on: u8) -> i32;
    /// Gives the unit to the calling thread.
    fn compute_resource_hmx_lock(context: u32) -> i32;
    /// Takes it from the calling thread.
    fn compute_resource_hmx_unlock(context: u32) -> i32;

    /// Maps memory of the host: address, bytes, access, flags, fd, offset. Images of v73 and older ones lack
    /// it.
    fn HAP_mmap2(
        at: *mut c_void,
        bytes: usize,
        access: i32,
        flags: i32,
        fd: i32,
        offset: core::ffi::c_long
    ) -> *mut u8;
    /// Ends a mapping of [`HAP_mmap2`].
    fn HAP_munmap2(at: *mut c_void, bytes: usize) -> i32;
    /// The same as [`HAP_mmap2`], but at most 2 GiB.
    fn HAP_mmap(at: *mut c_void, bytes: i32, access: i32, flags: i32, fd: i32, offset: i32) -> *mut u8;
    /// Ends a mapping of [`HAP_mmap`].
    fn HAP_munmap(at: *mut c_void, bytes: i32) -> i32;
}
