//! What is found in splits of the keys, and how it becomes a result.

use super::attention::Attention;
use super::format::ValueSums;
use super::state::{self, found_vectors};
use crate::hvx::{Hvx, VectorPtr, math};
use crate::kernels::shared::lanes::INDEX;

/// What was found for a row in some splits: the highest score, in all lanes; sums of exp(x - highest), lane
/// by lane; sums of values. Vectors in VTCM.
#[derive(Clone, Copy)]
pub struct Found {
    pub first: VectorPtr,
    pub v_vectors: usize,
}

impl Found {
    /// All its vectors.
    #[inline(always)]
    const fn vectors(self) -> usize {
        found_vectors(self.v_vectors)
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

    /// Divides the sums of values, of all splits of a row of y, by the sum of weights, sinks included, and
    /// writes them. The highest score has the weight `largest`.
    ///
    /// # Safety
    /// 1. Its vectors are the worker's own.
    /// 2. This worker alone has claimed the row.
    #[inline(always)]
    pub unsafe fn finish<H: Hvx>(self, of: &Attention, row: [usize; 3], largest: f32) {
        // SAFETY: it has these vectors (the caller's contract, point 1).
        let (highest, sums) = unsafe { (self.first.load::<H>(0), self.first.load::<H>(1)) };
        // SAFETY: this worker alone has claimed this row of y (the caller's contract, point 2).
        let mut y = unsafe { of.y.row_mut(row) };
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
        let factor = if let Some(sinks) = &of.sinks {
            let sink = H::splat(sinks.row([0; 3]).get(row[0]));
            let top = H::max(sink, highest);
            let shrink = math::exp::<H>(H::sub(highest, top));
            let sink = H::mul_ieee(math::exp::<H>(H::sub(sink, top)), H::splat(largest));
            H::div(shrink, H::add(H::mul(sum, shrink), sink))
        } else {
            H::div(H::splat(1.0), sum)
        };
        let sums =
            ValueSums { first: self.first.skip(state::VALUES - state::FOUND), vectors: self.v_vectors };
        // SAFETY: these are its sums of values, the worker's own (the caller's contract, point 1), as
        // many vectors as a value of the length of y has. Nobody reads them again before they are cleared.
        unsafe { of.values.finish::<H>(sums, factor, &mut y) };
    }
}
