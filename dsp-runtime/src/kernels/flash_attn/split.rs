//! What is found in splits of the keys, and how it becomes a result.

use hexflash_abi::Fault;

use super::attend::{Attend, Query};
use super::format::Sums;
use super::{Attention, LARGEST_WEIGHT, state};
use crate::hvx::{Hvx, VectorPtr, math};
use crate::kernels::INDEX;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};

/// Operations that an exponential takes, about.
const EXP: usize = 40;

/// What was found for a row in some splits: the highest score, in all lanes; sums of exp(x - highest), lane
/// by lane; sums of values. Vectors in VTCM.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub first: VectorPtr,
    pub v_vectors: usize,
}

impl Found {
    /// All its vectors.
    #[inline(always)]
    const fn vectors(self) -> usize {
        super::found_vectors(self.v_vectors)
    }

    /// The one behind it.
    #[inline(always)]
    pub const fn next(self) -> Self {
        Self { first: self.first.skip(self.vectors()), ..self }
    }

    /// Nothing found.
    ///
    /// # Safety
    /// Its vectors are valid for writing.
    #[inline(always)]
    pub unsafe fn clear<H: Hvx>(self) {
        // SAFETY: these are its vectors, of which there are at least two (the caller's contract).
        unsafe {
            self.first.store::<H>(0, H::splat(f32::NEG_INFINITY));
            for v in 1..self.vectors() {
                self.first.store::<H>(v, H::splat(0.0));
            }
        }
    }

    /// Becomes `other`.
    ///
    /// # Safety
    /// Its vectors are valid for writing, those of `other` for reading.
    #[inline(always)]
    pub unsafe fn copy<H: Hvx>(self, other: Self) {
        for v in 0..self.vectors() {
            // SAFETY: both have so many vectors (the caller's contract).
            unsafe { self.first.store::<H>(v, other.first.load::<H>(v)) };
        }
    }

    /// Becomes what was found in its splits and in another one.
    ///
    /// # Safety
    /// Its vectors are valid for reading and writing, those of `other` for reading.
    #[inline(always)]
    pub unsafe fn add<H: Hvx>(self, other: Self) {
        // SAFETY: each begins with its highest score (the caller's contract).
        let (before, highest) = unsafe { (self.first.load::<H>(0), other.first.load::<H>(0)) };
        if H::max_lane(highest) == f32::NEG_INFINITY {
            return;
        }
        if H::max_lane(before) == f32::NEG_INFINITY {
            // SAFETY: the contract is the caller's.
            unsafe { self.copy::<H>(other) };
            return;
        }
        let now = H::max(highest, before);
        // In lanes 0 and 1: exp takes as long for two numbers as for one.
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        let less = H::select_gt(lane, H::splat(0.5), H::sub(highest, now), H::sub(before, now));
        let factors = H::lanes(math::exp::<H>(less));
        let (old, new) = (H::lane(&factors, 0), H::lane(&factors, 1));
        // SAFETY: both have so many vectors (the caller's contract).
        unsafe {
            self.first.store::<H>(0, now);
            for v in 1..self.vectors() {
                let (a, b) = (self.first.load::<H>(v), other.first.load::<H>(v));
                self.first.store::<H>(v, H::add(H::mul(a, old), H::mul(b, new)));
            }
        }
    }
}

impl Attention {
    /// Divides the sums of values of a row of y by the sum of weights, sinks included, and writes them. The
    /// highest score has the weight `largest`.
    ///
    /// # Safety
    /// 1. The vectors of `total` are the worker's own.
    /// 2. This worker alone has claimed the row.
    #[inline(always)]
    pub(super) unsafe fn finish<H: Hvx>(&self, total: Found, row: [usize; 3], largest: f32) {
        // SAFETY: the total has these vectors (the caller's contract, point 1).
        let (highest, sums) = unsafe { (total.first.load::<H>(0), total.first.load::<H>(1)) };
        // SAFETY: this worker alone has claimed this row of y (the caller's contract, point 2).
        let mut y = unsafe { self.y.row_mut(row) };
        let top = H::max_lane(highest);
        if top.is_infinite() {
            // A score was not finite: where there is NaN the sum is NaN by now, where there is none it is a
            // number. Or nothing was seen.
            let value = if top > 0.0 { f32::NAN } else { 0.0 };
            for j in 0..y.len() {
                y.set(j, value);
            }
            return;
        }
        let sum = H::splat(H::sum(sums));
        let factor = if let Some(sinks) = &self.sinks {
            let sink = H::splat(sinks.row([0; 3]).get(row[0]));
            let top = H::max(sink, highest);
            let shrink = math::exp::<H>(H::sub(highest, top));
            let sink = H::mul_ieee(math::exp::<H>(H::sub(sink, top)), H::splat(largest));
            H::div(shrink, H::add(H::mul(sum, shrink), sink))
        } else {
            H::div(H::splat(1.0), sum)
        };
        let sums = Sums { first: total.first.skip(state::VALUES - state::FOUND), vectors: total.v_vectors };
        // SAFETY: these are the total's sums of values, the worker's own (the caller's contract, point 1), as
        // many vectors as a value of the length of y has. Nobody reads them again before they are cleared.
        unsafe { self.values.finish::<H>(sums, factor, &mut y) };
    }
}

/// Puts together what units found that were splits: a unit is a row of y.
pub(super) struct PutTogether<'a> {
    pub attend: &'a Attend<'a>,
    /// Splits of a row, at most.
    pub splits: usize,
}

impl PutTogether<'_> {
    #[inline(always)]
    fn units_of_span(&self, span: &Span) -> usize {
        span.rows * self.attend.of.y.ne[1] * self.attend.of.y.ne[3]
    }
}

impl Kernel for PutTogether<'_> {
    fn units(&self) -> usize {
        crate::step::units(self.attend.spans, |span| self.units_of_span(span))
    }

    fn work(&self) -> usize {
        // A split of a row takes an exponential, and about eight operations per vector of values.
        self.units().saturating_mul(self.splits * (EXP + 8 * self.attend.stage.v_vectors))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let attend = self.attend;
        assert!(worker.own_bytes() >= attend.stage.found());
        let total = Found { first: worker.own_vtcm(), v_vectors: attend.stage.v_vectors };
        let mut cursor = Cursor::new(attend.spans, |span| self.units_of_span(span));
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, |span| self.units_of_span(span));
            let (head, unit) = (unit % attend.of.y.ne[1], unit / attend.of.y.ne[1]);
            let (token, batch) = (span.first + unit % span.rows, unit / span.rows);
            let query = Query { token, head, from: 0, to: 0 };
            // SAFETY: the total is in the worker's own VTCM, which has room for it (the assertion above). The
            // places were written by the kernel before this one, and nobody writes them now. `claim` gave
            // this row of y to this worker alone.
            unsafe {
                total.clear::<H>();
                for split in 0..attend.splits_of(span).len() {
                    total.add::<H>(attend.place_of(worker, &query, batch, self.splits, split));
                }
                attend.of.finish::<H>(total, [head, token, batch], LARGEST_WEIGHT);
            }
        }
        Ok(())
    }
}
