//! Tests that need the emulator and its image: without them they are skipped, and say so; where
//! `HEXFLASH_QEMU_REQUIRED` is set (as `cargo xtask test --full` does), they fail instead.

use std::io::Write;

use hexflash::device::DeviceError;
use hexflash::device::qemu::{Qemu, Settings};

/// The device, or why the test is skipped.
pub fn qemu(settings: Settings) -> Option<Qemu> {
    match Qemu::with_settings(settings) {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Unavailable { .. })
            if std::env::var_os("HEXFLASH_QEMU_REQUIRED").is_none() =>
        {
            // Written past the test harness, which hides what a passing test prints.
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
