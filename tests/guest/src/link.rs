//! A thread's connection to `hexflash-pd`. Its file descriptor is the thread's user pointer register, which
//! neither the skel nor this program uses otherwise.

use core::arch::asm;

use hexflash_dsp::platform::linux::sys::{self, Call};
use zerocopy::IntoBytes;

use crate::entry::{arguments, give_up};
use crate::wire::{Answer, Ask};

const UNIX: u16 = 1;
const STREAM: u32 = 1;
/// Longest name of an abstract socket.
const NAME: usize = 107;

/// Connects this thread.
pub(crate) fn connect() {
    let name = arguments()[0].as_bytes();
    let mut address = [0; 3 + NAME];
    address[..2].copy_from_slice(&UNIX.to_le_bytes());
    // A zero, and then the name, which does not end with one.
    match address.get_mut(3..3 + name.len()) {
        Some(room) => room.copy_from_slice(name),
        None => give_up("a socket's name is too long", name.len() as u32),
    }
    // SAFETY: the call takes numbers.
    let socket = unsafe { sys::call(Call::Socket, [UNIX.into(), STREAM, 0, 0, 0, 0]) };
    let socket = socket.unwrap_or_else(|error| give_up("no socket", error.0));
    let bytes = 3 + name.len() as u32;
    // SAFETY: the system reads `bytes` bytes of the address, which has as many.
    let done = unsafe { sys::call(Call::Connect, [socket, address.as_ptr() as u32, bytes, 0, 0, 0]) };
    if let Err(error) = done {
        give_up("hexflash-pd does not answer", error.0);
    }
    // SAFETY: nothing of this process uses the register for anything else.
    unsafe { asm!("ugp = {0}", in(reg) socket, options(nomem, nostack)) };
}

fn socket() -> u32 {
    let socket: u32;
    // SAFETY: the instruction copies a register to one that is named as output.
    unsafe { asm!("{0} = ugp", out(reg) socket, options(nomem, nostack)) };
    socket
}

/// Ends this thread's connection.
pub(crate) fn close() {
    // SAFETY: the descriptor is this thread's, which uses it no more.
    let _ = unsafe { sys::call(Call::Close, [socket(), 0, 0, 0, 0, 0]) };
}

/// Asks something that is no call of the skel.
pub(crate) fn ask(what: u32, registers: [u32; 6]) -> Answer {
    put(&Ask { what, from: 0, stack: 0, dma: engine(), registers })
}

/// Asks, and waits for the answer.
pub(crate) fn put(ask: &Ask) -> Answer {
    let mut answer = Answer::default();
    all(Call::Write, ask.as_bytes().as_ptr() as u32, size_of::<Ask>() as u32);
    all(Call::Read, answer.as_mut_bytes().as_mut_ptr() as u32, size_of::<Answer>() as u32);
    answer
}

/// Reads or writes so many bytes of this program at an address.
fn all(call: Call, mut at: u32, mut bytes: u32) {
    while bytes > 0 {
        // SAFETY: the callers own so many bytes at the address, to read or to write as the call does.
        match unsafe { sys::call(call, [socket(), at, bytes, 0, 0, 0]) } {
            Ok(0) => give_up("hexflash-pd is gone", 0),
            Ok(done) => (at, bytes) = (at + done, bytes - done),
            Err(error) => give_up("hexflash-pd is gone", error.0),
        }
    }
}

/// What this thread's DMA engine is at: 0 or the status word of an engine that is not idle, which goes on.
pub(crate) fn engine() -> u32 {
    let status: u32;
    // SAFETY: `r0 = dmpause` stops the engine of this thread and says what it was at; `dmresume(r0)` lets it
    // go on from there, and does nothing where it was idle. The assembler for this architecture has no names
    // for them.
    unsafe {
        asm!(".word 0xa800c060", ".word 0xa600c080", out("r0") status, options(nostack));
    }
    status
}
