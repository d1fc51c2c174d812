//! A worker, as kernels see it: the units that it claims, its part of VTCM, its DMA queue and its share of
//! the weight stream.

use hexflash_abi::Fault;
use hexflash_abi::sync::{AtomicUsize, Ordering};

use super::Kernel;
use crate::dma::{DmaQueue, Transfer};
use crate::hvx::{Hvx, VectorPtr};
use crate::stream::{Staged, Stream, WeightRing};
use crate::vtcm::{Vtcm, VtcmPlan};

/// What a kernel sees of the worker that runs it.
pub struct Worker<'p> {
    /// The worker's own DMA queue.
    pub dma: &'p mut DmaQueue,
    /// 0 for the dispatcher.
    pub id: usize,
    pub(super) ring: &'p mut WeightRing,
    pub(super) counter: &'p AtomicUsize,
    pub(super) units: usize,
    pub(super) vtcm: Vtcm,
    pub(super) plan: VtcmPlan,
}

impl Worker<'_> {
    /// The next unit of work, or `None` when all are taken.
    #[inline]
    pub fn claim(&self) -> Option<usize> {
        // Relaxed: units are independent; the barrier at the end orders their results.
        let unit = self.counter.fetch_add(1, Ordering::Relaxed);
        (unit < self.units).then_some(unit)
    }

    /// This worker's own region of VTCM.
    #[inline]
    pub fn own_vtcm(&self) -> VectorPtr {
        self.vtcm.region(self.plan.shared + self.id * self.plan.own, self.plan.own)
    }

    /// The region of VTCM that all workers share, and its bytes.
    #[inline]
    pub fn shared_vtcm(&self) -> (VectorPtr, usize) {
        (self.vtcm.region(0, self.plan.shared), self.plan.shared)
    }

    /// The region that all workers share, for a kernel that uses it as `wanted` says.
    ///
    /// # Panics
    /// If that region, or a worker's own, has fewer bytes.
    #[inline(always)]
    pub fn shared_vtcm_for(&self, wanted: VtcmPlan) -> VectorPtr {
        let (base, bytes) = self.shared_vtcm();
        assert!(wanted.shared <= bytes && wanted.own <= self.own_bytes());
        base
    }

    /// Bytes of each worker's own region.
    pub fn own_bytes(&self) -> usize {
        self.plan.own
    }

    /// Begins or goes on with this worker's share of the weight stream: gives back the room of the piece that
    /// was multiplied, fetches what there is room for, and gives the next piece of a unit before `end`.
    #[inline(never)]
    pub fn next_piece(&mut self, stream: &Stream<'_>, multiplied: bool, end: u32) -> Option<Staged> {
        if multiplied {
            self.ring.pop();
        } else if self.ring.back().is_some_and(|newest| self.dma.is_done(newest.ticket)) {
            self.ring.note_dry(stream);
        }
        let room = self.weight_ring(stream, 0);
        let dma = &mut *self.dma;
        self.ring.fill(stream, |wanted| {
            let dst = room.get().wrapping_add(wanted.offset);
            // SAFETY: the source is part of a strip of one of the stream's matrices, which is readable and
            // which nobody writes as long as this worker has pieces (point 1 of `Stream::new`). The
            // destination lies in this worker's ring, which nobody else uses (point 2), and the ring gives
            // room once until the piece there is popped: it was waited for then, or the queue was drained
            // (`work`, `Drain`). A buffer and VTCM do not overlap.
            unsafe { dma.push_ahead(Transfer::linear(wanted.src, dst, wanted.bytes)) }
        });
        self.ring.front(end)
    }

    /// The room of this worker's ring from `offset` on, which is a multiple of a vector.
    pub fn weight_ring(&self, stream: &Stream<'_>, offset: usize) -> VectorPtr {
        let (base, bytes) = (stream.layout.base, stream.layout.bytes);
        self.vtcm.region(base + self.id * bytes + offset, bytes - offset)
    }

    /// Waits for all transfers of this worker, and forgets what they brought.
    pub(super) fn drain(&mut self) -> Result<(), Fault> {
        let outcome = self.dma.drain();
        self.ring.clear();
        outcome
    }
}

/// Ends the weight stream of every worker that has a part of it.
pub(super) struct Drain;

impl Kernel for Drain {
    fn units(&self) -> usize {
        0
    }

    fn work(&self) -> usize {
        0
    }

    fn stream_end(&self) -> u32 {
        u32::MAX
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        worker.drain()
    }
}

/// What belongs to one worker alone.
pub(super) struct Own {
    pub dma: DmaQueue,
    pub ring: WeightRing,
}
