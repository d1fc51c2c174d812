//! What the kernel of MUL_MAT needs of a type of weights.

use super::row_scales::Scaling;
use crate::hvx::{Hvx, VectorPtr};

/// Vectors of partial sums per row: the float types keep even and odd k apart.
pub const PARTIAL: usize = 2;

/// How the weights of a type are multiplied. A kernel per type: in one for all, the loop of each would have
/// to do with the registers that the others leave.
pub trait WeightFormat: Sync {
    /// Whether activations are int8 with a scale per block.
    const QUANTIZED: bool;
    /// What is done to rows of activations.
    type Scaling: Scaling;
    /// Rows that are multiplied at once, at most: 1, or 4 for as many as the registers hold.
    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        4
    }
    /// Partial sums of a row, of R at once, that are kept: those that `multiply` adds to, and perhaps more.
    fn parts(rows: usize) -> usize;

    /// acc += W x over the groups of a piece, which begins at value `k.0` of rows of `k.1` values. `scales`:
    /// what each row of x is multiplied with ([`Scaling::factor`]).
    ///
    /// # Safety
    /// 1. `weights` holds the groups, and `k.0` is the first value of a group.
    /// 2. Each `x` is a validated row of `k.1` values, as F32 or as an activation row, whichever the type
    ///    wants.
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        scales: [f32; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    );
}
