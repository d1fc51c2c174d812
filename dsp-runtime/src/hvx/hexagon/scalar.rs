//! Float lanes without HVX float (below v68, and so under qemu): IEEE operations of the scalar unit, lane by
//! lane.
//!
//! They give the bits of [`Portable`](portable::Portable). Comparisons and conversions from f16 are integer
//! operations on whole vectors.
#![expect(improper_ctypes_definitions, reason = "the C ABI between Rust functions; see `div`")]

use core::arch::asm;
use core::arch::hexagon::v128::*;
use core::simd::Select;
use core::simd::cmp::{SimdPartialEq, SimdPartialOrd};

use super::{LANES, V, Words, hvx, vector, words};
use crate::hvx::{math, portable};

pub(super) const HIDDEN_BITS: bool = false;
pub(super) const SCALAR: bool = true;

const MAGNITUDE: i32 = i32::MAX;
const INFINITY: i32 = f32::INFINITY.to_bits() as i32;

/// A vector's worth of words in memory.
#[repr(C, align(128))]
struct Buffer([u32; LANES]);

impl Buffer {
    fn vector(self) -> V {
        // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
        unsafe { core::mem::transmute(self) }
    }
}

/// One lane: `$instruction` of the scalars `{x}` and `{y}`.
macro_rules! lane_code {
    ($instruction:literal) => {
        concat!(
            "{x} = vextract({a}, {i})\n",
            "{y} = vextract({b}, {i})\n",
            $instruction,
            "\nmemw({out} + {i} << #0) = {x}\n",
            "{i} = add({i}, #4)\n",
        )
    };
}

/// `$instruction` of `$a` and `$b`, lane by lane.
///
/// Assembly, which leaves all other vectors alone: around a call they would go to memory, which the emulator
/// does byte by byte. It is slow at branches, too, so there are eight lanes to one; more would only make the
/// image larger.
macro_rules! each_lane {
    ($a:expr, $b:expr, $instruction:literal) => {{
        let mut buffer = Buffer([0; LANES]);
        // SAFETY: the loop writes 4 bytes at `out + i` for `i` = 0, 4, ... 124, which are the 32 words of
        // `buffer`; all else is registers, which are named.
        unsafe {
            asm!(
                "{i} = #0",
                "2:",
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                lane_code!($instruction),
                "p0 = cmp.eq({i}, #128)",
                "if (!p0) jump 2b",
                a = in(vreg) $a,
                b = in(vreg) $b,
                out = in(reg) buffer.0.as_mut_ptr(),
                i = out(reg) _,
                x = out(reg) _,
                y = out(reg) _,
                out("p0") _,
                options(nostack),
            );
        }
        buffer.vector()
    }};
}

#[inline(always)]
pub(super) fn add(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfadd({x}, {y})")
}

#[inline(always)]
pub(super) fn sub(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfsub({x}, {y})")
}

#[inline(always)]
pub(super) fn mul(a: V, b: V) -> V {
    each_lane!(a, b, "{x} = sfmpy({x}, {y})")
}

#[inline(always)]
pub(super) fn to_float(x: V) -> V {
    each_lane!(x, x, "{x} = convert_w2sf({x})")
}

// What is rare are functions, of the C ABI: it passes vectors in registers, where Rust's would pass them in
// memory.

/// The float at byte `at`.
#[inline(always)]
fn lane(v: V, at: usize) -> f32 {
    f32::from_bits(hvx!(q6_r_vextract_vr(v, at as i32)) as u32)
}

#[inline(never)]
pub(super) extern "C" fn div(a: V, b: V) -> V {
    Buffer(core::array::from_fn(|i| (lane(a, 4 * i) / lane(b, 4 * i)).to_bits())).vector()
}

#[inline(never)]
pub(super) extern "C" fn to_int(x: V) -> V {
    Buffer(core::array::from_fn(|i| portable::round(lane(x, 4 * i)) as u32)).vector()
}

/// The lanes' sum.
#[inline(never)]
pub(super) extern "C" fn sum(x: V) -> f32 {
    let lanes: [f32; LANES] = core::array::from_fn(|i| lane(x, 4 * i));
    portable::fold(lanes, |a, b| a + b)
}

/// An integer that is ordered as the float with these bits is; both zeros are 0.
#[inline(always)]
fn key(x: Words) -> Words {
    let sign = x >> Words::splat(31);
    ((x & Words::splat(MAGNITUDE)) ^ sign) - sign
}

#[inline(always)]
pub(super) fn select_gt(a: V, b: V, x: V, y: V) -> V {
    let (a, b) = (words(a), words(b));
    let number = |x: Words| (x & Words::splat(MAGNITUDE)).simd_le(Words::splat(INFINITY));
    let greater = key(a).simd_gt(key(b)) & number(a) & number(b);
    vector(greater.select(words(x), words(y)))
}

#[inline(always)]
pub(super) fn larger(a: V, b: V) -> V {
    select_gt(a, b, a, b)
}

#[inline(always)]
pub(super) fn smaller(a: V, b: V) -> V {
    select_gt(b, a, a, b)
}

/// f16 in the low half of each word (the high half is zero) to f32.
#[inline(always)]
fn widen(half: Words) -> Words {
    let sign = (half & Words::splat(0x8000)) << Words::splat(16);
    let magnitude = half & Words::splat(0x7fff);
    // Normal: exponent and mantissa into place, and the bias changed. Infinities and NaN: changed once more.
    let rebias = Words::splat((127 - 15) << 23);
    let normal = (magnitude << Words::splat(13)) + rebias;
    let special = normal + rebias;
    // Subnormal: the leading one to bit 23, where it adds one to the exponent.
    let zeros = words(hvx!(q6_vuw_vcl0_vuw(vector(magnitude))));
    let shifted = words(hvx!(q6_vw_vasl_vwvw(vector(magnitude), vector(zeros - Words::splat(8)))));
    let subnormal = shifted + ((Words::splat(133) - zeros) << Words::splat(23));
    let value = magnitude.simd_lt(Words::splat(0x0400)).select(subnormal, normal);
    let value = magnitude.simd_ge(Words::splat(0x7c00)).select(special, value);
    let value = magnitude.simd_eq(Words::splat(0)).select(magnitude, value);
    value | sign
}

#[inline(always)]
pub(super) fn widen_f16(x: V) -> (V, V) {
    let low = words(x) & Words::splat(0xffff);
    (vector(widen(low)), vector(widen(words(hvx!(q6_vuw_vlsr_vuwr(x, 16))))))
}

#[inline(always)]
pub(super) fn sum_all(x: V) -> V {
    hvx!(q6_v_vsplat_r(sum(x).to_bits() as i32))
}

#[inline(always)]
pub(super) fn widen_f16_scaled(x: V, _factors: i32, same: [f32; 2]) -> (V, V) {
    let (low, high) = widen_f16(x);
    let factor = |i: usize| hvx!(q6_v_vsplat_r(same[i].to_bits() as i32));
    (mul(low, factor(0)), mul(high, factor(1)))
}

#[inline(always)]
pub(super) fn start_half_sums(low: V, high: V, factor: V) -> (V, V) {
    (mul(low, factor), mul(high, factor))
}

#[inline(always)]
pub(super) fn half_sums(low: V, high: V) -> (V, V) {
    (low, high)
}

#[inline(always)]
pub(super) fn add_half_products(sums: (V, V), a: V, b: V) -> (V, V) {
    let (a, b) = (widen_f16(a), widen_f16(b));
    (add(sums.0, mul(a.0, b.0)), add(sums.1, mul(a.1, b.1)))
}

#[inline(always)]
pub(super) fn end_half_sums(sums: (V, V)) -> (V, V) {
    sums
}

// IEEE operations have one form.

pub(super) use self::{add as add_ieee, add as add_moved, add as add_q, add as add_qf, sub as sub_ieee};
pub(super) use self::{float as float_moved, float as movable};
pub(super) use self::{mul as mul_ieee, mul as mul_q, sum_all as sum_all_q};

#[inline(always)]
pub(super) fn float(x: V) -> V {
    x
}

#[inline(always)]
pub(super) fn rsqrt(x: V) -> V {
    math::rsqrt::<super::Hexagon>(x)
}
