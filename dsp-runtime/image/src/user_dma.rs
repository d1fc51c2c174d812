//! The user-DMA engines of the processor, by their instructions: for skels, and for images of processors that
//! have them.

use core::arch::asm;

use hexflash_dsp::dma::{Channel, Descriptor, Engine, Ring, StatusWord};
use hexflash_dsp::pool::MAX_WORKERS;

/// The engine of the hardware thread that asks. Written from the public sources' account of the instructions;
/// not run on a phone yet.
pub(crate) struct UserDma {
    /// Monotonic microseconds.
    pub now_us: fn() -> u64,
}

impl Engine for UserDma {
    unsafe fn link(&self, tail: &'static Descriptor, new: &'static Descriptor) {
        // SAFETY: both descriptors live for ever, and `new` describes a transfer that may happen and that
        // nobody else writes until it is done (the caller's contract, points 1 and 2). The release makes what
        // any thread stored before visible, to the engine too.
        unsafe {
            asm!(
                "release({tail}):at",
                "dmlink({tail},{new})",
                tail = in(reg) core::ptr::from_ref(tail),
                new = in(reg) core::ptr::from_ref(new),
                options(nostack)
            );
        }
    }

    fn poll(&self) -> StatusWord {
        let status: u32;
        // SAFETY: the instruction reads the engine's status to a register that is named as output. What the
        // engine writes meanwhile was promised to `link`.
        unsafe { asm!("{status} = dmpoll", status = out(reg) status, options(nostack)) };
        StatusWord(status)
    }

    fn pause(&self) {
        // SAFETY: stops this thread's engine, which nobody else uses.
        unsafe { asm!("{status} = dmpause", status = out(reg) _, options(nostack)) };
    }

    fn now_us(&self) -> u64 {
        (self.now_us)()
    }
}

static RINGS: [Ring; MAX_WORKERS] = [const { Ring::new() }; MAX_WORKERS];

/// The channel of a worker: every thread has an engine.
pub(crate) fn channel(engine: &'static UserDma, worker: usize) -> Option<Channel> {
    Some(Channel { engine, ring: RINGS.get(worker)? })
}
