//! The stand-in for a DSP, in a process of a test.

use hexflash_dsp::hvx::Isa;

unsafe extern "C" {
    safe fn hexflash_standin_arch() -> u32;
    safe fn hexflash_standin_ticks() -> u64;
}

/// The architecture of the library that the stand-in plays.
pub(in super::super) fn arch() -> u32 {
    hexflash_standin_arch()
}

/// The vector unit of this processor.
pub(in super::super) fn isa() -> Isa {
    Isa::detect()
}

/// Ticks of the timer of 19.2 MHz.
pub(in super::super) fn ticks() -> u64 {
    hexflash_standin_ticks()
}
