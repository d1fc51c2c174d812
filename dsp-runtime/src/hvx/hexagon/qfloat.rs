//! Float lanes with HVX float: qfloat arithmetic, IEEE comparisons.
//!
//! Below v79 results differ from the definition in this: qfloat rounds in its own way (an ulp, in short), and
//! knows neither infinities nor NaN, which become large numbers. Where IEEE sums are needed there are
//! instructions for them.
//!
//! From v79 on those are gone. qfloat has more bits, and a sum or product that is converted at once is IEEE's
//! to the bit (but for products of subnormals). The additional bits lie outside of the register: only float
//! instructions see them, and whatever else reads it, a store, a permutation, a selection, a copy, reads
//! another number. So everything here gives IEEE single to the outside, except
//! [`Hvx::Q`](crate::hvx::Hvx::Q), which nothing but sums may touch. `cargo xtask hexagon --check` looks
//! for values of this form that the compiler has moved.
//!
//! Comparisons and maxima are exact; a NaN counts as larger than infinity (below v81). Division is a
//! multiplication by a reciprocal.
//!
//! A value is kept as IEEE single between operations: each converts its result, and the compiler removes no
//! conversion (`-disable-qfp-opt`). Where that would cost much, kernels stay in
//! [`Hvx::Q`](crate::hvx::Hvx::Q).

use core::arch::hexagon::v128::*;
use core::simd::cmp::SimdPartialOrd;
use core::simd::{Select, Simd};

use super::{Hexagon, LANES, V, Words, hvx, vector, words};
use crate::hvx::math;

/// Whether a value between operations has bits outside of its register.
pub(super) const HIDDEN_BITS: bool = cfg!(target_feature = "hvxv79");
/// Whether floats are computed one by one.
pub(super) const SCALAR: bool = false;
/// Whether IEEE sums, products and conversions of HVX are used. From v79 on there are none. No library that
/// is known to run on phones has any of them, so that there is code without ([`plain`]), for DSPs of which
/// the start of a session finds that they do not execute them ([`forms`](super::forms)).
const IEEE: bool = !HIDDEN_BITS && !cfg!(feature = "plain");

#[inline(always)]
fn floats(v: V) -> Simd<f32, LANES> {
    // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
    unsafe { core::mem::transmute(v) }
}

#[inline(always)]
fn single(v: V) -> V {
    hvx!(q6_vsf_equals_vqf32(v))
}

#[inline(always)]
pub(super) fn add(a: V, b: V) -> V {
    single(hvx!(q6_vqf32_vadd_vsfvsf(a, b)))
}

#[inline(always)]
pub(super) fn sub(a: V, b: V) -> V {
    single(hvx!(q6_vqf32_vsub_vsfvsf(a, b)))
}

#[inline(always)]
pub(super) fn mul(a: V, b: V) -> V {
    single(mul_q(a, b))
}

#[inline(always)]
pub(super) fn add_ieee(a: V, b: V) -> V {
    if IEEE { hvx!(q6_vsf_vadd_vsfvsf(a, b)) } else { plain::add(a, b) }
}

#[inline(always)]
pub(super) fn sub_ieee(a: V, b: V) -> V {
    if IEEE { hvx!(q6_vsf_vsub_vsfvsf(a, b)) } else { plain::sub(a, b) }
}

#[inline(always)]
pub(super) fn mul_ieee(a: V, b: V) -> V {
    if IEEE { hvx!(q6_vsf_vmpy_vsfvsf(a, b)) } else { plain::mul(a, b) }
}

#[inline(always)]
pub(super) fn div(a: V, b: V) -> V {
    math::div_by_reciprocal::<Hexagon>(a, b)
}

#[inline(always)]
pub(super) fn select_gt(a: V, b: V, x: V, y: V) -> V {
    vector(floats(a).simd_gt(floats(b)).select(words(x), words(y)))
}

#[inline(always)]
pub(super) fn larger(a: V, b: V) -> V {
    hvx!(q6_vsf_vmax_vsfvsf(a, b))
}

#[inline(always)]
pub(super) fn smaller(a: V, b: V) -> V {
    hvx!(q6_vsf_vmin_vsfvsf(a, b))
}

/// Adding 1.5 * 2^23 leaves the integer in the low bits, rounded as IEEE does. Good for |x| <= 2^22, which is
/// more than any kernel needs. (The conversion instruction truncates.)
#[inline(always)]
pub(super) fn to_int(x: V) -> V {
    const MAGIC: i32 = 12_582_912.0f32.to_bits() as i32;
    let magic = Words::splat(MAGIC);
    vector(words(add_ieee(x, vector(magic))) - magic)
}

#[cfg(target_feature = "hvxv73")]
#[inline(always)]
pub(super) fn to_float(x: V) -> V {
    hvx!(q6_vsf_equals_vw(x))
}

/// v68 and v69 have no instruction for it.
#[cfg(not(target_feature = "hvxv73"))]
#[inline(always)]
pub(super) fn to_float(x: V) -> V {
    math::to_float_by_halves::<Hexagon>(x)
}

/// The lanes' sum.
#[inline(always)]
pub(super) fn sum(x: V) -> f32 {
    super::fold(x, add)
}

#[inline(always)]
pub(super) fn widen_f16(x: V) -> (V, V) {
    if IEEE {
        let pair = hvx!(q6_wsf_vcvt_vhf(x));
        (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
    } else {
        plain::widen_f16(x)
    }
}

#[inline(always)]
pub(super) fn widen_f16_scaled(x: V, factors: i32, _same: [f32; 2]) -> (V, V) {
    let factors = hvx!(q6_v_vsplat_r(factors));
    let pair = hvx!(q6_wqf32_vmpy_vhfvhf(x, factors));
    (single(hvx!(q6_v_lo_w(pair))), single(hvx!(q6_v_hi_w(pair))))
}

// Sums of products of f16 are IEEE's, by an instruction for 64 of each; in qf32 where that is missing.

#[inline(always)]
pub(super) fn start_half_sums(low: V, high: V, factor: V) -> (V, V) {
    if IEEE {
        (mul_ieee(low, factor), mul_ieee(high, factor))
    } else {
        (mul_q(low, factor), mul_q(high, factor))
    }
}

#[inline(always)]
pub(super) fn half_sums(low: V, high: V) -> (V, V) {
    if IEEE {
        (low, high)
    } else {
        let zero = vector(Words::splat(0));
        (add_qf(zero, low), add_qf(zero, high))
    }
}

#[inline(always)]
pub(super) fn add_half_products((low, high): (V, V), a: V, b: V) -> (V, V) {
    if IEEE {
        let sums = hvx!(q6_w_vcombine_vv(high, low));
        let sums = hvx!(q6_wsf_vmpyacc_wsfvhfvhf(sums, a, b));
        (hvx!(q6_v_lo_w(sums)), hvx!(q6_v_hi_w(sums)))
    } else {
        let pair = hvx!(q6_wqf32_vmpy_vhfvhf(a, b));
        (add_q(low, hvx!(q6_v_lo_w(pair))), add_q(high, hvx!(q6_v_hi_w(pair))))
    }
}

#[inline(always)]
pub(super) fn end_half_sums((low, high): (V, V)) -> (V, V) {
    if IEEE { (low, high) } else { (single(low), single(high)) }
}

/// Products of f16, which fit qf32, are rounded when they become f16.
#[cfg(target_feature = "hvxv73")]
#[inline(always)]
pub(super) fn mul_f16(a: V, b: V) -> V {
    if HIDDEN_BITS {
        let products = hvx!(q6_wqf32_vmpy_vhfvhf(a, b));
        hvx!(q6_vhf_equals_wqf32(products))
    } else {
        hvx!(q6_vhf_vmpy_vhfvhf(a, b))
    }
}

/// Products that become f16 at once: rounded then, or before where they are exact.
#[cfg(target_feature = "hvxv73")]
#[inline(always)]
pub(super) fn scaled_to_f16(low: V, high: V, scales: [V; 2]) -> V {
    if HIDDEN_BITS {
        let (low, high) = (mul_q(low, scales[0]), mul_q(high, scales[1]));
        let pair = hvx!(q6_w_vcombine_vv(high, low));
        hvx!(q6_vhf_equals_wqf32(pair))
    } else {
        to_f16(mul_ieee(low, scales[0]), mul_ieee(high, scales[1]))
    }
}

/// Where IEEE's conversion is missing, a product with one makes qfloat, which has a conversion.
#[cfg(target_feature = "hvxv73")]
#[inline(always)]
pub(super) fn to_f16(low: V, high: V) -> V {
    if HIDDEN_BITS {
        scaled_to_f16(low, high, [vector(Words::splat(1.0_f32.to_bits() as i32)); 2])
    } else {
        hvx!(q6_vhf_vcvt_vsfvsf(low, high))
    }
}

// Sums of products stay in qf32.

#[inline(always)]
pub(super) fn mul_q(a: V, b: V) -> V {
    hvx!(q6_vqf32_vmpy_vsfvsf(a, b))
}

#[inline(always)]
pub(super) fn add_q(a: V, b: V) -> V {
    hvx!(q6_vqf32_vadd_vqf32vqf32(a, b))
}

#[inline(always)]
pub(super) fn add_qf(a: V, b: V) -> V {
    hvx!(q6_vqf32_vadd_vqf32vsf(a, b))
}

#[inline(always)]
pub(super) fn float(x: V) -> V {
    single(x)
}

// Sums over lanes are permuted between additions: in qf32 where its bits are all in the register.

/// A sum of products in the form that may be permuted.
#[inline(always)]
pub(super) fn movable(x: V) -> V {
    if HIDDEN_BITS { single(x) } else { x }
}

/// a + b of that form.
#[inline(always)]
pub(super) fn add_moved(a: V, b: V) -> V {
    if HIDDEN_BITS { add(a, b) } else { add_q(a, b) }
}

/// The floats of that form.
#[inline(always)]
pub(super) fn float_moved(x: V) -> V {
    if HIDDEN_BITS { x } else { single(x) }
}

/// The lanes' sum, in all lanes: the vector is turned, not shortened, and a + b is b + a.
#[inline(always)]
pub(super) fn sum_all(x: V) -> V {
    let turned = hvx!(q6_v_vror_vr(x, 64));
    // The first addition leaves IEEE.
    let first = movable(hvx!(q6_vqf32_vadd_vsfvsf(x, turned)));
    float_moved(turn(first, &[32, 16, 8, 4]))
}

/// As [`sum_all`].
#[inline(always)]
pub(super) fn sum_all_q(x: V) -> V {
    float_moved(turn(movable(x), &[64, 32, 16, 8, 4]))
}

#[inline(always)]
fn turn(mut x: V, distances: &[i32]) -> V {
    for &distance in distances {
        x = add_moved(x, hvx!(q6_v_vror_vr(x, distance)));
    }
    x
}

/// [`math::rsqrt`] without leaving qf32.
#[inline(always)]
pub(super) fn rsqrt(x: V) -> V {
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

/// Arithmetic in place of IEEE's from v79 on: qfloat, which is exact there.
#[cfg(not(feature = "plain"))]
mod plain {
    use super::V;
    pub(super) use super::{add, mul, sub};

    /// Multiplied by one, which is exact.
    #[inline(always)]
    pub(super) fn widen_f16(x: V) -> (V, V) {
        super::widen_f16_scaled(x, 0x3c00_3c00, [1.0; 2])
    }
}

/// Arithmetic in place of IEEE's up to v75, where qfloat is not exact: the scalar unit's, lane by lane. Each
/// operation is a function, of the C ABI, which passes vectors in registers: written out wherever it is
/// needed it would make the library twice as large.
#[cfg(feature = "plain")]
#[expect(improper_ctypes_definitions, reason = "the C ABI between Rust functions")]
mod plain {
    use super::super::{V, lanes};
    pub(super) use lanes::widen_f16;

    #[inline(never)]
    pub(super) extern "C" fn add(a: V, b: V) -> V {
        lanes::add(a, b)
    }

    #[inline(never)]
    pub(super) extern "C" fn sub(a: V, b: V) -> V {
        lanes::sub(a, b)
    }

    #[inline(never)]
    pub(super) extern "C" fn mul(a: V, b: V) -> V {
        lanes::mul(a, b)
    }
}
