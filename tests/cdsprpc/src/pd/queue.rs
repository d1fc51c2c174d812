//! `dspqueue_*` of the DSP, and the end of the process where it is planned.
//!
//! Packets name no memory: what firmware would do to its caches is not known, and nothing here does it.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::memory::Mapped;
use hexflash_fastrpc::queue::{Buffer, Memory, Packet, Ring, Stuck};
use rustix::process::Signal;

use crate::state::{CONFIG, HOST, planned, violation};
use crate::vtcm;

/// Longest sleep: room may have come just before it.
const LOOK: Duration = Duration::from_millis(10);
/// A queue that the host told of.
pub(crate) struct Announced {
    id: u64,
    memory: Memory,
    imported: AtomicBool,
    /// Whether callbacks announce packets, so that no call may wait for one.
    announced: AtomicBool,
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
    let (imported, announced) = (AtomicBool::new(false), AtomicBool::new(false));
    queues().push(Arc::new(Announced { id, memory, imported, announced, _mapped: mapped }));
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

/// Opens a queue, with callbacks or without, or gives the code.
pub(crate) fn import(id: u64, callbacks: bool) -> Result<Arc<Announced>, i32> {
    if let Some(code) = planned("dsp.dspqueue_import") {
        return Err(code);
    }
    if !callbacks && CONFIG.number("callbacks") == Some(1) {
        return Err(aee::on_dsp(aee::BAD_PARAMETER));
    }
    let Some(queue) = queues().iter().find(|queue| queue.id == id).cloned() else {
        return Err(aee::on_dsp(aee::BAD_PARAMETER));
    };
    if queue.imported.swap(true, Ordering::SeqCst) {
        return Err(aee::on_dsp(aee::ALREADY));
    }
    queue.announced.store(callbacks, Ordering::SeqCst);
    Ok(queue)
}

/// A function that is told of packets, or of an error: the queue, a code, and what the importer gave.
type Callback = unsafe extern "C" fn(*const c_void, i32, *mut c_void);

/// The thread that calls back, and the queue that it does so for. (One queue per process.)
static CALLER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_import(
    id: u64,
    packet: Option<Callback>,
    error: Option<Callback>,
    context: *mut c_void,
    out: *mut *const c_void,
) -> i32 {
    if packet.is_some() != error.is_some() {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    let queue = match import(id, packet.is_some()) {
        Ok(queue) => queue,
        Err(code) => return code,
    };
    if let Some(packet) = packet {
        let (told, context) = (Arc::clone(&queue), context.expose_provenance());
        let thread = std::thread::spawn(move || {
            let handle = Arc::as_ptr(&told).cast::<c_void>();
            let mut seen = told.written();
            // The importer may have come too late for a callback.
            let mut is_there = !told.is_empty();
            while is_there || told.wait_for_packet(&mut seen) {
                is_there = false;
                // SAFETY: the importer allows the function to be called so, on any thread, until it closes
                // the queue, which waits for this thread.
                unsafe { packet(handle, 0, std::ptr::with_exposed_provenance_mut(context)) };
            }
        });
        *CALLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
    // SAFETY: `out` is valid for writing, as the interface asks of its callers.
    unsafe { out.write(Arc::into_raw(queue).cast()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_close(queue: *const c_void) -> i32 {
    // SAFETY: `dspqueue_import` made `queue` from an `Arc`, and this is the last use of it, as the interface
    // asks of its callers.
    let queue = unsafe { Arc::from_raw(queue.cast::<Announced>()) };
    queue.close();
    if let Some(caller) = CALLER.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = caller.join();
    }
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

/// Does what is planned for the message that was just read, or has come by a call.
pub(crate) fn after_reading() {
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

/// Code that a read gives where there is nothing: usually one without the DSP's offset.
fn idle(usual: i32) -> i32 {
    CONFIG.code("idle").unwrap_or(usual)
}

/// An answer leaves.
pub(crate) fn before_answering() {
    if CONFIG.number("crash-answer") == Some(ANSWERED.fetch_add(1, Ordering::SeqCst) + 1) {
        end_process();
    }
}

impl Announced {
    /// The queue's requests, unless the DSP is one that does not see them.
    fn requests(&self) -> Option<Ring> {
        (CONFIG.number("silent") != Some(1)).then(|| self.memory.ring(false))
    }

    fn is_empty(&self) -> bool {
        self.requests().is_none_or(|ring| ring.is_empty())
    }

    /// Packets that were written, as a number that wraps.
    pub(crate) fn written(&self) -> u32 {
        self.memory.ring(false).written()
    }

    /// Waits until more packets were written than were `seen`; `false` when the queue is closed.
    pub(crate) fn wait_for_packet(&self, seen: &mut u32) -> bool {
        while self.imported.load(Ordering::SeqCst) {
            let written = self.written();
            if written != *seen && !self.is_empty() {
                *seen = written;
                return true;
            }
            self.memory.ring(false).wait(true, LOOK, || self.written() == *seen);
        }
        false
    }

    /// Waits for a packet: 0, or the code.
    pub(crate) fn peek(&self, timeout_us: u32) -> i32 {
        if let Some(code) = planned("dsp.dspqueue_peek") {
            return code;
        }
        if self.announced.load(Ordering::SeqCst) {
            violation("a call waits for packets that callbacks announce");
            return aee::on_dsp(aee::BAD_STATE);
        }
        let there = || if self.is_empty() { Err(Stuck::WouldBlock) } else { Ok(()) };
        match until(timeout_us, self.memory.ring(false), true, there) {
            Ok(()) => 0,
            Err(_) => idle(aee::on_dsp(aee::EXPIRED)),
        }
    }

    /// The next packet, if there is one, or the code.
    pub(crate) fn receive(&self, max_buffers: u32, max_message: u32) -> Result<Packet, i32> {
        if let Some(code) = planned("dsp.dspqueue_read_noblock") {
            return Err(code);
        }
        let Some(ring) = self.requests() else { return Err(idle(aee::WOULD_BLOCK)) };
        match ring.receive(max_buffers, max_message) {
            Ok(packet) => {
                after_reading();
                Ok(packet)
            }
            Err(Stuck::WouldBlock) => Err(idle(aee::WOULD_BLOCK)),
            Err(Stuck::Bad) => Err(aee::on_dsp(aee::BAD_ITEM)),
        }
    }

    /// Sends a packet, or gives the code.
    pub(crate) fn send(&self, packet: &Packet, timeout_us: u32) -> Result<(), i32> {
        if let Some(code) = planned("dsp.dspqueue_write") {
            return Err(code);
        }
        before_answering();
        if !packet.buffers.is_empty() {
            return Err(aee::on_dsp(aee::NO_SUCH_MAP));
        }
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
unsafe extern "C" fn dspqueue_peek(
    queue: *const c_void,
    flags: *mut u32,
    n: *mut u32,
    bytes: *mut u32,
    timeout_us: u32,
) -> i32 {
    // SAFETY: `dspqueue_import` made `queue`, which was not closed, as the interface asks of its callers.
    let code = unsafe { &*queue.cast::<Announced>() }.peek(timeout_us);
    if code == 0 {
        // SAFETY: the addresses are valid for writing, as the interface asks of its callers. (hexflash looks
        // at none of the three.)
        unsafe {
            flags.write(0);
            n.write(0);
            bytes.write(0);
        }
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dspqueue_read_noblock(
    queue: *const c_void,
    flags: *mut u32,
    max_buffers: u32,
    n: *mut u32,
    buffers: *mut Buffer,
    max_message: u32,
    bytes: *mut u32,
    message: *mut u8,
) -> i32 {
    // SAFETY: `dspqueue_import` made `queue`, which was not closed, as the interface asks of its callers.
    match unsafe { &*queue.cast::<Announced>() }.receive(max_buffers, max_message) {
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
