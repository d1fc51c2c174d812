//! The `qurt` platform, and what the DSP's image gives to libraries: QuRT, HAP, the resource manager, `dspqueue`.
//!
//! Written from the published interfaces; not run on a phone yet. `cargo xtask test` holds the list of these symbols
//! against what the library leaves undefined.

use core::arch::asm;
use core::ffi::{c_char, c_void};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use hexflash_abi::{ErrorCode, Fault, Fd};
use hexflash_dsp::platform::{CacheOp, Platform};

/// Attributes of a thread.
#[repr(C)]
struct ThreadAttributes {
    name: [c_char; 16],
    tcb_partition: u8,
    stid: u8,
    priority: u16,
    autostack: u8,
    bus_priority: u8,
    timetest_id: u16,
    stack_bytes: u32,
    stack: *mut c_void,
    detach_state: u16,
}

#[cfg(target_pointer_width = "32")]
const _: () = assert!(size_of::<ThreadAttributes>() == 36);

/// Attributes of a resource request; only the manager looks inside.
#[repr(C, align(8))]
struct ResourceAttributes([u64; 8]);

/// A handle of `dspqueue`.
pub(super) type Queue = *mut c_void;

unsafe extern "C" {
    pub(super) fn abort() -> !;

    fn qurt_thread_create(
        id: *mut u32,
        attributes: *const ThreadAttributes,
        entry: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> i32;
    fn qurt_thread_join(id: u32, status: *mut i32) -> i32;
    fn qurt_futex_wait(word: *const u32, value: i32) -> i32;
    fn qurt_futex_wake(word: *const u32, threads: i32) -> i32;
    fn qurt_mem_cache_clean(address: u32, bytes: u32, op: u32, kind: u32) -> i32;
    fn qurt_hvx_lock(mode: u32) -> i32;
    fn qurt_hvx_unlock() -> i32;

    fn HAP_mmap_get(fd: i32, address: *mut *mut u8, physical: *mut u64) -> i32;
    fn HAP_mmap_put(fd: i32) -> i32;

    fn compute_resource_attr_init(attributes: *mut ResourceAttributes) -> i32;
    fn compute_resource_attr_set_vtcm_param_v2(
        attributes: *mut ResourceAttributes,
        bytes: u32,
        page: u32,
        least: u32,
    ) -> i32;
    fn compute_resource_attr_get_vtcm_ptr_v2(
        attributes: *mut ResourceAttributes,
        address: *mut *mut u8,
        bytes: *mut u32,
    ) -> i32;
    fn compute_resource_acquire(attributes: *mut ResourceAttributes, timeout_us: u32) -> u32;
    fn compute_resource_release(context: u32) -> i32;

    pub(super) fn dspqueue_import(
        id: u64,
        packet: *const c_void,
        error: *const c_void,
        context: *mut c_void,
        queue: *mut Queue,
    ) -> i32;
    pub(super) fn dspqueue_close(queue: Queue) -> i32;
    pub(super) fn dspqueue_read(
        queue: Queue,
        flags: *mut u32,
        max_buffers: u32,
        buffers: *mut u32,
        buffer: *mut c_void,
        max_message: u32,
        message_bytes: *mut u32,
        message: *mut u8,
        timeout_us: u32,
    ) -> i32;
    pub(super) fn dspqueue_write(
        queue: Queue,
        flags: u32,
        buffers: u32,
        buffer: *mut c_void,
        message_bytes: u32,
        message: *const u8,
        timeout_us: u32,
    ) -> i32;
}

/// QuRT's threads and time, FastRPC's mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct QurtPlatform;

impl Platform for QurtPlatform {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        // SAFETY: the word lives through the call.
        unsafe { qurt_futex_wait(word.as_ptr(), expected as i32) };
    }

    fn futex_wake(&self, word: &AtomicU32) {
        // SAFETY: the address is only compared.
        unsafe { qurt_futex_wake(word.as_ptr(), i32::MAX) };
    }

    fn now_ns(&self) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: reads the timer of 19.2 MHz.
        unsafe { asm!("r1:0 = c31:30", out("r0") low, out("r1") high, options(nomem, nostack)) };
        let ticks = u64::from(high) << 32 | u64::from(low);
        // 625 / 12 ns per tick; the product does not overflow for 17 years.
        ticks * 625 / 12
    }

    fn map(&self, fd: Fd, _size: u64) -> Result<NonNull<u8>, Fault> {
        let (mut address, mut physical) = (core::ptr::null_mut(), 0);
        // SAFETY: the results go to the two variables.
        let error = unsafe { HAP_mmap_get(fd.0, &raw mut address, &raw mut physical) };
        let failed = Fault::new(ErrorCode::MapFailed, error as u32);
        if error == 0 { NonNull::new(address).ok_or(failed) } else { Err(failed) }
    }

    fn unmap(&self, fd: Fd, _base: NonNull<u8>, _size: u64) {
        // SAFETY: pairs with the `get` of `map`; the session uses the memory no more.
        unsafe { HAP_mmap_put(fd.0) };
    }

    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize) {
        const DATA: u32 = 1;
        let op = match op {
            CacheOp::Flush => 0,
            CacheOp::Invalidate => 1,
        };
        // SAFETY: a range of a mapping; what is dropped is the host's to write.
        unsafe { qurt_mem_cache_clean(base.addr() as u32, bytes as u32, op, DATA) };
    }
}

/// A thread.
#[derive(Debug)]
pub(super) struct Thread(u32);

impl Thread {
    /// Starts `entry(argument)` on this stack.
    ///
    /// # Safety
    /// `entry` may be called with `argument` on another thread, and nobody else uses the stack, until the join.
    pub(super) unsafe fn start(
        stack: *mut [u8],
        entry: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Option<Self> {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(b"hexflash") {
            *to = *from as c_char;
        }
        let attributes = ThreadAttributes {
            name,
            tcb_partition: 0,
            stid: 0,
            // Above FastRPC's own threads (192), far below the system's.
            priority: 128,
            autostack: 0,
            bus_priority: 255,
            timetest_id: u16::MAX - 1,
            stack_bytes: stack.len() as u32,
            stack: stack.cast(),
            detach_state: 0,
        };
        let mut id = 0;
        // SAFETY: the caller's promise; the attributes are copied.
        let error = unsafe { qurt_thread_create(&raw mut id, &raw const attributes, entry, argument) };
        (error == 0).then_some(Self(id))
    }

    /// Waits for its end.
    pub(super) fn join(self) {
        let mut status = 0;
        // SAFETY: joined once: this consumes the only value that names the thread. A thread that has already ended is
        // no error worth telling.
        unsafe { qurt_thread_join(self.0, &raw mut status) };
    }
}

/// The vector unit, while this thread holds it.
pub(super) struct VectorUnit(());

impl VectorUnit {
    /// Waits for a vector context of 128-byte vectors.
    pub(super) fn lock() -> Option<Self> {
        const BYTES_128: u32 = 1;
        // SAFETY: a plain call.
        (unsafe { qurt_hvx_lock(BYTES_128) } == 0).then_some(Self(()))
    }
}

impl Drop for VectorUnit {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { qurt_hvx_unlock() };
    }
}

/// A scratchpad, until it is dropped.
pub(super) struct VtcmGrant {
    context: u32,
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
}

impl VtcmGrant {
    /// Asks the resource manager for exactly `bytes`.
    pub(super) fn acquire(bytes: u32) -> Option<Self> {
        const TIMEOUT_US: u32 = 1_000_000;
        let mut attributes = ResourceAttributes([0; 8]);
        let attributes = &raw mut attributes;
        let (mut base, mut granted) = (core::ptr::null_mut(), 0);
        // SAFETY: `attributes` lives through the calls, and the results go to the variables above.
        let context = unsafe {
            if compute_resource_attr_init(attributes) != 0
                || compute_resource_attr_set_vtcm_param_v2(attributes, bytes, bytes, bytes) != 0
            {
                return None;
            }
            match compute_resource_acquire(attributes, TIMEOUT_US) {
                0 => return None,
                context => {
                    compute_resource_attr_get_vtcm_ptr_v2(attributes, &raw mut base, &raw mut granted);
                    context
                }
            }
        };
        match NonNull::new(base) {
            Some(base) if granted >= bytes => Some(Self { context, base, bytes: bytes as usize }),
            _ => {
                // SAFETY: acquired above.
                unsafe { compute_resource_release(context) };
                None
            }
        }
    }
}

impl Drop for VtcmGrant {
    fn drop(&mut self) {
        // SAFETY: acquired by `acquire`, and used by nobody any more.
        unsafe { compute_resource_release(self.context) };
    }
}
