//! Float lanes with HVX float: qfloat, and from v79 on, where they are as fast, the IEEE instructions.
//!
//! Below v79 results differ from the definition in this: qfloat rounds in its own way (an ulp, in short), and knows
//! neither infinities nor NaN, which become large numbers. Comparisons and maxima are exact. Division is a
//! multiplication by a reciprocal, within 3 ulp, and gives 0 for divisors above 2^126.
//!
//! A value is kept as IEEE single between operations; the compiler removes conversions that undo each other.

use core::arch::hexagon::v128::*;
use core::simd::cmp::SimdPartialOrd;
use core::simd::{Select, Simd};

use super::{LANES, V, Words, hvx, vector, words};

#[inline(always)]
fn floats(v: V) -> Simd<f32, LANES> {
    // SAFETY: 128 bytes of plain data each.
    unsafe { core::mem::transmute(v) }
}

#[inline(always)]
fn single(v: V) -> V {
    hvx!(q6_vsf_equals_vqf32(v))
}

#[inline(always)]
pub(super) fn add(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") {
        hvx!(q6_vsf_vadd_vsfvsf(a, b))
    } else {
        single(hvx!(q6_vqf32_vadd_vsfvsf(a, b)))
    }
}

#[inline(always)]
pub(super) fn sub(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") {
        hvx!(q6_vsf_vsub_vsfvsf(a, b))
    } else {
        single(hvx!(q6_vqf32_vsub_vsfvsf(a, b)))
    }
}

#[inline(always)]
pub(super) fn mul(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") {
        hvx!(q6_vsf_vmpy_vsfvsf(a, b))
    } else {
        single(hvx!(q6_vqf32_vmpy_vsfvsf(a, b)))
    }
}

#[inline(always)]
pub(super) fn div(a: V, b: V) -> V {
    // The bits of 1 / b, about: the exponent negated, the mantissa mirrored. Then Newton's method, three times.
    let two = hvx!(q6_v_vsplat_r(2.0f32.to_bits() as i32));
    let mut r = vector(Words::splat(0x7ef3_11c3) - words(b));
    for _ in 0..3 {
        r = mul(r, sub(two, mul(b, r)));
    }
    let size = vector(words(b) & Words::splat(i32::MAX));
    let largest = vector(Words::splat(((126 + 127) << 23) as i32));
    select_gt(size, largest, vector(Words::splat(0)), mul(a, r))
}

#[inline(always)]
pub(super) fn select_gt(a: V, b: V, x: V, y: V) -> V {
    vector(floats(a).simd_gt(floats(b)).select(words(x), words(y)))
}

/// Adding 1.5 * 2^23 leaves the integer in the low bits, rounded as IEEE does. Good for |x| <= 2^22, which is more
/// than any kernel needs. (The conversion instruction truncates, and qfloat does not promise how it rounds.)
#[inline(always)]
pub(super) fn to_int(x: V) -> V {
    const MAGIC: i32 = 12_582_912.0f32.to_bits() as i32;
    let magic = Words::splat(MAGIC);
    vector(words(hvx!(q6_vsf_vadd_vsfvsf(x, vector(magic)))) - magic)
}

#[inline(always)]
pub(super) fn to_float(x: V) -> V {
    hvx!(q6_vsf_equals_vw(x))
}

/// The lanes' sum.
#[inline(always)]
pub(super) fn sum(x: V) -> f32 {
    super::fold(x, add)
}

#[inline(always)]
pub(super) fn widen_f16(x: V) -> (V, V) {
    if cfg!(target_feature = "hvxv79") {
        let pair = hvx!(q6_wsf_vcvt_vhf(x));
        (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
    } else {
        // Multiplied by one.
        widen_f16_scaled(x, 0x3c00_3c00, [1.0; 2])
    }
}

#[inline(always)]
pub(super) fn widen_f16_scaled(x: V, factors: i32, _same: [f32; 2]) -> (V, V) {
    let factors = hvx!(q6_v_vsplat_r(factors));
    if cfg!(target_feature = "hvxv79") {
        let pair = hvx!(q6_wsf_vmpy_vhfvhf(x, factors));
        (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
    } else {
        let pair = hvx!(q6_wqf32_vmpy_vhfvhf(x, factors));
        (single(hvx!(q6_v_lo_w(pair))), single(hvx!(q6_v_hi_w(pair))))
    }
}

// Sums of products stay in qf32. (From v79 on they are IEEE, as everything is.)

#[inline(always)]
pub(super) fn mul_q(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") { mul(a, b) } else { hvx!(q6_vqf32_vmpy_vsfvsf(a, b)) }
}

#[inline(always)]
pub(super) fn add_q(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") { add(a, b) } else { hvx!(q6_vqf32_vadd_vqf32vqf32(a, b)) }
}

#[inline(always)]
pub(super) fn add_qf(a: V, b: V) -> V {
    if cfg!(target_feature = "hvxv79") { add(a, b) } else { hvx!(q6_vqf32_vadd_vqf32vsf(a, b)) }
}

#[inline(always)]
pub(super) fn float(x: V) -> V {
    if cfg!(target_feature = "hvxv79") { x } else { single(x) }
}

/// The lanes' sum, in all lanes: the vector is turned, not shortened, and a + b is b + a.
#[inline(always)]
pub(super) fn sum_all(x: V) -> V {
    if cfg!(target_feature = "hvxv79") {
        turn(x, add)
    } else {
        // The first addition leaves IEEE.
        let x = hvx!(q6_vqf32_vadd_vsfvsf(x, hvx!(q6_v_vror_vr(x, 64))));
        let mut x = x;
        for distance in [32, 16, 8, 4] {
            x = add_q(x, hvx!(q6_v_vror_vr(x, distance)));
        }
        single(x)
    }
}

/// As [`sum_all`].
#[inline(always)]
pub(super) fn sum_all_q(x: V) -> V {
    float(turn(x, add_q))
}

#[inline(always)]
fn turn(mut x: V, add: impl Fn(V, V) -> V) -> V {
    for distance in [64, 32, 16, 8, 4] {
        x = add(x, hvx!(q6_v_vror_vr(x, distance)));
    }
    x
}

/// [`math::rsqrt`](crate::hvx::math::rsqrt) without leaving qf32.
#[inline(always)]
pub(super) fn rsqrt(x: V) -> V {
    if cfg!(target_feature = "hvxv79") {
        return crate::hvx::math::rsqrt::<super::Hexagon>(x);
    }
    let splat = |x: f32| vector(Words::splat(x.to_bits() as i32));
    let product = |a: V, b: V| hvx!(q6_vqf32_vmpy_vqf32vqf32(a, b));
    let start = vector(Words::splat(0x5f37_59df) - words(hvx!(q6_vuw_vlsr_vuwr(x, 1))));
    let half = mul_q(x, splat(0.5));
    let threehalves = hvx!(q6_vqf32_vadd_vsfvsf(splat(1.5), splat(0.0)));
    let mut y = hvx!(q6_vqf32_vadd_vsfvsf(start, splat(0.0)));
    for _ in 0..3 {
        y = product(y, hvx!(q6_vqf32_vsub_vqf32vqf32(threehalves, product(product(half, y), y))));
    }
    select_gt(x, splat(f32::MAX), splat(0.0), single(y))
}
