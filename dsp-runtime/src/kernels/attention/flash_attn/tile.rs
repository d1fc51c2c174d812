//! What happens in one tile of 32 positions: scores, weights, values.

use hexflash_abi::dtype::q4_r_axis_strips;

use super::attend::{Attend, AttendMemory, QueryRow, QueryRows, QueryUnit, Steps};
use super::attention::Query;
use super::format::{ByPairs, Halves, Levels, Pairs, Products, Wide};
use super::known::Known;
use super::positions::TILE;
use super::query::both_halves;
use super::state::{self, LARGEST_WEIGHT};
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::kernels::shared::alibi::slope;
use crate::kernels::shared::lanes::INDEX;
use crate::memory::View;

const _: () = assert!(TILE == LANES);

/// Lanes of a tile that a row of a unit sees, and so has weights for.
pub(super) type Seen = (usize, usize);

/// The mask of one token in a tile, kept while the heads that share it pass by.
pub(super) struct MaskTile {
    row: *const u8,
    /// Lanes of which the token sees what the mask shows.
    seen: Seen,
    lanes: [f32; LANES],
    /// Whether it hides any of them.
    hides: bool,
    /// A bit for each row of the unit from which the mask hides positions that it would otherwise see.
    holes: u32,
}

impl Attend<'_> {
    /// Scores of a tile for every row of the unit, and from them weights, new maxima and sums.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. The slot holds the tile of K.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // A tile of a unit, and what is kept between tiles.
    pub(super) unsafe fn weigh<H: Hvx, C: Known>(
        &self,
        places: AttendMemory,
        slot: usize,
        unit: &QueryUnit<'_>,
        tile: usize,
        rows: &mut QueryRows,
        steps: &Steps,
        mask: &mut MaskTile,
    ) {
        let staged = places.slots[slot];
        let d = self.of.q.ne[0];
        let as_halves = self.keys::<C>().has_halves_of_keys::<H>(d);
        macro_rules! weigh_rows {
            ($keys:expr) => {
                self.weigh_rows::<H, _, C>(places, $keys, staged, unit, tile, rows, steps, mask)
            };
        }
        // SAFETY: slot `slot` holds the tile of K, as its format stages it (the caller's contract, point 2),
        // and `wide` has room for it as floats (`AttendLayout::wide`); both are the worker's own (point 1).
        // That makes a vector of floats of each dimension, and without it there is f16 of each.
        unsafe {
            if as_halves && self.keys::<C>().rotates() {
                weigh_rows!(Levels(staged));
            } else if as_halves {
                weigh_rows!(ByPairs(self.keys::<C>().halves_of_keys::<H>(staged, places.wide, d)));
            } else {
                self.keys::<C>().widen_keys::<H>(staged, places.wide, d);
                weigh_rows!(ByPairs(Wide(places.wide)));
            }
        }
    }

    /// [`weigh`](Self::weigh) with keys as products read them.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `keys` has all dimensions; `staged` is the tile as its format stages it.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // Those of `weigh`, and the keys.
    unsafe fn weigh_rows<H: Hvx, K: Products<H>, C: Known>(
        &self,
        places: AttendMemory,
        keys: K,
        staged: VectorPtr,
        unit: &QueryUnit<'_>,
        tile: usize,
        rows: &mut QueryRows,
        steps: &Steps,
        mask: &mut MaskTile,
    ) {
        // What was read last is of another tile.
        mask.begin();
        let has_steps = self.keys::<C>().rotates() && tile >= q4_r_axis_strips(self.of.q.ne[0]);
        let mut i = 0;
        while i < unit.rows {
            // SAFETY: the contract is the caller's, and each call takes rows below `unit.rows`.
            unsafe {
                if H::REGISTERS >= 8 && i + 4 <= unit.rows {
                    let added = steps_of::<4>(steps, i, has_steps);
                    let x = self.scores::<H, K, C, 4>(places, keys, staged, i, added);
                    self.soften::<H, C, 4>(places, unit, tile, i, x, mask, rows);
                    i += 4;
                } else if i + 2 <= unit.rows {
                    let added = steps_of::<2>(steps, i, has_steps);
                    let x = self.scores::<H, K, C, 2>(places, keys, staged, i, added);
                    self.soften::<H, C, 2>(places, unit, tile, i, x, mask, rows);
                    i += 2;
                } else {
                    let added = steps_of::<1>(steps, i, has_steps);
                    let x = self.scores::<H, K, C, 1>(places, keys, staged, i, added);
                    self.soften::<H, C, 1>(places, unit, tile, i, x, mask, rows);
                    i += 1;
                }
            }
        }
    }

    /// q.k of R rows from row `i`: over even and over odd dimensions from 0 up, positions in lanes, then what
    /// the format adds.
    ///
    /// # Safety
    /// 1. `keys` has all dimensions; `staged` is the tile as its format stages it.
    /// 2. The places are the worker's own, and have the queries of rows `i..i + R` as `keys` take them
    ///    ([`Attend::list`]).
    #[inline(always)]
    unsafe fn scores<H: Hvx, K: Products<H>, C: Known, const R: usize>(
        &self,
        places: AttendMemory,
        keys: K,
        staged: VectorPtr,
        i: usize,
        steps: [f32; R],
    ) -> [H::F; R] {
        let d = self.of.q.ne[0];
        let queries: [_; R] = core::array::from_fn(|r| self.place_of_query(places, i + r));
        let mut x = [K::none(); R];
        let mut q = [H::lanes(H::splat(0.0)); R];
        let (whole, n) = (d / K::DIMS, d % K::DIMS);
        for v in 0..whole {
            for (q, row) in q.iter_mut().zip(&queries) {
                // SAFETY: a query has all its dimensions (the caller's contract, point 2), and vector `v` is
                // whole.
                *q = H::lanes(unsafe { row.load::<H>(v) });
            }
            // SAFETY: vector `v` is whole, so that its dimensions are those of keys (the caller's contract,
            // point 1).
            unsafe { keys.add_vector(&mut x, v, &q) };
        }
        if !K::WHOLE && n > 0 {
            for (q, row) in q.iter_mut().zip(&queries) {
                // SAFETY: a query has all its dimensions (the caller's contract, point 2), of which `n` are
                // in this vector.
                *q = H::lanes(unsafe { row.load::<H>(whole) });
            }
            // SAFETY: keys have `n` dimensions of this vector (the caller's contract, point 1).
            unsafe { keys.add_first(&mut x, whole, n, &q) };
        }
        let mut scores = [H::splat(0.0); R];
        for (score, x) in scores.iter_mut().zip(x) {
            let (even, odd) = K::end(x);
            *score = H::pin(H::add_ieee(even, odd));
        }
        // SAFETY: `staged` is the tile of K as its format stages it (the caller's contract, point 1).
        unsafe { self.keys::<C>().complete_scores::<H, R>(staged, d, steps, &mut scores) };
        scores
    }

    /// Weights of R rows from row `i` in a tile, from their q.k.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. Rows `i..i + R` are the unit's.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // Those of `weigh`, and the rows.
    unsafe fn soften<H: Hvx, C: Known, const R: usize>(
        &self,
        places: AttendMemory,
        unit: &QueryUnit<'_>,
        tile: usize,
        i: usize,
        mut x: [H::F; R],
        mask: &mut MaskTile,
        rows: &mut QueryRows,
    ) {
        let start = tile * TILE;
        let within = |p: usize| p.clamp(start, start + TILE) - start;
        let mut all = true;
        for (r, x) in x.iter_mut().enumerate() {
            let row = &mut rows[i + r];
            row.seen = (within(row.query.from), within(row.query.to));
            all &= row.seen == (0, TILE);
            *x = self.finish_scores::<H, C>(row, unit.batch, start, *x, mask);
            if self.mask::<C>().is_some() {
                mask.note(i + r);
            }
        }
        if !all {
            let hidden = H::splat(f32::NEG_INFINITY);
            for (r, x) in x.iter_mut().enumerate() {
                *x = seen_or::<H>(rows[i + r].seen, *x, hidden);
            }
        }
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        if self.mask::<C>().is_some() {
            // Only a mask hides all that is between.
            for (r, x) in x.iter().enumerate() {
                if mask.has_holes(i + r) && H::max_lane(*x) == f32::NEG_INFINITY {
                    rows[i + r].seen = (0, 0);
                }
            }
        }
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
        // Rounded, and as products with values take them.
        let mut weights = p;
        let as_halves = self.values::<C>().is_read_as_staged::<H>();
        for (p, weight) in p.iter_mut().zip(&mut weights) {
            let halves = both_halves::<H>(*p, H::splat(LARGEST_WEIGHT));
            *p = H::widen_f16(halves).0;
            *weight = if as_halves { H::from_bits(H::words(halves)) } else { *p };
        }
        // Also for rows that see nothing: behind a condition, exponentials are not computed side by side.
        for (r, &weights) in weights.iter().enumerate() {
            let at = |part| self.state(places, i + r, part);
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract), with these vectors (`AttendLayout::row`).
            unsafe {
                at(state::WEIGHTS).store::<H>(0, weights);
                at(state::SHRINK).store::<H>(0, H::lane(&shrink, r));
            }
        }
        for (r, &p) in p.iter().enumerate() {
            let (from, to) = rows[i + r].seen;
            if from == to {
                continue;
            }
            let at = |part| self.state(places, i + r, part);
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract), with these vectors (`AttendLayout::row`).
            unsafe {
                at(state::HIGHEST).store::<H>(0, now[r]);
                let sums = H::mul(at(state::SUMS).load::<H>(0), H::lane(&shrink, r));
                at(state::SUMS).store::<H>(0, H::add(sums, p));
            }
        }
    }

    /// Scores of a row in the tile at `start`, of which it sees `seen`, from its q.k: -infinity where a mask
    /// hides a position. What it does not see means nothing.
    #[inline(always)]
    fn finish_scores<H: Hvx, C: Known>(
        &self,
        &QueryRow { ref query, prepared, seen }: &QueryRow,
        batch: usize,
        start: usize,
        x: H::F,
        mask: &mut MaskTile,
    ) -> H::F {
        let x = H::mul(x, H::splat(self.of.params.scale * prepared.back));
        let mut x = H::from_bits(H::or_i(H::bits(x), H::splat_i(prepared.special)));
        if !C::PLAIN && self.of.params.softcap > 0.0 {
            let cap = H::splat(self.of.params.softcap);
            x = math::or_infinity::<H>(x, H::mul(cap, math::tanh::<H>(H::div(x, cap))));
        }
        let Some(view) = self.mask::<C>() else {
            return math::or_infinity::<H>(x, x);
        };
        let x = H::pin(x);
        if seen.0 < seen.1 {
            mask.read::<H>(view, query, batch, start, seen);
        }
        // SAFETY: `mask.lanes` is an array of 32 floats, which are 128 bytes.
        let bias = unsafe { H::load(mask.lanes.as_ptr()) };
        let slope = slope::<H>(self.of.params.max_bias, self.of.y.ne[1], query.head);
        let biased = H::add(x, H::mul(slope, bias));
        // Where the mask is -inf the score goes, NaN or not.
        let hidden = H::splat(f32::NEG_INFINITY);
        H::select_gt(H::splat(f32::MIN), bias, hidden, math::or_infinity::<H>(biased, biased))
    }

    /// Adds the tile's values to every row of the unit by its weights. `mask` is what
    /// [`weigh`](Self::weigh) has left.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. The slot holds the rows of V in this tile that the unit sees.
    #[inline(always)]
    pub(super) unsafe fn accumulate<H: Hvx, C: Known>(
        &self,
        places: AttendMemory,
        slot: usize,
        unit: &QueryUnit<'_>,
        tile: usize,
        rows: &QueryRows,
        mask: &MaskTile,
    ) {
        let start = tile * TILE;
        let (from, to) = (unit.from.max(start) - start, unit.to.min(start + TILE) - start);
        let staged = self.stage.values(places.slots[slot]);
        if self.values::<C>().rotates() {
            // SAFETY: the contract is the caller's, and the tile is of a format that rotates.
            unsafe { self.accumulate_rotated::<H, C>(places, staged, unit, rows) };
            return;
        }
        if self.values::<C>().is_read_as_staged::<H>() {
            // SAFETY: the contract is the caller's, and the tile has the values that the unit sees as f16, a
            // vector per pair.
            unsafe { self.accumulate_rows::<H, Halves, C>(places, Halves(staged), unit, rows, mask) };
            return;
        }
        // SAFETY: the tile has the values that the unit sees, as their format stages them (the caller's
        // contract, point 2), and `wide` has room for 32 values as floats (`AttendLayout::wide`); both are
        // the worker's own (point 1), and in whole vectors.
        unsafe {
            self.values::<C>().widen_values::<H>(staged, places.wide, self.of.v_cache.ne[0], from, to);
            self.accumulate_rows::<H, Wide, C>(places, Wide(places.wide), unit, rows, mask);
        }
    }

    /// [`accumulate`](Self::accumulate) with values as products read them: the heads of a token, which see
    /// the same, together as far as there are registers for their sums.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `values` has those that the unit sees, `v_vectors / 2` pairs per position.
    #[inline(always)]
    unsafe fn accumulate_rows<H: Hvx, V: Pairs<H>, C: Known>(
        &self,
        places: AttendMemory,
        values: V,
        unit: &QueryUnit<'_>,
        rows: &QueryRows,
        mask: &MaskTile,
    ) {
        let pairs = self.stage.v_vectors / 2;
        let (even, quads) = (pairs.is_multiple_of(2), pairs.is_multiple_of(4));
        let next_kv_head = (unit.kv_head + 1) * self.group;
        let mut i = 0;
        while i < unit.rows {
            let QueryRow { query, seen, .. } = rows[i];
            // What a mask hides may be values that are none; and it may hide other ones from each head.
            let holes = if C::PLAIN { 0 } else { mask.holes >> i };
            let masked = holes & 1 != 0;
            let heads =
                if masked { 1 } else { (next_kv_head - query.head).min(holes.trailing_zeros() as usize) };
            let heads = heads.min(unit.rows - i);
            // SAFETY: the rows are the unit's, and all see `seen` of the tile (`heads`); what a unit sees
            // `values` has (the caller's contract). P divides the pairs by the conditions.
            i += unsafe {
                if seen.0 == seen.1 {
                    heads
                } else if masked {
                    self.add_values::<H, V, C, 1, 1, true>(places, values, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 4 && even {
                    self.add_values::<H, V, C, 4, 2, false>(places, values, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 4 {
                    self.add_values::<H, V, C, 4, 1, false>(places, values, i, seen)
                } else if H::REGISTERS >= 24 && heads >= 2 && even {
                    self.add_values::<H, V, C, 2, 2, false>(places, values, i, seen)
                } else if H::REGISTERS >= 24 && quads {
                    self.add_values::<H, V, C, 1, 4, false>(places, values, i, seen)
                } else if H::REGISTERS >= 8 && even {
                    self.add_values::<H, V, C, 1, 2, false>(places, values, i, seen)
                } else {
                    self.add_values::<H, V, C, 1, 1, false>(places, values, i, seen)
                }
            };
        }
    }

    /// sums <- shrink sums + sum over positions, from low to high, of p v, for R rows from row `i` and P
    /// pairs of vectors at once; R. MASKED: a position with p = 0 adds nothing, whatever it holds.
    ///
    /// # Safety
    /// 1. The places are the worker's own, and rows `i..i + R` the unit's, with weights for `from..to`.
    /// 2. `values` has `v_vectors / 2` pairs for each position of `from..to`, of which P divides the number.
    #[inline(always)]
    unsafe fn add_values<
        H: Hvx,
        V: Pairs<H>,
        C: Known,
        const R: usize,
        const P: usize,
        const MASKED: bool,
    >(
        &self,
        places: AttendMemory,
        values: V,
        i: usize,
        (from, to): Seen,
    ) -> usize {
        let pairs = self.stage.v_vectors / 2;
        let (mut p, mut shrink) = ([H::lanes(H::splat(0.0)); R], [H::splat(0.0); R]);
        for r in 0..R {
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract, point 1), with these vectors (`AttendLayout::row`).
            unsafe {
                p[r] = H::lanes(self.state(places, i + r, state::WEIGHTS).load::<H>(0));
                shrink[r] = self.state(places, i + r, state::SHRINK).load::<H>(0);
            }
        }
        for first in (0..pairs).step_by(P) {
            let at = |r: usize, j: usize| self.state(places, i + r, state::VALUES + 2 * (first + j));
            let mut sums = [[V::none(); P]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (j, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: row `i + r` is the unit's, and `first + j` below `pairs`, because P divides
                    // them: two vectors of its sums of values (the caller's contract, and
                    // `AttendLayout::row`).
                    let before = unsafe { (at(r, j).load::<H>(0), at(r, j).load::<H>(1)) };
                    *sums = V::start(before, shrink[r]);
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
                    let pair = unsafe { values.get(position * pairs + first + j) };
                    for (sums, &weight) in sums.iter_mut().zip(&weights) {
                        sums[j] = V::add_value(sums[j], pair, weight);
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (j, sums) in sums.into_iter().enumerate() {
                    let (even, odd) = V::end(sums);
                    // SAFETY: row `i + r` is the unit's, and `first + j` below `pairs`: two vectors of its
                    // sums of values (the caller's contract, and `AttendLayout::row`).
                    unsafe {
                        at(r, j).store::<H>(0, even);
                        at(r, j).store::<H>(1, odd);
                    }
                }
            }
            H::settle();
        }
        R
    }
}

impl MaskTile {
    /// Nothing has been read yet.
    pub const NONE: Self =
        Self { row: core::ptr::null(), seen: (0, 0), lanes: [0.0; LANES], hides: false, holes: 0 };

    /// Begins with the first row of a unit in a tile.
    #[inline(always)]
    fn begin(&mut self) {
        (self.row, self.holes) = (core::ptr::null(), 0);
    }

    /// The mask of a query for the tile at `start`, of which it sees `seen`, at least one lane. What there is
    /// in others means nothing.
    #[inline(always)]
    fn read<H: Hvx>(&mut self, mask: &View, query: &Query, batch: usize, start: usize, seen: Seen) {
        let row = mask.at([query.token, repeated(query.head, mask.ne[2]), repeated(batch, mask.ne[3])]);
        // Tokens may share a row (stride 0) and see different parts of it.
        if (row.cast_const(), seen) == (self.row, self.seen) {
            return;
        }
        (self.row, self.seen) = (row, seen);
        assert!(start + seen.1 <= mask.ne[0]);
        // SAFETY: `at` has checked the indices of the row, and halves `start` to `start + seen.1`, which are
        // 1 to 32, are within its length, by the assertion above. They are adjacent (layout of the slot) and
        // aligned (validation). `lanes` is an array of 32 floats, which are 128 bytes.
        let lanes = unsafe {
            let lanes = math::load_f16_n::<H>(row.cast::<u16>().add(start), seen.1);
            H::store(self.lanes.as_mut_ptr(), lanes);
            lanes
        };
        let hidden = H::select_gt(H::splat(f32::MIN), lanes, H::splat(1.0), H::splat(0.0));
        self.hides = H::max_lane(seen_or::<H>(seen, hidden, H::splat(0.0))) > 0.0;
    }

    /// Notes for row `i` of the unit what was read last, which is its own.
    #[inline(always)]
    fn note(&mut self, i: usize) {
        self.holes |= u32::from(self.hides) << i;
    }

    /// Whether row `i` of the unit has holes.
    #[inline(always)]
    const fn has_holes(&self, i: usize) -> bool {
        self.holes >> i & 1 != 0
    }
}

/// Index `i` of an axis of `n` that is repeated.
#[inline(always)]
const fn repeated(i: usize, n: usize) -> usize {
    // Without a division, which is a function call on a DSP, where all share one or each has its own.
    if n == 1 {
        0
    } else if i < n {
        i
    } else {
        i % n
    }
}

/// x in the lanes that are seen, y in the others.
#[inline(always)]
pub(super) fn seen_or<H: Hvx>((from, to): Seen, x: H::F, y: H::F) -> H::F {
    // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
    let lane = unsafe { H::load(INDEX.as_ptr()) };
    let x = H::select_gt(H::splat(to as f32), lane, x, y);
    H::select_gt(lane, H::splat(from as f32 - 1.0), x, y)
}

/// What a step along the axis adds to the scores of R rows from row `i`, where keys have steps.
#[inline(always)]
fn steps_of<const R: usize>(steps: &Steps, i: usize, has_steps: bool) -> [f32; R] {
    core::array::from_fn(|r| if has_steps { steps[i + r] } else { 0.0 })
}
