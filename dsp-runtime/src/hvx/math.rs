//! Functions on vectors, built from [`Hvx`] operations: the same bits on every back end.

use super::{HalfSums, Hvx, LANES, Numbers};

/// f16 in the high half of each word to f32: exact, subnormals, infinities and NaN included.
#[inline(always)]
pub fn f16_bits_to_f32<H: Hvx>(high_half: H::I) -> H::F {
    let sign = H::and_i(high_half, H::splat_i(i32::MIN));
    // Exponent and mantissa into place, and the bias changed.
    let magnitude = H::shr_i::<3>(H::and_i(high_half, H::splat_i(0x7fff_0000)));
    let normal = H::from_bits(H::add_i(magnitude, H::splat_i((127 - 15) << 23)));
    // Subnormal: with the exponent of the smallest normal f16 the mantissa has a leading one too many.
    let smallest = H::splat(1.0 / 16384.0);
    let leading = H::from_bits(H::add_i(magnitude, H::splat_i((127 - 14) << 23)));
    let value = H::select_gt(smallest, normal, H::sub_ieee(leading, smallest), normal);
    // f16 infinities and NaN come out at 2^16 and more: set the exponent that f32 has for them.
    let special = H::from_bits(H::or_i(H::bits(value), H::splat_i(0x7f80_0000)));
    let value = H::select_gt(H::splat(65536.0), value, value, special);
    H::from_bits(H::or_i(H::bits(value), sign))
}

/// [`Hvx::widen_f16`] by other operations.
#[inline(always)]
pub fn widen_f16<H: Hvx>(x: H::B) -> (H::F, H::F) {
    let words = H::words(x);
    (f16_bits_to_f32::<H>(H::shl_i::<16>(words)), f16_bits_to_f32::<H>(words))
}

/// f32 to f16 in the low half of each word, to nearest, ties to even; above the range infinity, any NaN a
/// quiet one.
#[inline(always)]
pub fn f32_to_f16_bits<H: Hvx>(x: H::F) -> H::I {
    let bits = H::bits(x);
    let sign = H::and_i(H::shr_i::<16>(bits), H::splat_i(0x8000));
    let magnitude = H::and_i(bits, H::splat_i(0x7fff_ffff));
    let size = H::from_bits(magnitude);
    // Normal: round the 13 bits that go away, then rebias the exponent. A carry moves into it, as it should.
    let odd = H::and_i(H::shr_i::<13>(magnitude), H::splat_i(1));
    let rounded = H::shr_i::<13>(H::add_i(H::add_i(magnitude, H::splat_i(0x0fff)), odd));
    let normal = H::sub_i(rounded, H::splat_i((127 - 15) << 10));
    // Subnormal: the ulp of 0.5 is the smallest f16, so that adding 0.5 rounds to one, if the sum rounds as
    // IEEE does.
    let half = 0.5f32;
    let subnormal = H::sub_i(H::bits(H::add_ieee(size, H::splat(half))), H::splat_i(half.to_bits() as i32));
    let value = select_i::<H>(H::splat(1.0 / 16384.0), size, subnormal, normal);
    // From 65520 on, the nearest is infinity. NaN, too, for now: comparisons with it are not the same
    // everywhere.
    let value = select_i::<H>(H::splat(65520.0), size, value, H::splat_i(0x7c00));
    // What is above infinity as an integer is NaN.
    let nan = H::sar_i::<31>(H::sub_i(H::splat_i(0x7f80_0000), magnitude));
    H::or_i(H::or_i(value, H::and_i(nan, H::splat_i(0x0200))), sign)
}

/// Two vectors of f32 as f16, as [`f32_to_f16_bits`]: the first in the low half of each word, the second in
/// the high half.
#[inline(always)]
pub fn narrow_f16<H: Hvx>(low: H::F, high: H::F) -> H::B {
    pair_halves::<H>(f32_to_f16_bits::<H>(low), f32_to_f16_bits::<H>(high))
}

/// Low halves of words: those of `low` as the low halves, those of `high` as the high halves.
#[inline(always)]
pub fn pair_halves<H: Hvx>(low: H::I, high: H::I) -> H::B {
    H::bytes(H::or_i(H::and_i(low, H::splat_i(0xffff)), H::shl_i::<16>(high)))
}

/// [`Hvx::lookup_f16`] by other operations.
#[inline(always)]
pub fn lookup_f16<H: Hvx>(x: H::B, table: &'static Numbers) -> [H::B; 2] {
    let [b0, b1, b2, b3] = H::lookup_floats(x, table);
    [narrow_f16::<H>(b0, b2), narrow_f16::<H>(b1, b3)]
}

/// [`Hvx::bytes_to_f16`] by other operations.
#[inline(always)]
pub fn bytes_to_f16<H: Hvx>(x: H::B) -> [H::B; 2] {
    let [b0, b1, b2, b3] = signed_bytes_to_f32::<H>(H::words(x));
    [narrow_f16::<H>(b0, b1), narrow_f16::<H>(b2, b3)]
}

/// [`Hvx::mul_f16`] by other operations.
#[inline(always)]
pub fn mul_f16<H: Hvx>(a: H::B, b: H::B) -> H::B {
    let (a, b) = (H::widen_f16(a), H::widen_f16(b));
    narrow_f16::<H>(H::mul_ieee(a.0, b.0), H::mul_ieee(a.1, b.1))
}

/// [`Hvx::half_lanes`] of back ends that take lanes as floats: numbers of f16.
#[inline(always)]
pub fn half_lanes<H: Hvx>(x: H::F, scale: H::F) -> H::Lanes {
    H::lanes(H::widen_f16(H::scaled_to_f16(x, x, [scale; 2])).0)
}

/// [`Hvx::add_half_lanes`] of the same back ends.
#[inline(always)]
pub fn add_half_lanes<H: Hvx>(sums: HalfSums<H>, w: H::B, x: &H::Lanes, i: usize) -> HalfSums<H> {
    let (low, high) = H::widen_f16(w);
    HalfSums(
        H::add_ieee(sums.0, H::mul_ieee(low, H::lane(x, 2 * i))),
        H::add_ieee(sums.1, H::mul_ieee(high, H::lane(x, 2 * i + 1))),
    )
}

/// [`Hvx::scaled_to_f16`] by other operations.
#[inline(always)]
pub fn scaled_to_f16<H: Hvx>(low: H::F, high: H::F, scales: [H::F; 2]) -> H::B {
    narrow_f16::<H>(H::mul_ieee(low, scales[0]), H::mul_ieee(high, scales[1]))
}

/// [`Hvx::mul_fractions_less_f16`] by words.
#[inline(always)]
pub fn mul_fractions_less_f16<H: Hvx>(a: H::B, b: H::B, less: H::B) -> H::B {
    let [a, b, less] = [a, b, less].map(H::words);
    let upper = |x: H::I| H::sar_i::<16>(x);
    let product = |a: H::I, b: H::I, less: H::I| {
        let product = H::mul_i(upper(a), upper(b));
        let product = H::sar_i::<15>(H::add_i(product, H::splat_i(1 << 14)));
        f32_to_f16_bits::<H>(H::to_float(H::sub_i(product, upper(less))))
    };
    let low = |x: H::I| H::shl_i::<16>(x);
    pair_halves::<H>(product(low(a), low(b), low(less)), product(a, b, less))
}

/// The 64 f16 of a vector as f32, in order.
#[inline(always)]
pub fn widen_f16_in_order<H: Hvx>(halves: H::B) -> (H::F, H::F) {
    let (even, odd) = H::widen_f16(halves);
    H::interleave(even, odd)
}

/// Loads 32 f16 as f32, in order.
///
/// # Safety
/// `p` is aligned for u16 and valid for reading 32 f16.
#[inline(always)]
pub unsafe fn load_f16<H: Hvx>(p: *const u16) -> H::F {
    // SAFETY: `p` is aligned and valid for reading 32 f16 (the caller's contract), and 32 is 1 to 32.
    unsafe { load_f16_n::<H>(p, LANES) }
}

/// Loads the first `n` (1 to 32) f16 as f32; the other lanes are zero.
///
/// # Safety
/// 1. `n` is 1 to 32.
/// 2. `p` is aligned for u16 and valid for reading `n` f16.
#[inline(always)]
pub unsafe fn load_f16_n<H: Hvx>(p: *const u16, n: usize) -> H::F {
    // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for reading `n` halves (points 1 and 2 of the
    // caller's contract).
    widen_f16_in_order::<H>(unsafe { H::load_halves_n(p, n) }).0
}

/// Stores 32 lanes as f16, in order.
///
/// # Safety
/// `p` is valid for writing 32 f16.
#[inline(always)]
pub unsafe fn store_f16<H: Hvx>(p: *mut u16, v: H::F) {
    // SAFETY: `p` is valid for writing 32 f16, which are the 32 halves of `store_low_halves` (the caller's
    // contract).
    unsafe { H::store_low_halves(p, f32_to_f16_bits::<H>(v)) }
}

/// Stores the first `n` (1 to 32) lanes as f16.
///
/// # Safety
/// `p` is aligned for u16 and valid for writing `n` f16.
#[inline(always)]
pub unsafe fn store_f16_n<H: Hvx>(p: *mut u16, v: H::F, n: usize) {
    let mut halves = [0; LANES];
    // SAFETY: `halves` is an array of 32 f16; `p` is aligned and valid for writing `n` f16 (the caller's
    // contract), and no more than 32 are copied.
    unsafe {
        store_f16::<H>(halves.as_mut_ptr(), v);
        core::ptr::copy_nonoverlapping(halves.as_ptr(), p, n.min(LANES));
    }
}

/// |x|, exact, also of NaN.
#[inline(always)]
pub fn abs<H: Hvx>(x: H::F) -> H::F {
    H::from_bits(H::and_i(H::bits(x), H::splat_i(i32::MAX)))
}

/// y where x is finite, else infinity. A maximum passes over NaN, and arithmetic of qfloat takes it for a
/// number; neither loses infinity.
#[inline(always)]
pub fn or_infinity<H: Hvx>(x: H::F, y: H::F) -> H::F {
    let infinity = H::splat(f32::INFINITY);
    // Infinity is above neither infinity nor NaN, whether or not a comparison knows NaN.
    H::select_gt(infinity, abs::<H>(x), y, infinity)
}

/// Bytes 0 to 3 of every word, signed, as f32.
#[inline(always)]
pub fn signed_bytes_to_f32<H: Hvx>(words: H::I) -> [H::F; 4] {
    let (b0, b1) = (H::sar_i::<24>(H::shl_i::<24>(words)), H::sar_i::<24>(H::shl_i::<16>(words)));
    let (b2, b3) = (H::sar_i::<24>(H::shl_i::<8>(words)), H::sar_i::<24>(words));
    [H::to_float(b0), H::to_float(b1), H::to_float(b2), H::to_float(b3)]
}

/// -x, exact.
#[inline(always)]
pub fn negate<H: Hvx>(x: H::F) -> H::F {
    H::from_bits(H::add_i(H::bits(x), H::splat_i(i32::MIN)))
}

/// [`Hvx::to_float`] by sums alone, to the bit.
///
/// A half of x, put into the low bits of a float whose ulp is what the half counts, is that float and the
/// half. Taking away the float, and from the upper half also what the lower one begins with, is exact; only
/// the sum of both halves rounds.
#[inline(always)]
pub fn to_float_by_halves<H: Hvx>(x: H::I) -> H::F {
    /// Its ulp is 1; the lower half is from 0 to 2^16 - 1.
    const LOW: f32 = 8_388_608.0; // 2^23
    /// Its ulp is 2^16; the upper half, which has a sign, is counted from -2^15 on.
    const HIGH: f32 = 549_755_813_888.0; // 2^39
    const SIGN: i32 = 1 << 15;
    const BOTH: f32 = HIGH + 2_147_483_648.0 + LOW; // and 2^31: the sign, in units of 2^16
    let low = H::from_bits(H::or_i(H::and_i(x, H::splat_i(0xffff)), H::splat_i(LOW.to_bits() as i32)));
    let high = H::add_i(H::sar_i::<16>(x), H::splat_i(HIGH.to_bits() as i32 + SIGN));
    H::add_ieee(H::sub_ieee(H::from_bits(high), H::splat(BOTH)), low)
}

/// [`Hvx::select_gt`] between integers.
#[inline(always)]
fn select_i<H: Hvx>(a: H::F, b: H::F, x: H::I, y: H::I) -> H::I {
    H::bits(H::select_gt(a, b, H::from_bits(x), H::from_bits(y)))
}

/// n and r with x = n ln 2 + r and |r| <= ln 2 / 2, where `near` is x, or the end of the range next to it.
#[inline(always)]
fn reduce<H: Hvx>(x: H::F, near: H::F) -> (H::I, H::F) {
    let n = H::to_int(H::mul_ieee(near, H::splat(core::f32::consts::LOG2_E)));
    let nf = H::to_float(n);
    // ln 2 in two parts, so that n * high is exact, and so is its difference from x: an ulp of n ln 2 would
    // be many of e^r.
    let r = H::sub_ieee(x, H::mul_ieee(nf, H::splat(355.0 / 512.0)));
    (n, H::sub_ieee(r, H::mul_ieee(nf, H::splat(-2.121_944_4e-4))))
}

/// e^x, within 1 ulp for results in the normal range; 0 below -87.3, infinity above 88.7, NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by the degree-6 polynomial of the Cephes library (S. Moshier,
/// `expf`). Sums and products are IEEE's: in a chain of them each takes one instruction, where qfloat takes a
/// conversion more.
#[inline(always)]
pub fn exp<H: Hvx>(x: H::F) -> H::F {
    let near = H::smaller(H::larger(x, H::splat(-126.0)), H::splat(126.0));
    let (n, r) = reduce::<H>(x, near);
    let mut p = H::splat(1.987_569_2e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = H::add_ieee(H::mul_ieee(p, r), H::splat(c));
    }
    let p = H::add_ieee(H::mul_ieee(H::mul_ieee(r, r), p), r);
    let p = H::add_ieee(p, H::splat(1.0));
    // Times 2^n, in the exponent: within the bounds below it ends up in its range, also where n is 128.
    let y = H::from_bits(H::add_i(H::bits(p), H::shl_i::<23>(n)));
    let y = H::select_gt(H::splat(-87.336_54), x, H::splat(0.0), y);
    // NaN is above infinity, or the second operand of a comparison that knows it.
    H::select_gt(H::splat(88.722_84), x, y, H::larger(H::splat(f32::INFINITY), x))
}

/// a / b without a division: within 3 ulp, and 0 for divisors above 2^126.
#[inline(always)]
pub fn div_by_reciprocal<H: Hvx>(a: H::F, b: H::F) -> H::F {
    // The bits of 1 / b, about: the exponent negated, the mantissa mirrored. With t = b r, which is near 1,
    // t^2 - 3 t + 3 is 1 / t but for (1 - t)^3. This constant and these bits spread what is left to both
    // sides: 3.5e-5. Newton's method makes a square of it.
    let near_three = H::splat(3.001_985);
    let r = H::from_bits(H::sub_i(H::splat_i(0x7ef3_0000), H::bits(b)));
    let t = H::mul_ieee(b, r);
    let r = H::mul_ieee(r, H::add_ieee(H::mul_ieee(t, H::sub_ieee(t, near_three)), near_three));
    let y = H::mul_ieee(H::mul_ieee(a, r), H::sub_ieee(H::splat(2.0), H::mul_ieee(b, r)));
    let size = abs::<H>(b);
    let largest = H::from_bits(H::splat_i((126 + 127) << 23));
    H::select_gt(size, largest, H::splat(0.0), y)
}

/// 1 / sqrt(x), within 2 ulp for normal x; some large number for 0, 0 for infinity, NaN for NaN.
#[inline(always)]
pub fn rsqrt<H: Hvx>(x: H::F) -> H::F {
    // The exponent halved and negated, the mantissa about right: within 3.5 %. Newton's method, three times.
    let mut y = H::from_bits(H::sub_i(H::splat_i(0x5f37_59df), H::shr_i::<1>(H::bits(x))));
    let half = H::mul(x, H::splat(0.5));
    for _ in 0..3 {
        y = H::mul(y, H::sub(H::splat(1.5), H::mul(H::mul(half, y), y)));
    }
    H::select_gt(x, H::splat(f32::MAX), H::splat(0.0), y)
}

/// Below this, 1 / (1 + e^-x) is taken for zero: soon it is no normal number any more.
const LOGISTIC_ZERO: f32 = -87.3;
/// Above this, 1 / (1 + e^-x) is one, and so is what is computed.
const LOGISTIC_ONE: f32 = 40.0;

/// 1 / (1 + e^-x), within 3 ulp; 0 below -87.3. For NaN it may be any number: as a factor of NaN it need not
/// be NaN itself.
///
/// x = n ln 2 + r as in [`exp`], and e^r = (p + q) / (p - q) with p = 10 + r^2 and q = r (5 + r^2 / 12), the
/// fraction of H. Padé, its last coefficient adjusted. So 1 / (1 + e^-x) is (p + q) / (p + q + 2^-n (p - q)):
/// the division is needed anyway, and a fraction takes half as many operations as a polynomial.
#[inline(always)]
pub fn logistic<H: Hvx>(x: H::F) -> H::F {
    let zero_below = H::splat(LOGISTIC_ZERO);
    let near = H::larger(zero_below, H::smaller(H::splat(LOGISTIC_ONE), x));
    let (n, r) = reduce::<H>(near, near);
    let square = H::mul_ieee(r, r);
    let p = H::add_ieee(square, H::splat(10.0));
    let q = H::add_ieee(H::mul_ieee(square, H::splat(0.083_332_68)), H::splat(5.0));
    let q = H::mul_ieee(q, r);
    let (above, below) = (H::bits(H::add_ieee(p, q)), H::bits(H::sub_ieee(p, q)));
    // Both by 2^-4, so that 2^-n times the latter, up to 2^126, is no more than a reciprocal can be of.
    let sixteenth = H::splat_i(4 << 23);
    let above = H::from_bits(H::sub_i(above, sixteenth));
    let below = H::from_bits(H::sub_i(below, H::add_i(sixteenth, H::shl_i::<23>(n))));
    let y = H::div(above, H::add_ieee(above, below));
    H::select_gt(zero_below, x, H::splat(0.0), y)
}

/// [`logistic`], and NaN for NaN.
#[inline(always)]
pub fn sigmoid<H: Hvx>(x: H::F) -> H::F {
    // All bits are set where x is above infinity as an integer.
    let size = H::and_i(H::bits(x), H::splat_i(i32::MAX));
    let nan = H::sar_i::<31>(H::sub_i(H::splat_i(f32::INFINITY.to_bits() as i32), size));
    H::from_bits(H::or_i(H::bits(logistic::<H>(x)), nan))
}

/// x * sigmoid(x), which is x / (1 + e^-x), as ggml computes it. Within 4 ulp down to -87.3, and -0 below;
/// NaN for -infinity and NaN.
#[inline(always)]
pub fn silu<H: Hvx>(x: H::F) -> H::F {
    H::mul_ieee(x, logistic::<H>(x))
}

/// ln(1 + y) for 0 <= y <= 2^126, within 3 ulp, small y included; NaN for NaN.
///
/// s = y / (2 + y), ln(1 + y) = 2 artanh(s) on the reduced argument m of 1 + y = 2^n m, sqrt(1/2) <= m <
/// sqrt(2).
#[inline(always)]
pub fn ln_1p<H: Hvx>(y: H::F) -> H::F {
    let one = H::splat(1.0);
    let u = H::add(one, y);
    // The exponent that brings u into [sqrt(1/2), sqrt(2)).
    let shifted = H::sub_i(H::bits(u), H::splat_i(0x3f35_04f3));
    let n = H::sar_i::<23>(shifted);
    let scale = H::from_bits(H::sub_i(H::splat_i(127 << 23), H::shl_i::<23>(n)));
    // m - 1 = (1 - 2^n + y) / 2^n without cancellation: where n = 0 it is y itself, rounding of u undone.
    // Powers of two and their multiples: both terms are exact.
    let f = H::add_ieee(H::sub_ieee(scale, one), H::mul_ieee(y, scale));
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

/// tanh(x) = 1 - 2 / (e^2x + 1), exact at the ends, NaN for NaN. Within 1.8e-7: the bound is absolute, small
/// x lose their digits.
#[inline(always)]
pub fn tanh<H: Hvx>(x: H::F) -> H::F {
    let e = exp::<H>(H::add(x, x));
    H::sub(H::splat(1.0), H::div(H::splat(2.0), H::add(e, H::splat(1.0))))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::hvx::Isa;
    use crate::hvx::WithHvx;
    use crate::hvx::qf32::Qf32;

    struct Narrow<'a>(&'a [f32]);

    impl WithHvx for Narrow<'_> {
        type Output = Vec<u16>;

        #[inline(always)]
        fn with<H: Hvx>(self) -> Vec<u16> {
            let mut halves = vec![0; self.0.len()];
            for (x, y) in self.0.chunks_exact(LANES).zip(halves.chunks_exact_mut(LANES)) {
                // SAFETY: `x` and `y` are slices of 32 elements (`chunks_exact`).
                unsafe { store_f16::<H>(y.as_mut_ptr(), H::load(x.as_ptr())) };
            }
            halves
        }
    }

    struct Widen<'a>(&'a [u16]);

    impl WithHvx for Widen<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with<H: Hvx>(self) -> Vec<f32> {
            let mut floats = vec![0.0; self.0.len()];
            for (x, y) in self.0.chunks_exact(LANES).zip(floats.chunks_exact_mut(LANES)) {
                // SAFETY: `x` and `y` are slices of 32 elements (`chunks_exact`).
                unsafe { H::store(y.as_mut_ptr(), load_f16::<H>(x.as_ptr())) };
            }
            floats
        }
    }

    /// Every f16, and what f32 it is.
    fn all() -> (Vec<u16>, Vec<f32>) {
        (0..=u16::MAX).map(|bits| (bits, f16::from_bits(bits).to_f32())).unzip()
    }

    /// Floats at which narrowing might go wrong: every f16, and the floats next to every boundary between
    /// two.
    fn boundaries() -> Vec<f32> {
        let exact = all().1;
        let mut inputs = exact.clone();
        for pair in exact.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            inputs.extend([middle, middle.next_up(), middle.next_down(), pair[0].next_up()]);
        }
        inputs.extend([65519.996, 65520.0, 65536.0, 1e9, f32::MAX, f32::INFINITY, 1e-45, 1e-30]);
        inputs.resize(inputs.len().next_multiple_of(LANES), 0.0);
        inputs
    }

    fn assert_widened(who: &str, widened: &[f32]) {
        for (w, e) in widened.iter().zip(&all().1) {
            assert!(w.to_bits() == e.to_bits() || (w.is_nan() && e.is_nan()), "{who}: {w} {e}");
        }
    }

    fn assert_narrowed(who: &str, narrowed: &[u16], inputs: &[f32]) {
        for (&bits, &x) in narrowed.iter().zip(inputs) {
            let expected = f16::from_f32(x);
            let nan = f16::from_bits(bits).is_nan() && expected.is_nan();
            assert!(nan || bits == expected.to_bits(), "{who} {x:e}: {bits:#x} {expected:?}");
        }
    }

    #[test]
    fn f16_conversions_match_the_half_crate() {
        let inputs = boundaries();
        for isa in Isa::available() {
            assert_widened(isa.name(), &isa.run(Widen(&all().0)));
            assert_narrowed(isa.name(), &isa.run(Narrow(&inputs)), &inputs);
        }
    }

    /// Subnormal f16 are rounded by a sum, and read by a difference: both must be exact.
    #[test]
    fn f16_conversions_are_exact_where_sums_are_qfloat() {
        let inputs = boundaries();
        assert_widened("qf32", &Widen(&all().0).with::<Qf32>());
        assert_narrowed("qf32", &Narrow(&inputs).with::<Qf32>(), &inputs);
    }
}
