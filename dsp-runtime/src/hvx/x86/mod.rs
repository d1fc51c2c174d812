//! x86 back ends.
//!
//! They give the bits of [`portable`](super::portable) because the instructions are IEEE operations with the
//! same conventions: `maxps` and `minps` give the second operand where the operands compare equal or
//! unordered, `cvtps2dq` rounds to nearest even (the rounding mode is never changed), and nothing is
//! contracted to FMA.

#[cfg(vectors_avx2)]
mod avx2;
#[cfg(vectors_avx512)]
mod avx512;

use core::arch::x86_64::*;

use super::WithHvx;

/// Proof that the processor and the operating system have all that [`run_avx2`] needs.
#[cfg(vectors_avx2)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasAvx2(());

/// Proof that the processor and the operating system have all that [`run_avx512`] needs.
#[cfg(vectors_avx512)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasAvx512(());

#[cfg(all(vectors_avx2, feature = "host"))]
impl HasAvx2 {
    /// Asks the processor.
    pub fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

#[cfg(all(vectors_avx512, feature = "host"))]
impl HasAvx512 {
    /// Asks the processor.
    pub fn detect() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

/// Runs with AVX2.
///
/// # Safety
/// The processor has AVX2.
#[cfg(vectors_avx2)]
#[target_feature(enable = "avx2")]
pub unsafe fn run_avx2<W: WithHvx>(work: W) -> W::Output {
    work.with::<avx2::Avx2>()
}

/// Runs with AVX-512.
///
/// # Safety
/// The processor has AVX-512 F, BW, VL and VNNI.
#[cfg(vectors_avx512)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn run_avx512<W: WithHvx>(work: W) -> W::Output {
    work.with::<avx512::Avx512>()
}

intrinsics! {
    fn add4(a: __m128, b: __m128) -> __m128 = _mm_add_ps(a, b);
    fn max4(a: __m128, b: __m128) -> __m128 = _mm_max_ps(a, b);
    fn upper4(x: __m256) -> __m128 = _mm256_extractf128_ps::<1>(x);
    fn lower4(x: __m256) -> __m128 = _mm256_castps256_ps128(x);
    fn upper2(x: __m128) -> __m128 = _mm_movehl_ps(x, x);
    fn lane1(x: __m128) -> __m128 = _mm_movehdup_ps(x);
    fn lane0(x: __m128) -> f32 = _mm_cvtss_f32(x);
    fn sixteen(bytes: u128) -> __m128i = _mm_set_epi64x((bytes >> 64) as i64, bytes as i64);
}

/// Sum of 8 lanes in the order of the trait.
#[inline(always)]
fn sum8(x: __m256) -> f32 {
    let x = add4(lower4(x), upper4(x));
    let x = add4(x, upper2(x));
    lane0(add4(x, lane1(x)))
}

/// Maximum of 8 lanes in the order of the trait.
#[inline(always)]
fn max8(x: __m256) -> f32 {
    let x = max4(lower4(x), upper4(x));
    let x = max4(x, upper2(x));
    lane0(max4(x, lane1(x)))
}
