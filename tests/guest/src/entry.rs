//! Where the program begins: it connects, learns where everything is, and calls the skel when it is told to.
//!
//! `hexflash-guest SOCKET FILES`: the name of the abstract socket of `hexflash-pd`, and the directory of its
//! open files.

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::Write;

use hexflash_dsp::platform::linux::sys::{self, Call};
use hexflash_dsp::platform::linux::{Stream, exit};

use crate::wire::ask;
use crate::{act, imports, link};

// The stack pointer as the argument, then aligned for vectors on the stack.
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

/// The two arguments.
struct Arguments(UnsafeCell<[&'static str; 2]>);

// SAFETY: `main` writes them before there is a second thread, and from then on they are only read.
unsafe impl Sync for Arguments {}

static ARGUMENTS: Arguments = Arguments(UnsafeCell::new([""; 2]));

/// The name of the socket, and the directory of files.
pub(crate) fn arguments() -> [&'static str; 2] {
    // SAFETY: `main` has written them before it called anything that reads them.
    unsafe { *ARGUMENTS.0.get() }
}

/// Ends the process: something is wrong with the test, and not with the skel.
pub(crate) fn give_up(what: &str, number: u32) -> ! {
    let _ = writeln!(Stream::Error, "hexflash-guest: {what} ({number})");
    exit(2)
}

/// # Safety
/// `sp` is the stack pointer at the process's start: the count of arguments lies there, then their addresses.
unsafe extern "C" fn main(sp: *const u32) -> ! {
    // SAFETY: `sp` points to the count of arguments, and behind it lie as many addresses (the caller's
    // contract), of texts that end with 0 and that live as long as the process.
    let argument = |i: usize| unsafe {
        if i >= sp.read() as usize {
            give_up("usage: hexflash-guest SOCKET FILES", 0);
        }
        CStr::from_ptr(sp.add(1 + i).cast::<*const c_char>().read()).to_str().unwrap_or_default()
    };
    // SAFETY: there is no other thread yet.
    unsafe { ARGUMENTS.0.get().write([argument(1), argument(2)]) };
    catch_faults();
    link::connect();
    let mut answer = link::ask(ask::BEGIN, [0, imports::entries(), 0, 0, 0, 0]);
    loop {
        answer = link::ask(ask::NEXT, [act::carry_out(&answer), 0, 0, 0, 0, 0]);
    }
}

/// Asks the system to call [`fault`] where a thread cannot go on.
fn catch_faults() {
    /// Illegal instruction, trap, bus error, floating point, no such memory.
    const SIGNALS: [u32; 5] = [4, 5, 7, 8, 11];
    /// With information; the second time it ends the process.
    const FLAGS: u32 = 0x8000_0004;
    let action = [fault as unsafe extern "C" fn(u32, *const u32, *const u32) as usize as u32, FLAGS, 0, 0];
    for signal in SIGNALS {
        // SAFETY: the system reads an action of four words (handler, flags, mask), which lives through the
        // call. `fault` takes what the system calls it with, and does not return.
        let set = unsafe { sys::call(Call::SignalAction, [signal, action.as_ptr() as u32, 0, 8, 0, 0]) };
        if let Err(error) = set {
            give_up("a signal's action", error.0);
        }
    }
}

/// Tells what happened, and ends the process.
///
/// # Safety
/// The system calls it: the second argument points to a `siginfo`, the third to a `ucontext`.
unsafe extern "C" fn fault(signal: u32, info: *const u32, context: *const u32) {
    /// Words of a `siginfo` before the address; of a `ucontext` before the registers, and from there on.
    const ADDRESS: usize = 3;
    const REGISTERS: usize = 6;
    const LINK: usize = REGISTERS + 31;
    const PC: usize = REGISTERS + 41;
    // SAFETY: `info` and `context` are what the system has put there (the caller's contract), and longer.
    let [address, pc, from] =
        unsafe { [info.add(ADDRESS).read(), context.add(PC).read(), context.add(LINK).read()] };
    link::ask(ask::FAULT, [signal, pc, address, from, 0, 0]);
    exit(3)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stream::Error, "hexflash-guest: {info}");
    exit(101)
}
