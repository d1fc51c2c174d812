//! What the unit multiplies: queries as matrix tiles, keys of F16 as they are in their cache, values with two
//! positions in a word; and the scales that keep results in range. (Caches of Q8_0 are in `codes.rs`.)
//!
//! A query is multiplied with a power of two that brings it below 1. Keys are below 2^(code - 14), where
//! `code` is the largest exponent of a key, so that sums over d are below 2^(code - 14 + log d), and the
//! unit's scale brings them below 2^15. A score is stored in two parts ([`SECOND_PART`]): f16 alone would
//! have an error of 2^-12 of the score, and so the weight one of 2^-12 times as much as the score is.
//!
//! Weights are at most 2^[`UP`], so that sums of a block are below 2^(code - 14 + UP + 8) for values below
//! 2^(code - 14), and the scale, which may not be below 2^-14, brings these below 2^15, too.

use crate::hmx::scales::{power_or_infinity, store_minus_diagonal, store_table};
use crate::hmx::{TILE_VECTORS, TilePtr};
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::kernels::attention::flash_attn::tuning::KEY_TILES;
use crate::kernels::shared::lanes::up_to_end;
use crate::kernels::shared::largest::Largest;

/// The logarithm of the largest weight as the unit has it: with it the smallest normal one is 2^-19.
pub(super) const UP: i32 = 5;
/// The logarithm of the positions of a block.
const LOG_KEYS: i32 = (KEY_TILES * TILE).ilog2() as i32;
/// The largest logarithm of a scale of the first part of a score, so that 2^15 scales the second.
const MOST_FIRST: i32 = 15 - PART_BITS;
/// The logarithm of what the second part is scaled with, beyond the first.
const PART_BITS: i32 = 11;
/// What the second part of a score counts, where the first one counts 1.
pub(super) const SECOND_PART: f32 = 1.0 / (1 << PART_BITS) as f32;

const _: () = assert!(15 - LOG_KEYS - UP + 14 - 30 >= -14);

/// What the numbers of matrix tiles are, column by column.
#[derive(Clone, Copy)]
pub(super) struct Range<H: Hvx> {
    /// They are below 2^(code - 14): the exponent code of an f16, which is 31 if one is no number.
    pub code: H::I,
    /// They are 2^`up` times as large as what they stand for.
    pub up: H::I,
}

/// The range of keys of F16, from their `k_tiles` matrix tiles.
///
/// # Safety
/// `k_tiles` matrix tiles are valid for reading at `keys`.
#[inline(always)]
pub(super) unsafe fn range_of_keys<H: Hvx>(keys: TilePtr, k_tiles: usize) -> Range<H> {
    let mut largest = Largest::<H>::new();
    for i in 0..k_tiles * TILE_VECTORS {
        // SAFETY: the tiles have so many vectors (the caller's contract).
        largest.add(unsafe { keys.vectors().load_b::<H>(i) });
    }
    Range { code: largest.exponent_code(), up: H::splat_i(0) }
}

/// Describes 32 keys whose sums are of 2^`log` products: tables, what takes the first part away, and what the
/// scores are multiplied with, which is infinite for a key that has an infinity or a NaN.
///
/// # Safety
/// Three matrix tiles at `tables` and a vector at `factors` are valid for writing, and nobody else touches
/// them.
#[inline(always)]
pub(super) unsafe fn describe_keys<H: Hvx>(range: Range<H>, log: i32, tables: TilePtr, factors: VectorPtr) {
    let Range { code, up } = range;
    // -t, where 2^t is the first part's scale.
    let back = H::max_i(H::sub_i(code, H::splat_i(29 - log)), H::splat_i(-MOST_FIRST));
    let t = H::sub_i(H::splat_i(0), back);
    // SAFETY: two tables of two vectors at the beginning of tiles of their own, a vector of factors, and the
    // third tile (the caller's contract).
    unsafe {
        store_table::<H>(tables.vectors(), t);
        store_table::<H>(tables.skip(1).vectors(), H::add_i(t, H::splat_i(PART_BITS)));
        factors.store::<H>(0, power_or_infinity::<H>(H::sub_i(back, up), code));
        store_minus_diagonal::<H>(tables.skip(2), back);
    }
}

/// Writes the table of a column of a block's values, and what its sums are multiplied with.
///
/// # Safety
/// A matrix tile at `table` and a vector at `factors` are valid for writing, and nobody else touches them.
#[inline(always)]
pub(super) unsafe fn store_column<H: Hvx>(range: Range<H>, table: TilePtr, factors: VectorPtr) {
    let Range { code, up } = range;
    // -t, where 2^t is the scale.
    let back = H::sub_i(code, H::splat_i(15 - LOG_KEYS - UP + 14));
    let log = H::sub_i(H::sub_i(back, H::splat_i(UP)), up);
    // SAFETY: a table of two vectors in a tile of its own, and a vector of factors (the caller's contract).
    unsafe {
        store_table::<H>(table.vectors(), H::sub_i(H::splat_i(0), back));
        factors.store::<H>(0, power_or_infinity::<H>(log, code));
    }
}

/// Values of a block that are to become matrix tiles: up to 64 dimensions of 32 positions per key tile.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    /// A vector for each position.
    pub first: VectorPtr,
    pub key_tiles: usize,
    /// Positions that somebody sees: the others count as zeros.
    pub seen: (usize, usize),
    /// Dimensions, of the 64 that a vector has.
    pub dims: usize,
}

/// Makes a matrix tile per key tile of the even dimensions, at `to[0]`, and of the odd ones, at `to[1]`,
/// their tables, and what their sums are multiplied with. Gives whether all values are finite.
///
/// # Safety
/// 1. `staged.first` has a vector per position of its key tiles.
/// 2. As many matrix tiles at each of `to`, a matrix tile at each of `tables`, and two vectors at `factors`
///    are valid for writing, and nobody else touches them.
#[inline(always)]
pub(super) unsafe fn pack_values<H: Hvx>(
    staged: Staged,
    to: [TilePtr; 2],
    tables: [TilePtr; 2],
    factors: VectorPtr,
) -> bool {
    let Staged { first, key_tiles, seen: (from, until), dims } = staged;
    let mut largest = [Largest::<H>::new(), Largest::<H>::new()];
    let zero = H::splat_i(0);
    // Words of the dimensions that there are.
    let there = H::to_int(up_to_end::<H>(dims.div_ceil(2), H::splat(-1.0), H::splat(0.0)));
    for pair in 0..key_tiles * TILE / 2 {
        let row = |position: usize| {
            if position < from || position >= until {
                return zero;
            }
            // SAFETY: `position` is one of the key tiles', each of which has a vector (the caller's contract,
            // point 1).
            H::and_i(H::words(unsafe { first.load_b::<H>(position) }), there)
        };
        let (a, b) = (row(2 * pair), row(2 * pair + 1));
        let halves = [H::pair_halves(a, b), H::pair_halves(H::shr_i::<16>(a), H::shr_i::<16>(b))];
        for ((halves, largest), to) in halves.into_iter().zip(&mut largest).zip(to) {
            largest.add(halves);
            // SAFETY: a tile has 16 vectors of two positions each, and there is one for each key tile (the
            // caller's contract, point 2).
            unsafe { to.vectors().store_b::<H>(pair, halves) };
        }
    }
    let mut highest = zero;
    for (i, largest) in largest.into_iter().enumerate() {
        let code = largest.exponent_code();
        highest = H::max_i(highest, code);
        let range = Range { code, up: zero };
        // SAFETY: a table of two vectors in a tile of its own, and one of two vectors of factors (the
        // caller's contract).
        unsafe { store_column::<H>(range, tables[i], factors.skip(i)) };
    }
    H::max_lane(H::to_float(highest)) < 31.0
}
