//! Powers of two that bring rows of floats into the range of f16.

use crate::hvx::{Hvx, LANES, choose};

/// How the sums of a product are kept in range, from its k alone.
///
/// Sums of k products of weights below 2^a and activations below 1 are below 2^(a + log): see
/// [`super::mul_mat::by_hmx::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The logarithm of k, rounded up.
    pub log: i32,
    /// Activations are below 2^-`down`, so that no scale of results is below the smallest normal fp16.
    pub down: i32,
}

/// The largest logarithm for which activations are below 1.
const MOST_LOG: i32 = 13;

impl Depth {
    /// That of rows of `k` values.
    pub const fn of(k: usize) -> Self {
        let log = k.next_power_of_two().trailing_zeros() as i32;
        Self { log, down: if log > MOST_LOG { log - MOST_LOG } else { 0 } }
    }
}

/// What a row is multiplied with, and what takes that back: powers of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScale {
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
    pub const fn of(largest: u32, depth: Depth) -> Option<Self> {
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
    pub const fn is_ordinary(self) -> bool {
        let power = (self.back.to_bits() >> 23) as i32 - 127;
        -ORDINARY <= power && power <= ORDINARY
    }
}

/// What rows are multiplied with, and what takes that back, lane by lane: [`RowScale`] of several rows.
#[derive(Clone, Copy)]
pub struct RowScales<H: Hvx> {
    pub to: H::F,
    pub back: H::F,
    /// What holds for all of the rows.
    pub kind: ScaleKind,
}

/// What holds for all of several rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScaleKind {
    /// Their scales are [ordinary](RowScale::is_ordinary).
    Ordinary,
    /// They are finite, but a scale is not ordinary.
    Finite,
    /// Nothing: one has an infinity or a NaN.
    NotFinite,
}

impl<H: Hvx> RowScales<H> {
    /// Those of eight rows. Lane i of `largest` has the bits of the largest magnitude of row i % 8.
    #[inline(always)]
    pub fn of(largest: H::I, depth: Depth) -> Self {
        let (one, bias) = (H::splat_i(1), H::splat_i(127));
        let code = H::shr_i::<23>(largest);
        let to = H::max_i(H::sub_i(H::splat_i(253 - depth.down), H::max_i(code, one)), one);
        let back = H::sub_i(H::splat_i(254), to);
        // The magnitude of the scale's logarithm, or 256, which is above all of them, for a row that is not
        // finite.
        let power = H::max_i(H::sub_i(back, bias), H::sub_i(bias, back));
        let not_finite = H::shl_i::<8>(H::shr_i::<8>(H::add_i(code, one)));
        let worst = H::max_lane(H::to_float(H::max_i(power, not_finite)));
        let kind = match worst {
            256.0 => ScaleKind::NotFinite,
            power if power > ORDINARY as f32 => ScaleKind::Finite,
            _ => ScaleKind::Ordinary,
        };
        let float = |code| H::from_bits(H::shl_i::<23>(code));
        Self { to: float(to), back: float(back), kind }
    }
}

/// The bits of the largest magnitude of a row of `k` values: those of a NaN if there is one.
///
/// # Safety
/// `x` is aligned for f32 and valid for reading `k` floats.
#[inline(always)]
pub unsafe fn largest<H: Hvx>(x: *const f32, k: usize) -> u32 {
    // SAFETY: the contract is the caller's.
    let [all] = unsafe { largest_of::<H, 1>([x], k) };
    first_lane::<H>(largest_of_lanes::<H>(all))
}

/// Of two rows at once, as the way to the largest lane is a chain of dependent operations.
///
/// # Safety
/// The rows are aligned for f32 and valid for reading `k` floats each.
#[inline(always)]
pub unsafe fn largest_of_two<H: Hvx>(rows: [*const f32; 2], k: usize) -> [u32; 2] {
    // SAFETY: the contract is the caller's.
    unsafe { largest_of::<H, 2>(rows, k) }.map(largest_of_lanes::<H>).map(first_lane::<H>)
}

/// Of eight rows, row i in lanes i, 8 + i, 16 + i and 24 + i.
///
/// # Safety
/// The rows are aligned for f32 and valid for reading `k` floats each.
#[inline(always)]
pub unsafe fn largest_of_eight<H: Hvx>(rows: [*const f32; 8], k: usize) -> H::I {
    // SAFETY: the contract is the caller's.
    let [a, b, c, d, e, f, g, h] = unsafe { largest_of::<H, 8>(rows, k) };
    let (ab, cd) = (fold::<H, 1>(a, b), fold::<H, 1>(c, d));
    let (ef, gh) = (fold::<H, 1>(e, f), fold::<H, 1>(g, h));
    let all = fold::<H, 4>(fold::<H, 2>(ab, cd), fold::<H, 2>(ef, gh));
    let all = H::max_i(all, swapped::<H, 8>(all));
    H::max_i(all, swapped::<H, 16>(all))
}

/// In lane i the larger of lanes i and i ^ N: of `b` where i has the bit N, else of `a`.
#[inline(always)]
fn fold<H: Hvx, const N: usize>(a: H::I, b: H::I) -> H::I {
    H::max_i(choose::<H, N>(a, b), swapped::<H, N>(choose::<H, N>(b, a)))
}

/// Lane i: lane i ^ N of `x`.
#[inline(always)]
fn swapped<H: Hvx, const N: usize>(x: H::I) -> H::I {
    H::bits(H::swap_lanes::<N>(H::from_bits(x)))
}

/// Lane 0.
#[inline(always)]
fn first_lane<H: Hvx>(x: H::I) -> u32 {
    let mut lanes = [0_u32; LANES];
    // SAFETY: `lanes` is an array of 32 words, which are 128 bytes.
    unsafe { H::store_b(lanes.as_mut_ptr().cast(), H::bytes(x)) };
    lanes[0]
}

/// Lane by lane the largest magnitudes of rows.
///
/// # Safety
/// The rows are aligned for f32 and valid for reading `k` floats each.
#[inline(always)]
unsafe fn largest_of<H: Hvx, const N: usize>(rows: [*const f32; N], k: usize) -> [H::I; N] {
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
    all
}

/// The largest of the lanes, in all of them.
#[inline(always)]
pub fn largest_of_lanes<H: Hvx>(x: H::I) -> H::I {
    let x = H::max_i(x, swapped::<H, 16>(x));
    let x = H::max_i(x, swapped::<H, 8>(x));
    let x = H::max_i(x, swapped::<H, 4>(x));
    let x = H::max_i(x, swapped::<H, 2>(x));
    H::max_i(x, swapped::<H, 1>(x))
}

/// Powers of two, lane by lane, from the bits of magnitudes: one that makes it 1 to 2, or less than 4 if it
/// is very large, and the inverse of that. Of infinity and NaN any.
#[inline(always)]
pub fn powers<H: Hvx>(magnitudes: H::I) -> (H::F, H::F) {
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
pub unsafe fn load<H: Hvx>(x: *const f32, n: usize) -> H::F {
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
