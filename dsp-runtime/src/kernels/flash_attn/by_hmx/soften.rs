//! Scores become weights, and what the unit made of weights and values is added to what was found before.
//!
//! Scores are counted in powers of two here: exp(x) is 2^(x / ln 2).

use core::f32::consts::{LN_2, LOG2_E};

use super::layout::{PART, PARTS, Places};
use super::prepare::{SECOND_PART, UP};
use super::turn::Pass;
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::kernels::INDEX;
use crate::kernels::flash_attn::attend::Query;
use crate::kernels::flash_attn::tile::MaskTile;
use crate::kernels::flash_attn::{TILE, state};

/// What was found for a row begins with the highest score, in powers of two; sums of weights and of values
/// follow.
const HIGHEST: usize = state::HIGHEST - state::FOUND;
const SUMS: usize = state::SUMS - state::FOUND;
const VALUES: usize = state::VALUES - state::FOUND;

/// 2^f for f of at most a half of either sign, by powers of f: the polynomial of degree 4 with the smallest
/// largest relative error, 2.6e-6 (by the algorithm of Remez).
const C0: f32 = 0.999_999_26;
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

/// Weights from 0 to 1 as f16, times 2^[`UP`], in the low half of each word; to nearest, ties away from zero
/// where the result is normal.
#[inline(always)]
fn weights_f16<H: Hvx>(p: H::F) -> H::I {
    const SMALLEST_NORMAL: f32 = 1.0 / (1 << (14 + UP)) as f32;
    // The ulp of this is the smallest f16, so that adding it rounds to one.
    const ROUNDER: f32 = 0.5 / (1 << UP) as f32;
    let normal = H::shr_i::<13>(H::add_i(H::bits(p), H::splat_i(0x1000 + ((UP + 15 - 127) << 23))));
    let rounded = H::add_ieee(p, H::splat(ROUNDER));
    let subnormal = H::sub_i(H::bits(rounded), H::splat_i(ROUNDER.to_bits() as i32));
    math::select_i::<H>(H::splat(SMALLEST_NORMAL), p, subnormal, normal)
}

/// A row of a part.
#[derive(Clone, Copy)]
struct Row<H: Hvx> {
    query: Query,
    /// What takes the query's scale back.
    back: H::F,
    /// The same with the scale of scores, for powers of two.
    scaled: H::F,
}

impl Pass<'_> {
    /// Row `row`.
    ///
    /// # Safety
    /// It is a row of the pass, whose queries were packed.
    #[inline(always)]
    unsafe fn row<H: Hvx>(&self, places: Places, row: usize) -> Row<H> {
        // SAFETY: the layout has a factor for each row, which was written as they were packed (the caller's
        // contract).
        let back = unsafe { places.row_factors().add(row).read() };
        let scaled = H::splat(back * (self.of.params.scale * LOG2_E));
        Row { query: self.query(row), back: H::splat(back), scaled }
    }

    /// Scores of a row in a key tile from q.k less the query's scale: -infinity where it sees nothing,
    /// infinity where a score that it sees is not finite.
    #[inline(always)]
    fn score<H: Hvx>(&self, row: &Row<H>, tile: usize, product: H::F) -> H::F {
        let Query { from, to, .. } = row.query;
        if from <= tile * TILE && (tile + 1) * TILE <= to && self.of.params.softcap == 0.0 {
            let x = H::mul_ieee(product, row.scaled);
            return math::or_infinity::<H>(x, x);
        }
        let product = H::mul_ieee(product, row.back);
        let (x, _) = self.of.hide::<H>(&row.query, self.batch, tile, product, &mut MaskTile::new());
        let marked = math::or_infinity::<H>(product, H::mul_ieee(x, H::splat(LOG2_E)));
        H::select_gt(x, H::splat(f32::NEG_INFINITY), marked, x)
    }

    /// Makes the weights of a part of the rows in a block of keys, from their scores; and what sums shrink by.
    ///
    /// # Safety
    /// 1. The queries of the pass were packed, the unit has stored the scores of the block, and the factors of
    ///    its keys were written.
    /// 2. `scratch` is a worker's own VTCM, and this worker has claimed the part.
    #[inline(always)]
    pub(super) unsafe fn soften<H: Hvx>(
        &self,
        places: Places,
        scratch: VectorPtr,
        block: usize,
        part: usize,
    ) {
        let (first, row_tile, tiles) = (part * PART, part / PARTS, self.seen(block, part / PARTS));
        if tiles.is_empty() {
            return;
        }
        let (rows, n) = (PART.min(self.rows - first), tiles.len());
        let start = self.block(block).start;
        let hidden = H::splat(f32::NEG_INFINITY);
        let mut highest = [hidden; PART];
        for pair in 0..rows.div_ceil(2) {
            let (i, vector) = (2 * pair, part % PARTS * (PART / 2) + pair);
            let second = i + 1 < rows;
            // SAFETY: `first + i` is below the rows of the pass, and so is the one after it or it is the same
            // (the caller's contract, point 1).
            let [a, b] = unsafe { [i, i + usize::from(second)].map(|i| self.row::<H>(places, first + i)) };
            for (j, tile) in tiles.clone().enumerate() {
                let at = tile - start;
                let scores = places.scores(block, row_tile, at);
                // SAFETY: `tile` is one of the block, so it has scores of these rows and factors, which were
                // written (the caller's contract, point 1); a tile has 16 vectors, of which `vector` is one.
                let (one, two, factors) = unsafe {
                    (
                        H::widen_f16(scores.vectors().load_b::<H>(vector)),
                        H::widen_f16(scores.skip(1).vectors().load_b::<H>(vector)),
                        places.key_factors(block, at).load::<H>(0),
                    )
                };
                let product = |one: H::F, two: H::F| {
                    let both = H::add_ieee(one, H::mul_ieee(two, H::splat(SECOND_PART)));
                    H::mul_ieee(both, factors)
                };
                let x = self.score::<H>(&a, tile, product(one.0, two.0));
                highest[i] = H::max(highest[i], x);
                // SAFETY: the worker has a vector of its own for each row of a part and key tile of a block
                // (`Layout::own`, and the caller's contract, point 2).
                unsafe { scratch.store::<H>(i * n + j, x) };
                if second {
                    let x = self.score::<H>(&b, tile, product(one.1, two.1));
                    highest[i + 1] = H::max(highest[i + 1], x);
                    // SAFETY: as above.
                    unsafe { scratch.store::<H>((i + 1) * n + j, x) };
                }
            }
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
            // SAFETY: as above.
            unsafe { found.store::<H>(HIGHEST, now) };
            // A number, also for a row that has seen nothing yet.
            *highest = H::max(now, H::splat(f32::MIN));
            let less = H::sub_ieee(before, *highest);
            lower = H::select_gt(lane, H::splat(i as f32 - 0.5), less, lower);
        }
        let shrink = math::exp::<H>(H::mul_ieee(lower, H::splat(LN_2)));
        // SAFETY: the layout has a vector for each part of the rows, and nobody reads that of three blocks ago
        // any more.
        unsafe { places.shrink(block, part).store::<H>(0, shrink) };
        let shrink = H::lanes(shrink);
        for pair in 0..rows.div_ceil(2) {
            let (i, vector) = (2 * pair, part % PARTS * (PART / 2) + pair);
            let second = i + 1 < rows;
            let mut sums = [H::splat(0.0); 2];
            for j in 0..n {
                // SAFETY: the scores were stored above.
                let one = power::<H>(H::sub_ieee(unsafe { scratch.load::<H>(i * n + j) }, highest[i]));
                sums[0] = H::add_ieee(sums[0], one);
                let mut two = H::splat(0.0);
                if second {
                    // SAFETY: as above.
                    let x = unsafe { scratch.load::<H>((i + 1) * n + j) };
                    two = power::<H>(H::sub_ieee(x, highest[i + 1]));
                    sums[1] = H::add_ieee(sums[1], two);
                }
                let weights = H::pair_halves(weights_f16::<H>(one), weights_f16::<H>(two));
                let at = tiles.start - start + j;
                // SAFETY: the layout has a tile of weights for these rows and each key tile of the block, of 16
                // vectors; the unit multiplies those of another block, and this worker has claimed the part.
                unsafe { places.weights(block, row_tile).skip(at).vectors().store_b::<H>(vector, weights) };
            }
            for (k, sums) in sums.into_iter().enumerate().take(rows - i) {
                let found = places.found(first + i + k);
                // SAFETY: what was found for a row of the pass has this vector, and this worker has claimed the
                // part (the caller's contract, point 2).
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
    #[inline(always)]
    pub(super) unsafe fn accumulate<H: Hvx>(&self, places: Places, block: usize, part: usize) {
        let (first, row_tile) = (part * PART, part / PARTS);
        if self.seen(block, row_tile).is_empty() {
            return;
        }
        let rows = PART.min(self.rows - first);
        // SAFETY: it was written with the weights (the caller's contract, point 1).
        let lanes = H::lanes(unsafe { places.shrink(block, part).load::<H>(0) });
        let mut shrink = [H::splat(0.0); PART];
        for (i, shrink) in shrink.iter_mut().enumerate() {
            *shrink = H::lane(&lanes, i % LANES);
        }
        for column in 0..self.layout.columns {
            // SAFETY: the layout has factors for each column, which were written (the caller's contract, point
            // 1).
            let factors = unsafe { places.value_factors(block, column).load::<H>(0) };
            let stored = places.sums(block, row_tile, column).vectors();
            for pair in 0..rows.div_ceil(2) {
                // SAFETY: a tile has 16 vectors, which the unit has stored (the caller's contract, point 1).
                let sums = H::widen_f16(unsafe { stored.load_b::<H>(part % PARTS * (PART / 2) + pair) });
                for (i, sums) in [(2 * pair, sums.0), (2 * pair + 1, sums.1)] {
                    if i >= rows {
                        break;
                    }
                    let found = places.found(first + i);
                    // SAFETY: what was found for a row of the pass has a vector for each column, and this
                    // worker has claimed the part (the caller's contract, point 2).
                    unsafe {
                        let before = H::mul_ieee(found.load::<H>(VALUES + column), shrink[i]);
                        let now = H::add_ieee(before, H::mul_ieee(sums, factors));
                        found.store::<H>(VALUES + column, now);
                    }
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
