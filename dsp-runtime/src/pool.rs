//! The worker pool: every worker runs the same kernel and claims units of work from a counter.
//!
//! Worker 0 is the thread that dispatches. The others, its helpers, wait for the epoch to change, enter the
//! job through its gate, run the kernel, and leave. When the dispatcher finds no more units it closes the
//! gate and waits for those who are inside: nobody waits for a helper that has not begun. Waiting spins for a
//! while, then sleeps on the word.
//!
//! ```text
//! dispatcher   publish job --> open gate, next epoch --> work --> close gate --> wait --> next job
//!
//! gate         (closed, 0) --> (open, 0) <--> (open, n inside) --> (closed, n) --> (closed, 0): wakes
//!
//! helper       asleep --new epoch--> enters, n + 1 --> works --> leaves, n - 1 --> asleep
//!                 ^          |
//!                 +----------+ the gate is closed already
//! ```
//!
//! A helper may hold something that a job needs: pieces of the weight stream that only it can wait for and
//! multiply. The dispatcher waits for such a helper to come before it closes the gate.
//!
//! Where processors are shared with other programs, the module `worth` decides whether jobs are shared at
//! all.
//!
//! The pool owns no threads: the platform gives each worker one, which calls [`Pool::serve`].

use hexflash_abi::Fault;
use hexflash_abi::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering, UnsafeCell};

use crate::dma::{DmaMode, DmaQueue, FirstFault};
use crate::hmx::{Matrix, Unit, check};
use crate::hvx::{Hvx, Isa, WithHvx};
use crate::platform::Platform;
use crate::stream::{StreamCounts, WeightRing};
use crate::vtcm::{Vtcm, VtcmPlan};

pub use worker::Worker;
use worker::{Drain, Own};
use worth::Worth;

/// Most workers of a session, the dispatcher included. (Models run on small stacks.)
pub const MAX_WORKERS: usize = if cfg!(loom) { 2 } else { 10 };

/// Turns of the wait loop before a waiter sleeps. Between the ops of a program the next kernel is nanoseconds
/// away; between programs it is not.
const SPINS: u32 = if cfg!(loom) { 0 } else { 20_000 };

/// Turns of the wait loop after which the dispatcher looks at the clock, because a helper may have lost its
/// processor: about 20 microseconds, which is as long as units take.
const PROMPT: u32 = if cfg!(loom) { 0 } else { 500 };

/// Bit of a job's gate that says that helpers may enter.
const OPEN: u32 = 1 << 31;
/// One helper inside, in a job's gate.
const INSIDE: u32 = 1;
/// The bits of a gate that count the helpers inside.
const ALL_INSIDE: u32 = (1 << 16) - 1;
/// One helper that has entered, in a job's gate: the bits from here to [`OPEN`] count them. A helper enters a
/// job twice at most, because it must see another epoch in between.
const ENTERED: u32 = 1 << 16;

/// Vector operations below which a job is not worth sharing: a few microseconds. On a DSP one and a half: its
/// threads have a cache in common, and helpers spin from one op to the next.
pub const ALONE: usize = if cfg!(target_arch = "hexagon") { 2048 } else { 4096 };

/// A kernel: what every worker runs for one op, or for one phase of it.
pub trait Kernel: Sync {
    /// Units of work that workers may claim.
    fn units(&self) -> usize;

    /// About how many vector operations the whole job takes. Below [`ALONE`] the dispatcher does it by
    /// itself: waking the others and waiting for them would cost more than they save. Saturating, because on
    /// 32 bits the work of a valid op may be more than a `usize` counts.
    fn work(&self) -> usize;

    /// Units of the weight stream before this one are done when the job is: who has pieces of them must take
    /// part.
    fn stream_end(&self) -> u32 {
        0
    }

    /// Claims units until there are none.
    ///
    /// Implementations are `#[inline(always)]`, so that they are compiled with `H`'s instructions.
    ///
    /// # Errors
    /// The first fault ends the program.
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault>;
}

/// Any [`Kernel`], as pools see it: compiled where it is defined, and nowhere else.
pub trait AnyKernel: Sync {
    /// As [`Kernel::units`].
    fn units(&self) -> usize;

    /// As [`Kernel::work`].
    fn work(&self) -> usize;

    /// As [`Kernel::stream_end`].
    fn stream_end(&self) -> u32;

    /// [`Kernel::run`] with these instructions.
    ///
    /// # Errors
    /// The kernel's.
    fn run_with(&self, isa: Isa, worker: &mut Worker<'_>) -> Result<(), Fault>;
}

impl<K: Kernel> AnyKernel for K {
    fn units(&self) -> usize {
        Kernel::units(self)
    }

    fn work(&self) -> usize {
        Kernel::work(self)
    }

    fn stream_end(&self) -> u32 {
        Kernel::stream_end(self)
    }

    fn run_with(&self, isa: Isa, worker: &mut Worker<'_>) -> Result<(), Fault> {
        isa.run(Call(self, worker))
    }
}

/// What runs kernels, as kernels see it.
pub trait Workers {
    /// Workers, the dispatcher included.
    fn workers(&self) -> usize;

    /// Runs a kernel on all workers and waits for the last; small jobs stay with the dispatcher.
    ///
    /// # Errors
    /// The first fault that a worker reported.
    fn run(&mut self, kernel: &dyn AnyKernel, plan: VtcmPlan) -> Result<(), Fault>;
}

/// A job as the workers find it.
#[derive(Clone, Copy)]
struct Job {
    /// It lives until the last worker has counted itself out, whatever its type says.
    kernel: *const (dyn AnyKernel + 'static),
    units: usize,
    plan: VtcmPlan,
    /// Whether the dispatcher waits for helpers to come.
    awaits: bool,
}

/// The pool. `P` supplies sleeping and waking.
pub struct Pool<'p, P: Platform> {
    platform: &'p P,
    isa: Isa,
    vtcm: Vtcm,
    workers: usize,
    /// Work from which a job is shared.
    alone: usize,
    /// Whether programs get a weight stream.
    streams: bool,
    own: [UnsafeCell<Own>; MAX_WORKERS],
    job: UnsafeCell<Option<Job>>,
    /// Counts shared jobs; helpers wait for it to change.
    epoch: AtomicU32,
    /// The job's gate: [`OPEN`] while helpers may enter, how many have entered, and how many are inside.
    gate: AtomicU32,
    /// Helpers that have come to a job that awaits some, a bit each.
    arrived: AtomicU32,
    /// Threads that sleep on `epoch`, `gate` or `arrived`. While there are none, wakes are skipped.
    sleepers: AtomicU32,
    counter: AtomicUsize,
    fault: FirstFault,
    stop: AtomicBool,
    dispatched: AtomicBool,
    /// Workers that have a thread in [`serve`](Pool::serve), a bit each.
    served: AtomicU32,
}

// SAFETY: `job` is written by the dispatcher only while the gate is closed with nobody inside, and read by
// helpers only inside; `own[i]` is used by worker i alone, except that the dispatcher looks at it while the
// gate is closed with nobody inside. Kernels are `Sync` and outlive the job: `run` returns when the gate
// is like that again.
unsafe impl<P: Platform> Sync for Pool<'_, P> {}
// SAFETY: only the raw pointer to the kernel keeps the pool from being `Send`. It is used only while `run` is
// on the stack, and the dispatcher that runs borrows the pool, so that it cannot be moved then.
unsafe impl<P: Platform> Send for Pool<'_, P> {}

struct Call<'a, 'w, 'p, K>(&'a K, &'w mut Worker<'p>);

impl<K: Kernel> WithHvx for Call<'_, '_, '_, K> {
    type Output = Result<(), Fault>;

    #[inline(always)]
    fn with<H: Hvx>(self) -> Self::Output {
        self.0.run::<H>(self.1)
    }
}

impl<'p, P: Platform> Pool<'p, P> {
    /// A pool of `workers` workers (at least 1, at most [`MAX_WORKERS`]).
    pub fn new(platform: &'p P, isa: Isa, vtcm: Vtcm, workers: usize, dma: DmaMode) -> Self {
        Self {
            platform,
            isa,
            vtcm,
            workers: workers.clamp(1, MAX_WORKERS),
            alone: ALONE,
            streams: dma.streams(),
            own: core::array::from_fn(|worker| {
                let dma = match dma {
                    DmaMode::Engine => DmaQueue::on(platform.dma(worker)),
                    software => DmaQueue::new(software),
                };
                UnsafeCell::new(Own { dma, ring: WeightRing::new() })
            }),
            job: UnsafeCell::new(None),
            epoch: AtomicU32::new(0),
            gate: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            counter: AtomicUsize::new(0),
            fault: FirstFault::new(),
            stop: AtomicBool::new(false),
            dispatched: AtomicBool::new(false),
            served: AtomicU32::new(0),
        }
    }

    /// The same pool, sharing every job that has two units, however small: for tests, whose jobs are small.
    #[must_use]
    pub fn sharing_all(self) -> Self {
        Self { alone: 0, ..self }
    }

    /// The same pool, with a weight stream for programs or without. By default there is one where DMA runs
    /// beside the workers ([`DmaMode::streams`]).
    #[must_use]
    pub fn with_streams(self, streams: bool) -> Self {
        Self { streams, ..self }
    }

    /// Workers, the dispatcher included.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The right to run jobs, which one thread has at a time. `None` if it is taken.
    pub fn dispatcher(&self) -> Option<Dispatcher<'_, 'p, P>> {
        // Acquire pairs with the release of the dispatcher that was dropped.
        (!self.dispatched.swap(true, Ordering::Acquire))
            .then_some(Dispatcher { pool: self, worth: Worth::new() })
    }

    /// The loop of worker `id` (1 and up); returns after [`stop`](Self::stop).
    ///
    /// # Panics
    /// If `id` is not a worker's number, or another thread is that worker.
    pub fn serve(&self, id: usize) {
        assert!((1..self.workers).contains(&id));
        // Relaxed: only whether the bit was set counts. It stays set, because the pool ends with its workers.
        assert!(self.served.fetch_or(1 << id, Ordering::Relaxed) & 1 << id == 0, "a worker has one thread");
        let mut seen = 0;
        loop {
            seen = self.wait_until(&self.epoch, |epoch| epoch != seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if self.enter() {
                // SAFETY: the open gate published the job, and the dispatcher leaves it alone while we are
                // inside.
                if let Some(job) = self.job.with(|job| unsafe { *job }) {
                    if job.awaits {
                        // SeqCst, as `wake` says.
                        self.arrived.fetch_or(1 << id, Ordering::SeqCst);
                        self.wake(&self.arrived);
                    }
                    self.work(id, &job);
                }
                // At least release: our results are visible to the dispatcher. It sleeps on a closed gate
                // only.
                let before = self.gate.fetch_sub(INSIDE, Ordering::SeqCst);
                if before & (OPEN | ALL_INSIDE) == INSIDE {
                    self.wake(&self.gate);
                }
            }
        }
    }

    /// Enters the job, unless its gate is closed: then all units are taken, and the next job has an epoch of
    /// its own.
    fn enter(&self) -> bool {
        let one_more = |gate: u32| (gate & OPEN != 0).then(|| gate + INSIDE + ENTERED);
        // Acquire: the job, the counter and what was written before the gate opened are visible.
        self.gate.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    }

    /// Ends the workers' loops.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.wake(&self.epoch);
    }

    /// Wakes the sleepers on `word`, if there are any. SeqCst on both sides (here, and in `wait_until`):
    /// either we see the sleeper, or the sleeper sees the new word.
    fn wake(&self, word: &AtomicU32) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.platform.futex_wake(word);
        }
    }

    fn work(&self, id: usize, job: &Job) {
        let outcome = self.own[id].with_mut(|own| {
            // SAFETY: `own[id]` is used by worker `id` alone. Worker 0 is the dispatcher, of which there is
            // one at a time (`dispatched`), and every other worker is one thread (`served`).
            let Own { dma, ring } = unsafe { &mut *own };
            let (counter, vtcm) = (&self.counter, self.vtcm);
            let mut worker = Worker { dma, ring, id, counter, units: job.units, vtcm, plan: job.plan };
            let outcome = self.platform.observe(id, || {
                // SAFETY: `job.kernel` was made from a reference by `run`, whose caller holds that reference
                // until `run` returns. It returns when this worker has left the job, or is this worker
                // itself.
                contain(|| unsafe { &*job.kernel }.run_with(self.isa, &mut worker))
            });
            // A kernel may have left transfers behind; they must not outlive its VTCM. After a fault there is
            // no use for what the weight stream brings.
            let outcome = outcome.and(worker.dma.finish());
            outcome.or_else(|fault| worker.drain().and(Err(fault)))
        });
        if let Err(fault) = outcome {
            self.fault.report(fault);
        }
    }

    /// Waits for `word` to satisfy `done`; gives the value that did.
    fn wait_until(&self, word: &AtomicU32, done: impl Fn(u32) -> bool) -> u32 {
        if let Some(value) = self.spin_until(word, &done, SPINS) {
            return value;
        }
        loop {
            let value = word.load(Ordering::Acquire);
            if done(value) {
                return value;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            self.platform.futex_wait(word, value);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Spins until `word` satisfies `done`, for `turns` turns at most; gives the value that did.
    fn spin_until(&self, word: &AtomicU32, done: impl Fn(u32) -> bool, turns: u32) -> Option<u32> {
        for _ in 0..turns {
            let value = word.load(Ordering::Acquire);
            if done(value) {
                return Some(value);
            }
            self.platform.relax();
        }
        None
    }
}

/// On the host, a kernel that panics is a bug that ends its program, not the process: the fault says so. A
/// DSP has no unwinding; there a panic ends the session.
#[cfg(feature = "host")]
fn contain(work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or(Err(Fault::new(hexflash_abi::ErrorCode::Internal, line!())))
}

#[cfg(not(feature = "host"))]
fn contain(work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    work()
}

/// The right to run jobs on a pool.
pub struct Dispatcher<'a, 'p, P: Platform> {
    pool: &'a Pool<'p, P>,
    worth: Worth,
}

impl<P: Platform> Dispatcher<'_, '_, P> {
    /// Bytes of VTCM.
    pub fn vtcm_bytes(&self) -> usize {
        self.pool.vtcm.bytes()
    }

    /// Tests the matrix unit, which this thread holds, in VTCM ([`crate::hmx::check`]). Where there is a twin
    /// instead, nothing is tested: its results are the same on every machine, so its unit tests are enough,
    /// and without optimisation the test would take a second of each session.
    pub fn matrix_unit_works(&mut self) -> bool {
        let vtcm = self.pool.vtcm;
        if cfg!(not(target_arch = "hexagon")) {
            return true;
        }
        if vtcm.bytes() < check::BYTES {
            return false;
        }
        let mut unit = Matrix::take();
        // SAFETY: the region has as many bytes as the test wants, in VTCM. Only jobs use VTCM, and none runs
        // while the dispatcher is borrowed here. This thread holds the unit (the platform lends it to the
        // thread that dispatches).
        unsafe { check::works(&mut unit, vtcm.region(0, check::BYTES)) }
    }

    /// Bytes that all DMA queues have moved since the last call. Only between jobs.
    pub fn take_moved(&mut self) -> u64 {
        // SAFETY: no job runs while the dispatcher is borrowed here, so no worker uses its queue.
        self.pool.own.iter().map(|own| own.with_mut(|own| unsafe { (*own).dma.take_moved() })).sum()
    }

    /// What the weight stream has done since the last call. Only between jobs.
    pub fn take_stream_counts(&mut self) -> StreamCounts {
        let mut counts = StreamCounts::default();
        for own in &self.pool.own {
            // SAFETY: no job runs while the dispatcher is borrowed here, so no worker uses its ring.
            counts.add(own.with_mut(|own| unsafe { (*own).ring.take_counts() }));
        }
        counts
    }

    /// Whether programs get a weight stream.
    pub fn streams(&self) -> bool {
        self.pool.streams
    }

    /// Ends the weight stream: when this returns, no transfer of it is under way, and nothing is staged.
    ///
    /// # Errors
    /// A failed transfer.
    pub fn drain(&mut self) -> Result<(), Fault> {
        if self.holders(u32::MAX) == 0 {
            return Ok(());
        }
        self.run(&Drain, VtcmPlan::default())
    }

    /// The workers that have pieces of units before `end`, a bit each.
    fn holders(&self, end: u32) -> u32 {
        let workers = self.pool.own.iter().take(self.pool.workers).enumerate();
        // SAFETY: no job runs when this is called, so no worker uses its ring.
        let first = |own: &UnsafeCell<Own>| own.with(|own| unsafe { (*own).ring.first_unit() });
        let holding = workers.filter(|(_, own)| first(own).is_some_and(|unit| unit < end));
        holding.fold(0, |bits, (id, _)| bits | 1 << id)
    }
}

impl<P: Platform> Workers for Dispatcher<'_, '_, P> {
    fn workers(&self) -> usize {
        self.pool.workers()
    }

    fn run(&mut self, kernel: &dyn AnyKernel, plan: VtcmPlan) -> Result<(), Fault> {
        let pool = self.pool;
        let (units, work) = (kernel.units(), kernel.work());
        let large = units > 1 && pool.workers > 1 && work >= pool.alone;
        // Most kernels have no part in the stream.
        let end = kernel.stream_end();
        let awaited = if end == 0 { 0 } else { self.holders(end) & !1 };
        // SAFETY: the pointers differ only in the lifetime that their types name. The kernel is used until
        // the last worker has left the job, which `finish` waits for before this function returns, and it is
        // borrowed for that long.
        let kernel = unsafe {
            core::mem::transmute::<*const (dyn AnyKernel + '_), *const (dyn AnyKernel + 'static)>(kernel)
        };
        let job = Job { kernel, units, plan, awaits: awaited != 0 };
        // Relaxed: published by the gate below, or used by this thread only.
        pool.counter.store(0, Ordering::Relaxed);
        if awaited == 0 && (!large || !self.shares()) {
            pool.work(0, &job);
            return pool.fault.take();
        }
        // SAFETY: the previous job ended with the gate closed and nobody inside, so nobody reads the job.
        pool.job.with_mut(|place| unsafe { *place = Some(job) });
        // Relaxed: published by the gate.
        pool.arrived.store(0, Ordering::Relaxed);
        // Release: helpers that enter see the job, the counter and what was written before.
        pool.gate.store(OPEN, Ordering::Release);
        // SeqCst, as `wake` says. A helper that sees the new epoch also sees the gate as it was opened above.
        pool.epoch.fetch_add(1, Ordering::SeqCst);
        pool.wake(&pool.epoch);
        pool.work(0, &job);
        if awaited != 0 {
            pool.wait_until(&pool.arrived, |arrived| arrived & awaited == awaited);
        }
        self.finish(work);
        pool.fault.take()
    }
}

impl<P: Platform> Dispatcher<'_, '_, P> {
    /// Whether helpers are left alone while they cost more than they save.
    fn keeps_account(&self) -> bool {
        P::CONTENDED && self.pool.alone > 0
    }

    /// Whether to share a job that is large enough.
    fn shares(&mut self) -> bool {
        let pool = self.pool;
        !self.keeps_account() || self.worth.shares(|| pool.platform.now_ns())
    }

    /// Closes the gate of a job of `work` vector operations and waits until nobody is inside.
    fn finish(&mut self, work: usize) {
        let pool = self.pool;
        let empty = |gate: u32| gate & ALL_INSIDE == 0;
        // Acquire, here and in the wait: the results of all who have left are visible.
        let gate = pool.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let (inside, entered) = (gate & ALL_INSIDE, (gate & !OPEN) / ENTERED);
        let is_prompt = inside == 0 || pool.spin_until(&pool.gate, empty, PROMPT).is_some();
        if !self.keeps_account() {
            pool.wait_until(&pool.gate, empty);
        } else if entered == 0 {
            self.worth.missed(|| pool.platform.now_ns());
        } else if is_prompt {
            self.worth.helped(work, entered);
        } else {
            let start = pool.platform.now_ns();
            pool.wait_until(&pool.gate, empty);
            let now = pool.platform.now_ns();
            self.worth.waited(now.saturating_sub(start), now);
        }
    }
}

impl<P: Platform> Drop for Dispatcher<'_, '_, P> {
    fn drop(&mut self) {
        self.pool.dispatched.store(false, Ordering::Release);
    }
}

mod worker;
mod worth;

#[cfg(test)]
mod tests;
