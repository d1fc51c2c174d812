//! Keys as rows of F16, which is how graphs of ggml have them. Products want positions in the lanes, so that
//! a tile is turned: into one as [`F16`] has it, or as it becomes floats. Values are rows in any case: `F16`
//! has them.

use hexflash_abi::VECTOR_BYTES;

use super::cache_format::{CacheFormat, CachePlace};
use super::f16::F16;
use crate::dma::Transfer;
use crate::hvx::transpose::{self, SECOND};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::row::Row;

const _: () = assert!(TILE == LANES);

pub(super) struct F16Rows;

impl CacheFormat for F16Rows {
    /// Rows as values are staged.
    fn key_tile(d: usize) -> usize {
        F16::value_tile(d)
    }

    fn value_tile(dv: usize) -> usize {
        F16::value_tile(dv)
    }

    fn value_vectors(dv: usize) -> usize {
        F16::value_vectors(dv)
    }

    #[inline(always)]
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // SAFETY: a key is a row, as a value is; the contract is the caller's.
        unsafe { F16::store_value::<H>(place, x) }
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is the caller's.
        unsafe { F16::store_value::<H>(place, x) }
    }

    /// These rows and no others.
    #[inline(always)]
    fn transfer_keys(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        F16::transfer_values(place, to, slot)
    }

    #[inline(always)]
    fn transfer_values(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        F16::transfer_values(place, to, slot)
    }

    /// What was not brought is turned as well, whatever it is: it stays in lanes of its own.
    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize) {
        let stride = Self::key_tile(d) / TILE;
        for block in 0..d.div_ceil(2 * LANES) {
            let pairs = (d - block * 2 * LANES).div_ceil(2).min(LANES);
            // SAFETY: the tile has 32 rows of whole vectors, `stride` bytes apart, of which number `block` is
            // one, because `d` has halves in it; and `wide` has 64 vectors for each, because it has room for
            // whole pairs of tiles of dimensions (the caller's contract, `wide_keys`).
            unsafe {
                let rows = tile.skip(block).get().cast_const();
                widen_transposed::<H>(rows, stride, wide.skip(block * 2 * LANES), pairs);
            }
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize) {
        // SAFETY: the contract is the caller's.
        unsafe { F16::widen_values::<H>(tile, wide, dv, from, to) }
    }
}

impl F16Rows {
    /// Makes a vector of each pair of dimensions of a tile of keys of even width, as caches have it. What was
    /// not brought is turned as well, whatever it is: it stays in lanes of its own.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes, and `to` for writing [`wide_keys`]\(d). They are
    /// apart.
    #[inline(always)]
    pub(super) unsafe fn turn_keys<H: Hvx>(tile: VectorPtr, to: VectorPtr, d: usize) {
        let stride = Self::key_tile(d) / TILE;
        for block in 0..d.div_ceil(2 * LANES) {
            let rows = tile.skip(block).get().cast_const();
            // SAFETY: the tile has 32 rows of whole vectors, `stride` bytes apart, of which number `block` is
            // one, because `d` has halves in it; and `to` has 32 vectors for each, apart from the tile,
            // because it has room for two of each pair of dimensions (the caller's contract, `wide_keys`).
            unsafe { transpose::transpose::<H>(rows, stride, to.skip(block * LANES).get(), VECTOR_BYTES) };
        }
    }
}

/// Transposes a vector of each of 32 rows ([`transpose`]): word i of all rows, a pair of f16, becomes two
/// vectors of floats, for the first `pairs` words.
///
/// # Safety
/// `rows` is valid for reading a vector each `stride` bytes, 32 times, and `to` for writing 64 vectors.
#[inline(always)]
unsafe fn widen_transposed<H: Hvx>(rows: *const u8, stride: usize, to: VectorPtr, pairs: usize) {
    // The upper half, which the second pass overwrites only after it has read it.
    let between = to.skip(TILE).get();
    // SAFETY: the rows are valid for reading, and the upper half of `to`, 32 vectors, for writing (the
    // caller's contract).
    unsafe { transpose::first_pass::<H>(rows, stride, between, VECTOR_BYTES) };
    for k in 0..pairs.div_ceil(SECOND) {
        // SAFETY: the first pass has written the upper half, and `k` is below 4, because `pairs` is at most
        // 32. So pairs of vectors of the result up to `8 k + 7` are among its 64 vectors (the caller's
        // contract), and lie before places from `8 (k + 1)` on of the upper half: 16 (k + 1) is at most
        // 32 + 8 (k + 1).
        unsafe {
            let (a, b, c, d, e, f, g, h) = transpose::second_pass::<H>(between, VECTOR_BYTES, k);
            for (j, x) in [a, b, c, d, e, f, g, h].into_iter().enumerate() {
                let (even, odd) = H::widen_f16(H::bytes(H::bits(x)));
                let pair = to.skip(2 * (k * SECOND + j));
                pair.store::<H>(0, even);
                pair.store::<H>(1, odd);
            }
        }
    }
}
