//! ALiBi: scores of attention that fall with the distance.

use crate::hvx::{Hvx, math};

/// ALiBi's slope for a head of so many, as ggml has it: with n the power of two at or below the heads,
/// 2^(-bias / n) to the power head + 1 for the first n, its square root to the odd powers for the others. 1
/// without a bias.
#[inline(always)]
pub fn slope<H: Hvx>(max_bias: f32, heads: usize, head: usize) -> H::F {
    if max_bias <= 0.0 {
        return H::splat(1.0);
    }
    let n = 1usize << heads.ilog2();
    let power = if head < n { 2 * (head + 1) } else { 2 * (head - n) + 1 };
    math::exp::<H>(H::splat(-max_bias / (2 * n) as f32 * power as f32 * core::f32::consts::LN_2))
}
