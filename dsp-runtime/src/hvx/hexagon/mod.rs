//! Hexagon HVX: a vector is one register.
//!
//! Integer operations are the same instructions on every version. Float operations are chosen when the crate
//! is compiled, by the target's features: scalar code below v68 and HVX float above. With the feature `plain`
//! that is qfloat without IEEE arithmetic, for DSPs of v68 to v75 that are found not to have it.
//!
//! Where an instruction takes or gives a vector predicate, the compiler's intrinsics are unusable (they abort
//! it); there [`core::simd`] masks, which it selects well, or assembly.

#[cfg(not(target_feature = "hvx-qfloat"))]
pub mod check;
#[cfg(not(target_feature = "hvx-qfloat"))]
#[path = "scalar.rs"]
mod float;
#[cfg(target_feature = "hvx-qfloat")]
#[path = "qfloat.rs"]
mod float;
#[cfg(target_feature = "hvx-qfloat")]
pub mod forms;
#[cfg(any(not(target_feature = "hvx-qfloat"), feature = "plain"))]
mod lanes;
mod partial;

use core::arch::hexagon::v128::*;
use core::simd::Simd;

use super::{BYTES, HalfSums, Hvx, LANES, Lookup, Vectors, math};

/// A vector register.
type V = HvxVector;
/// The same, as words that operators work on.
type Words = Simd<i32, LANES>;

/// The Hexagon back end.
#[derive(Clone, Copy, Debug)]
pub struct Hexagon;

/// # Safety (of the expansion)
/// HVX intrinsics need HVX of the version that they name, in 128-byte mode. The whole crate is compiled for a
/// processor that has it, so that nothing here can run on one that has not.
macro_rules! hvx {
    ($intrinsic:ident($($x:expr),*)) => {{
        // SAFETY: the intrinsic works on registers only, and needs HVX of the version that it names, in
        // 128-byte mode. The whole crate is compiled for a processor that has it, so that this cannot run on
        // one that has not.
        unsafe { $intrinsic($($x),*) }
    }};
}
use hvx;

#[inline(always)]
fn words(v: V) -> Words {
    // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
    unsafe { core::mem::transmute(v) }
}

#[inline(always)]
fn vector(w: Words) -> V {
    // SAFETY: both types are 128 bytes, as `transmute` checks, and every bit pattern is a value of both.
    unsafe { core::mem::transmute(w) }
}

/// Folds the upper half onto the lower until one lane is left.
#[inline(always)]
fn fold(mut x: V, f: impl Fn(V, V) -> V) -> f32 {
    for distance in [64, 32, 16, 8, 4] {
        x = f(x, hvx!(q6_v_vror_vr(x, distance)));
    }
    f32::from_bits(hvx!(q6_r_vextract_vr(x, 0)) as u32)
}

/// Controls of `vdelta` that bring word i to all words: byte p takes from byte p ^ control.
#[repr(C, align(128))]
struct Spread([[u8; BYTES]; LANES]);

static SPREAD: Spread = {
    let mut control = [[0; BYTES]; LANES];
    let mut at = 0;
    while at < LANES * BYTES {
        let (word, byte) = (at / BYTES, at % BYTES);
        control[word][byte] = (byte ^ (4 * word)) as u8 & 0x7c;
        at += 1;
    }
    Spread(control)
};

/// Lane 2 i, with half of the controls of all lanes, which then fit the registers.
#[inline(always)]
fn even_lane(x: V, i: usize) -> V {
    let half = if i < LANES / 4 { x } else { hvx!(q6_v_vror_vr(x, BYTES as i32 / 2)) };
    Hexagon::lane(&half, 2 * i % (LANES / 2))
}

/// a and b, of which the words are interleaved: the lower half, the upper half.
#[inline(always)]
fn interleave(a: V, b: V) -> (V, V) {
    let pair = hvx!(q6_w_vshuff_vvr(b, a, -4));
    (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
}

/// The even words of a and b, the odd words of a and b.
#[inline(always)]
fn deal(a: V, b: V) -> (V, V) {
    let pair = hvx!(q6_w_vdeal_vvr(b, a, -4));
    (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
}

/// From the maxima of every other vector, in lanes i and up, those of all of them: two lanes of a vector meet
/// at each of five levels, so that at the last lane i has what is left of vector i.
#[inline(always)]
fn meet(even: V, odd: V) -> V {
    let (low, high) = interleave(even, odd);
    Hexagon::max(low, high)
}

/// Levels of the tree in [`Hvx::max_lanes`], each of the vectors i, i + n, i + 2 n ...
macro_rules! levels {
    ($($name:ident: $below:ident, $n:literal;)*) => {$(
        #[inline(always)]
        fn $name<X: Vectors<Hexagon>>(x: &X, i: usize) -> V {
            meet($below(x, i), $below(x, i + $n))
        }
    )*};
}

#[inline(always)]
fn maxima_32<X: Vectors<Hexagon>>(x: &X, i: usize) -> V {
    x.get(i)
}

levels! {
    maxima_16: maxima_32, 16;
    maxima_8: maxima_16, 8;
    maxima_4: maxima_8, 4;
    maxima_2: maxima_4, 2;
    maxima_1: maxima_2, 1;
}

impl Hvx for Hexagon {
    type F = V;
    type I = V;
    type B = V;
    type Lanes = V;
    type Q = V;
    type Everywhere = Self;

    const REGISTERS: usize = 32;
    const Q_STAYS: bool = float::HIDDEN_BITS;
    const COSTLY_FLOATS: bool = float::SCALAR;
    const WRITES_OUT: bool = true;
    const CHEAP_WIDENING: bool = !float::SCALAR;
    const NAN_HAS_A_PLACE: bool = !float::SCALAR;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        // SAFETY: `p` is valid for reading 128 bytes (the caller's contract); an unaligned read takes any
        // address.
        unsafe { p.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> V {
        // SAFETY: `n` is 1 to 32 (the caller's contract, point 1), so these are 4 to 128 bytes, and `p` is
        // valid for reading them (point 2).
        unsafe { partial::load(p.cast(), n.min(LANES) * 4) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        // SAFETY: `p` is valid for writing 128 bytes (the caller's contract); an unaligned write takes any
        // address.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: V, n: usize) {
        // SAFETY: `n` is 1 to 32 (the caller's contract, point 1), so these are 4 to 128 bytes, and `p` is
        // valid for writing them (point 2).
        unsafe { partial::store(p.cast(), v, n.min(LANES) * 4) }
    }

    #[inline(always)]
    unsafe fn load_aligned(p: *const f32) -> V {
        // SAFETY: `p` is valid for reading 128 bytes and a multiple of 128, the alignment of `V` (the
        // caller's contract).
        unsafe { p.cast::<V>().read() }
    }

    #[inline(always)]
    unsafe fn store_aligned(p: *mut f32, v: V) {
        // SAFETY: `p` is valid for writing 128 bytes and a multiple of 128, the alignment of `V` (the
        // caller's contract).
        unsafe { p.cast::<V>().write(v) }
    }

    #[inline(always)]
    unsafe fn load_b(p: *const u8) -> V {
        // SAFETY: `p` is valid for reading 128 bytes (the caller's contract); an unaligned read takes any
        // address.
        unsafe { p.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_halves_n(p: *const u16, n: usize) -> V {
        // SAFETY: `n` is 1 to 64 (the caller's contract, point 1), so these are 2 to 128 bytes, and `p` is
        // valid for reading them (point 2).
        unsafe { partial::load(p.cast(), n.min(2 * LANES) * 2) }
    }

    #[inline(always)]
    unsafe fn store_b(p: *mut u8, v: V) {
        // SAFETY: `p` is valid for writing 128 bytes (the caller's contract); an unaligned write takes any
        // address.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn two_words(p: *const u8) -> (i32, i32) {
        // One load for both.
        // SAFETY: `p` is aligned to 8 bytes and valid for reading 8 bytes (the caller's contract).
        let both = unsafe { p.cast::<u64>().read() };
        (both as i32, (both >> 32) as i32)
    }

    #[inline(always)]
    fn splat(x: f32) -> V {
        Self::splat_i(x.to_bits() as i32)
    }

    #[inline(always)]
    fn splat_i(x: i32) -> V {
        hvx!(q6_v_vsplat_r(x))
    }

    #[inline(always)]
    fn splat_b(x: u8) -> V {
        Self::splat_i(i32::from_ne_bytes([x; 4]))
    }

    #[inline(always)]
    fn add(a: V, b: V) -> V {
        float::add(a, b)
    }

    #[inline(always)]
    fn sub(a: V, b: V) -> V {
        float::sub(a, b)
    }

    #[inline(always)]
    fn mul(a: V, b: V) -> V {
        float::mul(a, b)
    }

    #[inline(always)]
    fn add_ieee(a: V, b: V) -> V {
        float::add_ieee(a, b)
    }

    #[inline(always)]
    fn sub_ieee(a: V, b: V) -> V {
        float::sub_ieee(a, b)
    }

    #[inline(always)]
    fn mul_ieee(a: V, b: V) -> V {
        float::mul_ieee(a, b)
    }

    #[inline(always)]
    fn mul_q(a: V, b: V) -> V {
        float::mul_q(a, b)
    }

    #[inline(always)]
    fn add_q(a: V, b: V) -> V {
        float::add_q(a, b)
    }

    #[inline(always)]
    fn add_qf(a: V, b: V) -> V {
        float::add_qf(a, b)
    }

    #[inline(always)]
    fn zero_q() -> V {
        // In every form a zero.
        Self::splat_i(0)
    }

    #[inline(always)]
    fn float(x: V) -> V {
        float::float(x)
    }

    #[inline(always)]
    fn settle() {
        if float::HIDDEN_BITS {
            // The compiler merges equal ends of two ways, but not across assembly.
            // SAFETY: the assembly is empty: it touches no memory, no register and no flags.
            unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
        }
    }

    #[inline(always)]
    fn pin(mut x: V) -> V {
        if float::HIDDEN_BITS {
            // The compiler does not move assembly, and does not know that it leaves `x` as it is.
            // SAFETY: the assembly is a comment: it touches no memory and no flags, and leaves its register
            // as it was.
            unsafe { core::arch::asm!("// {}", inout(vreg) x, options(nomem, nostack, preserves_flags)) };
        }
        x
    }

    #[inline(always)]
    fn swap_lanes<const N: usize>(x: V) -> V {
        // Byte p takes from byte p ^ control.
        hvx!(q6_v_vdelta_vv(x, Self::splat_b(4 * N as u8)))
    }

    #[inline(always)]
    fn rsqrt(x: V) -> V {
        float::rsqrt(x)
    }

    #[inline(always)]
    fn sum_all_q(x: V) -> V {
        float::sum_all_q(x)
    }

    #[inline(always)]
    fn div(a: V, b: V) -> V {
        float::div(a, b)
    }

    #[inline(always)]
    fn max(a: V, b: V) -> V {
        float::select_gt(a, b, a, b)
    }

    #[inline(always)]
    fn min(a: V, b: V) -> V {
        float::select_gt(b, a, a, b)
    }

    #[inline(always)]
    fn larger(a: V, b: V) -> V {
        float::larger(a, b)
    }

    #[inline(always)]
    fn smaller(a: V, b: V) -> V {
        float::smaller(a, b)
    }

    #[inline(always)]
    fn select_gt(a: V, b: V, x: V, y: V) -> V {
        float::select_gt(a, b, x, y)
    }

    #[inline(always)]
    fn to_int(x: V) -> V {
        float::to_int(x)
    }

    #[inline(always)]
    fn to_float(x: V) -> V {
        float::to_float(x)
    }

    #[inline(always)]
    fn bits(x: V) -> V {
        x
    }

    #[inline(always)]
    fn from_bits(x: V) -> V {
        x
    }

    #[inline(always)]
    fn words(x: V) -> V {
        x
    }

    #[inline(always)]
    fn bytes(x: V) -> V {
        x
    }

    #[inline(always)]
    fn add_i(a: V, b: V) -> V {
        vector(words(a) + words(b))
    }

    #[inline(always)]
    fn sub_i(a: V, b: V) -> V {
        vector(words(a) - words(b))
    }

    #[inline(always)]
    fn mul_i(a: V, b: V) -> V {
        vector(words(a) * words(b))
    }

    #[inline(always)]
    fn max_i(a: V, b: V) -> V {
        hvx!(q6_vw_vmax_vwvw(a, b))
    }

    #[inline(always)]
    fn and_i(a: V, b: V) -> V {
        vector(words(a) & words(b))
    }

    #[inline(always)]
    fn or_i(a: V, b: V) -> V {
        vector(words(a) | words(b))
    }

    #[inline(always)]
    fn shl_i<const N: i32>(a: V) -> V {
        hvx!(q6_vw_vasl_vwr(a, N))
    }

    #[inline(always)]
    fn shr_i<const N: i32>(a: V) -> V {
        hvx!(q6_vuw_vlsr_vuwr(a, N))
    }

    #[inline(always)]
    fn sar_i<const N: i32>(a: V) -> V {
        hvx!(q6_vw_vasr_vwr(a, N))
    }

    #[inline(always)]
    fn vrmpy(acc: V, w: V, a: i32) -> V {
        hvx!(q6_vw_vrmpyacc_vwvubrb(acc, w, a))
    }

    #[inline(always)]
    fn first_vrmpy(w: V, a: i32) -> V {
        hvx!(q6_vw_vrmpy_vubrb(w, a))
    }

    #[inline(always)]
    fn shr_b<const N: i32>(x: V) -> V {
        hvx!(q6_vub_vlsr_vubr(x, N))
    }

    #[inline(always)]
    fn add_shl<const N: i32>(acc: V, x: V) -> V {
        hvx!(q6_vw_vaslacc_vwvwr(acc, x, N))
    }

    #[inline(always)]
    fn add_sar<const N: i32>(acc: V, x: V) -> V {
        hvx!(q6_vw_vasracc_vwvwr(acc, x, N))
    }

    #[inline(always)]
    fn lookup(x: V, table: &'static Lookup) -> V {
        // The bytes are below 16.
        Self::lookup_low(x, table)
    }

    #[inline(always)]
    fn lookup_low(x: V, table: &'static Lookup) -> V {
        // SAFETY: the table starts with 128 bytes at a multiple of 128, of which every pattern is a value of
        // `V`.
        let spread = unsafe { (&raw const table.spread).cast::<V>().read() };
        // Of the five bits that this takes for an index the first does not matter: entries are there twice.
        hvx!(q6_vb_vlut32_vbvbr_nomatch(x, spread, 0))
    }

    /// The table has the numbers as f16, too, so that no byte has to become a word first.
    #[cfg(target_feature = "hvx-qfloat")]
    #[inline(always)]
    fn lookup_floats(x: V, table: &'static super::Numbers) -> [V; 4] {
        let [even, odd] = Self::lookup_f16(x, table);
        let ((b0, b2), (b1, b3)) = (float::widen_f16(even), float::widen_f16(odd));
        [b0, b1, b2, b3]
    }

    #[cfg(target_feature = "hvx-qfloat")]
    #[inline(always)]
    fn lookup_f16(x: V, table: &'static super::Numbers) -> [V; 2] {
        // SAFETY: the table starts with 128 bytes at a multiple of 128, of which every pattern is a value of
        // `V`.
        let halves = unsafe { (&raw const table.halves).cast::<V>().read() };
        let pair = hvx!(q6_wh_vlut16_vbvhr_nomatch(x, halves, 0));
        [hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair))]
    }

    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn bytes_to_f16(x: V) -> [V; 2] {
        let pair = hvx!(q6_whf_vcvt_vb(x));
        [hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair))]
    }

    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn mul_f16(a: V, b: V) -> V {
        float::mul_f16(a, b)
    }

    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn scaled_to_f16(low: V, high: V, scales: [V; 2]) -> V {
        float::scaled_to_f16(low, high, scales)
    }

    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn to_f16(low: V, high: V) -> V {
        float::to_f16(low, high)
    }

    #[inline(always)]
    fn mul_low_halves(a: V, b: V) -> V {
        hvx!(q6_vw_vmpyie_vwvuh(a, b))
    }

    #[inline(always)]
    fn mul_high_halves(a: V, b: V) -> V {
        hvx!(q6_vw_vmpyio_vwvh(a, b))
    }

    #[inline(always)]
    fn dot_halves(acc: V, w: V, a: i32) -> V {
        hvx!(q6_vw_vdmpyacc_vwvhrh_sat(acc, w, a))
    }

    #[inline(always)]
    fn first_dot_halves(w: V, a: i32) -> V {
        hvx!(q6_vw_vdmpy_vhrh_sat(w, a))
    }

    #[inline(always)]
    fn mul_halves(x: V, n: i8) -> V {
        hvx!(q6_vh_vmpyi_vhrb(x, i32::from_ne_bytes([n as u8; 4])))
    }

    #[inline(always)]
    fn dot_pairs(a: V, b: V) -> V {
        hvx!(q6_vw_vdmpy_vhvh_sat(a, b))
    }

    #[inline(always)]
    fn pair_halves(low: V, high: V) -> V {
        hvx!(q6_vh_vshuffe_vhvh(high, low))
    }

    #[inline(always)]
    fn deal_halves(a: V, b: V) -> (V, V) {
        let pair = hvx!(q6_w_vdeal_vvr(b, a, -2));
        (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
    }

    #[inline(always)]
    fn mul_add_low_halves(acc: V, a: V, b: V) -> V {
        hvx!(q6_vw_vmpyieacc_vwvwvh(acc, a, b))
    }

    #[inline(always)]
    fn widen_bytes(x: V) -> (V, V) {
        let pair = hvx!(q6_wh_vsxt_vb(x));
        (hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
    }

    #[inline(always)]
    fn unpack_bytes(x: V) -> [V; 4] {
        let halves = hvx!(q6_wuh_vunpack_vub(x));
        let [low, high] =
            [hvx!(q6_v_lo_w(halves)), hvx!(q6_v_hi_w(halves))].map(|halves| hvx!(q6_wuw_vunpack_vuh(halves)));
        [hvx!(q6_v_lo_w(low)), hvx!(q6_v_hi_w(low)), hvx!(q6_v_lo_w(high)), hvx!(q6_v_hi_w(high))]
    }

    #[inline(always)]
    fn add_pairs(a: V, b: V) -> V {
        let (even, odd) = deal(a, b);
        Self::add_i(even, odd)
    }

    #[inline(always)]
    fn lanes(x: V) -> V {
        x
    }

    // Not `vsplat`: it needs the multipliers, which float code has no packet to spare of.
    #[inline(always)]
    fn lane(&x: &V, i: usize) -> V {
        // SAFETY: an element of `SPREAD` is 128 bytes, of which every pattern is a value of `V`. It is
        // aligned to 128 bytes, because `SPREAD` is and its elements have that size.
        let control = unsafe { (&raw const SPREAD.0[i]).cast::<V>().read() };
        hvx!(q6_v_vdelta_vv(x, control))
    }

    /// The vector, and one with neighbours exchanged, so that both lanes take the same control.
    #[inline(always)]
    fn lane_pairs(x: V) -> [V; 2] {
        [x, Self::swap_lanes::<1>(x)]
    }

    #[inline(always)]
    fn lane_pair(x: &[V; 2], i: usize) -> (V, V) {
        (even_lane(x[0], i), even_lane(x[1], i))
    }

    #[inline(always)]
    fn sum_all(x: V) -> V {
        float::sum_all(x)
    }

    // Two vectors become one at each of the first two levels, of which the upper halves of all parts meet the
    // lower ones.
    #[inline(always)]
    fn sum_four(x: [V; 4]) -> V {
        let halves = |a: V, b: V, part: i32| {
            let pair = hvx!(q6_w_vshuff_vvr(b, a, part));
            float::add_moved(hvx!(q6_v_lo_w(pair)), hvx!(q6_v_hi_w(pair)))
        };
        // Parts are of vectors 0, 1, 2, 3 in the end.
        let x = x.map(float::movable);
        let mut sum = halves(halves(x[0], x[2], 64), halves(x[1], x[3], 64), 32);
        for distance in [16, 8, 4] {
            sum = float::add_moved(sum, hvx!(q6_v_vror_vr(sum, distance)));
        }
        float::float_moved(sum)
    }

    #[inline(always)]
    fn max_all(mut x: V) -> V {
        for distance in [64, 32, 16, 8, 4] {
            x = Self::max(x, hvx!(q6_v_vror_vr(x, distance)));
        }
        x
    }

    #[inline(always)]
    fn interleave(a: V, b: V) -> (V, V) {
        interleave(a, b)
    }

    #[inline(always)]
    fn max_lanes<X: Vectors<Self>>(x: &X) -> V {
        maxima_1(x, 0)
    }

    #[inline(always)]
    fn widen_f16_scaled(x: V, factors: i32, same: [f32; 2]) -> (V, V) {
        float::widen_f16_scaled(x, factors, same)
    }

    #[inline(always)]
    fn start_half_sums((low, high): (V, V), factor: V) -> HalfSums<Self> {
        let (low, high) = float::start_half_sums(low, high, factor);
        HalfSums(low, high)
    }

    #[inline(always)]
    fn add_half_products(sums: HalfSums<Self>, a: V, b: V) -> HalfSums<Self> {
        let (low, high) = float::add_half_products((sums.0, sums.1), a, b);
        HalfSums(low, high)
    }

    #[inline(always)]
    fn half_sums(low: V, high: V) -> HalfSums<Self> {
        let (low, high) = float::half_sums(low, high);
        HalfSums(low, high)
    }

    /// Even words are pairs of lanes.
    #[inline(always)]
    fn half_lanes(x: V, scale: V) -> V {
        if float::SCALAR {
            math::half_lanes::<Self>(x, scale)
        } else {
            Self::scaled_to_f16(x, Self::swap_lanes::<1>(x), [scale; 2])
        }
    }

    #[inline(always)]
    fn add_half_lanes(sums: HalfSums<Self>, w: V, x: &V, i: usize) -> HalfSums<Self> {
        if float::SCALAR {
            math::add_half_lanes::<Self>(sums, w, x, i)
        } else {
            Self::add_half_products(sums, w, even_lane(*x, i))
        }
    }

    #[inline(always)]
    fn end_half_sums(sums: HalfSums<Self>) -> (V, V) {
        float::end_half_sums((sums.0, sums.1))
    }

    #[inline(always)]
    fn low_bytes(x: [V; 4]) -> V {
        let low = hvx!(q6_vh_vpacke_vwvw(x[1], x[0]));
        let high = hvx!(q6_vh_vpacke_vwvw(x[3], x[2]));
        hvx!(q6_vb_vpacke_vhvh(high, low))
    }

    #[inline(always)]
    fn low_halves([a, b]: [V; 2]) -> V {
        hvx!(q6_vh_vpacke_vwvw(b, a))
    }

    #[inline(always)]
    fn sums_of_16(x: [V; 4]) -> V {
        let ones = Self::splat_b(1);
        let fours = |x: V| hvx!(q6_vw_vrmpy_vubvb(ones, x));
        let [a, b, c, d] = x.map(fours);
        Self::add_pairs(Self::add_pairs(a, b), Self::add_pairs(c, d))
    }

    #[inline(always)]
    unsafe fn store_low_halves(p: *mut u16, v: V) {
        let halves = hvx!(q6_vh_vpacke_vwvw(v, v));
        // SAFETY: `p` is valid for writing 32 halves (the caller's contract), which are these 64 bytes.
        unsafe { partial::store(p.cast(), halves, 2 * LANES) }
    }

    #[inline(always)]
    fn sum(x: V) -> f32 {
        float::sum(x)
    }

    #[inline(always)]
    fn max_lane(x: V) -> f32 {
        fold(x, Self::max)
    }

    #[inline(always)]
    unsafe fn store_low_bytes(p: *mut u8, v: V) {
        let halves = hvx!(q6_vh_vpacke_vwvw(v, v));
        let bytes = hvx!(q6_vb_vpacke_vhvh(halves, halves));
        // SAFETY: `p` is valid for writing 32 bytes (the caller's contract).
        unsafe { partial::store(p, bytes, LANES) }
    }

    #[inline(always)]
    fn nibbles(x: V) -> (V, V) {
        (vector(words(x) & Words::splat(0x0f0f_0f0f)), Self::shr_b::<4>(x))
    }

    #[inline(always)]
    fn widen_f16(x: V) -> (V, V) {
        float::widen_f16(x)
    }

    #[inline(always)]
    fn xor_b(a: V, b: V) -> V {
        hvx!(q6_v_vxor_vv(a, b))
    }

    /// Of the instructions that do this, the one that any unit of the processor executes.
    #[inline(always)]
    fn raise_even_bytes(x: V) -> V {
        hvx!(q6_vb_vshuffe_vbvb(x, Self::splat_b(0)))
    }

    /// v68 and v69 have no instruction for the second step.
    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn mul_fractions_f16(a: V, b: V) -> V {
        let products = hvx!(q6_vh_vmpy_vhvh_s1_rnd_sat(a, b));
        hvx!(q6_vhf_equals_vh(products))
    }

    #[cfg(target_feature = "hvxv73")]
    #[inline(always)]
    fn mul_fractions_less_f16(a: V, b: V, less: V) -> V {
        let products = hvx!(q6_vh_vmpy_vhvh_s1_rnd_sat(a, b));
        let integers = hvx!(q6_vh_vsub_vhvh(products, less));
        hvx!(q6_vhf_equals_vh(integers))
    }
}
