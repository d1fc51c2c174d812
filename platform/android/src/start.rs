//! Where Android's loader starts a program.

use core::arch::naked_asm;

/// Words of the struct that bionic's `__libc_init` wants: it names arrays of functions to call at the end.
///
/// The loader has called those for the start, and the program has none for the end, so that all are zero.
static NO_ARRAYS: [usize; 6] = [0; 6];

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
