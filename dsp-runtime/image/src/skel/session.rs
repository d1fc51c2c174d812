//! A session on the DSP: a thread that answers the queue's messages, and the workers.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexflash_abi::queue::MAX_MESSAGE;
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::Platform;
use hexflash_dsp::pool::{MAX_WORKERS, Pool};
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::IntoBytes;

use super::ARCH;
use super::qurt::{self, Queue, QurtPlatform, Thread, VectorUnit, VtcmGrant};
use crate::rpc::{AeeError, Start};

/// Bytes for loaded programs, as on the other devices.
const ARENA_BYTES: usize = 8 << 20;
/// Bytes of a thread's stack: kernels keep vectors on it, and call nothing deep.
const STACK_BYTES: usize = 64 << 10;
/// How long a read of the queue waits before it looks whether to stop.
const READ_TIMEOUT_US: u32 = 50_000;
/// How long a response may wait for room.
const WRITE_TIMEOUT_US: u32 = 1_000_000;

/// Memory for one session at a time, which [`Running`] stands for.
#[repr(C, align(128))]
struct Reserved<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: only the one session takes its address.
unsafe impl<const N: usize> Sync for Reserved<N> {}

static ARENA: Reserved<ARENA_BYTES> = Reserved(UnsafeCell::new([0; ARENA_BYTES]));
static STACKS: [Reserved<STACK_BYTES>; MAX_WORKERS] =
    [const { Reserved(UnsafeCell::new([0; STACK_BYTES])) }; MAX_WORKERS];

/// What the session's thread needs, and what it says.
struct Shared {
    stop: AtomicBool,
    /// [`STARTING`], then [`SERVING`] or [`FAILED`].
    state: AtomicU32,
    queue: u64,
    threads: u32,
    vtcm_bytes: u32,
}

const STARTING: u32 = 0;
const SERVING: u32 = 1;
const FAILED: u32 = 2;

/// Written by [`Running::start`] before the thread exists, and then only read, but for its atomics.
struct Slot(UnsafeCell<Shared>);

// SAFETY: see above; there is one `Running` at a time.
unsafe impl Sync for Slot {}

static SHARED: Slot = Slot(UnsafeCell::new(Shared {
    stop: AtomicBool::new(false),
    state: AtomicU32::new(STARTING),
    queue: 0,
    threads: 0,
    vtcm_bytes: 0,
}));

fn shared() -> &'static Shared {
    // SAFETY: written only while no thread of a session exists.
    unsafe { &*SHARED.0.get() }
}

fn stack(i: usize) -> *mut [u8] {
    core::ptr::slice_from_raw_parts_mut(STACKS[i].0.get().cast(), STACK_BYTES)
}

/// A running session; the process has at most one.
pub(super) struct Running {
    thread: Thread,
}

impl Running {
    /// Starts the session's thread, and waits until it serves the queue.
    ///
    /// The caller holds no other `Running`.
    pub(super) fn start(start: &Start) -> Result<Self, AeeError> {
        let Start { queue, threads, vtcm_bytes } = *start;
        let (stop, state) = (AtomicBool::new(false), AtomicU32::new(STARTING));
        // SAFETY: no session runs, so nobody reads it.
        unsafe { SHARED.0.get().write(Shared { stop, state, queue, threads, vtcm_bytes }) };
        // SAFETY: `serve` may be called once at a time, and the stack is its own.
        let thread = unsafe { Thread::start(stack(0), serve, core::ptr::null_mut()) };
        let thread = thread.ok_or(AeeError::NO_MEMORY)?;
        let state = &shared().state;
        while state.load(Ordering::Acquire) == STARTING {
            QurtPlatform.futex_wait(state, STARTING);
        }
        if state.load(Ordering::Acquire) == FAILED {
            thread.join();
            return Err(AeeError::FAILED);
        }
        Ok(Self { thread })
    }

    /// Ends the session.
    pub(super) fn stop(self) {
        shared().stop.store(true, Ordering::Release);
        self.thread.join();
    }
}

fn report(state: u32) {
    // Release: what was set up is visible to who sees the state.
    shared().state.store(state, Ordering::Release);
    QurtPlatform.futex_wake(&shared().state);
}

unsafe extern "C" fn serve(_: *mut c_void) {
    if session(shared()).is_none() {
        report(FAILED);
    }
}

/// What a worker's thread is given.
#[derive(Clone, Copy)]
struct WorkerStart<'a> {
    pool: &'a Pool<'a, QurtPlatform>,
    id: usize,
}

/// # Safety
/// `start` points to a `WorkerStart` that lives until the thread is joined.
unsafe extern "C" fn worker(start: *mut c_void) {
    // SAFETY: the caller's promise.
    let WorkerStart { pool, id } = unsafe { *start.cast::<WorkerStart<'_>>() };
    // A worker without a vector unit would fault in its first kernel; waiting for one is all that it can do.
    let _unit = VectorUnit::lock();
    pool.serve(id);
}

/// `None` if it could not start.
fn session(shared: &Shared) -> Option<()> {
    let mut queue: Queue = core::ptr::null_mut();
    let null = core::ptr::null();
    // SAFETY: the handle goes to `queue`; without callbacks, reads block.
    let error =
        unsafe { qurt::dspqueue_import(shared.queue, null, null, core::ptr::null_mut(), &raw mut queue) };
    if error != 0 {
        return None;
    }
    let served = serve_queue(shared, queue);
    // SAFETY: imported above, and used no more.
    unsafe { qurt::dspqueue_close(queue) };
    served
}

fn serve_queue(shared: &Shared, queue: Queue) -> Option<()> {
    let _unit = VectorUnit::lock()?;
    let grant = VtcmGrant::acquire(shared.vtcm_bytes)?;
    // SAFETY: the grant lives longer than the pool.
    let vtcm = unsafe { Vtcm::new(grant.base, grant.bytes) };
    // SAFETY: static memory, aligned, that only the one session uses; the host has no mapping of it.
    let arena = unsafe { Arena::new(NonNull::new(ARENA.0.get().cast())?, ARENA_BYTES) };
    let platform = QurtPlatform;
    let pool = Pool::new(&platform, Isa::Hexagon, vtcm, shared.threads as usize, DmaMode::AtOnce);
    let starts: [WorkerStart<'_>; MAX_WORKERS] = core::array::from_fn(|id| WorkerStart { pool: &pool, id });
    let mut threads = [const { None::<Thread> }; MAX_WORKERS];
    let mut complete = true;
    for (start, thread) in starts.iter().zip(&mut threads).take(pool.workers()).skip(1) {
        // SAFETY: pool and starts outlive the threads, which are joined below; each stack has one thread.
        *thread = unsafe { Thread::start(stack(start.id), worker, (&raw const *start).cast_mut().cast()) };
        complete &= thread.is_some();
    }
    if complete && let Some(dispatcher) = pool.dispatcher() {
        report(SERVING);
        answer(shared, queue, Session::new(&platform, dispatcher, arena, ARCH));
    }
    pool.stop();
    threads.into_iter().flatten().for_each(Thread::join);
    complete.then_some(())
}

/// Answers messages until told to stop, or until the host is gone.
fn answer(shared: &Shared, queue: Queue, mut session: Session<'_, '_, QurtPlatform>) {
    const AEE_EXPIRED: u32 = 0xc;
    const AEE_OFFSET: u32 = 0x8000_0400;
    const AEE_INTERRUPTED: i32 = 46;
    let mut message = [0; MAX_MESSAGE];
    while !shared.stop.load(Ordering::Acquire) {
        let (mut flags, mut buffers, mut bytes) = (0, 0, 0);
        let null = core::ptr::null_mut();
        // SAFETY: the queue is open, results go to the variables above, the message to `message`.
        let error = unsafe {
            qurt::dspqueue_read(
                queue,
                &raw mut flags,
                0,
                &raw mut buffers,
                null,
                MAX_MESSAGE as u32,
                &raw mut bytes,
                message.as_mut_ptr(),
                READ_TIMEOUT_US,
            )
        };
        match error {
            0 => {}
            AEE_INTERRUPTED => return,
            error if error as u32 == AEE_OFFSET + AEE_EXPIRED => continue,
            _ => return,
        }
        let Some(request) = message.get(..bytes as usize) else { return };
        let response = session.handle(request);
        let response = response.as_bytes();
        // SAFETY: the queue is open; reads the response.
        let error = unsafe {
            let bytes = response.len() as u32;
            qurt::dspqueue_write(queue, 0, 0, null, bytes, response.as_ptr(), WRITE_TIMEOUT_US)
        };
        if error != 0 {
            return;
        }
    }
}
