//! The DSP itself.

use core::arch::asm;

use hexflash_dsp::dma::Channel;
use hexflash_dsp::hvx::Isa;

use crate::user_dma::{self, UserDma};

/// The architecture that the library is linked for.
pub(in super::super) fn arch() -> u16 {
    crate::arch()
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

static ENGINE: UserDma = UserDma { now_us: || super::now_ns() / 1000 };

/// Every thread has an engine.
pub(in super::super) fn dma(worker: usize) -> Option<Channel> {
    user_dma::channel(&ENGINE, worker)
}
