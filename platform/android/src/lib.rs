//! The parts that programs and libraries for Android take from the NDK: where the loader starts a program,
//! the note that says which Android it is for, and the functions by which panics are unwound.
//!
//! `cargo xtask` links this crate to an object that shows `_Unwind_*` alone, and `_start` where it is for
//! programs. Its copy of `core` must not meet theirs.

#![no_std]
#![cfg(target_os = "android")]

use unwinding as _;

unsafe extern "C" {
    /// Ends the process with SIGABRT, of which Android writes a crash report.
    safe fn abort() -> !;
}

/// The API level that it is for at least: that of Android 9. `toolchain/xtask/src/android/target.rs`
/// has it, too, and finds a file that says another one.
const API: u32 = 28;

#[cfg(feature = "start")]
mod start;

/// A note of an ELF file.
#[repr(C)]
struct Note {
    name_bytes: u32,
    content_bytes: u32,
    kind: u32,
    name: [u8; 8],
    content: u32,
}

/// The note that makes a file one of Android's; crash reports read it.
#[used]
#[unsafe(link_section = ".note.android.ident")]
static IDENT: Note = Note { name_bytes: 8, content_bytes: 4, kind: 1, name: *b"Android\0", content: API };

/// A fault of the unwinder itself: nothing can be unwound any more.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    abort()
}
