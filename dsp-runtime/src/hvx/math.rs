//! Functions on vectors, built from [`Hvx`] operations: the same bits on every back end.

use super::Hvx;

/// f16 in the high half of each word to f32: exact, subnormals, infinities and NaN included.
#[inline(always)]
pub fn f16_bits_to_f32<H: Hvx>(high_half: H::I) -> H::F {
    let sign = H::and_i(high_half, H::splat_i(i32::MIN));
    // Exponent and mantissa into place; the multiplication rebiases the exponent and renormalises subnormals.
    let magnitude = H::shr_i::<3>(H::and_i(high_half, H::splat_i(0x7fff_0000)));
    let value = H::mul(H::from_bits(magnitude), H::splat(f32::from_bits((254 - 15) << 23)));
    // f16 infinities and NaN come out at 2^16 and more: set the exponent that f32 has for them.
    let special = H::from_bits(H::or_i(H::bits(value), H::splat_i(0x7f80_0000)));
    let value = H::select_gt(H::splat(65536.0), value, value, special);
    H::from_bits(H::or_i(H::bits(value), sign))
}

/// e^x, within 1 ulp for results in the normal range; 0 below -87.3, infinity above 88.7, NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by the degree-6 polynomial of the Cephes library (S. Moshier, `expf`).
#[inline(always)]
pub fn exp<H: Hvx>(x: H::F) -> H::F {
    let n = H::to_int(H::mul(
        H::min(H::max(x, H::splat(-126.0)), H::splat(126.0)),
        H::splat(core::f32::consts::LOG2_E),
    ));
    let nf = H::to_float(n);
    // ln 2 in two parts, so that n * high is exact.
    let r = H::sub(x, H::mul(nf, H::splat(355.0 / 512.0)));
    let r = H::sub(r, H::mul(nf, H::splat(-2.121_944_4e-4)));
    let mut p = H::splat(1.987_569_2e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = H::add(H::mul(p, r), H::splat(c));
    }
    let p = H::add(H::add(H::mul(H::mul(r, r), p), r), H::splat(1.0));
    // 2^n in two factors: n reaches 128, which one exponent field does not hold.
    let half = H::sar_i::<1>(n);
    let power = |n| H::from_bits(H::shl_i::<23>(H::add_i(n, H::splat_i(127))));
    let y = H::mul(H::mul(p, power(half)), power(H::sub_i(n, half)));
    let y = H::select_gt(H::splat(-87.336_54), x, H::splat(0.0), y);
    H::select_gt(x, H::splat(88.722_83), H::splat(f32::INFINITY), y)
}

/// 1 / (1 + e^-x), within 3 ulp for results in the normal range; 0 below -88.7, NaN for NaN.
#[inline(always)]
pub fn sigmoid<H: Hvx>(x: H::F) -> H::F {
    let e = exp::<H>(H::sub(H::splat(0.0), x));
    H::div(H::splat(1.0), H::add(H::splat(1.0), e))
}

/// x * sigmoid(x), as ggml computes it: x / (1 + e^-x). Within 3 ulp down to -88.7, and -0 below; NaN for -infinity
/// and NaN.
#[inline(always)]
pub fn silu<H: Hvx>(x: H::F) -> H::F {
    let e = exp::<H>(H::sub(H::splat(0.0), x));
    H::div(x, H::add(H::splat(1.0), e))
}

/// ln(1 + y) for 0 <= y <= 2^126, within 3 ulp, small y included; NaN for NaN.
///
/// s = y / (2 + y), ln(1 + y) = 2 artanh(s) on the reduced argument m of 1 + y = 2^n m, sqrt(1/2) <= m < sqrt(2).
#[inline(always)]
pub fn ln_1p<H: Hvx>(y: H::F) -> H::F {
    let one = H::splat(1.0);
    let u = H::add(one, y);
    // The exponent that brings u into [sqrt(1/2), sqrt(2)).
    let shifted = H::sub_i(H::bits(u), H::splat_i(0x3f35_04f3));
    let n = H::sar_i::<23>(shifted);
    let scale = H::from_bits(H::sub_i(H::splat_i(127 << 23), H::shl_i::<23>(n)));
    // m - 1 = (1 - 2^n + y) / 2^n without cancellation: where n = 0 it is y itself, rounding of u undone.
    let f = H::add(H::sub(scale, one), H::mul(y, scale));
    let s = H::div(f, H::add(H::splat(2.0), f));
    let z = H::mul(s, s);
    let mut p = H::splat(2.0 / 11.0);
    for c in [2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        p = H::add(H::mul(p, z), H::splat(c));
    }
    H::add(H::mul(p, s), H::mul(H::to_float(n), H::splat(core::f32::consts::LN_2)))
}

/// ln(1 + e^x), and x itself above 20, as ggml has it. Within 4 ulp; 0 below -87.3, NaN for NaN.
#[inline(always)]
pub fn softplus<H: Hvx>(x: H::F) -> H::F {
    let twenty = H::splat(20.0);
    // min() keeps its second operand for NaN.
    let y = ln_1p::<H>(exp::<H>(H::min(twenty, x)));
    H::select_gt(x, twenty, x, y)
}

/// tanh(x) = 1 - 2 / (e^2x + 1), exact at the ends, NaN for NaN. Within 1.8e-7: the bound is absolute, small x lose
/// their digits.
#[inline(always)]
pub fn tanh<H: Hvx>(x: H::F) -> H::F {
    let e = exp::<H>(H::add(x, x));
    H::sub(H::splat(1.0), H::div(H::splat(2.0), H::add(e, H::splat(1.0))))
}
