//! Keys as rows of F16, which is how graphs of ggml have them, as matrix tiles.

use hexflash_abi::VECTOR_BYTES;

use super::prepare::{Range, range_of_keys};
use crate::hmx::{TILE_VECTORS, TilePtr};
use crate::hvx::transpose::{self, SECOND};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::kernels::attention::flash_attn::positions::TILE;

/// Makes the matrix tiles of 32 keys of width `d`, an even number, and gives their range. Rows that were not
/// brought are turned as well, whatever they are: they stay in lanes of their own.
///
/// # Safety
/// 1. `rows` is valid for reading and writing 32 rows of whole vectors.
/// 2. Matrix tiles for `d` values are valid for writing at `to`, apart from them. Nobody else touches either.
#[inline(always)]
pub(super) unsafe fn turn_keys<H: Hvx>(rows: VectorPtr, d: usize, to: TilePtr) -> Range<H> {
    let (vectors, k_tiles) = (d.div_ceil(2 * LANES), d.div_ceil(TILE));
    let stride = vectors * VECTOR_BYTES;
    for block in 0..vectors {
        let at = rows.skip(block).get();
        // SAFETY: vector `block` of each row is valid for reading and writing (point 1 of the contract), and
        // it is left where it was.
        unsafe { transpose::first_pass::<H>(at, stride, at, stride) };
        // Pairs of dimensions that there are, a vector of the tiles each.
        let pairs = (d / 2 - block * LANES).min(LANES);
        for k in 0..pairs.div_ceil(SECOND) {
            // SAFETY: the first pass has written these vectors; `k` is below 4, because `pairs` is at most
            // 32. Tiles have 16 vectors for 32 dimensions, so that those of 8 pairs, of which the first one
            // is there, are among them (point 2 of the contract).
            unsafe {
                let (a, b, c, d, e, f, g, h) = transpose::second_pass::<H>(at, stride, k);
                for (j, x) in [a, b, c, d, e, f, g, h].into_iter().enumerate() {
                    to.vectors().store::<H>(block * LANES + k * SECOND + j, x);
                }
            }
        }
    }
    // SAFETY: the tiles have pairs of dimensions up to `d` now (point 2 of the contract).
    unsafe {
        clear_beyond::<H>(to, d);
        range_of_keys::<H>(to, k_tiles)
    }
}

/// Makes zeros of the dimensions from `d` on, an even number, in the last of the matrix tiles for it.
///
/// # Safety
/// They are valid for writing, and nobody else touches them.
#[inline(always)]
pub(super) unsafe fn clear_beyond<H: Hvx>(keys: TilePtr, d: usize) {
    for pair in d / 2..d.div_ceil(TILE) * TILE_VECTORS {
        // SAFETY: a tile has a vector for each of 16 pairs of dimensions (the caller's contract).
        unsafe { keys.vectors().store_b::<H>(pair, H::splat_b(0)) };
    }
}

const _: () = assert!(TILE_VECTORS.is_multiple_of(SECOND));
