//! A session on the DSP: a thread that answers the queue's messages, and the workers.
//!
//! While messages come, the session holds the scratchpad (unless another client asks for it, which gets it
//! between two messages), the matrix unit if it was asked for, and has its votes for clocks up. After a while
//! without any, it gives them all up.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use hexflash_abi::message::{Request, Response};
use hexflash_abi::queue::MAX_MESSAGE;
use hexflash_abi::{ErrorCode, Fault, Seq, Status};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hmx;
use hexflash_dsp::platform::Platform;
use hexflash_dsp::pool::{MAX_WORKERS, Pool};
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::{FromBytes, IntoBytes};

use super::machine;
use super::qurt::{
    HeapBlock, Idle, MessageEnd, Power, Priority, Profile, QurtPlatform, TIMEOUT_IDLE_US, Thread, Transport,
    VectorUnit, VtcmGrant, log_error, tell_news,
};
use crate::rpc::{AeeError, Start};

/// Bytes for loaded programs, as on the other devices.
const ARENA_BYTES: usize = 8 << 20;
/// Bytes of a thread's stack: the pool with its workers' rings takes half of it in the session's thread, and
/// kernels keep vectors on it. A check of the tests' stand-in reports a stack that was used up.
const STACK_BYTES: usize = 128 << 10;
/// Empty reads of the queue after which scratchpad and clocks are given up: half a second.
const IDLE_READS: u32 = 500_000 / TIMEOUT_IDLE_US;

/// Memory of a session: what programs are loaded to, and a stack for each thread.
struct Rooms {
    arena: HeapBlock,
    stacks: HeapBlock,
}

impl Rooms {
    fn new(threads: usize) -> Option<Self> {
        Some(Self {
            arena: HeapBlock::zeroed(ARENA_BYTES)?,
            stacks: HeapBlock::zeroed(threads * STACK_BYTES)?,
        })
    }

    /// The stack of a thread, by its number.
    fn stack(&self, id: usize) -> Option<*mut [u8]> {
        self.stacks.part(id * STACK_BYTES, STACK_BYTES)
    }
}

/// What the session's thread needs, and what it says.
struct Shared {
    stop: AtomicBool,
    /// [`STARTING`], then [`SERVING`] or a [`Failure`].
    state: AtomicU32,
    /// What the first vote for power that was refused gave.
    power: AtomicI32,
    /// What the request for the matrix unit gave, if it was asked for.
    matrix_unit: AtomicI32,
    rooms: Option<Rooms>,
    /// FastRPC's.
    priority: Priority,
    /// [`Start::transport`].
    transport: u32,
    queue: u64,
    threads: u32,
    vtcm_bytes: u32,
    profile: Profile,
    dma: DmaMode,
    /// Whether programs get a weight stream.
    streams: bool,
    /// Whether the matrix unit is asked for.
    wants_matrix_unit: bool,
}

const STARTING: u32 = 0;
const SERVING: u32 = 1;

/// Why a session did not start; the number is its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Failure {
    Queue = 2,
    VectorUnit = 3,
    Vtcm = 4,
    Thread = 5,
    Internal = 6,
}

impl Failure {
    fn parse(state: u32) -> Self {
        [Self::Queue, Self::VectorUnit, Self::Vtcm, Self::Thread]
            .into_iter()
            .find(|failure| *failure as u32 == state)
            .unwrap_or(Self::Internal)
    }

    /// What the host is told: a code of its own for each.
    const fn error(self) -> AeeError {
        match self {
            Self::Queue => AeeError::NO_SUCH_MAP,
            Self::VectorUnit => AeeError::BUSY,
            Self::Vtcm => AeeError::ITEM_BUSY,
            Self::Thread => AeeError::THREAD_CREATE,
            Self::Internal => AeeError::FAILED,
        }
    }
}

/// Written by [`Running::start`] before the thread exists, and then only read, but for its atomics.
struct StaticShared(UnsafeCell<Shared>);

// SAFETY: `Running::start` writes the value before the session's thread exists, and from then on it is only
// read, but for its atomics. `Skel::start` makes no second `Running` while it has one.
unsafe impl Sync for StaticShared {}

static SHARED: StaticShared = StaticShared(UnsafeCell::new(Shared {
    stop: AtomicBool::new(false),
    state: AtomicU32::new(STARTING),
    power: AtomicI32::new(0),
    matrix_unit: AtomicI32::new(0),
    rooms: None,
    priority: Priority::USUAL,
    transport: Start::QUEUE,
    queue: 0,
    threads: 0,
    vtcm_bytes: 0,
    profile: Profile::Balanced,
    dma: DmaMode::Engine,
    streams: false,
    wants_matrix_unit: false,
}));

fn shared() -> &'static Shared {
    // SAFETY: only `Running::start` writes the value, while no thread of a session exists: `Skel::start`
    // makes no second `Running` while it has one, and `stop` joins the thread.
    unsafe { &*SHARED.0.get() }
}

/// A running session; the process has at most one.
pub(super) struct Running {
    thread: Thread,
}

impl Running {
    /// Starts the session's thread, and waits until it serves the queue.
    ///
    /// The caller holds no other `Running`.
    pub(super) fn start(
        start: &Start,
        profile: Profile,
        dma: DmaMode,
        streams: bool,
    ) -> Result<Self, AeeError> {
        let Start { queue, threads, vtcm_bytes, transport, .. } = *start;
        let rooms = Rooms::new(threads as usize);
        let Some((rooms, stack)) = rooms.and_then(|rooms| rooms.stack(0).map(|stack| (rooms, stack))) else {
            log_error(format_args!("no memory for a session of {threads} threads"));
            return Err(AeeError::NO_MEMORY);
        };
        let priority = Priority::own();
        let shared_now = Shared {
            stop: AtomicBool::new(false),
            state: AtomicU32::new(STARTING),
            power: AtomicI32::new(0),
            matrix_unit: AtomicI32::new(0),
            rooms: Some(rooms),
            priority,
            transport,
            queue,
            threads,
            vtcm_bytes,
            profile,
            dma,
            streams,
            wants_matrix_unit: start.matrix_unit != 0 && hmx::IS_THERE,
        };
        // SAFETY: no thread of a session exists, so that nobody uses the value: `Skel::start` calls this only
        // when it has no `Running`, and the last one's thread was joined, by `stop` or, if it failed, here.
        // What a session before it had is dropped.
        unsafe { *SHARED.0.get() = shared_now };
        // SAFETY: `serve` may be called once at a time, and the stack is its own: its memory is in `SHARED`
        // until `end`, after the thread was joined.
        let thread = unsafe { Thread::start(stack, priority, serve, core::ptr::null_mut()) };
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                log_error(format_args!("qurt_thread_create gave {error:#x} for the session's thread"));
                end();
                return Err(AeeError::NO_MEMORY);
            }
        };
        let state = &shared().state;
        while state.load(Ordering::Acquire) == STARTING {
            QurtPlatform::PLAIN.futex_wait(state, STARTING);
        }
        match state.load(Ordering::Acquire) {
            SERVING => Ok(Self { thread }),
            failure => {
                thread.join();
                end();
                Err(Failure::parse(failure).error())
            }
        }
    }

    /// What the first vote for power that was refused gave, or 0.
    pub(super) fn power(&self) -> i32 {
        shared().power.load(Ordering::Relaxed)
    }

    /// What the request for the matrix unit gave: 0 if it was lent, or not asked for.
    pub(super) fn matrix_unit(&self) -> i32 {
        shared().matrix_unit.load(Ordering::Relaxed)
    }

    /// Ends the session.
    pub(super) fn stop(self) {
        shared().stop.store(true, Ordering::Release);
        tell_news();
        self.thread.join();
        end();
    }
}

/// Gives a session's memory back. Its threads were joined.
fn end() {
    // SAFETY: no thread of a session exists (the callers have joined it, or it was never there), so that
    // nobody uses the value: `Skel::start` makes no second `Running` while it has one.
    unsafe { (*SHARED.0.get()).rooms = None };
}

fn report(state: u32) {
    // Release: what was set up is visible to who sees the state.
    shared().state.store(state, Ordering::Release);
    QurtPlatform::PLAIN.futex_wake(&shared().state);
}

unsafe extern "C" fn serve(_: *mut c_void) {
    if let Err(failure) = session(shared()) {
        log_error(format_args!("the session does not start: {failure:?}"));
        report(failure as u32);
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
    // SAFETY: `start` points to a `WorkerStart` that lives until the thread is joined (the caller's
    // contract); it is copied.
    let WorkerStart { pool, id } = unsafe { *start.cast::<WorkerStart<'_>>() };
    // A worker without a vector unit would fault in its first kernel. It may have to wait for one, and the
    // session serves only when all have theirs.
    let Some(_unit) = VectorUnit::lock() else { return };
    // Release: nothing is published; the session only counts.
    READY.fetch_add(1, Ordering::Release);
    pool.serve(id);
}

/// Workers that have a vector unit.
static READY: AtomicU32 = AtomicU32::new(0);
/// How long they may wait for it: other clients of the DSP may have it.
const UNITS_NS: u64 = 2_000_000_000;

/// Waits until all workers have a vector unit; `false` if they do not get it in time.
fn all_ready(platform: QurtPlatform, workers: usize) -> bool {
    let start = platform.now_ns();
    while (READY.load(Ordering::Acquire) as usize) < workers - 1 {
        if platform.now_ns() - start > UNITS_NS {
            return false;
        }
        platform.relax();
    }
    true
}

/// Runs the session; the failure is why it could not start.
fn session(shared: &Shared) -> Result<(), Failure> {
    let mut transport = Transport::open(shared.transport, shared.queue).map_err(|_| Failure::Queue)?;
    let unit = VectorUnit::lock().ok_or(Failure::VectorUnit)?;
    let mut power = Power::new(shared.profile, shared.wants_matrix_unit);
    let no_power = power.raise().err();
    shared.power.store(power.refused(), Ordering::Relaxed);
    let asks = shared.wants_matrix_unit && no_power.is_none();
    let rooms = shared.rooms.as_ref().ok_or(Failure::Internal)?;
    let grant = VtcmGrant::acquire(shared.vtcm_bytes, asks, shared.priority);
    let mut grant = grant.ok_or(Failure::Vtcm)?;
    if !grant.has_matrix_unit() {
        power.forget_matrix_unit();
        if shared.wants_matrix_unit {
            shared.matrix_unit.store(no_power.unwrap_or(AeeError::ITEM_BUSY.code()), Ordering::Relaxed);
        }
    }
    // SAFETY: the grant has `bytes` bytes of VTCM at `base`. It lives longer than the pool, and `answer`
    // holds it while it runs kernels, so that nobody else uses them then. The resource manager aligns `base`,
    // and `Vtcm::region` refuses an address that is not a multiple of 128.
    let vtcm = unsafe { Vtcm::new(grant.base, grant.bytes) };
    // SAFETY: memory of the heap, aligned, that only the one session uses, until its thread was joined; the
    // host has no mapping of it.
    let arena = unsafe { Arena::new(rooms.arena.base(), rooms.arena.bytes()) };
    let platform = QurtPlatform::PLAIN;
    let platform = if grant.has_matrix_unit() { platform.with_matrix_unit() } else { platform };
    let pool = Pool::new(&platform, machine::isa(), vtcm, shared.threads as usize, shared.dma);
    let pool = pool.with_streams(shared.streams);
    let starts: [WorkerStart<'_>; MAX_WORKERS] = core::array::from_fn(|id| WorkerStart { pool: &pool, id });
    let mut threads = [const { None::<Thread> }; MAX_WORKERS];
    let mut outcome = Ok(());
    READY.store(0, Ordering::Release);
    for (start, thread) in starts.iter().zip(&mut threads).take(pool.workers()).skip(1) {
        let Some(stack) = rooms.stack(start.id) else {
            outcome = Err(Failure::Internal);
            break;
        };
        let argument = (&raw const *start).cast_mut().cast();
        // SAFETY: pool and starts outlive the threads, which are joined below; each stack has one thread.
        match unsafe { Thread::start(stack, shared.priority, worker, argument) } {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                log_error(format_args!("qurt_thread_create gave {error:#x} for worker {}", start.id));
                outcome = Err(Failure::Thread);
                break;
            }
        }
    }
    if outcome.is_ok() && !all_ready(platform, pool.workers()) {
        outcome = Err(Failure::VectorUnit);
    }
    match pool.dispatcher() {
        Some(dispatcher) if outcome.is_ok() => {
            report(SERVING);
            let mut session = Session::new(&platform, dispatcher, arena, machine::arch());
            answer(&shared.stop, &mut transport, &mut session, &mut grant, &mut power);
            session.unmap_all();
        }
        Some(_) => {}
        None => outcome = Err(Failure::Internal),
    }
    pool.stop();
    // Those that still wait for a vector unit get ours.
    drop(unit);
    threads.into_iter().flatten().for_each(Thread::join);
    outcome
}

/// Answers messages until told to stop, or until the host is gone.
fn answer(
    stop: &AtomicBool,
    transport: &mut Transport,
    session: &mut Session<'_, '_, QurtPlatform>,
    grant: &mut VtcmGrant,
    power: &mut Power,
) {
    let mut message = [0; MAX_MESSAGE];
    let mut idle = 0;
    // Acquire: pairs with the release of `Running::stop`.
    while !stop.load(Ordering::Acquire) {
        let rest = if idle >= IDLE_READS { Idle::Resting } else { Idle::Briefly };
        let bytes = match transport.read(&mut message, rest) {
            Ok(read) => read,
            Err(MessageEnd::Idle) => {
                idle += 1;
                let idle = idle >= IDLE_READS;
                grant.lend(idle);
                if idle {
                    power.lower();
                }
                continue;
            }
            Err(MessageEnd::Lost) => return,
        };
        idle = 0;
        // A matrix unit that was lent and has no power any more must not be touched.
        let powered = power.raise().is_ok();
        let request = &message[..bytes];
        let held = powered && grant.hold();
        let response = if held { session.handle(request) } else { vtcm_is_busy(request) };
        if transport.write(response.as_bytes()).is_err() {
            return;
        }
        grant.lend(false);
    }
}

/// The answer to a message for which there was no scratchpad, or no matrix unit beside it.
fn vtcm_is_busy(request: &[u8]) -> Response {
    let seq = Request::read_from_bytes(request).map_or(Seq(u64::MAX), |request| request.seq);
    let fault = Fault::new(ErrorCode::VtcmBusy, super::qurt::HOLD_US);
    Response::fault(seq, Status::Refused, fault)
}
