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

/// Attributes of a resource request; only the manager looks inside. Up to 2024 there were 64 bytes of them,
/// newer managers that are told so use 160.
#[repr(C, align(8))]
pub(super) struct ResourceAttributes(pub(super) [u64; 20]);
const _: () = assert!(size_of::<ResourceAttributes>() == 160);

/// Called on a thread of the queue's library: the queue, a code, a context.
pub(super) type QueueCallback = unsafe extern "C" fn(RawQueue, i32, *mut c_void);

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
    pub(super) fn qurt_thread_get_id() -> u32;
    pub(super) fn qurt_thread_get_priority(id: u32) -> i32;
    pub(super) fn qurt_sleep(us: u64);

    pub(super) fn memalign(align: usize, bytes: usize) -> *mut c_void;
    pub(super) fn free(memory: *mut c_void);

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
        packet: Option<QueueCallback>,
        error: Option<QueueCallback>,
        context: *mut c_void,
        queue: *mut RawQueue,
    ) -> i32;
    pub(super) fn dspqueue_close(queue: RawQueue) -> i32;
    pub(super) fn dspqueue_peek(
        queue: RawQueue,
        flags: *mut u32,
        buffers: *mut u32,
        message_bytes: *mut u32,
        timeout_us: u32,
    ) -> i32;
    pub(super) fn dspqueue_read_noblock(
        queue: RawQueue,
        flags: *mut u32,
        max_buffers: u32,
        buffers: *mut u32,
        buffer: *mut QueueBuffer,
        max_message: u32,
        message_bytes: *mut u32,
        message: *mut u8,
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

/// The address that the loader found for a weak symbol, if it found any.
macro_rules! weak {
    ($name:ident as $type:ty) => {{
        #[cfg(target_arch = "hexagon")]
        {
            unsafe extern "C" {
                #[linkage = "extern_weak"]
                static $name: Option<$type>;
            }
            // SAFETY: the loader writes the function's address, or 0, which is `None`, before anything of the
            // library runs.
            unsafe { $name }
        }
        #[cfg(not(target_arch = "hexagon"))]
        {
            // SAFETY: the stand-in gives the address of a function of this type, or null, which is `None`.
            unsafe {
                let found = hexflash_standin_weak(concat!(stringify!($name), "\0").as_ptr());
                core::mem::transmute::<*const c_void, Option<$type>>(found)
            }
        }
    }};
}

#[cfg(not(target_arch = "hexagon"))]
unsafe extern "C" {
    /// The function of that name, which ends with 0; null where the image that is played lacks it.
    fn hexflash_standin_weak(name: *const u8) -> *const c_void;
}

/// The log of the DSP: level, file, line, format, and what the format names.
pub(super) type Log = unsafe extern "C" fn(i32, *const c_char, i32, *const c_char, ...);

/// The log, where the image has it.
pub(super) fn log() -> Option<Log> {
    weak!(HAP_debug_v2 as Log)
}

/// Functions that images may lack: a library that could not do without them would not load there.
macro_rules! optional {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(super) fn $name() -> Option<unsafe extern "C" fn($($type),*) -> $result> {
            weak!($name as unsafe extern "C" fn($($type),*) -> $result)
        }
    )+};
}

optional! {
    /// Gives the calling thread a vector context. QuRT does so by itself at the first vector instruction, and
    /// no library that is known to run on phones asks; the ones of the SDK's examples do.
    fn qurt_hvx_lock(mode: u32) -> i32;
    /// Takes it back.
    fn qurt_hvx_unlock() -> i32;

    /// Prepares a resource request of so many bytes, of an interface's version. Older managers have only
    /// [`compute_resource_attr_init`].
    fn compute_resource_attr_init_v2(attributes: *mut ResourceAttributes, bytes: u32, version: u32) -> i32;
    /// Sets the priority of who holds the resource.
    fn compute_resource_update_priority(context: u32, priority: u32) -> i32;
    /// Prepares a vote for clocks so that its corners reach those that are protected, from v79 on.
    fn sysmon_set_dcvs_v3_protected_bus_corners(request: *mut PowerRequest, on: u32) -> i32;

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
