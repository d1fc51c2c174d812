//! AVX2: a vector is 4 `ymm` registers.

use core::arch::x86_64::*;

/// The AVX2 back end. Only [`run_avx2`](super::run_avx2) names it.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

backend!(Avx2: 4 chunks, 4 registers, folds [0 2, 1 3, 0 1],
    #[inline(always)]
    fn dot_halves(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let a = splat_i(a);
        each!(4, K => dot_halves(acc[K], w[K], a))
    }
    #[inline(always)]
    fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let [a, b, c, d] = each!(4, K => [pairs_low(a[K], b[K]), pairs_high(a[K], b[K])]);
        ([a[0], a[1], b[0], b[1]], [c[0], c[1], d[0], d[1]])
    }
);

type F = __m256;
type I = __m256i;
const WIDTH: usize = 8;

/// Activations 0 and 2 in every pair of 16-bit lanes; activations 1 and 3.
type Activations = (__m256i, __m256i);

intrinsics! {
    fn splat(x: f32) -> F = _mm256_set1_ps(x);
    fn splat_i(x: i32) -> I = _mm256_set1_epi32(x);

    fn add(a: F, b: F) -> F = _mm256_add_ps(a, b);
    fn sub(a: F, b: F) -> F = _mm256_sub_ps(a, b);
    fn mul(a: F, b: F) -> F = _mm256_mul_ps(a, b);
    fn div(a: F, b: F) -> F = _mm256_div_ps(a, b);
    fn max(a: F, b: F) -> F = _mm256_max_ps(a, b);
    fn min(a: F, b: F) -> F = _mm256_min_ps(a, b);
    fn select_gt(a: F, b: F, x: F, y: F) -> F = _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b));

    fn to_int(x: F) -> I = _mm256_cvtps_epi32(x);
    fn to_float(x: I) -> F = _mm256_cvtepi32_ps(x);
    fn bits(x: F) -> I = _mm256_castps_si256(x);
    fn from_bits(x: I) -> F = _mm256_castsi256_ps(x);

    fn add_i(a: I, b: I) -> I = _mm256_add_epi32(a, b);
    fn sub_i(a: I, b: I) -> I = _mm256_sub_epi32(a, b);
    fn mul_i(a: I, b: I) -> I = _mm256_mullo_epi32(a, b);
    fn max_i(a: I, b: I) -> I = _mm256_max_epi32(a, b);
    fn and_i(a: I, b: I) -> I = _mm256_and_si256(a, b);
    fn or_i(a: I, b: I) -> I = _mm256_or_si256(a, b);
    fn shl_i<const N: i32>(a: I) -> I = _mm256_slli_epi32::<N>(a);
    fn shr_i<const N: i32>(a: I) -> I = _mm256_srli_epi32::<N>(a);
    fn sar_i<const N: i32>(a: I) -> I = _mm256_srai_epi32::<N>(a);

    // `maddubs` would saturate at 16 bits. So bytes are widened in place: even ones by a mask, odd ones by a
    // shift.
    fn activations(a: i32) -> Activations = {
        let a = _mm256_set1_epi32(a);
        (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a)), _mm256_srai_epi16::<8>(a))
    };
    fn vrmpy(acc: I, w: I, a: Activations) -> I = {
        let even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0xff)), a.0);
        let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(w), a.1);
        _mm256_add_epi32(acc, _mm256_add_epi32(even, odd))
    };

    fn dot_halves(acc: I, w: I, a: I) -> I = _mm256_add_epi32(acc, _mm256_madd_epi16(w, a));

    fn table(entries: &[u8; 16]) -> I = _mm256_broadcastsi128_si256(sixteen(u128::from_le_bytes(*entries)));
    fn lookup(x: I, table: I) -> I = _mm256_shuffle_epi8(table, x);

    // The lanes of the lower, or the upper, halves of two chunks by turns. What comes first does so in each
    // half by itself.
    fn pairs_low(a: F, b: F) -> F =
        _mm256_permute2f128_ps::<0x20>(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    fn pairs_high(a: F, b: F) -> F =
        _mm256_permute2f128_ps::<0x31>(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));

    // All ones in the first `n` lanes.
    fn mask(n: i32) -> I = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

use super::{max8 as max_lane, sixteen, sum8 as sum};

/// # Safety
/// `p` is valid for reading 8 floats.
#[inline(always)]
unsafe fn load(p: *const f32) -> F {
    // SAFETY: `p` is valid for reading 8 floats (the caller's contract), and the load takes any address. The
    // processor has AVX2: only `run_avx2`, which requires it, names the back end that calls this.
    unsafe { _mm256_loadu_ps(p) }
}

/// # Safety
/// `p` is valid for reading `n.clamp(0, 8)` floats.
#[inline(always)]
unsafe fn load_n(p: *const f32, n: i32) -> F {
    // SAFETY: `p` is valid for reading `n.clamp(0, 8)` floats (the caller's contract); they are the lanes
    // whose mask is set, and no others are read. The processor has AVX2: only `run_avx2`, which requires it,
    // names the back end that calls this.
    unsafe { _mm256_maskload_ps(p, mask(n)) }
}

/// # Safety
/// `p` is valid for writing 8 floats.
#[inline(always)]
unsafe fn store(p: *mut f32, v: F) {
    // SAFETY: `p` is valid for writing 8 floats (the caller's contract), and the store takes any address. The
    // processor has AVX2: only `run_avx2`, which requires it, names the back end that calls this.
    unsafe { _mm256_storeu_ps(p, v) }
}

/// # Safety
/// `p` is valid for writing `n.clamp(0, 8)` floats.
#[inline(always)]
unsafe fn store_n(p: *mut f32, v: F, n: i32) {
    // SAFETY: `p` is valid for writing `n.clamp(0, 8)` floats (the caller's contract); they are the lanes
    // whose mask is set, and no others are written. The processor has AVX2: only `run_avx2`, which requires
    // it, names the back end that calls this.
    unsafe { _mm256_maskstore_ps(p, mask(n), v) }
}

/// # Safety
/// `p` is valid for reading 32 bytes.
#[inline(always)]
unsafe fn load_b(p: *const u8) -> I {
    // SAFETY: `p` is valid for reading 32 bytes (the caller's contract), and the load takes any address. The
    // processor has AVX2: only `run_avx2`, which requires it, names the back end that calls this.
    unsafe { _mm256_loadu_si256(p.cast()) }
}

/// # Safety
/// `p` is valid for writing 32 bytes.
#[inline(always)]
unsafe fn store_b(p: *mut u8, v: I) {
    // SAFETY: `p` is valid for writing 32 bytes (the caller's contract), and the store takes any address. The
    // processor has AVX2: only `run_avx2`, which requires it, names the back end that calls this.
    unsafe { _mm256_storeu_si256(p.cast(), v) }
}
