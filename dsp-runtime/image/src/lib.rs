//! The outermost layer of what runs on Hexagon: entry points and the panic handler, around `hexflash_dsp`.
//!
//! * feature `qemu`: a static image for qemu in user mode, started by the host's `qemu` device,
//! * feature `skel`: the library that FastRPC loads on a phone.
//!
//! `cargo xtask hexagon` compiles this crate to an archive and links it. For any other processor there is only the skel,
//! with the feature `standin`, for the tests' stand-in for a DSP; else the crate is all but empty.
#![no_std]
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch))]

#[cfg(all(target_arch = "hexagon", feature = "qemu"))]
mod qemu;
pub mod rpc;
#[cfg(any(
    all(target_arch = "hexagon", feature = "skel"),
    all(not(target_arch = "hexagon"), feature = "standin")
))]
pub mod skel;
