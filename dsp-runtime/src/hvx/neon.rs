//! NEON, as every aarch64 processor has it: a vector is 8 `q` registers.
//!
//! It gives the bits of [`portable`](super::portable): the instructions are IEEE operations (subnormals are
//! kept: the control register is never changed), and nothing is contracted to FMLA. `fmax` and `fmin` have
//! conventions of their own for NaN and signed zeros, so that maxima and minima are comparisons and
//! selections.

use core::arch::aarch64::*;

use super::WithHvx;

/// Runs with NEON, which needs no detection.
pub fn run_neon<W: WithHvx>(work: W) -> W::Output {
    work.with::<Neon>()
}

/// The NEON back end. Only [`run_neon`] names it.
#[derive(Clone, Copy)]
struct Neon;

backend!(Neon: 8 chunks, 4 registers, folds [0 4, 1 5, 2 6, 3 7, 0 2, 1 3, 0 1],
    #[inline(always)]
    fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let [a, b, c, d, e, f, g, h] = each!(8, K => [pairs_low(a[K], b[K]), pairs_high(a[K], b[K])]);
        ([a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]], [e[0], e[1], f[0], f[1], g[0], g[1], h[0], h[1]])
    }
);

type F = float32x4_t;
type I = int32x4_t;
const WIDTH: usize = 4;

/// Activations 0 and 2 in every pair of 16-bit lanes; activations 1 and 3.
type Activations = (int16x8_t, int16x8_t);

intrinsics! {
    fn splat(x: f32) -> F = vdupq_n_f32(x);
    fn splat_i(x: i32) -> I = vdupq_n_s32(x);

    fn add(a: F, b: F) -> F = vaddq_f32(a, b);
    fn sub(a: F, b: F) -> F = vsubq_f32(a, b);
    fn mul(a: F, b: F) -> F = vmulq_f32(a, b);
    fn div(a: F, b: F) -> F = vdivq_f32(a, b);
    fn max(a: F, b: F) -> F = vbslq_f32(vcgtq_f32(a, b), a, b);
    fn min(a: F, b: F) -> F = vbslq_f32(vcltq_f32(a, b), a, b);
    fn select_gt(a: F, b: F, x: F, y: F) -> F = vbslq_f32(vcgtq_f32(a, b), x, y);

    fn to_int(x: F) -> I = vcvtnq_s32_f32(x);
    fn to_float(x: I) -> F = vcvtq_f32_s32(x);
    fn bits(x: F) -> I = vreinterpretq_s32_f32(x);
    fn from_bits(x: I) -> F = vreinterpretq_f32_s32(x);

    fn add_i(a: I, b: I) -> I = vaddq_s32(a, b);
    fn sub_i(a: I, b: I) -> I = vsubq_s32(a, b);
    fn mul_i(a: I, b: I) -> I = vmulq_s32(a, b);
    fn max_i(a: I, b: I) -> I = vmaxq_s32(a, b);
    fn and_i(a: I, b: I) -> I = vandq_s32(a, b);
    fn or_i(a: I, b: I) -> I = vorrq_s32(a, b);
    fn shl_i<const N: i32>(a: I) -> I = vshlq_n_s32::<N>(a);
    fn shr_i<const N: i32>(a: I) -> I =
        vreinterpretq_s32_u32(vshrq_n_u32::<N>(vreinterpretq_u32_s32(a)));
    fn sar_i<const N: i32>(a: I) -> I = vshrq_n_s32::<N>(a);

    fn activations(a: i32) -> Activations = {
        let a = vreinterpretq_s16_s32(vdupq_n_s32(a));
        (vshrq_n_s16::<8>(vshlq_n_s16::<8>(a)), vshrq_n_s16::<8>(a))
    };
    // Bytes widened in place, even ones by a mask, odd ones by a shift; the products of a word are in two
    // lanes until the pairwise addition.
    fn vrmpy(acc: I, w: I, a: Activations) -> I = {
        let w = vreinterpretq_u16_s32(w);
        let even = vreinterpretq_s16_u16(vandq_u16(w, vdupq_n_u16(0xff)));
        let odd = vreinterpretq_s16_u16(vshrq_n_u16::<8>(w));
        let low = vmull_s16(vget_low_s16(even), vget_low_s16(a.0));
        let low = vmlal_s16(low, vget_low_s16(odd), vget_low_s16(a.1));
        let high = vmlal_high_s16(vmull_high_s16(even, a.0), odd, a.1);
        vaddq_s32(acc, vpaddq_s32(low, high))
    };

    fn table(entries: &[u8; 16]) -> uint8x16_t = vreinterpretq_u8_u64(vcombine_u64(
        vcreate_u64(u128::from_le_bytes(*entries) as u64),
        vcreate_u64((u128::from_le_bytes(*entries) >> 64) as u64),
    ));
    fn lookup(x: I, table: uint8x16_t) -> I =
        vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(x)));

    // The lanes of the lower, or the upper, halves of two chunks by turns.
    fn pairs_low(a: F, b: F) -> F = vzip1q_f32(a, b);
    fn pairs_high(a: F, b: F) -> F = vzip2q_f32(a, b);

    fn upper(x: F) -> F = vextq_f32::<2>(x, x);
    fn lane0(x: F) -> f32 = vgetq_lane_f32::<0>(x);
    fn lane1(x: F) -> F = vdupq_laneq_f32::<1>(x);
}

#[inline(always)]
fn sum(x: F) -> f32 {
    let x = add(x, upper(x));
    lane0(add(x, lane1(x)))
}

#[inline(always)]
fn max_lane(x: F) -> f32 {
    let x = max(x, upper(x));
    lane0(max(x, lane1(x)))
}

/// # Safety
/// `p` is valid for reading 4 floats.
#[inline(always)]
unsafe fn load(p: *const f32) -> F {
    // SAFETY: `p` is valid for reading 4 floats (the caller's contract), and the load takes any address.
    // Every aarch64 processor has NEON.
    unsafe { vld1q_f32(p) }
}

/// # Safety
/// `p` is aligned for f32 and valid for reading `n.clamp(0, 4)` floats.
#[inline(always)]
unsafe fn load_n(p: *const f32, n: i32) -> F {
    let mut floats = [0.0; WIDTH];
    // SAFETY: `p` is aligned for f32 and valid for reading `n.clamp(0, 4)` floats (the caller's contract);
    // `floats` is an array of 4, into which no more are copied and which the load then reads. Every aarch64
    // processor has NEON.
    unsafe {
        core::ptr::copy_nonoverlapping(p, floats.as_mut_ptr(), n.clamp(0, WIDTH as i32) as usize);
        vld1q_f32(floats.as_ptr())
    }
}

/// # Safety
/// `p` is valid for writing 4 floats.
#[inline(always)]
unsafe fn store(p: *mut f32, v: F) {
    // SAFETY: `p` is valid for writing 4 floats (the caller's contract), and the store takes any address.
    // Every aarch64 processor has NEON.
    unsafe { vst1q_f32(p, v) }
}

/// # Safety
/// `p` is aligned for f32 and valid for writing `n.clamp(0, 4)` floats.
#[inline(always)]
unsafe fn store_n(p: *mut f32, v: F, n: i32) {
    let mut floats = [0.0; WIDTH];
    // SAFETY: `floats` is an array of 4, which the store fills; `p` is aligned for f32 and valid for writing
    // `n.clamp(0, 4)` floats (the caller's contract), and no more are copied. Every aarch64 processor has
    // NEON.
    unsafe {
        vst1q_f32(floats.as_mut_ptr(), v);
        core::ptr::copy_nonoverlapping(floats.as_ptr(), p, n.clamp(0, WIDTH as i32) as usize);
    }
}

/// # Safety
/// `p` is valid for reading 16 bytes.
#[inline(always)]
unsafe fn load_b(p: *const u8) -> I {
    // SAFETY: `p` is valid for reading 16 bytes (the caller's contract), and the load takes any address.
    // Every aarch64 processor has NEON.
    unsafe { vreinterpretq_s32_u8(vld1q_u8(p)) }
}

/// # Safety
/// `p` is valid for writing 16 bytes.
#[inline(always)]
unsafe fn store_b(p: *mut u8, v: I) {
    // SAFETY: `p` is valid for writing 16 bytes (the caller's contract), and the store takes any address.
    // Every aarch64 processor has NEON.
    unsafe { vst1q_u8(p, vreinterpretq_u8_s32(v)) }
}
