//! The outermost layer of what runs on Hexagon: entry points and the panic handler, around `hexflash_dsp`.
//!
//! * feature `qemu`: a static image for qemu in user mode, started by the host's `qemu` device,
//! * feature `skel`: the library that FastRPC loads on a phone.
//!
//! From v68 on, `cargo xtask hexagon` compiles this crate to one archive with both features, and links both
//! products from it, so that the kernels of an image are those of the skel, instruction by instruction. For
//! any other processor there is only the skel, with the feature `standin`, for the tests' stand-in for a DSP;
//! else the crate is all but empty.
#![no_std]
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch))]
#![cfg_attr(all(target_arch = "hexagon", feature = "skel"), feature(linkage))]

#[cfg(all(target_arch = "hexagon", any(feature = "qemu", feature = "skel")))]
mod panic;
#[cfg(all(target_arch = "hexagon", feature = "qemu"))]
mod qemu;
pub mod rpc;
#[cfg(any(
    all(target_arch = "hexagon", feature = "skel"),
    all(not(target_arch = "hexagon"), feature = "standin")
))]
pub mod skel;
/// Processors with HVX float have the engines.
#[cfg(all(target_arch = "hexagon", target_feature = "hvx-qfloat"))]
mod user_dma;

/// The architecture that this is linked for, 0x73 for v73, as the host is told. One archive is linked for
/// each architecture that runs its instructions, with an object beside it that says which (`cargo xtask
/// hexagon`).
#[cfg(target_arch = "hexagon")]
fn arch() -> u16 {
    unsafe extern "C" {
        safe static hexflash_arch: u16;
    }
    hexflash_arch
}
