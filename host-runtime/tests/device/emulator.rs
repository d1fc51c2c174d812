//! Tests that need the emulator and its image: without them they are skipped, and say so. Where the image is
//! [expected](emulated::expected) to be built, they fail instead.

use std::io::Write;

use hexflash::device::DeviceError;
use hexflash::device::qemu::{Qemu, Settings};

#[path = "../../../tests/emulated.rs"]
mod emulated;

use emulated::Expected;

/// The device, or why the test is skipped.
pub fn qemu(settings: Settings) -> Option<Qemu> {
    let version = settings.arch.map_or_else(|| "v67".to_owned(), |arch| arch.to_string());
    let expected = emulated::expected(&version);
    if expected == Expected::NotBuilt {
        return None;
    }
    match Qemu::with_settings(settings) {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Unavailable { .. }) if expected == Expected::Perhaps => {
            // Written past the test harness, which hides what a passing test prints.
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
