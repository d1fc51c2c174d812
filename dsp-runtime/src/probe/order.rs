//! Two transfers, the first of them much longer: which is done first?
//!
//! Kernels never depend on it. Where a queue keeps its order, though, one wait would do for several
//! transfers; and where two queues share one engine, a worker's small transfers wait for another's weights.

use hexflash_abi::Fault;
use hexflash_abi::probe::{ANSWER_WORDS, SHORT_BYTES};
use hexflash_abi::sync::{AtomicU32, Ordering};

use super::data::Data;
use crate::dma::Transfer;
use crate::hvx::Hvx;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker, Workers};
use crate::vtcm::VtcmPlan;

/// Bytes of the short transfer.
const SHORT: usize = SHORT_BYTES as usize;
/// How long a worker waits for a second one, in nanoseconds.
const MUSTER_NS: u64 = 50_000_000;
/// How long a worker waits for what another one must do.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Pairs of transfers in one queue.
struct OneQueue {
    data: Data,
    /// Bytes of the long transfer.
    long: usize,
    rounds: u32,
    seen: AtomicU32,
    written_last: AtomicU32,
    by_engine: AtomicU32,
}

/// Words about one queue: see [`hexflash_abi::probe::Question`].
///
/// # Errors
/// A failed transfer.
///
/// # Safety
/// 1. `bytes` are readable at `data`: at least [`SHORT`] more than a short transfer has.
/// 2. The plan has as many bytes for all workers.
pub(super) unsafe fn one_queue(
    pool: &mut impl Workers,
    rounds: u32,
    data: Data,
    bytes: usize,
    plan: VtcmPlan,
) -> Result<[u32; ANSWER_WORDS], Fault> {
    let [seen, written_last, by_engine] = [0; 3].map(AtomicU32::new);
    let job = OneQueue { data, long: bytes - SHORT, rounds, seen, written_last, by_engine };
    pool.run(&job, plan)?;
    // Relaxed, here and below: the job is done.
    let [seen, last, engine] =
        [&job.seen, &job.written_last, &job.by_engine].map(|word| word.load(Ordering::Relaxed));
    Ok([rounds, seen, last, engine, 0])
}

impl Kernel for OneQueue {
    fn units(&self) -> usize {
        1
    }

    fn work(&self) -> usize {
        0
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.transfer(worker)
    }
}

impl OneQueue {
    #[inline(never)]
    fn transfer(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let place = worker.shared_vtcm_for(VtcmPlan { shared: self.long + SHORT, own: 0 }).get();
        let end = place.wrapping_add(self.long - SHORT);
        let behind = self.data.0.wrapping_add(self.long);
        self.by_engine.store(u32::from(worker.dma.by_engine()), Ordering::Relaxed);
        for _ in 0..self.rounds {
            // SAFETY: sources are readable for as many bytes (point 1 of `one_queue`, which makes all
            // `OneQueue`s), and the host, which may write them, makes wrong answers of it at worst; the
            // destination lies in the region that all workers share (point 2), which only this job uses.
            // Both transfers write its end, which no kernel may have them do: it shows which was last. In
            // software, each of them happens inside of a call of this thread. What they have written is
            // looked at when both were waited for, in the same turn.
            let (long, short) = unsafe {
                (
                    worker.dma.push(Transfer::linear(self.data.0, place, self.long)),
                    worker.dma.push(Transfer::linear(behind, end, SHORT)),
                )
            };
            if worker.dma.overtakes(short, long) {
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
            worker.dma.wait(short)?;
            worker.dma.wait(long)?;
            let is_of_short = (0..SHORT / 4).all(|i| {
                // SAFETY: both are words of the short transfer, of its source and its destination, which are
                // readable (see above); the destination is a multiple of 128, as the region and SHORT are.
                // Volatile, because an engine has written one and the host may write the other.
                unsafe {
                    let (from, to) = (behind.cast::<u32>().add(i), end.cast::<u32>().add(i));
                    from.read_volatile() == to.read_volatile()
                }
            });
            if !is_of_short {
                self.written_last.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Nobody has come to the second unit.
const ALONE: u32 = 0;
/// The second worker is there.
const READY: u32 = 1;
/// The long transfer is under way.
const STARTED: u32 = 2;
/// The short one is done.
const DONE: u32 = 3;
/// No second worker came in time.
const GIVEN_UP: u32 = 4;

/// A pair of transfers in two queues.
struct TwoQueues<'a, P> {
    platform: &'a P,
    data: Data,
    /// Bytes of the long transfer.
    long: usize,
    /// Events so far, from [`ALONE`] on.
    state: AtomicU32,
    overtaken: AtomicU32,
    by_engine: AtomicU32,
}

/// Words about two queues: see [`hexflash_abi::probe::Question`]; `None` if no second thread came.
///
/// # Errors
/// A failed transfer.
///
/// # Safety
/// Points 1 and 2 of [`one_queue`].
pub(super) unsafe fn two_queues<P: Platform>(
    pool: &mut impl Workers,
    platform: &P,
    rounds: u32,
    data: Data,
    bytes: usize,
    plan: VtcmPlan,
) -> Result<Option<[u32; ANSWER_WORDS]>, Fault> {
    if pool.workers() < 2 {
        return Ok(None);
    }
    let [state, overtaken, by_engine] = [0; 3].map(AtomicU32::new);
    let job = TwoQueues { platform, data, long: bytes - SHORT, state, overtaken, by_engine };
    let mut done = 0;
    while done < rounds {
        // Relaxed: no job runs.
        job.state.store(ALONE, Ordering::Relaxed);
        pool.run(&job, plan)?;
        if job.state.load(Ordering::Relaxed) != DONE {
            break;
        }
        done += 1;
    }
    let [overtaken, engine] = [&job.overtaken, &job.by_engine].map(|word| word.load(Ordering::Relaxed));
    Ok((done > 0).then_some([done, overtaken, 0, engine, 0]))
}

impl<P: Platform> Kernel for TwoQueues<'_, P> {
    fn units(&self) -> usize {
        2
    }

    /// Always worth a second worker.
    fn work(&self) -> usize {
        1 << 20
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        // Units are claimed in their order. Who claims both has waited in vain, and has given up.
        while let Some(unit) = worker.claim() {
            if unit == 0 { self.first(worker)? } else { self.second(worker)? }
        }
        Ok(())
    }
}

impl<P: Platform> TwoQueues<'_, P> {
    /// Waits until the state is `wanted`; `false` if it is not so in time.
    fn comes(&self, wanted: u32, patience_ns: u64) -> bool {
        let start = self.platform.now_ns();
        // Acquire: what was done before the state changed has happened.
        while self.state.load(Ordering::Acquire) != wanted {
            if self.platform.now_ns().saturating_sub(start) > patience_ns {
                return false;
            }
            self.platform.relax();
        }
        true
    }

    /// Changes the state, if it is `from`.
    fn moves(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The long transfer, once there is somebody for the short one.
    #[inline(never)]
    fn first(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        if !self.comes(READY, MUSTER_NS) && self.moves(ALONE, GIVEN_UP) {
            return Ok(());
        }
        let place = worker.shared_vtcm_for(VtcmPlan { shared: self.long + SHORT, own: 0 }).get();
        self.by_engine.store(u32::from(worker.dma.by_engine()), Ordering::Relaxed);
        // SAFETY: the source is readable for as many bytes (point 1 of `two_queues`, which makes all
        // `TwoQueues`), and the host, which may write it, makes no difference to anybody. The destination is
        // the first part of the region that all workers share (point 2), which nobody else writes or reads.
        let long = unsafe { worker.dma.push(Transfer::linear(self.data.0, place, self.long)) };
        // Release: a transfer in software has happened.
        self.state.store(STARTED, Ordering::Release);
        let start = self.platform.now_ns();
        while self.platform.now_ns().saturating_sub(start) <= PATIENCE_NS {
            // In this order: a long one that is not done after the short one was has been overtaken.
            let short_done = self.state.load(Ordering::Acquire) == DONE;
            let long_done = worker.dma.is_done(long);
            if short_done && !long_done {
                self.overtaken.fetch_add(1, Ordering::Relaxed);
            }
            if short_done || long_done {
                break;
            }
            worker.dma.look();
            self.platform.relax();
        }
        worker.dma.wait(long)
    }

    /// The short transfer, once the long one is under way.
    #[inline(never)]
    fn second(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        if !self.moves(ALONE, READY) || !self.comes(STARTED, PATIENCE_NS) {
            return Ok(());
        }
        let place = worker.shared_vtcm_for(VtcmPlan { shared: self.long + SHORT, own: 0 }).get();
        let (from, to) = (self.data.0.wrapping_add(self.long), place.wrapping_add(self.long));
        // SAFETY: as for the long one; source and destination begin where those of the long one end.
        let short = unsafe { worker.dma.push(Transfer::linear(from, to, SHORT)) };
        let outcome = worker.dma.wait(short);
        // Release: the transfer has happened.
        self.state.store(DONE, Ordering::Release);
        outcome
    }
}
