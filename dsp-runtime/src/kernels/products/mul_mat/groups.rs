//! Quantized weights: a strip is a row of groups, each of some tiles and what scales them.

use super::activations::Activations;
use super::row_scales::Unscaled;
use super::sums::{Held, Parked, Sum};
use super::weight_format::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, VectorPtr};

/// How a group of a quantized type is multiplied.
pub(super) trait Group: Sync + 'static {
    /// Vectors of a group.
    const VECTORS: usize;
    /// Blocks of activations that it is multiplied with.
    const BLOCKS: usize;

    /// What sums are counted in while groups are added: a power of two.
    const UNIT: f32 = 1.0;

    /// Rows that are multiplied at once, at most, as in [`WeightFormat`].
    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        4
    }

    /// acc += W x for a group, and for the blocks of activations from `block` on. A sum is rounded when it
    /// leaves the form in which products are added: here, because pieces of a matrix end after any group.
    ///
    /// # Safety
    /// `group` holds a group; each `x` starts with a group, `block` is the first block of one, and each `x`
    /// has the `BLOCKS` blocks from there.
    unsafe fn add<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        x: &[Activations; R],
        block: usize,
        acc: &mut [H::F; R],
    );
}

impl<G: Group> WeightFormat for G {
    const QUANTIZED: bool = true;
    type Scaling = Unscaled;

    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        G::most_rows::<H>()
    }

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        _scales: [f32; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    ) {
        // SAFETY: points 1 and 2 of the caller's contract are those of `all_groups`.
        unsafe {
            // The same for any number of rows, whose bits must not depend on it.
            if H::Q_STAYS {
                all_groups::<G, H, Parked<H>, R>(weights, groups, x, k, acc);
            } else {
                all_groups::<G, H, Held<H>, R>(weights, groups, x, k, acc);
            }
        }
    }
}

/// The sums of what came before, ready to be added to.
#[inline(always)]
pub(super) fn start<H: Hvx, A: Sum<H>, const R: usize>(acc: &[H::F; R]) -> [A; R] {
    let mut sums = [A::start(acc[0]); R];
    for (sum, acc) in sums.iter_mut().zip(acc) {
        *sum = A::start(*acc);
    }
    sums
}

/// # Safety
/// Points 1 and 2 of [`WeightFormat::multiply`].
#[inline(always)]
unsafe fn all_groups<G: Group, H: Hvx, A: Sum<H>, const R: usize>(
    weights: VectorPtr,
    groups: usize,
    x: [*const u8; R],
    k: (usize, usize),
    acc: &mut [[H::F; PARTIAL]; R],
) {
    // SAFETY: each `x` is an activation row of `k.1` values (the caller's contract, point 2), aligned to
    // vectors (validation), and `k.0` is the first value of a group, and so of a block.
    let x = &unsafe { Activations::all(x, k) };
    // Exact, both ways.
    let times = |sum: H::F, factor: f32| {
        if G::UNIT == 1.0 { sum } else { H::mul_ieee(sum, H::splat(factor)) }
    };
    let mut sums = [acc[0][0]; R];
    for (sum, acc) in sums.iter_mut().zip(acc.iter()) {
        *sum = times(acc[0], 1.0 / G::UNIT);
    }
    for g in 0..groups {
        // SAFETY: `g` is below `groups`, so this is one of the groups that `weights` holds (the caller's
        // contract, point 1), and each `x` starts with the first of them. Each has the group's blocks,
        // because activation rows are padded to 256 values, the most that a group has.
        unsafe { G::add::<H, A, R>(weights.skip(g * G::VECTORS), x, g * G::BLOCKS, &mut sums) };
    }
    H::settle();
    for (sum, acc) in sums.into_iter().zip(acc) {
        acc[0] = times(sum, G::UNIT);
    }
}
