//! Scores become weights, and what the unit made of weights and values is added to what was found before.
//!
//! Scores are counted in powers of two here: exp(x) is 2^(x / ln 2).

use core::f32::consts::{LN_2, LOG2_E};
use core::ops::Range;

use super::layout::{PARTS, Places};
use super::mask::Biases;
use super::prepare::{SECOND_PART, UP};
use super::turn::Pass;
use crate::hmx::TILE_VECTORS;
use crate::hvx::{Hvx, VectorPtr, math};
use crate::kernels::attention::flash_attn::attention::Query;
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::kernels::attention::flash_attn::state;
use crate::kernels::attention::flash_attn::tuning::PART;
use crate::kernels::shared::alibi::slope;
use crate::kernels::shared::lanes::INDEX;

/// What was found for a row begins with the highest score, in powers of two; sums of weights and of values
/// follow.
const HIGHEST: usize = state::HIGHEST - state::FOUND;
const SUMS: usize = state::SUMS - state::FOUND;
const VALUES: usize = state::VALUES - state::FOUND;

/// 2^f for f of at most a half of either sign, by powers of f: the polynomial of degree 4 with the smallest
/// largest relative error, 2.6e-6 (by the algorithm of Remez).
const C0: f32 = 0.999_999_3;
const C1: f32 = 0.693_121_8;
const C2: f32 = 0.240_247_45;
const C3: f32 = 0.055_917_86;
const C4: f32 = 0.009_570_102;

/// 2^x for x of at most 0, within 5e-6 of it down to -40; about 2^-40 below, which is zero as f16.
#[inline(always)]
fn power<H: Hvx>(x: H::F) -> H::F {
    // Added, this leaves the nearest integer in the low bits.
    let rounder = H::splat(12_582_912.0);
    let x = H::max(x, H::splat(-40.0));
    let rounded = H::add_ieee(x, rounder);
    let f = H::sub_ieee(x, H::sub_ieee(rounded, rounder));
    let mut p = H::splat(C4);
    for c in [C3, C2, C1, C0] {
        p = H::add_ieee(H::mul_ieee(p, f), H::splat(c));
    }
    H::from_bits(H::add_i(H::bits(p), H::shl_i::<23>(H::bits(rounded))))
}

/// x, and infinity in the lanes of keys that are not finite: their factors are infinite. (Not left to a
/// product with these, because arithmetic of qfloat has no infinity.)
#[inline(always)]
fn where_finite<H: Hvx>(factors: H::F, x: H::F) -> H::F {
    let infinity = H::splat(f32::INFINITY);
    H::select_gt(infinity, factors, x, infinity)
}

/// A row of a part.
#[derive(Clone, Copy)]
struct Row<H: Hvx> {
    query: Query,
    /// What takes the query's scale back.
    back: H::F,
    /// The same with the scale of scores, for powers of two.
    scaled: H::F,
    /// Whether the query is finite.
    is_finite: bool,
}

/// What the mask has for the score of a key, and what that is multiplied with, for powers of two.
type Bias<H> = Option<(<H as Hvx>::F, <H as Hvx>::F)>;

/// A score from what the unit made of it, the factors of its key, and what the mask has for it: infinity for
/// a key, or a number of the mask, that is not finite; -infinity where the mask is that.
#[inline(always)]
fn with_bias<H: Hvx>(x: H::F, factors: H::F, bias: Bias<H>) -> H::F {
    let Some((bias, slope)) = bias else { return where_finite::<H>(factors, x) };
    let x = where_finite::<H>(bias, H::add_ieee(x, H::mul_ieee(bias, slope)));
    let hidden = H::splat(f32::NEG_INFINITY);
    H::select_gt(H::splat(f32::MIN), bias, hidden, where_finite::<H>(factors, x))
}

/// The scores of two rows, as the unit has stored them.
#[derive(Clone, Copy)]
struct Scores {
    /// The rows' vector in the first key tile that they see, of the first parts of scores. Those of the
    /// second parts are in the next matrix tile, and those of the next key tile in the one after that.
    first: VectorPtr,
    /// What the scores of the first key tile are multiplied with. A vector per key tile.
    factors: VectorPtr,
}

impl Scores {
    /// q.k of the two rows and key tile `i`, less the queries' scales, and the key tile's factors.
    ///
    /// # Safety
    /// Its scores and its factors can be read.
    #[inline(always)]
    unsafe fn products<H: Hvx>(self, i: usize) -> ([H::F; 2], H::F) {
        // SAFETY: these are vectors of the scores of key tile `i`, and its factors (the caller's contract).
        let (one, two, factors) = unsafe {
            (
                H::widen_f16(self.first.load_b::<H>(2 * TILE_VECTORS * i)),
                H::widen_f16(self.first.load_b::<H>(2 * TILE_VECTORS * i + TILE_VECTORS)),
                self.factors.load::<H>(i),
            )
        };
        let second = H::splat(SECOND_PART);
        let both = [(one.0, two.0), (one.1, two.1)];
        // What follows may be a call.
        let product = |(one, two)| H::pin(H::mul_ieee(H::add_ieee(one, H::mul_ieee(two, second)), factors));
        (both.map(product), factors)
    }
}

impl Pass<'_> {
    /// Row `row`, which is `query`.
    ///
    /// # Safety
    /// It is a row of the pass, whose queries were packed.
    #[inline(always)]
    unsafe fn row<H: Hvx>(&self, places: Places, row: usize, query: Query) -> Row<H> {
        // SAFETY: the layout has a factor for each row, which was written as they were packed (the caller's
        // contract).
        let back = unsafe { places.row_factors().add(row).read() };
        let is_finite = back.is_finite();
        // Of a query that is not finite, scores are numbers as long as nobody has looked at what it sees.
        let back = if is_finite { back } else { 0.0 };
        let scaled = H::splat(back * (self.of.params.scale * LOG2_E));
        Row { query, back: H::splat(back), scaled, is_finite }
    }

    /// What the mask is multiplied with for a row.
    #[inline(always)]
    fn slope<H: Hvx>(&self, row: &Row<H>) -> H::F {
        let slope = slope::<H>(self.of.params.max_bias, self.of.y.ne[1], row.query.head);
        H::mul_ieee(slope, H::splat(LOG2_E))
    }

    /// Scores of a row in a key tile from q.k less the query's scale, and what the mask has for them:
    /// -infinity where it sees nothing, infinity for a key that is not finite and that it sees.
    #[inline(always)]
    fn score<H: Hvx>(&self, row: &Row<H>, tile: usize, product: H::F, factors: H::F, bias: Bias<H>) -> H::F {
        let x = if self.of.params.softcap > 0.0 {
            self.capped::<H>(H::mul_ieee(product, row.back))
        } else {
            H::mul_ieee(product, row.scaled)
        };
        let x = with_bias::<H>(x, factors, bias);
        let within = |p: usize| H::splat((p.clamp(tile * TILE, (tile + 1) * TILE) - tile * TILE) as f32);
        let hidden = H::splat(f32::NEG_INFINITY);
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        let x = H::select_gt(within(row.query.to), lane, x, hidden);
        H::select_gt(within(row.query.from), lane, hidden, x)
    }

    /// The score of q.k with a soft cap, in powers of two.
    #[inline(always)]
    fn capped<H: Hvx>(&self, product: H::F) -> H::F {
        let cap = H::splat(self.of.params.softcap);
        let x = H::mul_ieee(product, H::splat(self.of.params.scale));
        let capped = H::mul_ieee(cap, math::tanh::<H>(H::div(x, cap)));
        H::mul_ieee(capped, H::splat(LOG2_E))
    }

    /// Puts the scores of two rows in the key tiles `tiles` into `scratch`, a vector for each, those of the
    /// second row after all of the first. Gives the highest ones, lane by lane. `biases` are what the mask
    /// has for each row, if it is `MASKED`.
    ///
    /// # Safety
    /// 1. `scores` are those of these rows and key tiles, which can be read. So can `biases`, a vector per
    ///    key tile, if there is a mask.
    /// 2. `scratch` is valid for writing twice as many vectors as there are key tiles.
    #[inline(always)]
    unsafe fn store_scores<H: Hvx, const MASKED: bool>(
        &self,
        rows: &[Row<H>; 2],
        tiles: Range<usize>,
        scores: Scores,
        biases: [VectorPtr; 2],
        scratch: VectorPtr,
    ) -> [H::F; 2] {
        let (start, n) = (tiles.start, tiles.len());
        // SAFETY: `i` is the number of a key tile below, each of which has a vector (the caller's contract,
        // point 1).
        let load = |r: usize, i: usize| unsafe { biases[r].load::<H>(i) };
        let slopes = if MASKED { [self.slope(&rows[0]), self.slope(&rows[1])] } else { [H::splat(1.0); 2] };
        let bias = |r: usize, i: usize| if MASKED { Some((load(r, i), slopes[r])) } else { None };
        let mut highest = [H::splat(f32::NEG_INFINITY); 2];
        // Key tiles that both rows see as a whole: a later row sees no less at the end and no more at the
        // beginning.
        let (from, to) = (rows[1].query.from.div_ceil(TILE), rows[0].query.to / TILE);
        let plain = self.of.params.softcap == 0.0;
        let from = from.clamp(start, tiles.end);
        let to = if plain { to.clamp(from, tiles.end) } else { from };
        for i in from - start..to - start {
            // SAFETY: `i` is the number of one of the key tiles (the caller's contract).
            let ([a, b], factors) = unsafe { scores.products::<H>(i) };
            let (a, b) = (H::mul_ieee(a, rows[0].scaled), H::mul_ieee(b, rows[1].scaled));
            let a = with_bias::<H>(a, factors, bias(0, i));
            let b = with_bias::<H>(b, factors, bias(1, i));
            highest = [H::max(highest[0], a), H::max(highest[1], b)];
            // SAFETY: there are so many vectors (the caller's contract, point 2).
            unsafe {
                scratch.store::<H>(i, a);
                scratch.store::<H>(n + i, b);
            }
        }
        for i in (0..from - start).chain(to - start..n) {
            // SAFETY: `i` is the number of one of the key tiles (the caller's contract).
            let (products, factors) = unsafe { scores.products::<H>(i) };
            for r in 0..2 {
                let x = self.score::<H>(&rows[r], start + i, products[r], factors, bias(r, i));
                highest[r] = H::max(highest[r], x);
                // SAFETY: there are so many vectors (the caller's contract, point 2).
                unsafe { scratch.store::<H>(r * n + i, x) };
            }
        }
        // A query that is not finite, where it sees anything.
        for (row, highest) in rows.iter().zip(&mut highest) {
            if !row.is_finite {
                let infinity = H::splat(f32::INFINITY);
                *highest = H::select_gt(*highest, H::splat(f32::NEG_INFINITY), infinity, *highest);
            }
        }
        highest
    }

    /// Makes the weights of a part of the rows in a block of keys, from their scores and what the mask has
    /// for them; and what sums shrink by.
    ///
    /// # Safety
    /// 1. The queries of the pass were packed, the unit has stored the scores of the block, and the factors
    ///    of its keys were written. If the part is `MASKED`, `biases` are those of it and of the block; if
    ///    not, there is no mask, or the part sees no key of the block.
    /// 2. `scratch` has a vector for each row of a part and key tile of a block, in this worker's own VTCM.
    ///    It has claimed the part.
    #[inline(never)]
    pub(super) unsafe fn soften<H: Hvx, const MASKED: bool>(
        &self,
        places: Places,
        scratch: VectorPtr,
        block: usize,
        part: usize,
        biases: Option<Biases>,
    ) {
        let (first, row_tile) = (part * PART, part / PARTS);
        let tiles = self.seen(block, row_tile);
        if tiles.is_empty() {
            return;
        }
        let (rows, n) = (PART.min(self.rows - first), tiles.len());
        let before = tiles.start - self.block(block).start;
        // The vector of the part's first pair in its matrix tiles.
        let vector = part % PARTS * (PART / 2);
        let scores = places.scores(block, row_tile, before).vectors().skip(vector);
        let factors = places.key_factors(block, before);
        let mut highest = [H::splat(f32::NEG_INFINITY); PART];
        let mut query = self.query(first);
        for pair in 0..rows.div_ceil(2) {
            // A row without a second one counts twice, and nobody looks at what becomes of it.
            let second = (2 * pair + 1).min(rows - 1);
            let next = if second > 2 * pair { self.after(&query) } else { query };
            // SAFETY: both are rows of the pass (the caller's contract, point 1). The unit has stored scores
            // of these rows for the key tiles that their matrix tile sees, and the block's factors follow
            // each other, as do what the mask has for the rows' tokens, which are the part's. `scratch` has
            // two times `n` vectors for each pair, because `n` is 8 at most (point 2).
            unsafe {
                let pair_of_rows = [
                    self.row::<H>(places, first + 2 * pair, query),
                    self.row::<H>(places, first + second, next),
                ];
                let scores = Scores { first: scores.skip(pair), factors };
                let scratch = scratch.skip(2 * pair * n);
                let biases = match biases {
                    Some(biases) if MASKED => [query, next].map(|query| biases.of(query.token, before)),
                    _ => [scratch; 2],
                };
                let tiles = tiles.clone();
                let found = self.store_scores::<H, MASKED>(&pair_of_rows, tiles, scores, biases, scratch);
                [highest[2 * pair], highest[2 * pair + 1]] = found;
            }
            query = self.after(&next);
        }
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        let mut lower = H::splat(0.0);
        for (i, highest) in highest.iter_mut().enumerate().take(rows) {
            let found = places.found(first + i);
            // SAFETY: what was found for a row of the pass has this vector, and this worker has claimed the
            // part (the caller's contract, point 2).
            let before = unsafe { found.load::<H>(HIGHEST) };
            let now = H::max(H::max_all(*highest), before);
            // SAFETY: this is the vector that was loaded, which this worker's claim gives to it alone (the
            // caller's contract, point 2).
            unsafe { found.store::<H>(HIGHEST, now) };
            // A number, also for a row that has seen nothing yet.
            *highest = H::max(now, H::splat(f32::MIN));
            let less = H::sub_ieee(before, *highest);
            lower = H::select_gt(lane, H::splat(i as f32 - 0.5), less, lower);
        }
        let shrink = math::exp::<H>(H::mul_ieee(lower, H::splat(LN_2)));
        // SAFETY: the layout has a vector for each part of the rows, and nobody reads that of three blocks
        // ago any more.
        unsafe { places.shrink(block, part).store::<H>(0, shrink) };
        let shrink = H::lanes(shrink);
        let weights = places.weights(block, row_tile).skip(before).vectors().skip(vector);
        for pair in 0..rows.div_ceil(2) {
            let i = 2 * pair;
            let (scores, weights) = (scratch.skip(i * n), weights.skip(pair));
            let highest = [highest[i], highest[i + 1]];
            let mut sums = [H::splat(0.0); 2];
            for j in 0..n {
                // SAFETY: the scores were stored above.
                let (a, b) = unsafe { (scores.load::<H>(j), scores.load::<H>(n + j)) };
                let a = power::<H>(H::sub_ieee(a, highest[0]));
                let b = power::<H>(H::sub_ieee(b, highest[1]));
                sums = [H::add_ieee(sums[0], a), H::add_ieee(sums[1], b)];
                let up = H::splat((1 << UP) as f32);
                let halves = H::scaled_to_f16(a, b, [up; 2]);
                // SAFETY: the layout has a tile of weights for these rows and each key tile of the block, of
                // 16 vectors; the unit multiplies those of another block, and this worker has claimed the
                // part.
                unsafe { weights.store_b::<H>(TILE_VECTORS * j, halves) };
            }
            for (k, sums) in sums.into_iter().enumerate().take(rows - i) {
                let found = places.found(first + i + k);
                // SAFETY: what was found for a row of the pass has this vector, and this worker has claimed
                // the part (the caller's contract, point 2).
                unsafe {
                    let before = H::mul_ieee(found.load::<H>(SUMS), H::lane(&shrink, i + k));
                    found.store::<H>(SUMS, H::add_ieee(before, sums));
                }
            }
        }
    }

    /// Adds the sums of values of a block to those of the blocks before, for a part of the rows.
    ///
    /// # Safety
    /// 1. The unit has stored the sums of the block; the factors of its values, and what sums shrink by, were
    ///    written.
    /// 2. This worker has claimed the part.
    #[inline(never)]
    pub(super) unsafe fn accumulate<H: Hvx>(&self, places: Places, block: usize, part: usize) {
        let (first, row_tile) = (part * PART, part / PARTS);
        if self.seen(block, row_tile).is_empty() {
            return;
        }
        let (rows, columns) = (PART.min(self.rows - first), self.layout.columns);
        // SAFETY: it was written with the weights (the caller's contract, point 1).
        let shrink = H::lanes(unsafe { places.shrink(block, part).load::<H>(0) });
        let stored = places.sums(block, row_tile, 0).vectors().skip(part % PARTS * (PART / 2));
        let factors = places.value_factors(block, 0);
        for pair in 0..rows.div_ceil(2) {
            let second = (2 * pair + 1).min(rows - 1);
            let shrink = [H::lane(&shrink, 2 * pair), H::lane(&shrink, second)];
            let a = places.found(first + 2 * pair).skip(VALUES);
            let b = places.found(first + second).skip(VALUES);
            for column in 0..columns {
                // SAFETY: a tile of each column, the next one behind it, has 16 vectors, which the unit has
                // stored, and factors were written (the caller's contract, point 1). What was found for a row
                // of the pass has a vector for each column, and this worker has claimed the part (point 2).
                unsafe {
                    let sums = H::widen_f16(stored.skip(pair).load_b::<H>(TILE_VECTORS * column));
                    let factors = factors.load::<H>(column);
                    let before = [a.load::<H>(column), b.load::<H>(column)];
                    let now = |before, shrink, sums| {
                        H::add_ieee(H::mul_ieee(before, shrink), H::mul_ieee(sums, factors))
                    };
                    // In this order: a row without a second one is both of them.
                    b.store::<H>(column, now(before[1], shrink[1], sums.1));
                    a.store::<H>(column, now(before[0], shrink[0], sums.0));
                }
            }
        }
    }

    /// The highest score of a row as attention without the unit counts it.
    ///
    /// # Safety
    /// `row` is a row of the pass that this worker has claimed.
    #[inline(always)]
    pub(super) unsafe fn close<H: Hvx>(&self, places: Places, row: usize) {
        let found = places.found(row);
        // SAFETY: what was found for a row of the pass has this vector, and this worker has claimed the row
        // (the caller's contract).
        unsafe {
            let highest = found.load::<H>(HIGHEST);
            found.store::<H>(HIGHEST, H::mul_ieee(highest, H::splat(LN_2)));
        }
    }
}
