//! Threads, and the vector unit that each of them must hold.

use core::ffi::{c_char, c_void};

use super::sys::{self, ThreadAttributes};

/// A thread.
#[derive(Debug)]
pub(in super::super) struct Thread(u32);

impl Thread {
    /// Starts `entry(argument)` on this stack.
    ///
    /// # Safety
    /// `entry` may be called with `argument` on another thread, and nobody else uses the stack, until the
    /// join.
    pub(in super::super) unsafe fn start(
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
        // SAFETY: `entry` may be called with `argument` on another thread, and nobody else uses the stack
        // until the join (the caller's contract). The call copies the attributes, and writes the number to
        // `id`.
        let error = unsafe { sys::qurt_thread_create(&raw mut id, &raw const attributes, entry, argument) };
        (error == 0).then_some(Self(id))
    }

    /// Waits for its end.
    pub(in super::super) fn join(self) {
        let mut status = 0;
        // SAFETY: joined once: this consumes the only value that names the thread. A thread that has already
        // ended is no error worth telling.
        unsafe { sys::qurt_thread_join(self.0, &raw mut status) };
    }
}

/// The vector unit, while this thread holds it.
pub(in super::super) struct VectorUnit(());

impl VectorUnit {
    /// Waits for a vector context of 128-byte vectors.
    pub(in super::super) fn lock() -> Option<Self> {
        const BYTES_128: u32 = 1;
        // SAFETY: the call takes a number, and gives this thread a vector context or an error.
        (unsafe { sys::qurt_hvx_lock(BYTES_128) } == 0).then(|| Self(()))
    }
}

impl Drop for VectorUnit {
    fn drop(&mut self) {
        // SAFETY: a `VectorUnit` exists only after `lock` has got the context. It is dropped by the thread
        // that made it, as the sessions and workers do that hold one.
        unsafe { sys::qurt_hvx_unlock() };
    }
}
