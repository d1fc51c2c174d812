//! Groups of two of ggml's blocks, each of several tiles with one f16 scale: Q1_0 and Q2_0.

use core::marker::PhantomData;

use hexflash_abi::dtype::QuantGroup;

use super::activations::Activations;
use super::groups::{Group, start};
use super::quants::{Quants, tile};
use super::sums::Sum;
use crate::hvx::{Hvx, VectorPtr};

/// A type with these quants, of which half of a group's `TILES` tiles share a scale.
pub struct TwoBlocks<Q, const TILES: usize>(PhantomData<Q>);

impl<Q: Quants, const TILES: usize> TwoBlocks<Q, TILES> {
    /// The group, which [`super::types`] compares with the type's.
    pub const GROUP: QuantGroup = QuantGroup { tiles: TILES, quants: Q::VECTORS, scales: 1, mins: 0, d: 0 };
}

/// The integer sums of a block's tiles are multiplied by the activations' scales and added up; that sum is
/// multiplied by the block's scale, as in ggml's `vec_dot_q1_0_q8_0`.
impl<Q: Quants, const TILES: usize> Group for TwoBlocks<Q, TILES> {
    const VECTORS: usize = Self::GROUP.vectors();
    const BLOCKS: usize = TILES;

    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        // Sums of blocks and of rows side by side do not fit the registers where floats may not leave them.
        if H::Q_STAYS { 2 } else { 4 }
    }

    #[inline(always)]
    unsafe fn add<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        x: &[Activations; R],
        block: usize,
        acc: &mut [H::F; R],
    ) {
        const { assert!(TILES.is_multiple_of(4)) };
        let mut sums = start::<H, A, R>(acc);
        // SAFETY: `group` holds a group (the caller's contract), which has a vector of scales there.
        let scales = H::widen_f16(unsafe { group.load_b::<H>(Self::GROUP.scales_at()) });
        // SAFETY: each `x` starts with a group and has the `TILES` blocks from `block` on, which is the first
        // of a group and so even (the caller's contract). The two calls are written out, so that they can
        // overlap.
        let (first, second) = unsafe {
            (Self::half::<H, A, R>(group, 0, x, block), Self::half::<H, A, R>(group, TILES / 2, x, block))
        };
        for r in 0..R {
            sums[r] = sums[r].add(H::mul_q(first[r], scales.0));
            sums[r] = sums[r].add(H::mul_q(second[r], scales.1));
            acc[r] = sums[r].end();
        }
    }
}

impl<Q: Quants, const TILES: usize> TwoBlocks<Q, TILES> {
    /// Per row of x, the products of half of a group's tiles, those from `from` on, without their scale.
    ///
    /// # Safety
    /// `group` holds a group, and `from` is 0 or half of its tiles; each `x` starts with a group and has the
    /// `TILES` blocks from `block` on, which is the first of a group.
    #[inline(always)]
    unsafe fn half<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        from: usize,
        x: &[Activations; R],
        block: usize,
    ) -> [H::F; R] {
        let mut sums = [A::start(H::splat(0.0)); R];
        for t in (from..from + TILES / 2).step_by(2) {
            let [even, odd] = [t, t + 1].map(|t| group.skip(Self::GROUP.quants_at(t)));
            // SAFETY: both tiles are of the group, and each `x` has their blocks (the caller's contract).
            let (even, odd) = unsafe {
                (tile::<Q, H, R, 1>(even, x, block + t), tile::<Q, H, R, 1>(odd, x, block + t + 1))
            };
            for r in 0..R {
                // SAFETY: each `x` has both blocks, of which the first is even, as `t` is and rows start with
                // a group (the caller's contract).
                let (_, scales) = unsafe { x[r].scales::<H>(block + t) };
                let product = H::mul_q(H::to_float(even[r][0]), H::splat(scales[0]));
                sums[r] = if t == from { A::first(H::splat(0.0), product) } else { sums[r].add(product) };
                sums[r] = sums[r].add(H::mul_q(H::to_float(odd[r][0]), H::splat(scales[1])));
            }
        }
        let mut ends = [H::splat(0.0); R];
        for (end, sum) in ends.iter_mut().zip(sums) {
            *end = sum.end();
        }
        ends
    }
}
