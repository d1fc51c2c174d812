//! States whose key index is the fast one, as ggml has them: in VTCM they become what sweeps take, and again
//! what they were.

use hexflash_abi::op::gated_delta_net::TRANSPOSED_SIZES;

use super::tile::Tile;
use crate::hvx::{Hvx, LANES, VectorPtr, transpose};

const _: () = assert!(TRANSPOSED_SIZES as usize == LANES);

/// Exchanges the axes of a state, where it lies. A function of its own, where that costs no instructions:
/// registers are then its alone.
///
/// # Safety
/// 1. `state` is a tile, whose size is a multiple of 32.
/// 2. This worker alone uses it.
#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
pub(super) unsafe fn transpose<H: Hvx>(state: VectorPtr, tile: Tile) {
    let stride = tile.stride();
    // Square `j` of the rows of 32 keys, or values, from `32 i` on.
    let square = |i: usize, j: usize| state.skip(i * LANES * tile.vectors + j).get();
    for i in 0..tile.vectors {
        // SAFETY: a tile has rows of `vectors` vectors, and 32 times as many rows, because its size is a
        // multiple of 32 (the caller's contract, point 1): square (i, j) is 32 rows of one vector each for
        // all i and j below `vectors`, and different squares are apart. This worker alone uses them (point
        // 2).
        unsafe {
            transpose::transpose::<H>(square(i, i), stride, square(i, i), stride);
            for j in 0..i {
                transpose::exchange::<H>(square(i, j), square(j, i), stride);
            }
        }
    }
}
