//! x86 back ends (to be written).
use super::{WithHvx, portable::Portable};
/// Whether AVX-512 VNNI is there.
#[cfg(feature = "host")]
pub fn has_avx512() -> bool {
    false
}
/// Runs with AVX2.
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub unsafe fn run_avx2<W: WithHvx>(work: W) -> W::Output {
    work.with::<Portable>()
}
/// Runs with AVX-512.
/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx2")]
pub unsafe fn run_avx512<W: WithHvx>(work: W) -> W::Output {
    work.with::<Portable>()
}
