//! What happens in one tile of 32 positions: scores, weights, values.

use half::f16;

use super::attend::{Attend, AttendMemory, Query, Unit};
use super::format::{Halves, Pairs, Wide};
use super::{MAX_ROWS, TILE, state};
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::kernels::INDEX;
use crate::kernels::soft_max::slope;
use crate::memory::View;

const _: () = assert!(TILE == LANES);

/// Lanes of a tile that a row of a unit sees, and so has weights for.
pub(super) type Seen = (usize, usize);

/// Those of all rows of a unit.
pub(super) type SeenByRows = [Seen; MAX_ROWS];

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
        seen: &mut SeenByRows,
    ) {
        let staged = places.slots[slot];
        let d = self.of.q.ne[0];
        // SAFETY: slot `slot` holds the tile of K, as its format stages it (the caller's contract, point 2),
        // and `wide` has room for it as floats (`AttendLayout::wide`); both are the worker's own (point 1).
        // That makes a vector of f16 of each pair of dimensions, or one of floats of each dimension.
        unsafe {
            if let Some(keys) = self.of.keys.halves_of_keys::<H>(staged, places.wide, d) {
                self.weigh_rows::<H, Halves>(places, keys, staged, unit, tile, seen);
            } else {
                self.of.keys.widen_keys::<H>(staged, places.wide, d);
                self.weigh_rows::<H, Wide>(places, Wide(places.wide), staged, unit, tile, seen);
            }
        }
    }

    /// [`weigh`](Self::weigh) with keys as products read them.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `keys` has a pair for each pair of dimensions; `staged` is the tile as its format stages it.
    #[inline(always)]
    unsafe fn weigh_rows<H: Hvx, K: Pairs<H>>(
        &self,
        places: AttendMemory,
        keys: K,
        staged: VectorPtr,
        unit: &Unit<'_>,
        tile: usize,
        seen: &mut SeenByRows,
    ) {
        let mut mask = MaskTile { row: core::ptr::null(), range: (0, 0), lanes: [0.0; LANES] };
        let mut i = 0;
        while i < unit.rows {
            // SAFETY: the contract is the caller's, and each call takes rows below `unit.rows`.
            unsafe {
                if H::REGISTERS >= 8 && i + 4 <= unit.rows {
                    let x = self.scores::<H, K, 4>(keys, staged, unit, i);
                    self.soften::<H, 4>(places, unit, tile, i, x, &mut mask, seen);
                    i += 4;
                } else if i + 2 <= unit.rows {
                    let x = self.scores::<H, K, 2>(keys, staged, unit, i);
                    self.soften::<H, 2>(places, unit, tile, i, x, &mut mask, seen);
                    i += 2;
                } else {
                    let x = self.scores::<H, K, 1>(keys, staged, unit, i);
                    self.soften::<H, 1>(places, unit, tile, i, x, &mut mask, seen);
                    i += 1;
                }
            }
        }
    }

    /// q.k of R rows from row `i`: over d from 0 up, positions in lanes, then what the format adds.
    ///
    /// # Safety
    /// 1. `keys` has a pair for each pair of dimensions; `staged` is the tile as its format stages it.
    /// 2. Rows `i..i + R` are the unit's.
    #[inline(always)]
    unsafe fn scores<H: Hvx, K: Pairs<H>, const R: usize>(
        &self,
        keys: K,
        staged: VectorPtr,
        unit: &Unit<'_>,
        i: usize,
    ) -> [H::F; R] {
        let d = self.of.q.ne[0];
        let mut rows = [self.of.queries.row([0; 3]); R];
        for (r, row) in rows.iter_mut().enumerate() {
            let query = self.query(unit, i + r);
            *row = self.of.queries.row([query.head, query.token, unit.batch]).part(0, d);
        }
        let mut x = [H::zero_q(); R];
        for v in 0..rows[0].vectors() {
            let mut q = [H::lanes(H::splat(0.0)); R];
            for (q, row) in q.iter_mut().zip(&rows) {
                *q = H::lanes(row.vector::<H>(v));
            }
            let (first, n) = (v * LANES / 2, d - v * LANES);
            // Whole vectors apart: their loop has no conditions.
            if n >= LANES {
                for i in 0..LANES / 2 {
                    // SAFETY: `32 v + 2 i` is a dimension, because 32 are left (the caller's contract, point
                    // 1).
                    add_pair::<H, R>(&mut x, unsafe { keys.get(first + i) }, &q, i, true);
                }
                continue;
            }
            for i in 0..n.div_ceil(2) {
                // SAFETY: `32 v + 2 i` is a dimension, because `n` are left (the caller's contract, point 1).
                add_pair::<H, R>(&mut x, unsafe { keys.get(first + i) }, &q, i, 2 * i + 1 < n);
            }
        }
        let mut scores = [H::splat(0.0); R];
        for (score, x) in scores.iter_mut().zip(x) {
            *score = H::float(x);
        }
        H::settle();
        // SAFETY: `staged` is the tile of K as its format stages it (the caller's contract, point 1).
        unsafe { self.of.keys.complete_scores::<H, R>(staged, d, &mut scores) };
        scores
    }

    /// Weights of R rows from row `i` in a tile, from their q.k.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. Rows `i..i + R` are the unit's.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // Those of `weigh`, and the rows.
    unsafe fn soften<H: Hvx, const R: usize>(
        &self,
        places: AttendMemory,
        unit: &Unit<'_>,
        tile: usize,
        i: usize,
        mut x: [H::F; R],
        mask: &mut MaskTile,
        seen: &mut SeenByRows,
    ) {
        for (r, x) in x.iter_mut().enumerate() {
            (*x, seen[i + r]) = self.hide::<H>(&self.query(unit, i + r), unit.batch, tile, *x, mask);
        }
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        // What every row's sums shrink by, in lanes: exp takes as long for one number as for 32.
        let (mut now, mut lower) = ([H::splat(0.0); R], H::splat(0.0));
        for r in 0..R {
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract).
            let before = unsafe { self.state(places, i + r, state::HIGHEST).load::<H>(0) };
            now[r] = H::max(H::max_all(x[r]), before);
            let less = H::sub(before, now[r]);
            lower = if r == 0 { less } else { H::select_gt(lane, H::splat(r as f32 - 0.5), less, lower) };
        }
        let shrink = H::lanes(math::exp::<H>(lower));
        let mut p = [H::splat(0.0); R];
        for r in 0..R {
            p[r] = math::exp::<H>(H::sub(x[r], now[r]));
        }
        for r in 0..R {
            let (from, to) = seen[i + r];
            if from == to {
                continue;
            }
            let shrink = H::lane(&shrink, r);
            let at = |part| self.state(places, i + r, part);
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract), with these vectors (`AttendLayout::row`).
            unsafe {
                at(state::HIGHEST).store::<H>(0, now[r]);
                let sums = H::mul(at(state::SUMS).load::<H>(0), shrink);
                at(state::SUMS).store::<H>(0, H::add(sums, p[r]));
                at(state::WEIGHTS).store::<H>(0, p[r]);
                at(state::SHRINK).store::<H>(0, shrink);
            }
        }
    }

    /// Scores of a row in a tile, from its q.k: -infinity in lanes that it does not see; and which it sees.
    #[inline(always)]
    fn hide<H: Hvx>(
        &self,
        query: &Query,
        batch: usize,
        tile: usize,
        x: H::F,
        mask: &mut MaskTile,
    ) -> (H::F, Seen) {
        let start = tile * TILE;
        let within = |p: usize| p.clamp(start, start + TILE) - start;
        let (from, to) = (within(query.from), within(query.to));
        let hidden = H::splat(f32::NEG_INFINITY);
        if from == to {
            return (hidden, (0, 0));
        }
        let mut x = H::mul(x, H::splat(self.of.params.scale));
        if self.of.params.softcap > 0.0 {
            let cap = H::splat(self.of.params.softcap);
            x = math::or_infinity::<H>(x, H::mul(cap, math::tanh::<H>(H::div(x, cap))));
        }
        if let Some(view) = &self.of.mask {
            mask.read(view, query, batch, start, (from, to));
            // SAFETY: `mask.lanes` is an array of 32 floats, which are 128 bytes.
            let bias = unsafe { H::load(mask.lanes.as_ptr()) };
            let slope = slope::<H>(self.of.params.max_bias, self.of.y.ne[1], query.head);
            let biased = H::add(x, H::mul(slope, bias));
            // Where the mask is -inf the score goes, NaN or not.
            x = H::select_gt(H::splat(f32::MIN), bias, hidden, math::or_infinity::<H>(biased, biased));
        } else {
            x = math::or_infinity::<H>(x, x);
        }
        if to - from < TILE {
            // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
            let lane = unsafe { H::load(INDEX.as_ptr()) };
            x = H::select_gt(H::splat(to as f32), lane, x, hidden);
            x = H::select_gt(lane, H::splat(from as f32 - 1.0), x, hidden);
        }
        // Only a mask hides all that is between.
        let all_hidden = self.of.mask.is_some() && H::max_lane(x) == f32::NEG_INFINITY;
        (x, if all_hidden { (0, 0) } else { (from, to) })
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
        seen: &SeenByRows,
    ) {
        let start = tile * TILE;
        let (from, to) = (unit.from.max(start) - start, unit.to.min(start + TILE) - start);
        let staged = self.stage.values(places.slots[slot]);
        if self.of.values.is_read_as_staged::<H>() {
            // SAFETY: the contract is the caller's, and the tile has the values that the unit sees as f16, a
            // vector per pair.
            unsafe { self.accumulate_rows::<H, Halves>(places, Halves(staged), staged, unit, seen) };
            return;
        }
        // SAFETY: the tile has the values that the unit sees, as their format stages them (the caller's
        // contract, point 2), and `wide` has room for 32 values as floats (`AttendLayout::wide`); both are
        // the worker's own (point 1), and in whole vectors.
        unsafe {
            self.of.values.widen_values::<H>(staged, places.wide, self.of.v_cache.ne[0], from, to);
            self.accumulate_rows::<H, Wide>(places, Wide(places.wide), staged, unit, seen);
        }
    }

    /// [`accumulate`](Self::accumulate) with values as products read them: the heads of a token, which see
    /// the same, together as far as there are registers for their sums.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `values` has those that the unit sees, `v_vectors / 2` pairs per position; `staged` is the tile as
    ///    its format stages it.
    #[inline(always)]
    unsafe fn accumulate_rows<H: Hvx, V: Pairs<H>>(
        &self,
        places: AttendMemory,
        values: V,
        staged: VectorPtr,
        unit: &Unit<'_>,
        seen: &SeenByRows,
    ) {
        let pairs = self.stage.v_vectors / 2;
        let (even, quads) = (pairs.is_multiple_of(2), pairs.is_multiple_of(4));
        let mut i = 0;
        while i < unit.rows {
            // A mask may have its own mind for each head, and hides values that are none.
            let heads = if self.of.mask.is_some() { 1 } else { self.group - (unit.first + i) % self.group };
            let heads = heads.min(unit.rows - i);
            let seen = seen[i];
            // SAFETY: the rows are the unit's, and all see `seen` of the tile (`heads`); what a unit sees
            // `values` has (the caller's contract). P divides the pairs by the conditions.
            i += unsafe {
                if seen.0 == seen.1 {
                    heads
                } else if self.of.mask.is_some() {
                    self.add_values::<H, V, 1, 1, true>(places, values, staged, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 4 && even {
                    self.add_values::<H, V, 4, 2, false>(places, values, staged, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 4 {
                    self.add_values::<H, V, 4, 1, false>(places, values, staged, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 2 && even {
                    self.add_values::<H, V, 2, 2, false>(places, values, staged, i, seen)
                } else if H::REGISTERS >= 24 && quads {
                    self.add_values::<H, V, 1, 4, false>(places, values, staged, i, seen)
                } else if H::REGISTERS >= 8 && even {
                    self.add_values::<H, V, 1, 2, false>(places, values, staged, i, seen)
                } else {
                    self.add_values::<H, V, 1, 1, false>(places, values, staged, i, seen)
                }
            };
        }
    }

    /// sums <- shrink sums + sum over positions, from low to high, of p v, for R rows from row `i` and P
    /// pairs of vectors at once; R. MASKED: a position with p = 0 adds nothing, whatever it holds.
    ///
    /// # Safety
    /// 1. The places are the worker's own, and rows `i..i + R` the unit's, with weights for `from..to`.
    /// 2. `values` has `v_vectors / 2` pairs for each position of `from..to`, of which P divides the number;
    ///    `staged` is the tile as its format stages it.
    #[inline(always)]
    unsafe fn add_values<H: Hvx, V: Pairs<H>, const R: usize, const P: usize, const MASKED: bool>(
        &self,
        places: AttendMemory,
        values: V,
        staged: VectorPtr,
        i: usize,
        (from, to): Seen,
    ) -> usize {
        let pairs = self.stage.v_vectors / 2;
        let (mut p, mut shrink) = ([H::lanes(H::splat(0.0)); R], [H::splat(0.0); R]);
        for r in 0..R {
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract, point 1), with these vectors (`AttendLayout::row`). `staged` is the tile (point 2).
            unsafe {
                let weights = self.state(places, i + r, state::WEIGHTS).load::<H>(0);
                let (format, dv) = (self.of.values, self.of.v_cache.ne[0]);
                p[r] = H::lanes(format.complete_weights::<H>(staged, dv, weights));
                shrink[r] = self.state(places, i + r, state::SHRINK).load::<H>(0);
            }
        }
        for first in (0..pairs).step_by(P) {
            let at = |r: usize, j: usize| self.state(places, i + r, state::VALUES + 2 * (first + j));
            let mut sums = [[[H::zero_q(); 2]; P]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (j, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: row `i + r` is the unit's, and `first + j` below `pairs`, because P divides
                    // them: two vectors of its sums of values (the caller's contract, and
                    // `AttendLayout::row`).
                    let before = unsafe { (at(r, j).load::<H>(0), at(r, j).load::<H>(1)) };
                    *sums = [H::mul_q(before.0, shrink[r]), H::mul_q(before.1, shrink[r])];
                }
            }
            for position in from..to {
                // SAFETY: `position` is a lane of the weights, which are 32 floats.
                let weight = || unsafe {
                    self.state(places, i, state::WEIGHTS).get().cast::<f32>().add(position).read()
                };
                if MASKED && weight() == 0.0 {
                    continue;
                }
                let mut weights = [H::splat(0.0); R];
                for (weight, p) in weights.iter_mut().zip(&p) {
                    // A lane for certain, so that nobody checks.
                    *weight = H::lane(p, position % LANES);
                }
                for j in 0..P {
                    // SAFETY: `position` is one of `from..to` and `first + j` below `pairs`, because P
                    // divides them (the caller's contract, point 2).
                    let (even, odd) = unsafe { values.get(position * pairs + first + j) };
                    for (sums, &weight) in sums.iter_mut().zip(&weights) {
                        let [a, b] = sums[j];
                        sums[j] = [H::add_q(a, H::mul_q(weight, even)), H::add_q(b, H::mul_q(weight, odd))];
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (j, [even, odd]) in sums.into_iter().enumerate() {
                    // SAFETY: row `i + r` is the unit's, and `first + j` below `pairs`: two vectors of its
                    // sums of values (the caller's contract, and `AttendLayout::row`).
                    unsafe {
                        at(r, j).store::<H>(0, H::float(even));
                        at(r, j).store::<H>(1, H::float(odd));
                    }
                }
            }
            H::settle();
        }
        R
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

/// Adds the products of a pair of dimensions, number `i` of q: of both, or of the even one only.
#[inline(always)]
fn add_pair<H: Hvx, const R: usize>(
    x: &mut [H::Q; R],
    (even, odd): (H::F, H::F),
    q: &[H::Lanes; R],
    i: usize,
    both: bool,
) {
    for (x, q) in x.iter_mut().zip(q) {
        *x = H::add_q(*x, H::mul_q(even, H::lane(q, 2 * i)));
        if both {
            *x = H::add_q(*x, H::mul_q(odd, H::lane(q, 2 * i + 1)));
        }
    }
}
