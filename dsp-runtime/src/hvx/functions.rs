//! Functions that graphs of ggml have and our own have not: the same bits on every back end that divides as
//! it does. Sums and products are IEEE's, so that comparisons with constants mean what they say.

use super::math::{exp, logistic, negate};
use super::{Hvx, sin_cos};

/// The bits of |x|.
const SIZE: i32 = i32::MAX;

/// |x|.
#[inline(always)]
pub fn abs<H: Hvx>(x: H::F) -> H::F {
    H::from_bits(H::and_i(H::bits(x), H::splat_i(SIZE)))
}

/// `size`, which is not negative, with the sign of x.
#[inline(always)]
fn with_sign_of<H: Hvx>(x: H::F, size: H::F) -> H::F {
    H::from_bits(H::or_i(H::bits(size), H::and_i(H::bits(x), H::splat_i(i32::MIN))))
}

/// `y`, or NaN where x is.
#[inline(always)]
fn nan_of<H: Hvx>(x: H::F, y: H::F) -> H::F {
    // All bits are set where |x| is above infinity as an integer.
    let size = H::bits(abs::<H>(x));
    let nan = H::sar_i::<31>(H::sub_i(H::splat_i(f32::INFINITY.to_bits() as i32), size));
    H::from_bits(H::or_i(H::bits(y), nan))
}

/// c\[0\] + c\[1\] x + ...
#[inline(always)]
fn polynomial<H: Hvx, const N: usize>(x: H::F, c: [f32; N]) -> H::F {
    let mut p = H::splat(c[N - 1]);
    for c in c.into_iter().rev().skip(1) {
        p = H::add_ieee(H::mul_ieee(p, x), H::splat(c));
    }
    p
}

/// -1, 0 or 1, as x is negative, zero or positive.
#[inline(always)]
pub fn sgn<H: Hvx>(x: H::F) -> H::F {
    let (zero, one) = (H::splat(0.0), H::splat(1.0));
    H::select_gt(x, zero, one, H::select_gt(zero, x, H::splat(-1.0), zero))
}

/// 1 where x is positive, else 0.
#[inline(always)]
pub fn step<H: Hvx>(x: H::F) -> H::F {
    H::select_gt(x, H::splat(0.0), H::splat(1.0), H::splat(0.0))
}

/// x where it is positive, else 0.
#[inline(always)]
pub fn relu<H: Hvx>(x: H::F) -> H::F {
    H::select_gt(x, H::splat(0.0), x, H::splat(0.0))
}

/// x where it is positive, else `slope` x.
#[inline(always)]
pub fn leaky_relu<H: Hvx>(x: H::F, slope: f32) -> H::F {
    H::select_gt(x, H::splat(0.0), x, H::mul_ieee(x, H::splat(slope)))
}

/// x, but at least `low` and at most `high`; NaN for NaN.
#[inline(always)]
pub fn clamp<H: Hvx>(x: H::F, low: f32, high: f32) -> H::F {
    let (low, high) = (H::splat(low), H::splat(high));
    nan_of::<H>(x, H::select_gt(low, x, low, H::select_gt(x, high, high, x)))
}

/// Up to this size e^x - 1 is computed without the difference, in which digits are lost.
const SMALL: f32 = 0.35;

/// e^x - 1 within 5 ulp; NaN for NaN.
#[inline(always)]
pub fn expm1<H: Hvx>(x: H::F) -> H::F {
    let series = [1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
    let small = H::mul_ieee(x, polynomial::<H, 7>(x, series));
    let large = H::sub_ieee(exp::<H>(x), H::splat(1.0));
    nan_of::<H>(x, H::select_gt(H::splat(SMALL), abs::<H>(x), small, large))
}

/// tanh(x) within 6 ulp; NaN for NaN. With e = e^2|x| - 1 it is e / (e + 2).
#[inline(always)]
pub fn tanh<H: Hvx>(x: H::F) -> H::F {
    let size = abs::<H>(x);
    // Above 9.1 it is 1.
    let near = H::smaller(size, H::splat(10.0));
    let e = expm1::<H>(H::add_ieee(near, near));
    let y = H::div(e, H::add_ieee(e, H::splat(2.0)));
    nan_of::<H>(x, with_sign_of::<H>(x, y))
}

/// x where it is positive, else e^x - 1.
#[inline(always)]
pub fn elu<H: Hvx>(x: H::F) -> H::F {
    H::select_gt(x, H::splat(0.0), x, expm1::<H>(x))
}

/// x / 2 (1 + tanh(v)), which is x times the logistic function of 2 v, with v = sqrt(2 / pi) (x + 0.044715
/// x^3).
#[inline(always)]
pub fn gelu<H: Hvx>(x: H::F) -> H::F {
    let u = H::mul_ieee(x, polynomial::<H, 2>(H::mul_ieee(x, x), [1.595_769, 0.071_354_82]));
    H::mul_ieee(x, logistic::<H>(u))
}

/// x / (1 + e^(-1.702 x)).
#[inline(always)]
pub fn gelu_quick<H: Hvx>(x: H::F) -> H::F {
    H::mul_ieee(x, logistic::<H>(H::mul_ieee(x, H::splat(1.702))))
}

/// x / 2 (1 + erf(x / sqrt(2))), with an erf that is off by 2e-7 at most.
///
/// Formula 7.1.26 of Abramowitz and Stegun: erfc(z) = t p(t) e^(-z^2) with t = 1 / (1 + 0.3275911 z). It is
/// taken as it is for negative x, where 1 - erf would lose digits.
#[inline(always)]
pub fn gelu_erf<H: Hvx>(x: H::F) -> H::F {
    // Above 13.1 e^(-z^2) is 0.
    let z = H::smaller(H::mul_ieee(abs::<H>(x), H::splat(core::f32::consts::FRAC_1_SQRT_2)), H::splat(10.0));
    let one = H::splat(1.0);
    let t = H::div(one, H::add_ieee(one, H::mul_ieee(z, H::splat(0.327_591_1))));
    let p = polynomial::<H, 5>(t, [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4]);
    let erfc = H::mul_ieee(H::mul_ieee(t, p), exp::<H>(negate::<H>(H::mul_ieee(z, z))));
    let twice = H::select_gt(x, H::splat(0.0), H::sub_ieee(H::splat(2.0), erfc), erfc);
    H::mul_ieee(H::mul_ieee(x, H::splat(0.5)), twice)
}

/// (x + 3) / 6, between 0 and 1.
#[inline(always)]
pub fn hard_sigmoid<H: Hvx>(x: H::F) -> H::F {
    clamp::<H>(H::div(H::add_ieee(x, H::splat(3.0)), H::splat(6.0)), 0.0, 1.0)
}

/// x times [`hard_sigmoid`].
#[inline(always)]
pub fn hard_swish<H: Hvx>(x: H::F) -> H::F {
    H::mul_ieee(x, hard_sigmoid::<H>(x))
}

/// From here on every float is an integer.
const WHOLE: f32 = 8_388_608.0; // 2^23

/// |x| rounded to an integer, ties to even; NaN for NaN.
#[inline(always)]
fn nearest<H: Hvx>(size: H::F) -> H::F {
    // Next to 2^23 the ulp is 1.
    let rounded = H::sub_ieee(H::add_ieee(size, H::splat(WHOLE)), H::splat(WHOLE));
    H::select_gt(H::splat(WHOLE), size, rounded, size)
}

/// The next integer towards zero.
#[inline(always)]
pub fn trunc<H: Hvx>(x: H::F) -> H::F {
    let size = abs::<H>(x);
    let whole = nearest::<H>(size);
    let whole = H::select_gt(whole, size, H::sub_ieee(whole, H::splat(1.0)), whole);
    with_sign_of::<H>(x, whole)
}

/// The next integer below x.
#[inline(always)]
pub fn floor<H: Hvx>(x: H::F) -> H::F {
    let whole = trunc::<H>(x);
    H::select_gt(whole, x, H::sub_ieee(whole, H::splat(1.0)), whole)
}

/// The next integer above x.
#[inline(always)]
pub fn ceil<H: Hvx>(x: H::F) -> H::F {
    negate::<H>(floor::<H>(negate::<H>(x)))
}

/// The nearest integer, ties away from zero.
#[inline(always)]
pub fn round<H: Hvx>(x: H::F) -> H::F {
    let size = abs::<H>(x);
    let whole = nearest::<H>(size);
    // A tie that went down to an even number. The difference is exact.
    let low = H::select_gt(H::splat(0.5), H::sub_ieee(size, whole), whole, H::add_ieee(whole, H::splat(1.0)));
    let low = H::select_gt(H::splat(WHOLE), size, low, size);
    with_sign_of::<H>(x, low)
}

/// sqrt(x) within 1 ulp for normal x; 0 for 0, NaN for what is negative or NaN.
#[inline(always)]
pub fn sqrt<H: Hvx>(x: H::F) -> H::F {
    let r = H::rsqrt(x);
    let y = H::mul_ieee(x, r);
    // Newton's method once more, in IEEE's arithmetic: half of the rest, divided by the root.
    let rest = H::sub_ieee(x, H::mul_ieee(y, y));
    let y = H::add_ieee(y, H::mul_ieee(H::mul_ieee(rest, H::splat(0.5)), r));
    let zero = H::splat(0.0);
    let y = H::select_gt(x, zero, y, zero);
    let y = H::select_gt(x, H::splat(f32::MAX), x, y);
    nan_of::<H>(x, H::select_gt(zero, x, H::splat(f32::NAN), y))
}

/// ln(x) within 4 ulp, or 2^-24 where that is more; -infinity for 0, NaN for what is negative or NaN.
///
/// x = 2^n m with sqrt(1/2) <= m < sqrt(2); with s = (m - 1) / (m + 1), ln(m) = 2 artanh(s).
#[inline(always)]
pub fn log<H: Hvx>(x: H::F) -> H::F {
    let zero = H::splat(0.0);
    // Subnormal numbers become normal ones.
    let tiny = H::splat(f32::MIN_POSITIVE);
    let normal = H::select_gt(tiny, x, H::mul_ieee(x, H::splat(16_777_216.0)), x);
    let less = H::select_gt(tiny, x, H::splat(24.0), zero);
    let shifted = H::sub_i(H::bits(normal), H::splat_i(0x3f35_04f3));
    let n = H::sar_i::<23>(shifted);
    let m = H::from_bits(H::sub_i(H::bits(normal), H::shl_i::<23>(n)));
    let f = H::sub_ieee(m, H::splat(1.0));
    let s = H::div(f, H::add_ieee(f, H::splat(2.0)));
    let z = H::mul_ieee(s, s);
    let p = polynomial::<H, 6>(z, [2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0]);
    let power = H::mul_ieee(H::sub_ieee(H::to_float(n), less), H::splat(core::f32::consts::LN_2));
    let y = H::add_ieee(H::mul_ieee(p, s), power);
    let y = H::select_gt(x, H::splat(f32::MAX), x, y);
    let not_positive = H::select_gt(zero, x, H::splat(f32::NAN), H::splat(f32::NEG_INFINITY));
    nan_of::<H>(x, H::select_gt(x, zero, y, not_positive))
}

/// sin(x), for |x| up to 2^20; NaN beyond.
#[inline(always)]
pub fn sin<H: Hvx>(x: H::F) -> H::F {
    within_range::<H>(x, sin_cos::sin_cos::<H>(x).0)
}

/// cos(x), for |x| up to 2^20; NaN beyond.
#[inline(always)]
pub fn cos<H: Hvx>(x: H::F) -> H::F {
    within_range::<H>(x, sin_cos::sin_cos::<H>(x).1)
}

#[inline(always)]
fn within_range<H: Hvx>(x: H::F, y: H::F) -> H::F {
    let beyond = H::select_gt(abs::<H>(x), H::splat(sin_cos::LARGEST), H::splat(f32::NAN), y);
    nan_of::<H>(x, beyond)
}

/// a / b within 4 ulp of results in the normal range, for every b: where [`Hvx::div`] is a multiplication by
/// a reciprocal, that loses divisors near the ends of the range, zero and NaN.
#[inline(always)]
pub fn divide<H: Hvx>(a: H::F, b: H::F) -> H::F {
    const BIG: f32 = 18_446_744_073_709_551_616.0; // 2^64
    let (size, one) = (abs::<H>(b), H::splat(1.0));
    // Both are divided by a power of two, which is exact.
    let small = H::select_gt(H::splat(1.0 / BIG), size, H::splat(BIG), one);
    let scale = H::select_gt(size, H::splat(BIG), H::splat(1.0 / BIG), small);
    let y = H::mul_ieee(H::div(a, H::mul_ieee(b, scale)), scale);
    let infinite = H::mul_ieee(a, with_sign_of::<H>(b, H::splat(f32::INFINITY)));
    let y = H::select_gt(size, H::splat(0.0), y, infinite);
    // A reciprocal gives 0 for infinity by infinity.
    let largest = H::splat(f32::MAX);
    let y = H::select_gt(size, largest, H::select_gt(abs::<H>(a), largest, H::splat(f32::NAN), y), y);
    nan_of::<H>(a, nan_of::<H>(b, y))
}

#[cfg(test)]
mod tests;
