//! The process on the DSP where the emulator plays it (`dsp=qemu` of the stand-in for FastRPC): a program for
//! qemu in user mode that holds the skel, the very file that phones load.
//!
//! It knows next to nothing. `hexflash-pd`, a process beside it, loads and relocates the skel, answers what
//! the skel asks of QuRT, HAP, the resource manager and `dspqueue`, and sees that it keeps their rules. All
//! memory that the skel has lies at the same addresses in both processes, so that addresses need no
//! translation. Here is what only a thread of the guest can do: run, sleep, map, and call the skel.
#![no_std]
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch))]

pub mod wire;

#[cfg(all(target_arch = "hexagon", feature = "guest"))]
mod act;
#[cfg(all(target_arch = "hexagon", feature = "guest"))]
mod entry;
#[cfg(all(target_arch = "hexagon", feature = "guest"))]
mod imports;
#[cfg(all(target_arch = "hexagon", feature = "guest"))]
mod link;
