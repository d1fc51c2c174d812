//! Strips of Q8_0 caches as matrix tiles: codes become f16 and are multiplied with their scale, which is
//! rounded once.
//!
//! Scales are multiplied with a power of two first, so that no product is too large for f16. Each position of
//! keys has its own power. Values have one for all positions of a block, because these are summed.

use hexflash_abi::dtype::TILE_K;

use super::prepare::{Range, store_column};
use crate::hmx::TilePtr;
use crate::hmx::scales::powers_f16;
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::attention::flash_attn::format::q8_0::{GROUP_VECTORS, SCALES_AT, TILE_VECTORS, tile_at};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::kernels::shared::lanes::up_to_end;
use crate::kernels::shared::largest::Largest;

/// Codes are at most 2^7.
const CODE_BITS: i32 = 7;
/// Numbers of matrix tiles are below 2^15.
const MOST: i32 = 15;

/// For scales whose largest one has the exponent code `code`: the two factors that bring their products with
/// codes below 2^15, and the range of these products.
#[inline(always)]
fn powers<H: Hvx>(code: H::I) -> ([H::B; 2], Range<H>) {
    // Scales are below 2^(code - 14).
    let up = H::sub_i(H::splat_i(MOST + 14 - CODE_BITS), code);
    // Products are below 2^15, or no numbers where a scale is none.
    let beyond = H::shl_i::<1>(H::shr_i::<5>(H::add_i(code, H::splat_i(1))));
    (powers_f16::<H>(up), Range { code: H::add_i(H::splat_i(MOST + 14), beyond), up })
}

#[inline(always)]
fn times<H: Hvx>(scales: H::B, [first, second]: [H::B; 2]) -> H::B {
    H::mul_f16(H::mul_f16(scales, first), second)
}

/// Makes the `k_tiles` matrix tiles of a strip of keys, and gives their range, position by position.
///
/// # Safety
/// 1. `strip` holds the strip, a group for every two tiles.
/// 2. As many matrix tiles at `to` are valid for writing, apart from it, and nobody else touches them.
#[inline(always)]
pub(super) unsafe fn unpack_keys<H: Hvx>(strip: VectorPtr, k_tiles: usize, to: TilePtr) -> Range<H> {
    let scales = |tile: usize| {
        // SAFETY: a strip has a group for every two tiles, with a vector of scales (point 1 of the contract).
        let both = H::words(unsafe { strip.skip(tile_at(tile).0).load_b::<H>(SCALES_AT) });
        let low = H::and_i(both, H::splat_i(0xffff));
        if tile.is_multiple_of(2) { low } else { H::shr_i::<16>(both) }
    };
    let mut largest = Largest::<H>::new();
    for tile in 0..k_tiles {
        largest.add(H::bytes(scales(tile)));
    }
    let (to_range, range) = powers::<H>(largest.exponent_code());
    for tile in 0..k_tiles {
        let scale = scales(tile);
        let scale = times::<H>(H::pair_halves(scale, scale), to_range);
        // SAFETY: a strip has the codes of every tile (point 1 of the contract).
        let codes: [H::B; TILE_VECTORS] =
            core::array::from_fn(|v| unsafe { strip.skip(tile_at(tile).1).load_b::<H>(v) });
        let to = to.skip(tile).vectors();
        for (v, codes) in codes.into_iter().enumerate() {
            let [first, second] = H::bytes_to_f16(codes);
            // SAFETY: a matrix tile has two vectors for each of codes (point 2 of the contract).
            unsafe {
                to.store_b::<H>(2 * v, H::mul_f16(first, scale));
                to.store_b::<H>(2 * v + 1, H::mul_f16(second, scale));
            }
        }
    }
    range
}

/// Codes of a block that are to become matrix tiles: 64 dimensions of 32 positions per key tile.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// A group for each key tile.
    pub first: VectorPtr,
    pub key_tiles: usize,
    /// Positions that somebody sees: the others count as zeros.
    pub seen: (usize, usize),
    /// Dimensions, of the 64 that a group has.
    pub dims: usize,
}

impl Codes {
    /// The scales of a key tile in the first or the second column, in low halves: zero where nobody looks.
    ///
    /// # Safety
    /// The key tile is one of those that there are, and its group is readable.
    #[inline(always)]
    unsafe fn scales<H: Hvx>(&self, key_tile: usize, column: usize) -> H::I {
        // SAFETY: each key tile has a group with a vector of scales (the caller's contract).
        let both = H::words(unsafe { self.first.skip(key_tile * GROUP_VECTORS).load_b::<H>(SCALES_AT) });
        let low = H::and_i(both, H::splat_i(0xffff));
        let scales = if column == 0 { low } else { H::shr_i::<16>(both) };
        if column * TILE_K >= self.dims {
            return H::splat_i(0);
        }
        let within = |position: usize| position.saturating_sub(key_tile * TILE).min(TILE);
        let zero = H::splat(0.0);
        let seen = up_to_end::<H>(within(self.seen.1), H::from_bits(scales), zero);
        H::bits(up_to_end::<H>(within(self.seen.0), zero, seen))
    }
}

/// Makes a matrix tile per key tile of the first 32 dimensions, at `to[0]`, and of the others, at `to[1]`,
/// their tables, and what their sums are multiplied with. Gives whether all values are finite.
///
/// # Safety
/// 1. `codes.first` has a group per key tile.
/// 2. As many matrix tiles at each of `to`, a matrix tile at each of `tables`, and two vectors at `factors`
///    are valid for writing, apart from the codes, and nobody else touches them.
#[inline(always)]
pub(super) unsafe fn pack_codes<H: Hvx>(
    codes: Codes,
    to: [TilePtr; 2],
    tables: [TilePtr; 2],
    factors: VectorPtr,
) -> bool {
    let mut finite = true;
    for column in 0..2 {
        // SAFETY: the key tile is one of those that have a group (point 1 of the contract).
        let scales = |key_tile: usize| unsafe { codes.scales::<H>(key_tile, column) };
        let mut largest = Largest::<H>::new();
        for key_tile in 0..codes.key_tiles {
            largest.add(H::bytes(scales(key_tile)));
        }
        // That of all positions.
        let code = H::max_lane(H::to_float(largest.exponent_code())) as i32;
        finite &= code < 31;
        let (to_range, range) = powers::<H>(H::splat_i(code));
        for key_tile in 0..codes.key_tiles {
            let scales = H::words(times::<H>(H::bytes(scales(key_tile)), to_range));
            // Two positions in a word, in every second lane.
            let next = H::bits(H::swap_lanes::<1>(H::from_bits(scales)));
            let pairs = H::lanes(H::from_bits(H::words(H::pair_halves(scales, next))));
            let to = to[column].skip(key_tile).vectors();
            // SAFETY: a group has the codes of both columns (point 1 of the contract).
            let all: [H::B; TILE_VECTORS] = core::array::from_fn(|v| unsafe {
                codes.first.skip(key_tile * GROUP_VECTORS + column * TILE_VECTORS).load_b::<H>(v)
            });
            for (v, codes) in all.into_iter().enumerate() {
                let [first, second] = H::bytes_to_f16(codes);
                let scale = |position: usize| H::bytes(H::bits(H::lane(&pairs, position)));
                // SAFETY: a matrix tile has two vectors for each of codes (point 2 of the contract).
                unsafe {
                    to.store_b::<H>(2 * v, H::mul_f16(first, scale(4 * v)));
                    to.store_b::<H>(2 * v + 1, H::mul_f16(second, scale(4 * v + 2)));
                }
            }
        }
        // SAFETY: a table of two vectors in a tile of its own, and one of two vectors of factors (point 2 of
        // the contract).
        unsafe { store_column::<H>(range, tables[column], factors.skip(column)) };
    }
    finite
}
