//! Groups of Q8_0 and Q4_0 weights: per tile some vectors of unsigned quants, and a scale per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{DType, q4_0, q8_0};

use super::activations::Activations;
use super::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, VectorPtr};

/// How a type's quants are stored.
pub(super) trait Quants: Sync {
    /// The tiled type.
    const DTYPE: DType;
    /// Vectors of the quants of a tile; four tiles of them precede the scales.
    const TILE: usize;
    /// What a stored quant of value zero is.
    const ZERO: i32;

    /// sum += W x for one tile and a block of activations.
    ///
    /// # Safety
    /// `tile` holds the quants of a tile; each `x` has the block.
    unsafe fn tile<H: Hvx, const R: usize>(
        sum: &mut [H::I; R],
        tile: VectorPtr,
        x: &[Activations; R],
        block: usize,
    );
}

/// Eight vectors, each four k of 32 rows.
pub(in crate::kernels) struct Q8_0;

/// Four vectors; low nibbles are the first four groups of four k, high nibbles the others: no shuffle.
pub(in crate::kernels) struct Q4_0;

impl Quants for Q8_0 {
    const DTYPE: DType = DType::Q8_0x32;
    const TILE: usize = q8_0::TILE / VECTOR_BYTES;
    const ZERO: i32 = 128;

    #[inline(always)]
    unsafe fn tile<H: Hvx, const R: usize>(
        sum: &mut [H::I; R],
        tile: VectorPtr,
        x: &[Activations; R],
        block: usize,
    ) {
        for v in (0..8).step_by(2) {
            // SAFETY: `v + 1` is below 8, the vectors of the quants of a tile (the caller's contract).
            let w = unsafe { [tile.load_b::<H>(v), tile.load_b::<H>(v + 1)] };
            for (sum, x) in sum.iter_mut().zip(x) {
                // SAFETY: each `x` has the block (the caller's contract), and `4 * v` is 0, 8, 16 or 24.
                let a = unsafe { x.eight::<H>(block, 4 * v) };
                *sum = H::vrmpy(H::vrmpy(*sum, w[0], a[0]), w[1], a[1]);
            }
        }
    }
}

impl Quants for Q4_0 {
    const DTYPE: DType = DType::Q4_0x32;
    const TILE: usize = q4_0::TILE / VECTOR_BYTES;
    const ZERO: i32 = 8;

    #[inline(always)]
    unsafe fn tile<H: Hvx, const R: usize>(
        sum: &mut [H::I; R],
        tile: VectorPtr,
        x: &[Activations; R],
        block: usize,
    ) {
        for v in (0..4).step_by(2) {
            // SAFETY: `v + 1` is below 4, the vectors of the quants of a tile (the caller's contract).
            let w = unsafe { [H::nibbles(tile.load_b::<H>(v)), H::nibbles(tile.load_b::<H>(v + 1))] };
            for (sum, x) in sum.iter_mut().zip(x) {
                // SAFETY: each `x` has the block (the caller's contract), `4 * v` is 0 or 8, and `16 + 4 * v`
                // is 16 or 24.
                let (a, b) = unsafe { (x.eight::<H>(block, 4 * v), x.eight::<H>(block, 16 + 4 * v)) };
                *sum = H::vrmpy(H::vrmpy(*sum, w[0].0, a[0]), w[0].1, b[0]);
                *sum = H::vrmpy(H::vrmpy(*sum, w[1].0, a[1]), w[1].1, b[1]);
            }
        }
    }
}

/// Vectors of a group.
const fn group<Q: Quants>() -> usize {
    match Q::DTYPE.tile_group() {
        Some(group) => group.bytes / VECTOR_BYTES,
        None => unreachable!(),
    }
}

/// The sum of a row so far.
trait Sum<H: Hvx>: Copy {
    fn start(sum: H::Q) -> Self;
    fn add(self, product: H::Q) -> Self;
    fn end(self) -> H::Q;
}

/// In a register.
#[derive(Clone, Copy)]
struct Held<H: Hvx>(H::Q);

/// In a register or in memory, for a conversion per addition.
#[derive(Clone, Copy)]
struct Parked<H: Hvx>(H::F);

impl<H: Hvx> Sum<H> for Held<H> {
    #[inline(always)]
    fn start(sum: H::Q) -> Self {
        Self(sum)
    }

    #[inline(always)]
    fn add(self, product: H::Q) -> Self {
        Self(H::add_q(self.0, product))
    }

    #[inline(always)]
    fn end(self) -> H::Q {
        self.0
    }
}

impl<H: Hvx> Sum<H> for Parked<H> {
    #[inline(always)]
    fn start(sum: H::Q) -> Self {
        Self(H::float(sum))
    }

    #[inline(always)]
    fn add(self, product: H::Q) -> Self {
        Self(H::float(H::add_qf(product, self.0)))
    }

    #[inline(always)]
    fn end(self) -> H::Q {
        H::add_qf(H::zero_q(), self.0)
    }
}

/// Quants are stored with an offset, so the integer sum of a tile starts at minus that times the sum of the
/// activations; as in ggml's `vec_dot_q8_0_q8_0` it is then multiplied by the product of the two scales.
impl<Q: Quants> WeightFormat for Q {
    const QUANTIZED: bool = true;

    #[inline(always)]
    fn parts(rows: usize) -> usize {
        // Four rows need every register. For fewer, LLVM 22 packs the loops 4 % better with a sum that stays
        // zero.
        if rows > 3 { 1 } else { PARTIAL }
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        k: (usize, usize),
        acc: &mut [[H::Q; PARTIAL]; R],
    ) {
        // Four rows are more than registers hold.
        //
        // SAFETY: points 1 and 2 of the caller's contract are those of `all_groups`.
        unsafe {
            if H::Q_STAYS && R > 3 {
                all_groups::<Q, H, Parked<H>, R>(weights, groups, x, k, acc);
            } else {
                all_groups::<Q, H, Held<H>, R>(weights, groups, x, k, acc);
            }
        }
    }
}

/// # Safety
/// Points 1 and 2 of [`WeightFormat::multiply`].
#[inline(always)]
unsafe fn all_groups<Q: Quants, H: Hvx, S: Sum<H>, const R: usize>(
    weights: VectorPtr,
    groups: usize,
    x: [*const u8; R],
    k: (usize, usize),
    acc: &mut [[H::Q; PARTIAL]; R],
) {
    // SAFETY: each `x` is an activation row of `k.1` values (the caller's contract, point 2), aligned to
    // vectors (validation), and `k.0` is the first value of a group, and so of a block.
    let x = &unsafe { Activations::all(x, k) };
    let mut all = [S::start(acc[0][0]); R];
    for (sum, acc) in all.iter_mut().zip(acc.iter()) {
        *sum = S::start(acc[0]);
    }
    for g in 0..groups {
        let group = weights.skip(g * group::<Q>());
        // SAFETY: `g` is below `groups`, so `group` holds a group (the caller's contract, point 1): two pairs
        // of tiles. Each `x` has the group's four blocks, because activation rows are padded to 256 values.
        // The two calls are written out, so that they can overlap.
        unsafe {
            pair::<Q, H, S, R>(group, 0, x, 4 * g, &mut all);
            pair::<Q, H, S, R>(group, 1, x, 4 * g + 2, &mut all);
        }
    }
    for (sum, acc) in all.into_iter().zip(acc) {
        acc[0] = sum.end();
    }
}

/// acc += W x for a pair of tiles of a group, and for two blocks of activations from `block` on.
///
/// # Safety
/// `group` holds a group, and `pair` is 0 or 1; each `x` starts with a group and has blocks `block`, which is
/// even, and `block + 1`.
#[inline(always)]
unsafe fn pair<Q: Quants, H: Hvx, S: Sum<H>, const R: usize>(
    group: VectorPtr,
    pair: usize,
    x: &[Activations; R],
    block: usize,
    acc: &mut [S; R],
) {
    // SAFETY: a group has `4 * TILE` vectors of quants and then two of scales (the caller's contract), and
    // `pair` is 0 or 1.
    let scales = unsafe { group.load_b::<H>(4 * Q::TILE + pair) };
    let mut sums = [[H::splat_i(0); R]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        let block = block + half;
        for (sum, x) in sums.iter_mut().zip(x) {
            // SAFETY: each `x` has `block`, which is one of the two blocks that the caller names (the
            // caller's contract).
            let [a, b] = unsafe { x.sums::<H>(block) };
            *sum = H::splat_i(a.wrapping_add(b).wrapping_mul(-Q::ZERO));
        }
        // SAFETY: tile `2 * pair + half` is one of the group's four, and each `x` has `block`, which is one
        // of the two that the caller names (the caller's contract).
        unsafe { Q::tile::<H, R>(sums, group.skip((2 * pair + half) * Q::TILE), x, block) };
    }
    for r in 0..R {
        // SAFETY: each `x` has `block` and the next one (the caller's contract). `block` is even, as the
        // blocks of a pair begin, and rows start with a group, which is at an even block.
        let (halves, floats) = unsafe { x[r].scales(block) };
        let (even, odd) = H::widen_f16_scaled(scales, halves, floats);
        acc[r] = acc[r].add(H::mul_q(H::to_float(sums[0][r]), even));
        acc[r] = acc[r].add(H::mul_q(H::to_float(sums[1][r]), odd));
    }
}
