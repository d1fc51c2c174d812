//! The band of a mask: what it shows to queries at most.
//!
//! Graphs of llama.cpp have rows of keys for a multiple of 256 positions, and say in a mask which of them a
//! query sees: those up to its own position, or a window of them. What such a mask hides is before or behind
//! a band along its diagonal. Keys and values outside of the band are not fetched, and have no scores. What
//! a mask hides within the band is found as scores are made.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use hexflash_abi::Fault;

use super::positions::{HIDDEN, hidden_halves};
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::pool::{Kernel, Worker, Workers};
use crate::vtcm::VtcmPlan;

/// Positions outside of which queries see nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    /// Edges of the positions that any query sees.
    positions: Edges,
    /// Diagonals: position p of query t is on diagonal p + `last` - t.
    diagonals: Edges,
    /// The number of the last query.
    last: usize,
}

/// From the first one to the one after the last.
type Edges = (usize, usize);

impl Band {
    /// All of `n` positions, for so many queries.
    pub fn whole(n: usize, queries: usize) -> Self {
        let last = queries.saturating_sub(1);
        Self { positions: (0, n), diagonals: (0, n + last), last }
    }

    /// The band of a mask {n',t',h',b'}, for so many queries over `n` positions: the narrowest that has all
    /// that it shows.
    ///
    /// # Errors
    /// Errors of the pool.
    pub fn of(
        pool: &mut dyn Workers,
        vtcm: VtcmPlan,
        mut mask: View,
        n: usize,
        queries: usize,
    ) -> Result<Self, Fault> {
        // A mask may be longer and wider than what it is for.
        mask.ne = [n, queries, mask.ne[2], mask.ne[3]];
        let look =
            Look { mask, last: queries.saturating_sub(1), positions: Ends::none(), diagonals: Ends::none() };
        pool.run(&look, vtcm)?;
        let (positions, diagonals) = (look.positions.edges(), look.diagonals.edges());
        Ok(match positions.zip(diagonals) {
            Some((positions, diagonals)) => Self { positions, diagonals, last: look.last },
            // A single position, which is hidden like all others.
            None => Self::whole(1, queries),
        })
    }

    /// Positions that a query may see: at least one. Both ends grow with its number.
    #[inline(always)]
    pub fn of_query(self, t: usize) -> Range<usize> {
        let (first, end) = self.positions;
        let on = |diagonal: usize| diagonal.saturating_sub(self.last.saturating_sub(t));
        let to = on(self.diagonals.1).clamp(first + 1, end);
        on(self.diagonals.0).clamp(first, to - 1)..to
    }
}

/// The lowest and the highest number that workers have noted.
struct Ends {
    lowest: AtomicUsize,
    highest: AtomicUsize,
}

impl Ends {
    const fn none() -> Self {
        Self { lowest: AtomicUsize::new(usize::MAX), highest: AtomicUsize::new(0) }
    }

    fn note(&self, lowest: usize, highest: usize) {
        // Relaxed: the end of the job orders what workers note before what the dispatcher reads.
        self.lowest.fetch_min(lowest, Ordering::Relaxed);
        self.highest.fetch_max(highest, Ordering::Relaxed);
    }

    /// `None` if nothing was noted.
    fn edges(&self) -> Option<Edges> {
        let (lowest, highest) = (self.lowest.load(Ordering::Relaxed), self.highest.load(Ordering::Relaxed));
        (lowest <= highest).then_some((lowest, highest + 1))
    }
}

/// Looks at the ends of each row of a mask: a unit is a row.
struct Look {
    mask: View,
    /// As in a [`Band`].
    last: usize,
    positions: Ends,
    diagonals: Ends,
}

/// Positions that are looked at together: a vector of them.
const TOGETHER: usize = 2 * LANES;

/// Whether a mask hides all positions of a vector.
///
/// # Safety
/// `halves` is valid for reading 64 of them.
#[inline(always)]
unsafe fn hides_all<H: Hvx>(halves: *const u16) -> bool {
    // SAFETY: 64 halves are the 128 bytes that are read (the caller's contract).
    let others = H::words(H::xor_b(unsafe { H::load_b(halves.cast()) }, hidden_halves::<H>()));
    let others = H::or_i(H::and_i(others, H::splat_i(0xffff)), H::shr_i::<16>(others));
    H::max_lane(H::to_float(others)) == 0.0
}

impl Look {
    /// The first and the last position of a row that the mask shows, if any.
    #[inline(always)]
    fn shown<H: Hvx>(&self, row: usize) -> Option<(usize, usize)> {
        let (n, row) = (self.mask.ne[0], self.mask.at(self.mask.unravel(row)).cast_const().cast::<u16>());
        // SAFETY: `at` has checked the indices of the row, whose length is at least `n` (the shape rule), and
        // callers name positions below that. F16 values are adjacent (layout of the slot) and aligned
        // (validation).
        let shows = |p: &usize| unsafe { row.add(*p).read() != HIDDEN };
        // SAFETY: 64 positions from `p` on are below `n`: those that end at `end`, which is at most `n`; and
        // those from `start` on, of which the last one is at most `last`.
        let hides_from = |p: usize| unsafe { hides_all::<H>(row.add(p)) };
        let (mut start, mut end) = (0, n);
        while end >= TOGETHER && hides_from(end - TOGETHER) {
            end -= TOGETHER;
        }
        let last = (0..end).rev().find(shows)?;
        while start + TOGETHER <= last && hides_from(start) {
            start += TOGETHER;
        }
        Some(((start..last).find(shows).unwrap_or(last), last))
    }
}

impl Kernel for Look {
    fn units(&self) -> usize {
        self.mask.rows()
    }

    fn work(&self) -> usize {
        // About 10 operations for a vector, and 100 where one is found that is not hidden. Of the positions
        // of a causal mask half are.
        self.mask.rows().saturating_mul(100 + self.mask.ne[0] / 12)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            if let Some((first, last)) = self.shown::<H>(unit) {
                let [t, ..] = self.mask.unravel(unit);
                self.positions.note(first, last);
                self.diagonals.note(first + self.last - t, last + self.last - t);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions that queries 0.. of a band see.
    fn seen(band: Band, queries: usize) -> std::vec::Vec<Range<usize>> {
        (0..queries).map(|t| band.of_query(t)).collect()
    }

    #[test]
    fn without_a_mask_all_see_all() {
        assert_eq!(seen(Band::whole(7, 3), 3), [0..7, 0..7, 0..7]);
    }

    /// Whatever the edges are: no query is without a position, none sees less at the end than one before it,
    /// or more at the beginning.
    #[test]
    fn ranges_grow_and_are_not_empty() {
        for (first, end) in [(0, 1), (0, 9), (3, 4), (2, 8)] {
            for (low, high) in (0..14).flat_map(|low| (low + 1..15).map(move |high| (low, high))) {
                let band = Band { positions: (first, end), diagonals: (low, high), last: 5 };
                let ranges = seen(band, 6);
                assert!(
                    ranges.iter().all(|r| first <= r.start && r.start < r.end && r.end <= end),
                    "{band:?}"
                );
                assert!(
                    ranges.is_sorted_by_key(|r| r.start) && ranges.is_sorted_by_key(|r| r.end),
                    "{band:?}"
                );
            }
        }
    }
}
