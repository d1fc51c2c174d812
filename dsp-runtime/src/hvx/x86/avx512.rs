//! AVX-512 F, BW, VL and VNNI: a vector is 2 `zmm` registers.

use core::arch::x86_64::*;

/// The AVX-512 back end. Only [`run_avx512`](super::run_avx512) names it.
#[derive(Clone, Copy)]
pub(super) struct Avx512;

backend!(Avx512: 2 chunks, 16 registers, folds [0 1],
    #[inline(always)]
    fn widen_f16(x: Self::B) -> (Self::F, Self::F) {
        (each!(2, K => low_halves(x[K])), each!(2, K => high_halves(x[K])))
    }
    #[inline(always)]
    fn scaled_to_f16(low: Self::F, high: Self::F, scales: [Self::F; 2]) -> Self::B {
        let [low, high] = [Self::mul(low, scales[0]), Self::mul(high, scales[1])];
        each!(2, K => or_i(to_low_halves(low[K]), shl_i::<16>(to_low_halves(high[K]))))
    }
    #[inline(always)]
    fn dot_halves(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let a = splat_i(a);
        each!(2, K => dot_halves(acc[K], w[K], a))
    }
    #[inline(always)]
    fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let [first, second] = each!(2, K => [pairs_low(a[K], b[K]), pairs_high(a[K], b[K])]);
        (first, second)
    }
);

type F = __m512;
type I = __m512i;
const WIDTH: usize = 16;

intrinsics! {
    fn splat(x: f32) -> F = _mm512_set1_ps(x);
    fn splat_i(x: i32) -> I = _mm512_set1_epi32(x);

    fn add(a: F, b: F) -> F = _mm512_add_ps(a, b);
    fn sub(a: F, b: F) -> F = _mm512_sub_ps(a, b);
    fn mul(a: F, b: F) -> F = _mm512_mul_ps(a, b);
    fn div(a: F, b: F) -> F = _mm512_div_ps(a, b);
    fn max(a: F, b: F) -> F = _mm512_max_ps(a, b);
    fn min(a: F, b: F) -> F = _mm512_min_ps(a, b);
    fn select_gt(a: F, b: F, x: F, y: F) -> F =
        _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x);

    fn to_int(x: F) -> I = _mm512_cvtps_epi32(x);
    fn to_float(x: I) -> F = _mm512_cvtepi32_ps(x);
    fn bits(x: F) -> I = _mm512_castps_si512(x);
    fn from_bits(x: I) -> F = _mm512_castsi512_ps(x);

    fn add_i(a: I, b: I) -> I = _mm512_add_epi32(a, b);
    fn sub_i(a: I, b: I) -> I = _mm512_sub_epi32(a, b);
    fn mul_i(a: I, b: I) -> I = _mm512_mullo_epi32(a, b);
    fn max_i(a: I, b: I) -> I = _mm512_max_epi32(a, b);
    fn and_i(a: I, b: I) -> I = _mm512_and_si512(a, b);
    fn or_i(a: I, b: I) -> I = _mm512_or_si512(a, b);
    // The immediate forms take a u32 parameter, which N cannot become; with constant counts these compile to
    // them.
    fn shl_i<const N: i32>(a: I) -> I = _mm512_sllv_epi32(a, _mm512_set1_epi32(N));
    fn shr_i<const N: i32>(a: I) -> I = _mm512_srlv_epi32(a, _mm512_set1_epi32(N));
    fn sar_i<const N: i32>(a: I) -> I = _mm512_srav_epi32(a, _mm512_set1_epi32(N));

    fn activations(a: i32) -> I = _mm512_set1_epi32(a);
    // VPDPBUSD, the one that does not saturate.
    fn vrmpy(acc: I, w: I, a: I) -> I = _mm512_dpbusd_epi32(acc, w, a);

    fn dot_halves(acc: I, w: I, a: I) -> I = _mm512_add_epi32(acc, _mm512_madd_epi16(w, a));

    fn table(entries: &[u8; 16]) -> I = _mm512_broadcast_i32x4(super::sixteen(u128::from_le_bytes(*entries)));
    fn lookup(x: I, table: I) -> I = _mm512_shuffle_epi8(table, x);

    // The lanes of the lower, or the upper, halves of two chunks by turns.
    fn pairs_low(a: F, b: F) -> F = {
        let from = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        _mm512_permutex2var_ps(a, from, b)
    };
    fn pairs_high(a: F, b: F) -> F = {
        let from = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        _mm512_permutex2var_ps(a, from, b)
    };

    fn low_halves(x: I) -> F = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
    fn high_halves(x: I) -> F = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(x)));

    fn to_low_halves(x: F) -> I =
        _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x));

    fn upper8(x: F) -> __m256 = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x)));
    fn lower8(x: F) -> __m256 = _mm512_castps512_ps256(x);
    fn sum(x: F) -> f32 = super::sum8(_mm256_add_ps(lower8(x), upper8(x)));
    fn max_lane(x: F) -> f32 = super::max8(_mm256_max_ps(lower8(x), upper8(x)));
}

/// Ones for the first `n` lanes.
#[inline(always)]
fn mask(n: i32) -> __mmask16 {
    ((1_u32 << n.clamp(0, WIDTH as i32)) - 1) as __mmask16
}

/// # Safety
/// `p` is valid for reading 16 floats.
#[inline(always)]
unsafe fn load(p: *const f32) -> F {
    // SAFETY: `p` is valid for reading 16 floats (the caller's contract), and the load takes any address. The
    // processor has AVX-512 F: only `run_avx512`, which requires it, names the back end that calls this.
    unsafe { _mm512_loadu_ps(p) }
}

/// # Safety
/// `p` is valid for reading `n.clamp(0, 16)` floats.
#[inline(always)]
unsafe fn load_n(p: *const f32, n: i32) -> F {
    // SAFETY: `p` is valid for reading `n.clamp(0, 16)` floats (the caller's contract); they are the lanes
    // whose mask is set, and no others are read. The processor has AVX-512 F: only `run_avx512`, which
    // requires it, names the back end that calls this.
    unsafe { _mm512_maskz_loadu_ps(mask(n), p) }
}

/// # Safety
/// `p` is valid for writing 16 floats.
#[inline(always)]
unsafe fn store(p: *mut f32, v: F) {
    // SAFETY: `p` is valid for writing 16 floats (the caller's contract), and the store takes any address.
    // The processor has AVX-512 F: only `run_avx512`, which requires it, names the back end that calls this.
    unsafe { _mm512_storeu_ps(p, v) }
}

/// # Safety
/// `p` is valid for writing `n.clamp(0, 16)` floats.
#[inline(always)]
unsafe fn store_n(p: *mut f32, v: F, n: i32) {
    // SAFETY: `p` is valid for writing `n.clamp(0, 16)` floats (the caller's contract); they are the lanes
    // whose mask is set, and no others are written. The processor has AVX-512 F: only `run_avx512`, which
    // requires it, names the back end that calls this.
    unsafe { _mm512_mask_storeu_ps(p, mask(n), v) }
}

/// # Safety
/// `p` is valid for reading 64 bytes.
#[inline(always)]
unsafe fn load_b(p: *const u8) -> I {
    // SAFETY: `p` is valid for reading 64 bytes (the caller's contract), and the load takes any address. The
    // processor has AVX-512 F: only `run_avx512`, which requires it, names the back end that calls this.
    unsafe { _mm512_loadu_si512(p.cast()) }
}

/// # Safety
/// `p` is valid for writing 64 bytes.
#[inline(always)]
unsafe fn store_b(p: *mut u8, v: I) {
    // SAFETY: `p` is valid for writing 64 bytes (the caller's contract), and the store takes any address. The
    // processor has AVX-512 F: only `run_avx512`, which requires it, names the back end that calls this.
    unsafe { _mm512_storeu_si512(p.cast(), v) }
}
