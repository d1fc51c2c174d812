//! The image for qemu in user mode: `IMAGE serve FD-DIR FD`, see [`hexflash_abi::guest`]; `IMAGE check` holds
//! the vector operations against their definitions; `IMAGE packets ...` counts what kernels take; `IMAGE
//! matrix` multiplies tiles of its input by the matrix unit; `IMAGE forms` executes float instructions.
//!
//! Exit codes: 0 told to stop; 1 the session was lost; 2 called in a way that cannot work; 101 a panic.

#[cfg(target_feature = "hvx-qfloat")]
mod forms;
#[cfg(target_feature = "hvxv73")]
mod matrix;
mod packets;
mod serve;
#[cfg(target_feature = "hvx-qfloat")]
mod stream;

use core::arch::global_asm;
use core::ffi::{CStr, c_char};
use core::fmt::Write;

use hexflash_dsp::platform::linux::{Stream, exit};

// The entry: the stack pointer as the argument, then aligned for vectors on the stack.
global_asm!(
    ".section .text._start,\"ax\",@progbits",
    ".globl _start",
    ".p2align 4",
    ".type _start,@function",
    "_start:",
    "{{ r0 = r29",
    "   r30 = #0",
    "   r31 = #0 }}",
    "r29 = and(r29,#-128)",
    "call {main}",
    "1: jump 1b",
    ".size _start, .-_start",
    ".text",
    main = sym main,
);

/// Why the image cannot go on: an exit code and a line for the host to show.
struct Failure {
    code: u32,
    what: &'static str,
    errno: u32,
}

const fn unusable(what: &'static str) -> Failure {
    Failure { code: 2, what, errno: 0 }
}

/// # Safety
/// `sp` is the stack pointer at the process's start: the count of arguments lies there, then their addresses.
unsafe extern "C" fn main(sp: *const u32) -> ! {
    // SAFETY: `sp` points to the count of arguments, and behind it lie as many addresses (the caller's
    // contract); `i` is below the count. Each is of a text that ends with 0 and that lives as long as the
    // process.
    let argument = |i: u32| unsafe {
        (i < sp.read()).then(|| {
            let text = sp.add(1 + i as usize).cast::<*const c_char>().read();
            CStr::from_ptr(text).to_str().unwrap_or_default()
        })
    };
    end(match (argument(1), argument(2), argument(3)) {
        (Some("serve"), Some(files), Some(fd)) => serve::run(files, fd),
        (Some("check"), None, None) => check(),
        #[cfg(target_feature = "hvx-qfloat")]
        (Some("forms"), None, None) => forms::run(),
        #[cfg(target_feature = "hvxv73")]
        (Some("matrix"), None, None) => matrix::run(),
        (Some("packets"), Some(op), Some(dtype)) => {
            // A number that is missing or none is 0, which no case has where it matters.
            let number = |i| argument(i).and_then(|text| text.parse().ok()).unwrap_or(0);
            packets::run(&packets::Case { op, dtype, numbers: [4, 5, 6, 7, 8].map(number) })
        }
        _ => Err(unusable(
            "usage: serve FD-DIR FD, check, forms, matrix, or packets OP TYPE A B TOKENS PAST THREADS",
        )),
    })
}

/// Holds the vector operations against their definitions.
#[cfg(not(target_feature = "hvx-qfloat"))]
fn check() -> Result<(), Failure> {
    hexflash_dsp::hvx::hexagon::check::run(300).map_err(|difference| {
        let _ = writeln!(Stream::Error, "{difference:x?}");
        Failure { code: 1, what: "a vector operation differs from its definition", errno: 0 }
    })
}

/// Qfloat is not the definition, and the emulator has none.
#[cfg(target_feature = "hvx-qfloat")]
fn check() -> Result<(), Failure> {
    Err(unusable("an image with HVX float cannot be checked"))
}

/// Ends the process.
fn end(result: Result<(), Failure>) -> ! {
    match result {
        Ok(()) => exit(0),
        Err(Failure { code, what, errno }) => {
            let _ = match errno {
                0 => writeln!(Stream::Error, "{what}"),
                errno => writeln!(Stream::Error, "{what} (errno {errno})"),
            };
            exit(code)
        }
    }
}

/// Shows a panic, and ends the process.
#[unsafe(no_mangle)]
fn hexflash_image_panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stream::Error, "{info}");
    exit(101)
}
