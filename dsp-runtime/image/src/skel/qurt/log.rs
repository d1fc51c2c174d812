//! Messages for who debugs on a phone: the DSP's log, which `adb logcat -s adsprpc` shows where a file
//! `hexflash.farf` with the text `0x1f` lies beside the program.

use core::ffi::CStr;
use core::fmt::{Arguments, Write};

use super::sys;

/// Longest message; the rest is left out.
const MAX: usize = 240;
/// The log's level of errors, which are shown wherever anything is.
const ERROR: i32 = 3;

/// Says something, where the image has a log.
pub(in super::super) fn error(message: Arguments<'_>) {
    let Some(log) = sys::log() else { return };
    let mut text = Text::default();
    let _ = text.write_fmt(message);
    // SAFETY: level, file, line, format and its one argument are as the function takes them, texts that end
    // with 0 and live through the call.
    unsafe { log(ERROR, c"hexflash".as_ptr(), 0, c"%s".as_ptr(), text.c_str().as_ptr()) };
}

/// A text with room for its 0.
struct Text {
    bytes: [u8; MAX + 1],
    used: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; MAX + 1], used: 0 }
    }
}

impl Text {
    fn c_str(&self) -> &CStr {
        // The last byte is never written.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.used..MAX];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}
