//! What happens in one tile of 32 positions: scores, weights, values.

use half::f16;

use super::attend::{Attend, AttendMemory, Query, Unit};
use super::{MAX_ROWS, TILE};
use crate::hvx::{Hvx, LANES, math};
use crate::kernels::INDEX;
use crate::memory::View;

const _: () = assert!(TILE == LANES);

/// What a row adds from a tile: exp(x - maximum) by lane, for lanes `from..to`, after shrinking what it had.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct SoftmaxRow {
    p: [f32; LANES],
    shrink: f32,
    from: usize,
    to: usize,
}

impl SoftmaxRow {
    /// Nothing.
    pub const NONE: Self = Self { p: [0.0; LANES], shrink: 0.0, from: 0, to: 0 };
}

/// The mask of one token in a tile, kept while the heads that share it pass by.
struct MaskTile {
    row: *const u8,
    /// Lanes that were read.
    range: (usize, usize),
    lanes: [f32; LANES],
}

impl Attend<'_> {
    /// Scores of a tile for every row of the unit, and from them weights, new maxima and sums.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. The slot holds the tile of K.
    #[inline(always)]
    pub(super) unsafe fn weigh<H: Hvx>(
        &self,
        places: AttendMemory,
        slot: usize,
        unit: &Unit<'_>,
        tile: usize,
        weights: &mut [SoftmaxRow; MAX_ROWS],
    ) {
        let mut mask = MaskTile { row: core::ptr::null(), range: (0, 0), lanes: [0.0; LANES] };
        // SAFETY: slot `slot` holds the tile of K, as its format stages it (the caller's contract, point 2),
        // and `wide` has room for it as floats (`AttendLayout::wide`); both are the worker's own (point 1),
        // and in whole vectors.
        unsafe { self.keys.widen_keys::<H>(places.slots[slot], places.wide, self.q.ne[0]) };
        let mut i = 0;
        while i < unit.rows {
            // SAFETY: the places are the worker's own (the caller's contract, point 1), the tile of K was
            // widened above, a vector per k, and each call takes rows below `unit.rows`.
            unsafe {
                if H::REGISTERS >= 8 && i + 4 <= unit.rows {
                    self.score::<H, 4>(places, slot, unit, tile, i, &mut mask, weights);
                    i += 4;
                } else if i + 2 <= unit.rows {
                    self.score::<H, 2>(places, slot, unit, tile, i, &mut mask, weights);
                    i += 2;
                } else {
                    self.score::<H, 1>(places, slot, unit, tile, i, &mut mask, weights);
                    i += 1;
                }
            }
        }
    }

    /// Scores of R rows from row `i`: q.k over d from 0 up, positions in lanes, then what the format adds.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. The slot holds the tile of K, and `places.wide` the same, widened.
    /// 3. Rows `i..i + R` are the unit's.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // Those of `weigh`, and the rows.
    unsafe fn score<H: Hvx, const R: usize>(
        &self,
        places: AttendMemory,
        slot: usize,
        unit: &Unit<'_>,
        tile: usize,
        i: usize,
        mask: &mut MaskTile,
        weights: &mut [SoftmaxRow; MAX_ROWS],
    ) {
        let d = self.q.ne[0];
        let mut queries = [self.query(unit, i); R];
        // Exactly d floats, so that the loop needs no bounds checks.
        let mut rows = [self.queries.row([queries[0].head, queries[0].token, unit.batch]); R];
        for r in 0..R {
            queries[r] = self.query(unit, i + r);
            rows[r] = self.queries.row([queries[r].head, queries[r].token, unit.batch]).part(0, d);
        }
        let mut x = [H::splat(0.0); R];
        for k in 0..d {
            // SAFETY: `wide` holds the widened tile, a vector for each k below `d` (the caller's contract,
            // point 2).
            let keys = unsafe { H::load(places.wide.wrapping_add(k * LANES)) };
            for r in 0..R {
                x[r] = H::add(x[r], H::mul(keys, H::splat(rows[r].get(k))));
            }
        }
        // SAFETY: the slot holds the tile of K, as its format stages it (the caller's contract, point 2).
        unsafe { self.keys.complete_scores::<H, R>(places.slots[slot], d, &mut x) };
        for r in 0..R {
            let state = self.state(places, i + r);
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract, points 1 and 3).
            unsafe { self.weigh_row::<H>(&queries[r], unit, tile, x[r], mask, state, &mut weights[i + r]) };
        }
    }

    /// A row's weights in a tile, from its q.k.
    ///
    /// # Safety
    /// `state` is the row's state, at least two vectors in the worker's own VTCM.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // One row's everything; a struct for one call says no more.
    unsafe fn weigh_row<H: Hvx>(
        &self,
        query: &Query,
        unit: &Unit<'_>,
        tile: usize,
        x: H::F,
        mask: &mut MaskTile,
        state: *mut f32,
        weights: &mut SoftmaxRow,
    ) {
        let start = tile * TILE;
        let within = |p: usize| p.clamp(start, start + TILE) - start;
        let (from, to) = (within(query.from), within(query.to));
        (weights.from, weights.to) = (0, 0);
        if from == to {
            return;
        }
        let hidden = H::splat(f32::NEG_INFINITY);
        let mut x = H::mul(x, H::splat(self.params.scale));
        if self.params.softcap > 0.0 {
            let cap = H::splat(self.params.softcap);
            x = or_infinity::<H>(x, H::mul(cap, math::tanh::<H>(H::div(x, cap))));
        }
        if let Some(view) = &self.mask {
            mask.read(view, query, unit.batch, start, (from, to));
            // SAFETY: `mask.lanes` is an array of 32 floats, which are 128 bytes.
            let bias = unsafe { H::load(mask.lanes.as_ptr()) };
            let biased = H::add(x, H::mul(self.slope::<H>(query.head), bias));
            // Where the mask is -inf the score goes, NaN or not.
            x = H::select_gt(H::splat(f32::MIN), bias, hidden, or_infinity::<H>(biased, biased));
        } else {
            x = or_infinity::<H>(x, x);
        }
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        x = H::select_gt(H::splat(to as f32), lane, x, hidden);
        x = H::select_gt(lane, H::splat(from as f32 - 1.0), x, hidden);
        let highest = H::max_lane(x);
        if highest == f32::NEG_INFINITY {
            return;
        }
        // SAFETY: `state` is a row's state in the worker's own VTCM (the caller's contract), which begins
        // with two vectors: the maximum and the sums.
        let (before, sums) = unsafe { (H::load(state), H::load(state.add(LANES))) };
        let now = H::max(H::splat(highest), before);
        let shrink = math::exp::<H>(H::sub(before, now));
        let p = math::exp::<H>(H::sub(x, now));
        // SAFETY: `state` is a row's state in the worker's own VTCM (the caller's contract), which begins
        // with two vectors. `weights.p` is an array of 32 floats, and `weights.shrink` is one float, of which
        // one is stored.
        unsafe {
            H::store(state, now);
            H::store(state.add(LANES), H::add(H::mul(sums, shrink), p));
            H::store(weights.p.as_mut_ptr(), p);
            H::store_n(&raw mut weights.shrink, shrink, 1);
        }
        (weights.from, weights.to) = (from, to);
    }

    /// ALiBi's slope for a head, as ggml has it; 1 without `max_bias`.
    #[inline(always)]
    fn slope<H: Hvx>(&self, head: usize) -> H::F {
        let bias = self.params.max_bias;
        if bias <= 0.0 {
            return H::splat(1.0);
        }
        // With n the power of two at or below the heads: 2^(-bias / n) to the power head + 1 for the first n,
        // its square root to the odd powers for the others.
        let n = 1usize << self.y.ne[1].ilog2();
        let power = if head < n { 2 * (head + 1) } else { 2 * (head - n) + 1 };
        math::exp::<H>(H::splat(-bias / (2 * n) as f32 * power as f32 * core::f32::consts::LN_2))
    }

    /// Adds the tile's values to every row of the unit by its weights.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. The slot holds the rows of V in this tile that the unit sees.
    #[inline(always)]
    pub(super) unsafe fn accumulate<H: Hvx>(
        &self,
        places: AttendMemory,
        slot: usize,
        unit: &Unit<'_>,
        tile: usize,
        weights: &[SoftmaxRow; MAX_ROWS],
    ) {
        let vectors = self.stage.v_vectors;
        let start = tile * TILE;
        let (from, to) = (unit.from.max(start) - start, unit.to.min(start + TILE) - start);
        let tile = places.slots[slot].wrapping_add(self.stage.k_tile);
        // SAFETY: the tile has the values that the unit sees, as their format stages them (the caller's
        // contract, point 2), and `wide` has room for 32 values as floats (`AttendLayout::wide`); both are
        // the worker's own (point 1), and in whole vectors.
        unsafe { self.values.widen_values::<H>(tile, places.wide, self.v_cache.ne[0], from, to) };
        for (i, weights) in weights.iter().enumerate().take(unit.rows) {
            if weights.from == weights.to {
                continue;
            }
            let sums = self.state(places, i).wrapping_add(2 * LANES);
            // SAFETY: rows `from..to` of the weights are positions that this row of the unit sees, and all
            // that the unit sees were widened above, `vectors` each. `sums` are the accumulators of row `i`,
            // as many vectors, in the worker's own places (the caller's contract, point 1). J divides
            // `vectors` by the conditions.
            unsafe {
                if H::REGISTERS >= 24 && vectors.is_multiple_of(8) {
                    add_values::<H, 8>(places.wide, vectors, weights, sums);
                } else if H::REGISTERS >= 8 && vectors.is_multiple_of(4) {
                    add_values::<H, 4>(places.wide, vectors, weights, sums);
                } else if vectors.is_multiple_of(2) {
                    add_values::<H, 2>(places.wide, vectors, weights, sums);
                } else {
                    add_values::<H, 1>(places.wide, vectors, weights, sums);
                }
            }
        }
    }
}

impl MaskTile {
    /// The mask of a query for the tile at `start`, lanes `from..to`; others are left as they are.
    #[inline(always)]
    fn read(&mut self, mask: &View, query: &Query, batch: usize, start: usize, (from, to): (usize, usize)) {
        let row = mask.at([query.token, query.head % mask.ne[2], batch % mask.ne[3]]).cast_const();
        // Tokens may share a row (stride 0) and see different parts of it.
        if (row, (from, to)) == (self.row, self.range) {
            return;
        }
        (self.row, self.range) = (row, (from, to));
        assert!(start + to <= mask.ne[0]);
        for lane in from..to {
            // SAFETY: `at` has checked the indices of the row, and `start + lane` is below its length, by the
            // assertion above. F16 values are adjacent (layout of the slot) and aligned (validation).
            let bits = unsafe { row.add((start + lane) * 2).cast::<u16>().read() };
            self.lanes[lane] = f16::from_bits(bits).to_f32();
        }
    }
}

/// y where x is finite, else infinity: a maximum passes over NaN, but it keeps infinity, which no sound score
/// is.
#[inline(always)]
fn or_infinity<H: Hvx>(x: H::F, y: H::F) -> H::F {
    let infinity = H::splat(f32::INFINITY);
    let size = H::from_bits(H::and_i(H::bits(x), H::splat_i(i32::MAX)));
    // Infinity is above neither infinity nor NaN, whether or not a comparison knows NaN.
    H::select_gt(infinity, size, y, infinity)
}

/// sums <- shrink sums + sum over positions, from low to high, of p v; J vectors of a row at once. A position
/// with p = 0 adds nothing, whatever it holds.
///
/// # Safety
/// 1. `wide` holds the rows of V at positions `w.from..w.to`, `vectors` vectors each.
/// 2. `sums` has `vectors` vectors, which nobody else uses.
/// 3. J divides `vectors`.
#[inline(always)]
unsafe fn add_values<H: Hvx, const J: usize>(
    wide: *const f32,
    vectors: usize,
    w: &SoftmaxRow,
    sums: *mut f32,
) {
    let shrink = H::splat(w.shrink);
    for first in (0..vectors).step_by(J) {
        let mut sum = [shrink; J];
        for (j, sum) in sum.iter_mut().enumerate() {
            // SAFETY: `first + j` is below `vectors`, because J divides it, and `sums` has so many vectors
            // (the caller's contract, points 2 and 3).
            *sum = H::mul(unsafe { H::load(sums.add((first + j) * LANES)) }, shrink);
        }
        for (position, &p) in w.p.iter().enumerate().take(w.to).skip(w.from) {
            if p == 0.0 {
                continue;
            }
            let p = H::splat(p);
            for (j, sum) in sum.iter_mut().enumerate() {
                // SAFETY: `position` is one of `from..to` and `first + j` is below `vectors`, because J
                // divides it: a vector of `wide` (the caller's contract, points 1 and 3).
                let value = unsafe { H::load(wide.add((position * vectors + first + j) * LANES)) };
                *sum = H::add(*sum, H::mul(p, value));
            }
        }
        for (j, sum) in sum.into_iter().enumerate() {
            // SAFETY: `first + j` is below `vectors`, because J divides it, and `sums` has so many vectors
            // (the caller's contract, points 2 and 3).
            unsafe { H::store(sums.add((first + j) * LANES), sum) };
        }
    }
}
