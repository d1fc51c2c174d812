//! The DSP itself.

use core::arch::asm;

use hexflash_dsp::dma::{Channel, Descriptor, Engine, Ring, StatusWord};
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::pool::MAX_WORKERS;

/// The architecture that the library is built for.
pub(in super::super) fn arch() -> u32 {
    crate::ARCH
}

/// The vector unit.
pub(in super::super) fn isa() -> Isa {
    Isa::Hexagon
}

/// Ticks of the timer of 19.2 MHz.
pub(super) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction copies the timer's two control registers to r0 and r1, which are named as
    // outputs, and does no more.
    unsafe { asm!("r1:0 = c31:30", out("r0") low, out("r1") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// The user-DMA engine of the hardware thread that asks. Written from the public sources' account of the
/// instructions; not run on a phone yet.
struct UserDma;

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
        super::now_ns() / 1000
    }
}

static RINGS: [Ring; MAX_WORKERS] = [const { Ring::new() }; MAX_WORKERS];

/// Every thread has an engine.
pub(in super::super) fn dma(worker: usize) -> Option<Channel> {
    Some(Channel { engine: &UserDma, ring: RINGS.get(worker)? })
}
