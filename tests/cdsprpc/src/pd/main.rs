//! The process on the DSP, as the stand-in plays it: the skel library, and what QuRT, HAP and `dspqueue` give
//! to it. The library is either compiled for this machine and part of this program, or the file that phones
//! load, in an emulator beside it.
//!
//! `hexflash-pd SETTINGS HOST-PID`; questions of the host's library come over standard input.
#![cfg(target_os = "linux")]

mod argument;
mod dma;
mod guest;
mod hap;
mod host;
mod queue;
mod qurt;
mod state;
mod views;
mod vtcm;

use std::process::ExitCode;

fn main() -> ExitCode {
    match host::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hexflash-pd: {error}");
            ExitCode::FAILURE
        }
    }
}
