//! The DSP itself.

use core::arch::asm;

use hexflash_dsp::hvx::Isa;

/// The architecture that the library is built for.
pub(in super::super) fn arch() -> u32 {
    crate::ARCH
}

/// The vector unit.
pub(in super::super) fn isa() -> Isa {
    Isa::Hexagon
}

/// Ticks of the timer of 19.2 MHz.
pub(in super::super) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads the timer.
    unsafe { asm!("r1:0 = c31:30", out("r0") low, out("r1") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}
