//! `dspqueue_*` of the host.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::frame::{Ask, Words};
use hexflash_fastrpc::memory::{Mapped, nameless};
use hexflash_fastrpc::queue::{
    Buffer, DEFAULT_BYTES, Layout, MAX_BUFFERS, MAX_MESSAGE, MAX_QUEUE, Memory, Packet, Ring, Stuck,
    USER_READY,
};

use crate::plan;
use crate::process::Process;
use crate::state::{MESSAGES, give, state, violation};

/// Queues that a process may have.
const MAX_QUEUES: u32 = 64;
/// Longest sleep between two looks at whether the process lives.
const LOOK: Duration = Duration::from_millis(50);
const FOREVER: u32 = u32::MAX;

/// A queue.
pub struct Queue {
    id: u64,
    process: Arc<Process>,
    memory: Memory,
    /// Held by who writes, and by who reads.
    ends: [Mutex<()>; 2],
    reads: AtomicU64,
    _file: std::fs::File,
    _mapped: Mapped,
}

/// Creates a queue. Callbacks are not supported: hexflash waits in calls.
///
/// # Safety
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_create(
    domain: i32,
    flags: u32,
    request: u32,
    response: u32,
    packet: *const c_void,
    error: *const c_void,
    _context: *mut c_void,
    out: *mut *mut Queue,
) -> i32 {
    plan!("dspqueue_create");
    if flags != 0 || request > MAX_QUEUE || response > MAX_QUEUE {
        return aee::BAD_PARAMETER;
    }
    if !packet.is_null() || !error.is_null() {
        return aee::UNSUPPORTED;
    }
    let mut locked = state();
    if locked.queues >= MAX_QUEUES {
        return aee::BUSY;
    }
    let process = locked.sessions.get(&domain).and_then(|session| session.process.clone());
    let Some(process) = process else { return aee::BAD_STATE };
    let id = locked.next_queue;
    locked.next_queue += 0x101;
    drop(locked);
    let or = |bytes: u32, default: u32| if bytes == 0 { default } else { bytes };
    let layout = Layout::new(or(request, DEFAULT_BYTES.0), or(response, DEFAULT_BYTES.1));
    let bytes = layout.bytes();
    let made = nameless(bytes).and_then(|file| Ok((Mapped::new(&file, bytes)?, file)));
    let Ok((mapped, file)) = made else { return aee::NO_MEMORY };
    // SAFETY: `mapped` is shared memory of the layout's size, at the start of a page. The queue keeps it as
    // long as `memory`.
    let memory = unsafe { Memory::new(mapped.base()) };
    memory.initialise(&layout);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let words = Words::default().number(id).number(fd as u64).number(bytes as u64);
    match process.ask(Ask::Queue, words) {
        Ok((0, _)) => {}
        Ok((code, _)) => return code,
        Err(_) => return aee::CONNECTION_RESET,
    }
    process.add_queue(id, memory);
    let ends = [Mutex::new(()), Mutex::new(())];
    let queue = Queue { id, process, memory, ends, reads: AtomicU64::new(0), _file: file, _mapped: mapped };
    // SAFETY: `out` is null or valid for writing (the caller's contract).
    if unsafe { give(out, Box::into_raw(Box::new(queue))) } {
        state().queues += 1;
        0
    } else {
        aee::BAD_PARAMETER
    }
}

/// Closes it.
///
/// # Safety
/// It was created, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_close(queue: *mut Queue) -> i32 {
    let planned = crate::state::planned("dspqueue_close");
    if queue.is_null() {
        return aee::BAD_PARAMETER;
    }
    // SAFETY: `dspqueue_create` made the queue from a `Box`, and this is the last use of it (the caller's
    // contract).
    let queue = unsafe { Box::from_raw(queue) };
    queue.process.remove_queue(queue.id);
    if !queue.process.is_dead()
        && matches!(queue.process.ask(Ask::CloseQueue, Words::default().number(queue.id)), Ok((1, _)))
    {
        violation("a queue was closed on the host while the DSP still had it open");
    }
    state().queues -= 1;
    planned.unwrap_or(0)
}

/// Gives its name for the DSP.
///
/// # Safety
/// It was created; `id` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_export(queue: *mut Queue, id: *mut u64) -> i32 {
    plan!("dspqueue_export");
    // SAFETY: `dspqueue_create` made the queue, which was not closed (the caller's contract).
    let own = unsafe { &*queue }.id;
    // SAFETY: `id` is null or valid for writing (the caller's contract).
    if unsafe { give(id, own) } { 0 } else { aee::BAD_PARAMETER }
}

impl Queue {
    /// Tries until it works or time is up.
    fn until<T>(
        &self,
        timeout_us: u32,
        ring: Ring,
        reading: bool,
        mut attempt: impl FnMut() -> Result<T, Stuck>,
    ) -> Result<T, i32> {
        let start = Instant::now();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Stuck::Bad) => return Err(aee::BAD_ITEM),
                Err(Stuck::WouldBlock) => {}
            }
            if self.process.is_dead() {
                return Err(aee::INTERRUPTED);
            }
            let left = match timeout_us {
                0 => return Err(aee::WOULD_BLOCK),
                FOREVER => LOOK,
                us => match Duration::from_micros(us.into()).checked_sub(start.elapsed()) {
                    Some(left) if !left.is_zero() => left.min(LOOK),
                    _ => return Err(aee::EXPIRED),
                },
            };
            let still = || !self.process.is_dead() && (!reading || ring.is_empty());
            ring.wait(reading, left, still);
        }
    }

    fn write(&self, flags: u32, buffers: &[Buffer], message: &[u8], timeout_us: u32) -> i32 {
        if flags != 0 || message.len() > MAX_MESSAGE as usize || buffers.len() > MAX_BUFFERS as usize {
            return aee::BAD_PARAMETER;
        }
        if !buffers.is_empty() {
            // Firmware looks in a table of memory that it has mapped itself. Libraries map all of hexflash's.
            return aee::NO_SUCH_MAP;
        }
        if self.process.is_dead() {
            return aee::CONNECTION_RESET;
        }
        let packet = Packet { flags: USER_READY, buffers: Vec::new(), message: message.to_vec() };
        let ring = self.memory.ring(false);
        let _writer = self.ends[0].lock().unwrap_or_else(PoisonError::into_inner);
        match self.until(timeout_us, ring, false, || ring.send(&packet)) {
            Ok(()) => {
                MESSAGES.fetch_add(1, Ordering::SeqCst);
                0
            }
            // It is the caller's packet that is too large.
            Err(aee::BAD_ITEM) => aee::BAD_PARAMETER,
            Err(code) => code,
        }
    }

    fn read(&self, max_buffers: u32, max_message: u32, timeout_us: u32) -> Result<Packet, i32> {
        let ring = self.memory.ring(true);
        let _reader = self.ends[1].lock().unwrap_or_else(PoisonError::into_inner);
        let packet = self.until(timeout_us, ring, true, || ring.receive(max_buffers, max_message))?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(packet)
    }
}

/// Sends a packet, waiting for room.
///
/// # Safety
/// The queue was created; buffers and message are as long as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_write(
    queue: *mut Queue,
    flags: u32,
    n: u32,
    buffers: *mut Buffer,
    bytes: u32,
    message: *const u8,
    timeout_us: u32,
) -> i32 {
    plan!("dspqueue_write");
    if queue.is_null() || (n > 0 && buffers.is_null()) || (bytes > 0 && message.is_null()) {
        return aee::BAD_PARAMETER;
    }
    // SAFETY: `dspqueue_create` made the queue, which was not closed, and buffers and message are as long as
    // said and valid for reading through the call (the caller's contract).
    let (queue, (buffers, message)) = unsafe { (&*queue, Packet::parts((buffers, n), (message, bytes))) };
    queue.write(flags, buffers, message, timeout_us)
}

/// Reads a packet, waiting for one.
///
/// # Safety
/// The queue was created; all other addresses are valid for what is written to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_read(
    queue: *mut Queue,
    flags: *mut u32,
    max_buffers: u32,
    n: *mut u32,
    buffers: *mut Buffer,
    max_message: u32,
    bytes: *mut u32,
    message: *mut u8,
    timeout_us: u32,
) -> i32 {
    plan!("dspqueue_read");
    if queue.is_null() || flags.is_null() || n.is_null() || bytes.is_null() {
        return aee::BAD_PARAMETER;
    }
    // SAFETY: `dspqueue_create` made the queue, which was not closed (the caller's contract).
    match unsafe { &*queue }.read(max_buffers, max_message, timeout_us) {
        Ok(packet) => {
            // SAFETY: the pointers are valid for writing, buffers and message as far as their limits say (the
            // caller's contract), and `Queue::read` gives no packet that exceeds these.
            unsafe { packet.hand_out(flags, (buffers, n), (message, bytes)) };
            0
        }
        Err(code) => code,
    }
}
