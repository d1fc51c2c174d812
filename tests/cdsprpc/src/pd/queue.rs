//! `dspqueue_*` of the DSP, with the cache maintenance that packets ask for; and the end of the process where
//! it is planned.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::memory::Mapped;
use hexflash_fastrpc::queue::{Buffer, Memory, Packet, Ring, Stuck};
use rustix::process::Signal;

use crate::state::{CONFIG, HOST, planned, violation};
use crate::{views, vtcm};

/// Longest sleep: room may have come just before it.
const LOOK: Duration = Duration::from_millis(10);
const FLUSH_SENDER: u32 = 0x10;
const INVALIDATE_SENDER: u32 = 0x20;
const FLUSH_RECIPIENT: u32 = 0x40;
const INVALIDATE_RECIPIENT: u32 = 0x80;

/// A queue that the host told of.
pub(crate) struct Announced {
    id: u64,
    memory: Memory,
    imported: AtomicBool,
    _mapped: Mapped,
}

static QUEUES: Mutex<Vec<Arc<Announced>>> = Mutex::new(Vec::new());

fn queues() -> std::sync::MutexGuard<'static, Vec<Arc<Announced>>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn announce(id: u64, fd: i32, bytes: usize) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(format!("/proc/{}/fd/{fd}", *HOST))?;
    let mapped = Mapped::new(&file, bytes)?;
    // SAFETY: `mapped` is the queue's memory, of the size that the host has announced, at the start of a
    // page; `Announced` keeps it as long as `memory`.
    let memory = unsafe { Memory::new(mapped.base()) };
    queues().push(Arc::new(Announced { id, memory, imported: AtomicBool::new(false), _mapped: mapped }));
    Ok(())
}

/// Forgets a queue; whether it is still open here.
pub(crate) fn withdraw(id: u64) -> bool {
    let mut queues = queues();
    let open = queues.iter().any(|queue| queue.id == id && queue.imported.load(Ordering::SeqCst));
    queues.retain(|queue| queue.id != id);
    open
}

pub(crate) fn check_end() {
    if queues().iter().any(|queue| queue.imported.load(Ordering::SeqCst)) {
        violation("a queue was not closed on the DSP");
    }
}

/// Opens a queue, or gives the code.
pub(crate) fn import(id: u64) -> Result<Arc<Announced>, i32> {
    if let Some(code) = planned("dsp.dspqueue_import") {
        return Err(code);
    }
    let Some(queue) = queues().iter().find(|queue| queue.id == id).cloned() else {
        return Err(aee::on_dsp(aee::BAD_PARAMETER));
    };
    if queue.imported.swap(true, Ordering::SeqCst) {
        return Err(aee::on_dsp(aee::ALREADY));
    }
    Ok(queue)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_import(
    id: u64,
    packet: *const c_void,
    error: *const c_void,
    _context: *mut c_void,
    out: *mut *const c_void,
) -> i32 {
    if !packet.is_null() || !error.is_null() {
        return aee::on_dsp(aee::UNSUPPORTED);
    }
    match import(id) {
        Ok(queue) => {
            // SAFETY: `out` is valid for writing, as the interface asks of its callers.
            unsafe { out.write(Arc::into_raw(queue).cast()) };
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_close(queue: *const c_void) -> i32 {
    // SAFETY: `dspqueue_import` made `queue` from an `Arc`, and this is the last use of it, as the interface
    // asks of its callers.
    let queue = unsafe { Arc::from_raw(queue.cast::<Announced>()) };
    queue.close();
    0
}

/// Messages read and answered so far.
static READ: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// The process ends at once, as if it had crashed.
pub(crate) fn end_process() -> ! {
    end(Signal::KILL)
}

fn end(signal: Signal) -> ! {
    let me = rustix::process::getpid();
    let _ = rustix::process::kill_process(me, signal);
    // The signal may take a moment; nothing more is to happen here.
    loop {
        std::thread::park();
    }
}

/// What is planned for the message that was just read.
fn after_reading() {
    let number = READ.fetch_add(1, Ordering::SeqCst) + 1;
    let planned = |key| CONFIG.number(key) == Some(number);
    if planned("crash") || planned("crash-every") {
        end_process();
    }
    if planned("hang") {
        end(Signal::STOP);
    }
    if planned("wanted") {
        vtcm::somebody_wants_it();
    }
    let late = CONFIG.text("late").and_then(|text| text.split_once(','));
    if let Some((at, ms)) = late
        && at.parse() == Ok(number)
        && let Ok(ms) = ms.parse()
    {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Tries until it works or time is up; no code if it can never work.
fn until<T>(
    timeout_us: u32,
    ring: Ring,
    reading: bool,
    mut attempt: impl FnMut() -> Result<T, Stuck>,
) -> Result<T, Option<i32>> {
    let (start, patience) = (Instant::now(), Duration::from_micros(timeout_us.into()));
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(Stuck::Bad) => return Err(None),
            Err(Stuck::WouldBlock) => {}
        }
        match patience.checked_sub(start.elapsed()) {
            Some(left) if !left.is_zero() => {
                ring.wait(reading, left.min(LOOK), || !reading || ring.is_empty())
            }
            _ => return Err(Some(aee::EXPIRED)),
        }
    }
}

impl Announced {
    /// The next packet, or the code.
    pub(crate) fn receive(&self, max_buffers: u32, max_message: u32, timeout_us: u32) -> Result<Packet, i32> {
        if let Some(code) = planned("dsp.dspqueue_read") {
            return Err(code);
        }
        let ring = self.memory.ring(false);
        let packet = until(timeout_us, ring, true, || ring.receive(max_buffers, max_message))
            .map_err(|code| aee::on_dsp(code.unwrap_or(aee::BAD_ITEM)))?;
        for b in &packet.buffers {
            let flags = b.flags;
            let forget = CONFIG.text("forget") == Some("invalidate");
            views::clean_fd(b, flags & FLUSH_RECIPIENT != 0, flags & INVALIDATE_RECIPIENT != 0 && !forget);
        }
        after_reading();
        Ok(packet)
    }

    /// Sends a packet, or gives the code.
    pub(crate) fn send(&self, packet: &Packet, timeout_us: u32) -> Result<(), i32> {
        if let Some(code) = planned("dsp.dspqueue_write") {
            return Err(code);
        }
        if CONFIG.number("crash-answer") == Some(ANSWERED.fetch_add(1, Ordering::SeqCst) + 1) {
            end_process();
        }
        for b in &packet.buffers {
            views::clean_fd(b, b.flags & FLUSH_SENDER != 0, b.flags & INVALIDATE_SENDER != 0);
        }
        views::check_answer(packet.buffers.iter().filter(|b| b.flags & INVALIDATE_RECIPIENT != 0));
        let ring = self.memory.ring(true);
        until(timeout_us, ring, false, || ring.send(packet))
            .map_err(|code| aee::on_dsp(code.unwrap_or(aee::BAD_PARAMETER)))
    }

    /// It may be imported again.
    pub(crate) fn close(&self) {
        self.imported.store(false, Ordering::SeqCst);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_read(
    queue: *const c_void,
    flags: *mut u32,
    max_buffers: u32,
    n: *mut u32,
    buffers: *mut Buffer,
    max_message: u32,
    bytes: *mut u32,
    message: *mut u8,
    timeout_us: u32,
) -> i32 {
    // SAFETY: `dspqueue_import` made `queue`, which was not closed, as the interface asks of its callers.
    match unsafe { &*queue.cast::<Announced>() }.receive(max_buffers, max_message, timeout_us) {
        Ok(packet) => {
            // SAFETY: the pointers are valid for writing, buffers and message as far as their limits say, as
            // the interface asks of its callers, and `receive` gives no packet that exceeds these.
            unsafe { packet.hand_out(flags, (buffers, n), (message, bytes)) };
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_write(
    queue: *const c_void,
    flags: u32,
    n: u32,
    buffers: *const Buffer,
    bytes: u32,
    message: *const u8,
    timeout_us: u32,
) -> i32 {
    // SAFETY: `dspqueue_import` made `queue`, which was not closed, and buffers and message are as long as
    // said and valid for reading through the call, as the interface asks of its callers.
    let (queue, (buffers, message)) =
        unsafe { (&*queue.cast::<Announced>(), Packet::parts((buffers, n), (message, bytes))) };
    let packet = Packet { flags, buffers: buffers.to_vec(), message: message.to_vec() };
    queue.send(&packet, timeout_us).err().unwrap_or(0)
}
