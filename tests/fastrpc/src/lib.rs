//! The stand-in for FastRPC, in two processes as on a phone: `libcdsprpc.so`, which the host opens, and
//! `hexflash-pd`, the process on the DSP. Here is what both know.
#![cfg(target_os = "linux")]

pub mod aee;
pub mod config;
pub mod frame;
pub mod memory;
pub mod queue;
pub mod report;
