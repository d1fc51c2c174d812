//! Keys and values as rows of ggml's Q8_0, which is how its graphs have them. A value is the product of a
//! code and its d, which is exact as a float. Keys are turned, 32 by 32, so that positions are in the lanes.
//!
//! Tiles become floats in functions of their own that are compiled for one kind of vectors
//! ([`Hvx::Everywhere`]): so they take no registers from the rest of attention, nor it from them.

use hexflash_abi::{DType, VECTOR_BYTES};

use super::cache_format::{CacheFormat, CachePlace};
use super::codes;
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES, VectorPtr, transpose};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::row::Row;
use crate::row_blocks::{self, Steps};

pub(super) struct Q8_0Rows;

/// Bytes of a row of `n` values, and from one staged row to the next.
const fn row_bytes(n: usize) -> usize {
    DType::Q8_0.row_bytes(n)
}

/// Bytes of a staged tile of rows of `n` values, with what is read beyond the last one.
const fn tile_bytes(n: usize) -> usize {
    (TILE * row_bytes(n) + row_blocks::BEYOND).next_multiple_of(VECTOR_BYTES)
}

impl CacheFormat for Q8_0Rows {
    fn key_tile(d: usize) -> usize {
        tile_bytes(d)
    }

    fn value_tile(dv: usize) -> usize {
        tile_bytes(dv)
    }

    fn value_vectors(dv: usize) -> usize {
        codes::value_vectors(dv)
    }

    #[inline(always)]
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // SAFETY: a key is a row, as a value is; the contract is the caller's.
        unsafe { Self::store_value::<H>(place, x) }
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        let row = place.cache.at([place.position, place.head, place.entry]);
        // SAFETY: x is as long as the cache's rows (the caller's contract, point 1), which are whole blocks,
        // aligned to 2 bytes (validation); `at` has checked the position. This worker alone has claimed the
        // head (point 2).
        unsafe { row_blocks::pack_row::<H::Everywhere>(x.as_ptr(), row, row_blocks::Q8_0.count(x.len())) }
    }

    /// These rows and no others.
    #[inline(always)]
    fn transfer_keys(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        Self::transfer_values(place, to, slot)
    }

    /// These rows and no others.
    #[inline(always)]
    fn transfer_values(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        let bytes = row_bytes(place.cache.ne[0]);
        place.rows(to, slot, bytes, bytes)
    }

    /// What was not brought is turned as well, whatever it is: it stays in lanes of its own.
    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize) {
        let blocks = row_blocks::Q8_0.count(d);
        // A block of all positions is 32 vectors, which are turned in their place.
        let to = Steps { row: LANES, block: TILE * LANES };
        // SAFETY: the tile has 32 rows of whole blocks, aligned to 2 bytes, and what may be read beyond them
        // (`tile_bytes`), and `wide` 32 vectors for each block (the caller's contract, `wide_keys`).
        unsafe {
            let (rows, floats) = (tile.get().cast_const(), wide.get().cast());
            row_blocks::unpack::<H::Everywhere>(rows, row_bytes(d), floats, to, [TILE, blocks]);
            turn::<H::Everywhere>(wide, blocks);
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize) {
        let (row, blocks) = (Self::value_vectors(dv) * LANES, row_blocks::Q8_0.count(dv));
        let tile = tile.get().cast_const().wrapping_add(from * row_bytes(dv));
        let wide = wide.skip(from * Self::value_vectors(dv)).get().cast();
        let steps = Steps { row, block: LANES };
        // SAFETY: rows `from..to` of the tile are whole blocks, aligned to 2 bytes, with what may be read
        // beyond them (`tile_bytes`), and `wide` has the vectors of 32 positions, of which each block has one
        // (the caller's contract).
        unsafe { row_blocks::unpack::<H::Everywhere>(tile, row_bytes(dv), wide, steps, [to - from, blocks]) }
    }
}

/// Transposes squares of 32 vectors, each in its place ([`transpose`]).
///
/// # Safety
/// `tiles` is valid for reading and writing `n` times 32 vectors, and no other thread touches them.
#[inline(never)]
unsafe fn turn<H: Hvx>(tiles: VectorPtr, n: usize) {
    for tile in 0..n {
        let at = tiles.skip(tile * TILE).get();
        // SAFETY: tile `tile` is one of `n`, so its 32 vectors are valid for reading and writing (the
        // caller's contract). Both addresses are the same, and so are both strides.
        unsafe { transpose::transpose::<H>(at, VECTOR_BYTES, at, VECTOR_BYTES) };
    }
}
