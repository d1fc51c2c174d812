//! The weight stream: the weights of a program in the order in which its ops read them, fetched ahead of the
//! ops that multiply them.
//!
//! A program reads the same matrices in the same order at every step. Were each matrix product to begin with
//! its own first transfer, memory would be idle while attention, norms and other small ops run. So the units
//! of all matrix products of a program are numbered in one sequence, and a worker that has room in VTCM
//! claims the next unit of the whole sequence, whichever op it belongs to.
//!
//! * **Who starts transfers.** Each worker, in its own DMA queue, while it takes part in a matrix product:
//!   when a piece has been multiplied, its room is given to the next piece of the stream, which may be of a
//!   later op, of a later layer or of the LM head. An engine works through what it was given by itself, so
//!   that small ops need not know about the stream. What they transfer themselves queues up behind it; memory
//!   is busy meanwhile.
//! * **Who multiplies.** Whoever claimed a unit. Units are claimed from one counter (`Stream::claim`) in
//!   order, so the pieces that a worker has staged are in order, too, and those of the op at hand come first
//!   ([`WeightRing`]). A worker has done its share of an op when its first piece belongs to a later one. The
//!   pool waits for each worker whose first piece belongs to the op at hand
//!   ([`Kernel::stream_end`](crate::pool::Kernel::stream_end)).
//! * **Room.** The ops of a program keep to the lower part of VTCM. Behind it each worker has a ring
//!   ([`RingLayout`]), which gives room in the order in which it was taken.
//! * **The end.** A stream lives as long as one run of its program. A run that ends normally has multiplied
//!   all that was claimed. One that ends early, by a fault or because rounds have ended, is drained: each
//!   worker waits for its own transfers and forgets what it staged
//!   ([`Dispatcher::drain`](crate::pool::Dispatcher::drain)). So between two messages no transfer is under
//!   way: VTCM may be lent away then, and buffers may be unmapped. That is also why the stream does not reach
//!   across steps: the next message may be of another kind, and VTCM is another's until it has come.
//! * **What is read.** Strips of validated matrices, in buffers that no op of the program writes
//!   (`plan_stream` in `program.rs`). Prompt pieces of more rows than a pass has read their weights several
//!   times, and are bound by arithmetic: their programs have no stream, and neither has MUL_MAT_ID, whose
//!   matrices depend on data.
//!
//! How a strip is cut, and when its pieces arrive, does not change the order of additions: results are the
//! same bits with the stream and without.

mod ring;
#[cfg(test)]
mod tests;

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::sync::{AtomicU32, Ordering};

pub use ring::{Piece, Staged, StreamCounts, WeightRing};

/// Rows of x that a pass over the weights serves, and so the most that a step of a streamed program has.
pub const MAX_ROWS: usize = 64;

/// Pieces that a ring has room for, at least: with fewer, transfers would wait for products.
pub const MIN_PIECES: usize = 4;

/// Bytes of a ring, at most. What is under way ahead of an op delays the op's own transfers, and more than
/// this covers no gap that a step has: with a ring of twice the size, the step of `tests/clock.rs` takes
/// longer.
pub const MOST_BYTES: usize = 1 << 20;

/// Units of a stream, at most: the counter stays above them when all workers have found it at its end.
const MAX_UNITS: u32 = u32::MAX - (1 << 16);

/// Where the rings lie: behind what ops use of VTCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// First byte of the first worker's ring.
    pub base: usize,
    /// Bytes of each worker's ring: whole vectors.
    pub bytes: usize,
    /// Units of the stream.
    pub units: u32,
}

impl RingLayout {
    /// Rings for `workers` workers in what `used` bytes leave of `vtcm_bytes`; without units yet.
    pub fn behind(used: usize, workers: usize, vtcm_bytes: usize) -> Self {
        let base = used.next_multiple_of(VECTOR_BYTES);
        let room = vtcm_bytes.saturating_sub(base) / workers;
        let bytes = room.min(MOST_BYTES) / VECTOR_BYTES * VECTOR_BYTES;
        Self { base, bytes, units: 0 }
    }

    /// The longest piece.
    pub const fn piece_bytes(&self) -> usize {
        self.bytes / MIN_PIECES
    }

    /// Adds the units of one more matrix; gives the number behind its last. `None`: there are too many.
    pub fn push(&mut self, units: usize) -> Option<u32> {
        let units = u32::try_from(units).ok().and_then(|units| self.units.checked_add(units));
        self.units = units.filter(|&units| units <= MAX_UNITS)?;
        Some(self.units)
    }
}

/// A matrix of the stream: rows of groups, cut into units of strips.
#[derive(Clone, Copy, Debug)]
pub struct StreamedMatrix {
    /// Number of the first unit, and the number behind the last one.
    pub first: u32,
    /// See `first`.
    pub end: u32,
    /// The first strip.
    pub base: *const u8,
    /// Strips of the matrix, and of a unit. (The last unit may have fewer.)
    pub strips: usize,
    /// See `strips`.
    pub unit_strips: usize,
    /// Groups of a strip.
    pub groups: usize,
    /// Groups of a strip that a piece has, at most.
    pub piece_groups: usize,
    /// Bytes of a group.
    pub group_bytes: usize,
}

// SAFETY: an address range. Only `push_ahead` reads there, by the contract of the stream that gave the
// matrix (`Stream::new`).
unsafe impl Send for StreamedMatrix {}
// SAFETY: `&StreamedMatrix` gives no more than a copy does: an address.
unsafe impl Sync for StreamedMatrix {}

impl StreamedMatrix {
    /// A matrix of `strips` strips of `groups` groups, in pieces of `piece_groups` groups: a part of a strip,
    /// or as many whole strips as have so many groups. Its units are numbered up to `end`.
    pub fn new(
        base: *const u8,
        [strips, groups]: [usize; 2],
        piece_groups: usize,
        group_bytes: usize,
        end: u32,
    ) -> Self {
        let unit_strips = unit_strips(piece_groups, groups);
        let first = end - strips.div_ceil(unit_strips) as u32;
        Self { first, end, base, strips, unit_strips, groups, piece_groups, group_bytes }
    }
}

/// Strips of a unit: one, or as many as a piece has.
pub const fn unit_strips(piece_groups: usize, groups: usize) -> usize {
    if piece_groups > groups { piece_groups / groups } else { 1 }
}

/// What knows the matrices of a stream.
pub trait Matrices: Sync {
    /// The first matrix whose units end behind `unit`, if there is one.
    fn holding(&self, unit: u32) -> Option<StreamedMatrix>;
}

/// A program's weight stream, for one run.
pub struct Stream<'a> {
    matrices: &'a dyn Matrices,
    /// Where the rings lie.
    pub layout: RingLayout,
    /// The next unit.
    next: AtomicU32,
}

impl<'a> Stream<'a> {
    /// The stream from its beginning.
    ///
    /// # Safety
    /// As long as a worker has pieces of it (until it was drained, or all its units were multiplied):
    /// 1. every strip of every matrix is readable, and nobody writes it;
    /// 2. nobody but the pool's workers uses the rings, each worker its own.
    pub unsafe fn new(matrices: &'a dyn Matrices, layout: RingLayout) -> Self {
        Self { matrices, layout, next: AtomicU32::new(0) }
    }

    /// The next unit that nobody has; `None` when all are taken.
    fn claim(&self) -> Option<u32> {
        // Relaxed: units are independent; the barrier at the end of a job orders their results. The first
        // look keeps the counter from running on.
        if self.next.load(Ordering::Relaxed) >= self.layout.units {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&unit| unit < self.layout.units)
    }

    /// Whether there are units that nobody has claimed.
    fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.layout.units
    }

    /// The matrix that has `unit`.
    pub fn matrix(&self, unit: u32) -> Option<StreamedMatrix> {
        self.matrices.holding(unit)
    }
}
