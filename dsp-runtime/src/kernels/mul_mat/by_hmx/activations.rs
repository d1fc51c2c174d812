//! Rows of x as matrix tiles of fp16.

use hexflash_abi::dtype::TILE_K;

use crate::hmx::TilePtr;
use crate::hvx::{Hvx, LANES};

/// How the sums of a product are kept in range, from its k alone.
///
/// Sums of k products of weights below 2^a and activations below 1 are below 2^(a + log): see
/// [`super::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) struct Depth {
    /// The logarithm of k, rounded up.
    pub log: i32,
    /// Activations are below 2^-`down`, so that no scale of results is below the smallest normal fp16.
    pub down: i32,
}

/// The largest logarithm for which activations are below 1.
const MOST_LOG: i32 = 13;

impl Depth {
    /// That of rows of `k` values.
    pub(in crate::kernels) const fn of(k: usize) -> Self {
        let log = k.next_power_of_two().trailing_zeros() as i32;
        Self { log, down: if log > MOST_LOG { log - MOST_LOG } else { 0 } }
    }
}

/// What a row is multiplied with, and what takes that back: powers of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::kernels) struct RowScale {
    /// Makes all values less than 2^-`down`.
    pub to: f32,
    /// 1 / `to`.
    pub back: f32,
}

impl RowScale {
    /// That of a row whose largest magnitude has these bits; `None` if it is infinite or NaN. Values of
    /// 2^(126 - `down`) and more stay above: their results may be infinite or NaN, as those of an exact
    /// kernel may be.
    pub(in crate::kernels) const fn of(largest: u32, depth: Depth) -> Option<Self> {
        let code = largest >> 23;
        if code == 255 {
            return None;
        }
        let code = if code == 0 { 1 } else { code as i32 };
        let to = 253 - code - depth.down;
        let to = if to < 1 { 1 } else { to };
        Some(Self { to: f32::from_bits((to as u32) << 23), back: f32::from_bits(((254 - to) as u32) << 23) })
    }
}

/// The bits of the largest magnitude of a row of `k` values: those of a NaN if there is one.
///
/// # Safety
/// `x` is aligned for f32 and valid for reading `k` floats.
#[inline(always)]
pub(in crate::kernels) unsafe fn largest<H: Hvx>(x: *const f32, k: usize) -> u32 {
    let mut all = H::splat_i(0);
    let mut at = 0;
    while at < k {
        // SAFETY: the row has `k - at` floats from `at` on, which is at least 1 (the caller's contract).
        let v = unsafe { load::<H>(x.add(at), k - at) };
        all = H::max_i(all, H::and_i(H::bits(v), H::splat_i(0x7fff_ffff)));
        at += LANES;
    }
    all = H::max_i(all, H::bits(H::swap_lanes::<16>(H::from_bits(all))));
    all = H::max_i(all, H::bits(H::swap_lanes::<8>(H::from_bits(all))));
    all = H::max_i(all, H::bits(H::swap_lanes::<4>(H::from_bits(all))));
    all = H::max_i(all, H::bits(H::swap_lanes::<2>(H::from_bits(all))));
    all = H::max_i(all, H::bits(H::swap_lanes::<1>(H::from_bits(all))));
    let mut lanes = [0_u32; LANES];
    // SAFETY: `lanes` is an array of 32 words, which are 128 bytes.
    unsafe { H::store_b(lanes.as_mut_ptr().cast(), H::bytes(all)) };
    lanes[0]
}

/// The first 32 of `n` floats, or all of them and zeros.
///
/// # Safety
/// `x` is aligned for f32 and valid for reading `n` floats, at least 1.
#[inline(always)]
unsafe fn load<H: Hvx>(x: *const f32, n: usize) -> H::F {
    // SAFETY: 32 floats, or `n` if that is less, are readable and aligned (the caller's contract).
    unsafe { if n >= LANES { H::load(x) } else { H::load_n(x, n) } }
}

/// A row of x, and what it is multiplied with; `None` past the last one, for zeros.
pub(in crate::kernels) type PackedRow = Option<(*const f32, f32)>;

/// Writes rows 2 `pair` and 2 `pair` + 1 of the matrix tiles at `to`. `EXCHANGED` as in
/// [`super::weights::Tiles`].
///
/// # Safety
/// 1. Each row is aligned for f32 and valid for reading `k` floats.
/// 2. Matrix tiles for `k` values are valid for writing at `to`, and nobody else touches these rows of them;
///    `pair` is below 16.
#[inline(always)]
pub(in crate::kernels) unsafe fn pack<H: Hvx, const EXCHANGED: bool>(
    rows: [PackedRow; 2],
    k: usize,
    to: TilePtr,
    pair: usize,
) {
    let scales = rows.map(|row| H::splat(row.map_or(0.0, |(_, scale)| scale)));
    for tile in 0..k.div_ceil(TILE_K) {
        let at = tile * TILE_K;
        let mut values = [H::splat(0.0); 2];
        for (value, row) in values.iter_mut().zip(rows) {
            if let Some((x, _)) = row {
                // SAFETY: the row has `k - at` floats from `at` on, at least 1 because `tile` is below the
                // number of tiles (point 1 of the caller's contract).
                *value = unsafe { load::<H>(x.add(at), k - at) };
            }
        }
        let v = H::scaled_to_f16(values[0], values[1], scales);
        let v = if EXCHANGED { exchange::<H>(v) } else { v };
        // SAFETY: a tile has 16 vectors of two rows each, and `pair` is below 16; the tile is one of those
        // for `k` values (point 2 of the caller's contract).
        unsafe { to.skip(tile).vectors().store_b::<H>(pair, v) };
    }
}

/// Words 1 and 2 of every four change places.
#[inline(always)]
fn exchange<H: Hvx>(v: H::B) -> H::B {
    /// Ones in words 1 and 2 of every four.
    static INNER: [u32; LANES] = {
        let (mut mask, mut i) = ([0; LANES], 0);
        while i < LANES {
            mask[i] = if i % 4 == 1 || i % 4 == 2 { u32::MAX } else { 0 };
            i += 1;
        }
        mask
    };
    // SAFETY: `INNER` is an array of 32 words, which are 128 bytes.
    let inner = unsafe { H::load_b(INNER.as_ptr().cast()) };
    // Word i ^ 3 is the other one of the two.
    let turned = H::swap_lanes::<2>(H::swap_lanes::<1>(H::from_bits(H::words(v))));
    let (turned, outer) = (H::bytes(H::bits(turned)), H::xor_b(inner, H::bytes(H::splat_i(-1))));
    H::or_b(H::and_b(turned, inner), H::and_b(v, outer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_brought_below_one() {
        for k in [1, 32, 33, 8192, 8193, 1 << 20] {
            let depth = Depth::of(k);
            assert!(1 << depth.log >= k && (k == 1 || 1 << (depth.log - 1) < k));
            assert!(depth.log - depth.down <= MOST_LOG);
            for x in [0.0, 1e-45, 1.2e-38, 0.03, 0.5, 1.0, 1.5, 6.6e4, 4e35] {
                let scale = RowScale::of(f32::to_bits(x), depth).unwrap();
                assert_eq!(scale.to * scale.back, 1.0);
                assert!(x * scale.to < 0.5_f32.powi(depth.down), "{x} {depth:?}");
                assert!(x < 1e-30 || x * scale.to >= 0.5_f32.powi(depth.down + 1), "{x} {depth:?}");
            }
        }
        for x in [f32::INFINITY, f32::NAN] {
            assert_eq!(RowScale::of(x.to_bits(), Depth::of(32)), None);
        }
        assert!(RowScale::of(f32::MAX.to_bits(), Depth::of(1 << 20)).is_some());
    }
}
