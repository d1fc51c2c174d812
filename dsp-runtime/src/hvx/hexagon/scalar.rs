//! Float lanes without HVX float (below v68, and so under qemu): the scalar unit's, lane by lane
//! ([`lanes`](super::lanes)).
//!
//! They give the bits of [`Portable`](portable::Portable). Comparisons are integer operations on whole
//! vectors.
#![expect(improper_ctypes_definitions, reason = "the C ABI between Rust functions; see `div`")]

use core::arch::hexagon::v128::*;
use core::simd::Select;
use core::simd::cmp::SimdPartialOrd;

pub(super) use super::lanes::{add, mul, sub, to_float, widen_f16};

use super::lanes::Buffer;
use super::{LANES, V, Words, hvx, vector, words};
use crate::hvx::{math, portable};

pub(super) const HIDDEN_BITS: bool = false;
pub(super) const SCALAR: bool = true;

const MAGNITUDE: i32 = i32::MAX;
const INFINITY: i32 = f32::INFINITY.to_bits() as i32;

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
