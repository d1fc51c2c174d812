//! How many cycles packets take.

use hexflash_abi::Fault;
use hexflash_abi::probe::{ANSWER_WORDS, Loop};
use hexflash_abi::sync::{AtomicU32, Ordering};

use super::loops;
use crate::hvx::Hvx;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker, Workers};
use crate::vtcm::VtcmPlan;

/// Bytes of VTCM that are loaded.
pub(super) const BYTES: usize = 4 * hexflash_abi::VECTOR_BYTES;

/// A loop on the thread that dispatches.
struct Timed<'a, P> {
    platform: &'a P,
    kind: Loop,
    /// Packets, cycles and nanoseconds.
    taken: [AtomicU32; 3],
}

/// Words about a loop: see [`hexflash_abi::probe::Question`]; `None` off Hexagon.
///
/// # Errors
/// None of its own.
pub(super) fn ask<P: Platform>(
    pool: &mut impl Workers,
    platform: &P,
    kind: Loop,
    plan: VtcmPlan,
) -> Result<Option<[u32; ANSWER_WORDS]>, Fault> {
    let job = Timed { platform, kind, taken: [0; 3].map(AtomicU32::new) };
    pool.run(&job, plan)?;
    // Relaxed: the job is done.
    let [packets, cycles, ns] = job.taken.each_ref().map(|word| word.load(Ordering::Relaxed));
    Ok((packets > 0).then_some([packets, cycles, ns, 0, 0]))
}

impl<P: Platform> Kernel for Timed<'_, P> {
    fn units(&self) -> usize {
        1
    }

    fn work(&self) -> usize {
        0
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.measure(worker);
        Ok(())
    }
}

impl<P: Platform> Timed<'_, P> {
    #[inline(never)]
    fn measure(&self, worker: &Worker<'_>) {
        let place = worker.shared_vtcm_for(VtcmPlan { shared: BYTES, own: 0 });
        // SAFETY: the region that all workers share has BYTES, by the line above, which are the four vectors
        // that are loaded; only this job uses it.
        let run = || unsafe { loops::run(self.kind, place) };
        // Once before, so that the code is in its cache.
        run();
        let (start, before) = (self.platform.now_ns(), self.platform.cycles());
        let packets = run();
        let cycles = self.platform.cycles().wrapping_sub(before);
        let ns = u32::try_from(self.platform.now_ns().saturating_sub(start)).unwrap_or(u32::MAX);
        for (word, value) in self.taken.iter().zip([packets, cycles, ns]) {
            // Relaxed: the thread that reads them is this one.
            word.store(value, Ordering::Relaxed);
        }
    }
}
