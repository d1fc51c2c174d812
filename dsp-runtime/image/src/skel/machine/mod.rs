//! What is an instruction, or a fact of the build, where the library runs on a DSP. Off Hexagon, where tests run the
//! skel, the stand-in for the DSP's image gives the same by functions.

#[cfg(target_arch = "hexagon")]
mod hexagon;
#[cfg(not(target_arch = "hexagon"))]
mod standin;

#[cfg(target_arch = "hexagon")]
pub(super) use hexagon::{arch, isa, ticks};
#[cfg(not(target_arch = "hexagon"))]
pub(super) use standin::{arch, isa, ticks};
