//! The parts that a program for Android takes from the NDK: where the loader starts it, the note that says
//! which Android it is for, and the functions by which panics are unwound.
//!
//! `cargo xtask` links this crate to an object that shows `_start` and `_Unwind_*` alone. Its copy of `core`
//! must not meet the program's.

#![no_std]
#![cfg(target_os = "android")]

use core::arch::naked_asm;

use unwinding as _;

unsafe extern "C" {
    /// Ends the process with SIGABRT, of which Android writes a crash report.
    safe fn abort() -> !;
}

/// The API level that the program is for at least: that of Android 9. `toolchain/xtask/src/android/target.rs`
/// has it, too, and finds a program that says another one.
const API: u32 = 28;

/// Words of the struct that bionic's `__libc_init` wants: it names arrays of functions to call at the end.
///
/// The loader has called those for the start, and the program has none for the end, so that all are zero.
static NO_ARRAYS: [usize; 6] = [0; 6];

/// A note of an ELF file.
#[repr(C)]
struct Note {
    name_bytes: u32,
    content_bytes: u32,
    kind: u32,
    name: [u8; 8],
    content: u32,
}

/// The note that makes this an Android program; crash reports read it.
#[used]
#[unsafe(link_section = ".note.android.ident")]
static IDENT: Note = Note { name_bytes: 8, content_bytes: 4, kind: 1, name: *b"Android\0", content: API };

/// Entry at which Android's loader starts the program.
///
/// `__libc_init(block, unused, main, arrays)` of bionic sets itself up, calls `main` with the arguments that
/// the kernel has put on the stack, and exits with what it returns.
///
/// # Safety
/// Only the loader may call it, with the kernel's block of arguments at the top of the stack.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    naked_asm!(
        // `bti j`: newer processors may jump here only because of it.
        "hint #36",
        // Backtraces end here.
        "mov x29, xzr",
        "mov x30, xzr",
        "mov x0, sp",
        "mov x1, xzr",
        "adrp x2, main",
        "add x2, x2, :lo12:main",
        "adrp x3, {arrays}",
        "add x3, x3, :lo12:{arrays}",
        "b __libc_init",
        arrays = sym NO_ARRAYS,
    )
}

/// A fault of the unwinder itself: nothing can be unwound any more.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    abort()
}
