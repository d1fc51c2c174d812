//! Keys as rows of F16, which is how graphs of ggml have them. Products want positions in the lanes, so that
//! a tile is turned as it becomes floats. Values are rows in any case: [`F16`] has them.

use hexflash_abi::VECTOR_BYTES;

use super::f16::F16;
use super::{CacheFormat, Place, Sums};
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES};
use crate::kernels::flash_attn::TILE;
use crate::row::{Row, RowMut};

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
    unsafe fn store_key<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool {
        // SAFETY: a key is a row, as a value is; the contract is the caller's.
        unsafe { F16::store_value::<H>(place, x) }
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is the caller's.
        unsafe { F16::store_value::<H>(place, x) }
    }

    /// These rows and no others.
    #[inline(always)]
    fn transfer_keys(place: Place<'_>, to: usize, slot: *mut u8) -> Transfer {
        F16::transfer_values(place, to, slot)
    }

    #[inline(always)]
    fn transfer_values(place: Place<'_>, to: usize, slot: *mut u8) -> Transfer {
        F16::transfer_values(place, to, slot)
    }

    /// What was not brought is turned as well, whatever it is: it stays in lanes of its own.
    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: *const u8, wide: *mut f32, d: usize) {
        let stride = Self::key_tile(d) / TILE;
        for block in 0..d.div_ceil(2 * LANES) {
            let pairs = (d - block * 2 * LANES).div_ceil(2).min(LANES);
            // SAFETY: the tile has 32 rows of whole vectors, `stride` bytes apart, of which number `block` is
            // one, because `d` has halves in it; and `wide` has 64 vectors for each, because it has room for
            // whole pairs of tiles of dimensions (the caller's contract, `wide_keys`).
            unsafe {
                let rows = tile.add(block * VECTOR_BYTES);
                turn::<H>(rows, stride, wide.add(block * 2 * LANES * LANES), pairs);
            }
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: *const u8, wide: *mut f32, dv: usize, from: usize, to: usize) {
        // SAFETY: the contract is the caller's.
        unsafe { F16::widen_values::<H>(tile, wide, dv, from, to) }
    }

    #[inline(always)]
    unsafe fn finish<H: Hvx>(sums: Sums, factor: H::F, y: &mut RowMut<'_>) {
        // SAFETY: the contract is the caller's.
        unsafe { F16::finish::<H>(sums, factor, y) }
    }
}

/// Rows of a group that registers hold in the first pass, and in the second: 32 rows are turned by what 5
/// interleavings do, two of them in the first pass and three in the second.
pub(super) const FIRST: usize = 4;
pub(super) const SECOND: usize = 8;
const _: () = assert!(FIRST * SECOND == TILE && TILE == LANES);

/// The first two of five interleavings, of rows r, r + 8, r + 16 and r + 24: what comes to places r + 8 k.
#[inline(always)]
pub(super) fn first_pass<H: Hvx>([a, b, c, d]: [H::F; FIRST]) -> [H::F; FIRST] {
    let ((a, c), (b, d)) = (H::interleave(a, c), H::interleave(b, d));
    let ((a, b), (c, d)) = (H::interleave(a, b), H::interleave(c, d));
    [a, b, c, d]
}

/// The other three, of places 8 k to 8 k + 7: words 8 k to 8 k + 7 of all rows.
#[inline(always)]
pub(super) fn second_pass<H: Hvx>(x: [H::F; SECOND]) -> [H::F; SECOND] {
    let [x0, x1, x2, x3, x4, x5, x6, x7] = x;
    let ((x0, x1), (x2, x3), (x4, x5), (x6, x7)) =
        (H::interleave(x0, x4), H::interleave(x1, x5), H::interleave(x2, x6), H::interleave(x3, x7));
    let ((x0, x1), (x2, x3), (x4, x5), (x6, x7)) =
        (H::interleave(x0, x4), H::interleave(x1, x5), H::interleave(x2, x6), H::interleave(x3, x7));
    let ((x0, x1), (x2, x3), (x4, x5), (x6, x7)) =
        (H::interleave(x0, x4), H::interleave(x1, x5), H::interleave(x2, x6), H::interleave(x3, x7));
    [x0, x1, x2, x3, x4, x5, x6, x7]
}

/// Turns a vector of each of 32 rows: word i of all rows, a pair of f16, becomes two vectors of floats, for
/// the first `pairs` words.
///
/// Interleaving rows i and i + 16 for all i, and writing the two results to places 2 i and 2 i + 1, rotates
/// the bits of a word's place (five of its row, then five of its lane) by one. Five times that exchanges rows
/// and lanes. The first pass leaves vector k of group r at place 8 k + r, where the second one finds its
/// groups together.
///
/// # Safety
/// `rows` is valid for reading a vector each `stride` bytes, 32 times, and `to` for writing 64 vectors.
#[inline(always)]
unsafe fn turn<H: Hvx>(rows: *const u8, stride: usize, to: *mut f32, pairs: usize) {
    // The upper half, which the second pass overwrites only after it has read it.
    let between = to.wrapping_add(TILE * LANES);
    for r in 0..SECOND {
        // SAFETY: rows `r`, `r + 8`, `r + 16` and `r + 24` are below 32, as are the places `8 k + r` (the
        // caller's contract).
        unsafe {
            let row = |k: usize| H::load(rows.add((r + k * SECOND) * stride).cast());
            for (k, x) in first_pass::<H>([row(0), row(1), row(2), row(3)]).into_iter().enumerate() {
                H::store(between.add((k * SECOND + r) * LANES), x);
            }
        }
    }
    for k in 0..pairs.div_ceil(SECOND) {
        // SAFETY: places `8 k` to `8 k + 7` are below 32, because `pairs` is at most 32, and so are pairs of
        // vectors of the result: 64 vectors (the caller's contract). Pairs up to `8 k + 7` lie before places
        // from `8 (k + 1)` on of the upper half: 16 (k + 1) is at most 32 + 8 (k + 1).
        unsafe {
            let x = |j: usize| H::load(between.add((k * SECOND + j) * LANES));
            let words = second_pass::<H>([x(0), x(1), x(2), x(3), x(4), x(5), x(6), x(7)]);
            for (j, x) in words.into_iter().enumerate() {
                let (even, odd) = H::widen_f16(H::bytes(H::bits(x)));
                let pair = to.add(2 * (k * SECOND + j) * LANES);
                H::store(pair, even);
                H::store(pair.add(LANES), odd);
            }
        }
    }
}
