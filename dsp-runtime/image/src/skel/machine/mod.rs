//! What is an instruction, or a fact of the build, where the library runs on a DSP. Off Hexagon, where tests
//! run the skel, the stand-in for the DSP's image gives the same by functions.

#[cfg(target_arch = "hexagon")]
mod hexagon;
#[cfg(not(target_arch = "hexagon"))]
mod standin;

#[cfg(target_arch = "hexagon")]
use hexagon::ticks;
#[cfg(not(target_arch = "hexagon"))]
use standin::ticks;

#[cfg(target_arch = "hexagon")]
pub(super) use hexagon::{FORMS, arch, cycles, dma, execute, isa};
#[cfg(not(target_arch = "hexagon"))]
pub(super) use standin::{FORMS, arch, cycles, dma, execute, isa};

/// Monotonic nanoseconds.
pub(super) fn now_ns() -> u64 {
    // 625 / 12 ns per tick of 19.2 MHz; the product does not overflow for 17 years.
    ticks() * 625 / 12
}
