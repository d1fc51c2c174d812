//! Threads, and the vector unit that each of them must hold.

use core::ffi::{c_char, c_void};

use super::log;
use super::sys::{self, ThreadAttributes};

/// Priority of a thread: the lower its number, the earlier it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Priority(u16);

impl Priority {
    /// Priority that FastRPC usually gives its threads, for images whose QuRT does not say.
    pub(in super::super) const USUAL: Self = Self(192);

    /// The calling thread's.
    pub(in super::super) fn own() -> Self {
        // SAFETY: the calls take a number of a thread, which is this one.
        let priority = unsafe { sys::qurt_thread_get_priority(sys::qurt_thread_get_id()) };
        u16::try_from(priority).ok().filter(|own| (1..=255).contains(own)).map_or(Self::USUAL, Self)
    }

    /// Priority of a session's threads where this is FastRPC's: above it, as ggml-hexagon's on phones.
    const fn of_session(self) -> Self {
        const ABOVE_FASTRPC: u16 = 10;
        if self.0 > ABOVE_FASTRPC { Self(self.0 - ABOVE_FASTRPC) } else { Self(1) }
    }

    /// Number of the priority, as the resource manager takes it.
    pub(super) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// A thread.
#[derive(Debug)]
pub(in super::super) struct Thread(u32);

impl Thread {
    /// Starts `entry(argument)` on this stack as a thread of a session, where FastRPC's threads have this
    /// priority: above it or, where that is refused, as they run. The error is QuRT's.
    ///
    /// # Safety
    /// `entry` may be called with `argument` on another thread, and nobody else uses the stack, until the
    /// join.
    pub(in super::super) unsafe fn start(
        stack: *mut [u8],
        fastrpc: Priority,
        entry: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Result<Self, i32> {
        let above = fastrpc.of_session();
        // SAFETY: the caller's contract. A thread that was not created runs nothing.
        unsafe { Self::create(stack, above, entry, argument) }.or_else(|error| {
            log::error(format_args!(
                "qurt_thread_create gave {error:#x} at priority {}: tried at FastRPC's own, {}",
                above.0, fastrpc.0
            ));
            // SAFETY: the caller's contract; the first attempt made no thread.
            unsafe { Self::create(stack, fastrpc, entry, argument) }
        })
    }

    /// Creates a thread of this priority.
    ///
    /// # Safety
    /// As of [`Thread::start`].
    unsafe fn create(
        stack: *mut [u8],
        priority: Priority,
        entry: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Result<Self, i32> {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(b"hexflash") {
            *to = *from as c_char;
        }
        let attributes = ThreadAttributes {
            name,
            tcb_partition: 0,
            stid: 0,
            priority: priority.0,
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
        if error == 0 { Ok(Self(id)) } else { Err(error) }
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
    /// Waits for a vector context of 128-byte vectors. Where the image has no call for that, the first vector
    /// instruction waits.
    pub(in super::super) fn lock() -> Option<Self> {
        const BYTES_128: u32 = 1;
        let Some(lock) = sys::qurt_hvx_lock() else { return Some(Self(())) };
        // SAFETY: the call takes a number, and gives this thread a vector context or an error.
        (unsafe { lock(BYTES_128) } == 0).then(|| Self(()))
    }
}

impl Drop for VectorUnit {
    fn drop(&mut self) {
        if let Some(unlock) = sys::qurt_hvx_unlock() {
            // SAFETY: a `VectorUnit` exists only after `lock` has got the context. It is dropped by the
            // thread that made it, as the sessions and workers do that hold one.
            unsafe { unlock() };
        }
    }
}
