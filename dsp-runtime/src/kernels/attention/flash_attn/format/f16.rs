//! F16 caches: keys in `F16x32` tiles, values in rows.

use hexflash_abi::VECTOR_BYTES;

use super::cache_format::{CacheFormat, CachePlace, ValueSums};
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::row::{Row, RowMut};

pub(super) struct F16;

/// The bits of [`special`] that say so.
const SPECIAL: u32 = 0x8000_8000;

/// Has the place of the sign set where one of two f16 is infinite or NaN: an exponent of ones, and no other,
/// carries into it.
#[inline(always)]
fn special(halves: u32) -> u32 {
    (halves & 0x7c00_7c00) + 0x0400_0400
}

/// Bytes from one staged row of values to the next.
const fn value_row(dv: usize) -> usize {
    (2 * dv).next_multiple_of(VECTOR_BYTES)
}

impl CacheFormat for F16 {
    /// A vector per pair of dimensions. (The cache has whole groups.)
    fn key_tile(d: usize) -> usize {
        d.div_ceil(2) * VECTOR_BYTES
    }

    fn value_tile(dv: usize) -> usize {
        TILE * value_row(dv)
    }

    /// An even and an odd one per 64 values.
    fn value_vectors(dv: usize) -> usize {
        2 * value_row(dv) / VECTOR_BYTES
    }

    #[inline(always)]
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        let (strip, mut found) = (place.strip(), 0);
        for (v, pairs) in (0..x.vectors()).map(|v| (v, halves_of::<H>(x, v))) {
            // The cache has whole groups of dimensions, so that there is room for what x has not.
            for (i, pair) in pairs.0.into_iter().enumerate() {
                found |= special(pair);
                let at = (v * LANES / 2 + i) * VECTOR_BYTES + place.lane() * 4;
                // SAFETY: the strip has a vector per pair of dimensions and 16 per 32 of them, because the
                // cache's rows are as long as x (the caller's contract, point 1), and the lane is below 32.
                // The word is aligned, and this worker alone has claimed the head (point 2).
                unsafe { strip.add(at).cast::<u32>().write(pair) };
            }
        }
        found & SPECIAL == 0
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        let mut found = 0;
        let row = place.cache.at([place.position, place.head, place.entry]).cast::<u16>();
        for v in 0..x.vectors() {
            let pairs = halves_of::<H>(x, v);
            for pair in pairs.0 {
                found |= special(pair);
            }
            let n = (x.len() - v * LANES).min(LANES);
            // SAFETY: `at` has checked the position, and the row has `n` values from `32 v` on, because it is
            // as long as x (the caller's contract, point 1). They are aligned for f16 (validation), and this
            // worker alone has claimed the head (point 2). `pairs` is 32 values, of which `n` is no more.
            unsafe {
                core::ptr::copy_nonoverlapping(pairs.0.as_ptr().cast(), row.add(v * LANES), n);
            }
        }
        found & SPECIAL == 0
    }

    /// These rows and no others.
    #[inline(always)]
    fn transfer_values(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        let n = place.cache.ne[0];
        place.rows(to, slot, n * 2, value_row(n))
    }

    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize) {
        // SAFETY: `tile` has a vector per pair of dimensions, and `wide` room for two for each of them (the
        // caller's contract).
        unsafe { widen::<H>(tile, wide, d.div_ceil(2)) }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize) {
        let vectors = Self::value_vectors(dv);
        for position in from..to {
            let row = tile.skip(position * (value_row(dv) / VECTOR_BYTES));
            let wide = wide.skip(position * vectors);
            // SAFETY: `row` is one of the staged rows, and `wide` its place among the 32 that there is room
            // for, two vectors of f32 for each of f16 (the caller's contract).
            unsafe { widen::<H>(row, wide, vectors / 2) };
        }
    }
}

impl F16 {
    /// As [`Format::finish`](super::Format::finish).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn finish<H: Hvx>(sums: ValueSums, factor: H::F, y: &mut RowMut<'_>) {
        for chunk in 0..sums.vectors / 2 {
            // Even values in one vector, odd ones in the next.
            // SAFETY: `2 * chunk + 1` is below the vectors that the sums have, which is even (the caller's
            // contract).
            let (even, odd) =
                unsafe { (sums.first.load::<H>(2 * chunk), sums.first.load::<H>(2 * chunk + 1)) };
            let (low, high) = H::interleave(H::mul(even, factor), H::mul(odd, factor));
            for (v, value) in [(2 * chunk, low), (2 * chunk + 1, high)] {
                if v * LANES < y.len() {
                    y.set_vector::<H>(v, value);
                }
            }
        }
    }
}

/// 32 f16, as pairs in a word.
#[repr(C, align(128))]
struct HalfPairs([u32; LANES / 2]);

/// Vector `v` of a row as f16; what the row has not is zero.
#[inline(always)]
fn halves_of<H: Hvx>(x: Row<'_>, v: usize) -> HalfPairs {
    let mut pairs = HalfPairs([0; LANES / 2]);
    // SAFETY: `pairs` is 32 halves.
    unsafe { math::store_f16::<H>(pairs.0.as_mut_ptr().cast(), x.vector::<H>(v)) };
    pairs
}

/// Widens `n` vectors of f16 to 2 n of f32: vector 2i has the low halves of vector i, 2i + 1 the high halves.
///
/// # Safety
/// `from` is valid for reading n vectors, `to` for writing 2 n.
#[inline(always)]
unsafe fn widen<H: Hvx>(from: VectorPtr, to: VectorPtr, n: usize) {
    for i in 0..n {
        // SAFETY: vector `i` is below `n` at `from`, and vectors `2 * i` and `2 * i + 1` are below `2 * n` at
        // `to` (the caller's contract).
        unsafe {
            let (low, high) = H::widen_f16(from.load_b::<H>(i));
            to.store::<H>(2 * i, low);
            to.store::<H>(2 * i + 1, high);
        }
    }
}
