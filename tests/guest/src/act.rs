//! What answers ask to be done.

use core::arch::global_asm;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_dsp::platform::linux::exit;
use hexflash_dsp::platform::linux::sys::{self, Call, Errno};

use crate::entry::{arguments, give_up};
use crate::link;
use crate::wire::{Answer, act, ask};

const CURRENT_DIR: u32 = -100_i32 as u32;
const READ_WRITE: u32 = 2;
/// A system call of the emulator's own: a vector context is taken (1) or given back (0).
const CONTEXT: u32 = 0x48_5658;

/// Does what an answer says; gives the value of the call.
pub(crate) fn carry_out(answer: &Answer) -> u32 {
    let [a, b, c, d, e, f] = answer.words;
    match answer.act {
        act::NONE => {}
        act::MAP => check("map", map(a, b, c, d)),
        // SAFETY: the range is a mapping that an answer asked for, which the skel has given back.
        act::UNMAP => check("unmap", unsafe { sys::call(Call::Unmap, [a, b, 0, 0, 0, 0]) }),
        // SAFETY: the range is a mapping that an answer asked for. Who touches it against its new rights is
        // meant to fault.
        act::PROTECT => check("protect", unsafe { sys::call(Call::Protect, [a, b, c, 0, 0, 0]) }),
        act::CLONE => check("clone", start(Start { entry: a, argument: b, number: d }, c)),
        act::JOIN => sleep_while(&ALIVE[index(a)], 1),
        // SAFETY: the skel has registered the function for being called so.
        act::CALL => drop(unsafe { hexflash_invoke(b, c, 0, 0, 0, a) }),
        act::CONTEXT => take_context(a),
        // SAFETY: the skel's entry, with arguments that hexflash-pd has laid out for it, and a stack that
        // nobody else uses.
        act::INVOKE => return unsafe { hexflash_invoke(b, c, d, e, f, a) },
        act::EXIT => exit(0),
        // SAFETY: the call touches no memory: it only tells the emulator where operands will lie.
        act::MATRIX_UNIT => {
            check("matrix unit", unsafe { sys::call(Call::MatrixUnit, [a, b, c, 0, 0, 0]) });
        }
        other => give_up("an unknown act", other),
    }
    answer.value
}

fn check(what: &str, result: Result<u32, Errno>) {
    if let Err(error) = result {
        give_up(what, error.0);
    }
}

/// Maps a file of hexflash-pd at the address where that has it, too.
fn map(address: u32, bytes: u32, file: u32, access: u32) -> Result<u32, Errno> {
    /// Shared, at this address, and not over anything else.
    const SHARED_HERE: u32 = 0x10_0001;
    let mut path = heapless::String::<64>::new();
    if write!(path, "{}/{file}\0", arguments()[1]).is_err() {
        give_up("the directory of files has too long a name", file);
    }
    // SAFETY: the path ends with 0, and the system only reads it.
    let fd = unsafe { sys::call(Call::OpenAt, [CURRENT_DIR, path.as_ptr() as u32, READ_WRITE, 0, 0, 0])? };
    // SAFETY: this asks for a new mapping, where there is none.
    let mapped = unsafe { sys::call(Call::Map, [address, bytes, access, SHARED_HERE, fd, 0]) };
    // SAFETY: `fd` was opened above and is used no more; a mapping stays when its file is closed.
    let _ = unsafe { sys::call(Call::Close, [fd, 0, 0, 0, 0, 0]) };
    mapped
}

/// What a thread of the skel begins with.
#[derive(Clone, Copy)]
struct Start {
    entry: u32,
    argument: u32,
    number: u32,
}

/// Threads that may be at once, by their numbers.
const THREADS: usize = 64;

/// Whether a thread lives: the system clears the word when it no longer uses its stack.
static ALIVE: [AtomicU32; THREADS] = [const { AtomicU32::new(0) }; THREADS];

fn index(number: u32) -> usize {
    number as usize % THREADS
}

/// Starts a thread on the stack that the skel has given.
fn start(start: Start, stack_end: u32) -> Result<u32, Errno> {
    /// Memory, file system, files, signals, thread group, semaphores: all shared. The word is cleared.
    const THREAD: u32 = 0x25_0f00;
    let alive = &ALIVE[index(start.number)];
    alive.store(1, Ordering::SeqCst);
    // SAFETY: the stack is the skel's, which gives it to this thread alone, and hexflash-pd has checked that
    // it is memory of the skel with room for this. `thread` takes the address of a `Start`, which stays until
    // it returns. The word lives for ever.
    unsafe {
        let end = core::ptr::with_exposed_provenance_mut::<u8>((stack_end & !7) as usize);
        let record = end.sub(size_of::<Start>()).cast::<Start>();
        record.write(start);
        let top = end.sub(32).cast::<u32>();
        top.write(record.expose_provenance() as u32);
        let null = core::ptr::null();
        match sys::hexflash_clone(THREAD, top, null, alive.as_ptr(), 0, thread) {
            error if error < 0 => Err(Errno(error.unsigned_abs())),
            _ => Ok(0),
        }
    }
}

/// The life of a thread; `record` points to its [`Start`].
extern "C" fn thread(record: *mut ()) {
    // SAFETY: `start` has put a `Start` there, on this thread's stack.
    let Start { entry, argument, number } = unsafe { record.cast::<Start>().read() };
    link::connect();
    link::ask(ask::BEGIN, [number, 0, 0, 0, 0, 0]);
    // SAFETY: the skel allows its entry to be called with this argument on another thread.
    unsafe { hexflash_invoke(argument, 0, 0, 0, 0, entry) };
    link::ask(ask::END, [number, 0, 0, 0, 0, 0]);
    link::close();
}

/// Takes a vector context, or gives it back.
fn take_context(on: u32) {
    let result: i32;
    // SAFETY: the emulator looks at r0 and r6 and writes r0, which are named.
    unsafe {
        core::arch::asm!("trap0(#1)", inlateout("r0") on => result, in("r6") CONTEXT, options(nostack));
    }
    if result != 0 {
        give_up("the emulator gives no vector contexts: it is not the one of this project", 0);
    }
}

/// Sleeps until a word has another value.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::SeqCst) == value {
        futex(FutexOp::Wait, word.as_ptr() as u32, value);
    }
}

/// What is done with a futex.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum FutexOp {
    Wait = 0,
    Wake = 1,
}

/// Sleeps on a word, or wakes so many who do. Whatever ends the sleep, the caller looks again.
pub(crate) fn futex(op: FutexOp, word: u32, value: u32) {
    // SAFETY: the system reads the word, if it is one, and writes nothing.
    let _ = unsafe { sys::call(Call::Futex, [word, op as u32, value, 0, 0, 0]) };
}

// Calls the function in r5 with r0 to r3, on the stack that ends at r4, or on this one if that is 0.
global_asm!(
    ".section .text.hexflash_invoke,\"ax\",@progbits",
    ".globl hexflash_invoke",
    ".p2align 4",
    ".type hexflash_invoke,@function",
    "hexflash_invoke:",
    "{{ allocframe(#8)",
    "   p0 = cmp.eq(r4,#0) }}",
    "if (!p0) r29 = r4",
    "callr r5",
    "dealloc_return",
    ".size hexflash_invoke, .-hexflash_invoke",
    ".text",
);

unsafe extern "C" {
    /// See the assembly above.
    ///
    /// # Safety
    /// The function may be called so, and the stack is nobody else's.
    fn hexflash_invoke(r0: u32, r1: u32, r2: u32, r3: u32, stack_end: u32, function: u32) -> u32;
}
