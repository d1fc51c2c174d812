//! Powers of two that bring rows of floats into the range of f16.

use crate::hvx::{Hvx, LANES};

/// How the sums of a product are kept in range, from its k alone.
///
/// Sums of k products of weights below 2^a and activations below 1 are below 2^(a + log): see
/// [`super::mul_mat::by_hmx::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    /// The logarithm of k, rounded up.
    pub log: i32,
    /// Activations are below 2^-`down`, so that no scale of results is below the smallest normal fp16.
    pub down: i32,
}

/// The largest logarithm for which activations are below 1.
const MOST_LOG: i32 = 13;

impl Depth {
    /// That of rows of `k` values.
    pub(super) const fn of(k: usize) -> Self {
        let log = k.next_power_of_two().trailing_zeros() as i32;
        Self { log, down: if log > MOST_LOG { log - MOST_LOG } else { 0 } }
    }
}

/// What a row is multiplied with, and what takes that back: powers of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowScale {
    /// Makes all values less than 2^-`down`.
    pub to: f32,
    /// 1 / `to`.
    pub back: f32,
}

/// The logarithm of powers of two that are ordinary: see [`RowScale::is_ordinary`].
const ORDINARY: i32 = 48;

impl RowScale {
    /// That of a row whose largest magnitude has these bits; `None` if it is infinite or NaN. Values of
    /// 2^(126 - `down`) and more stay above: their results may be infinite or NaN, as those of an exact
    /// kernel may be.
    pub(super) const fn of(largest: u32, depth: Depth) -> Option<Self> {
        let code = largest >> 23;
        if code == 255 {
            return None;
        }
        let code = if code == 0 { 1 } else { code as i32 };
        let to = 253 - code - depth.down;
        let to = if to < 1 { 1 } else { to };
        Some(Self { to: f32::from_bits((to as u32) << 23), back: f32::from_bits(((254 - to) as u32) << 23) })
    }

    /// Whether `back` is between 2^-48 and 2^48. The product of two such powers is a normal float, and it
    /// stays one when it is multiplied by any f16 but zero.
    pub(super) const fn is_ordinary(self) -> bool {
        let power = (self.back.to_bits() >> 23) as i32 - 127;
        -ORDINARY <= power && power <= ORDINARY
    }
}

/// The bits of the largest magnitude of a row of `k` values: those of a NaN if there is one.
///
/// # Safety
/// `x` is aligned for f32 and valid for reading `k` floats.
#[inline(always)]
pub(super) unsafe fn largest<H: Hvx>(x: *const f32, k: usize) -> u32 {
    // SAFETY: the contract is the caller's.
    let [largest] = unsafe { largest_of::<H, 1>([x], k) };
    largest
}

/// The same of several rows at once, as the way to the largest lane is a chain of dependent operations.
///
/// # Safety
/// The rows are aligned for f32 and valid for reading `k` floats each.
#[inline(always)]
pub(super) unsafe fn largest_of<H: Hvx, const N: usize>(rows: [*const f32; N], k: usize) -> [u32; N] {
    let mut all = [H::splat_i(0); N];
    let whole = k / LANES;
    let magnitudes = |v: H::F| H::and_i(H::bits(v), H::splat_i(0x7fff_ffff));
    for v in 0..whole {
        for (all, row) in all.iter_mut().zip(rows) {
            // SAFETY: the row has `whole` vectors of 32 floats (the caller's contract).
            *all = H::max_i(*all, magnitudes(unsafe { H::load(row.add(v * LANES)) }));
        }
    }
    let (at, left) = (whole * LANES, k % LANES);
    if left > 0 {
        for (all, row) in all.iter_mut().zip(rows) {
            // SAFETY: the row has `left` floats from `at` on (the caller's contract).
            *all = H::max_i(*all, magnitudes(unsafe { H::load_n(row.add(at), left) }));
        }
    }
    let all = all.map(largest_of_lanes::<H>);
    all.map(|all| {
        let mut lanes = [0_u32; LANES];
        // SAFETY: `lanes` is an array of 32 words, which are 128 bytes.
        unsafe { H::store_b(lanes.as_mut_ptr().cast(), H::bytes(all)) };
        lanes[0]
    })
}

/// The largest of the lanes, in all of them.
#[inline(always)]
pub(super) fn largest_of_lanes<H: Hvx>(x: H::I) -> H::I {
    let x = H::max_i(x, H::bits(H::swap_lanes::<16>(H::from_bits(x))));
    let x = H::max_i(x, H::bits(H::swap_lanes::<8>(H::from_bits(x))));
    let x = H::max_i(x, H::bits(H::swap_lanes::<4>(H::from_bits(x))));
    let x = H::max_i(x, H::bits(H::swap_lanes::<2>(H::from_bits(x))));
    H::max_i(x, H::bits(H::swap_lanes::<1>(H::from_bits(x))))
}

/// Powers of two, lane by lane, from the bits of magnitudes: one that makes it 1 to 2, or less than 4 if it
/// is very large, and the inverse of that. Of infinity and NaN any.
#[inline(always)]
pub(super) fn powers<H: Hvx>(magnitudes: H::I) -> (H::F, H::F) {
    // Exponents of 1 and its inverse add up to twice the bias.
    let (twice, least) = (H::splat_i(254 << 23), H::splat_i(1 << 23));
    let power = H::max_i(H::and_i(magnitudes, H::splat_i(255 << 23)), least);
    let to = H::max_i(H::sub_i(twice, power), least);
    (H::from_bits(to), H::from_bits(H::sub_i(twice, to)))
}

/// The first 32 of `n` floats, or all of them and zeros.
///
/// # Safety
/// `x` is aligned for f32 and valid for reading `n` floats, at least 1.
#[inline(always)]
pub(super) unsafe fn load<H: Hvx>(x: *const f32, n: usize) -> H::F {
    // SAFETY: 32 floats, or `n` if that is less, are readable and aligned (the caller's contract).
    unsafe { if n >= LANES { H::load(x) } else { H::load_n(x, n) } }
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
