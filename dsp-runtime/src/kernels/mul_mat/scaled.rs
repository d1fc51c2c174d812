//! Groups of Q8_0 and Q4_0 weights: per tile some vectors of unsigned quants, and a scale per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{ActivationRow, DType, TILE_K, q4_0, q8_0};

use super::PARTIAL;
use super::activations::{packed, scale_of_32, sum_of_32};
use crate::hvx::Hvx;

/// How a type's quants are stored.
pub(super) trait Quants {
    /// The tiled type.
    const DTYPE: DType;
    /// Bytes of the quants of a tile; four tiles of them precede the scales.
    const TILE: usize;
    /// What a stored quant of value zero is.
    const ZERO: i32;

    /// sum += W x for one tile and the 32 activations from `k`.
    ///
    /// # Safety
    /// `tile` holds the quants of a tile; each `x` is an activation row with these values.
    unsafe fn tile<H: Hvx, const R: usize>(sum: &mut [H::I; R], tile: *const u8, x: [*const u8; R], k: usize);
}

/// Eight vectors, each four k of 32 rows.
pub(super) struct Q8_0;

/// Four vectors; low nibbles are the first four groups of four k, high nibbles the others: no shuffle.
pub(super) struct Q4_0;

impl Quants for Q8_0 {
    const DTYPE: DType = DType::Q8_0x32;
    const TILE: usize = q8_0::TILE;
    const ZERO: i32 = 128;

    #[inline(always)]
    unsafe fn tile<H: Hvx, const R: usize>(
        sum: &mut [H::I; R],
        tile: *const u8,
        x: [*const u8; R],
        k: usize,
    ) {
        for v in 0..8 {
            // SAFETY: inside the tile.
            let w = unsafe { H::load_b(tile.add(v * VECTOR_BYTES)) };
            for (sum, x) in sum.iter_mut().zip(x) {
                // SAFETY: inside the row.
                *sum = H::vrmpy(*sum, w, unsafe { packed(x, k + 4 * v) });
            }
        }
    }
}

impl Quants for Q4_0 {
    const DTYPE: DType = DType::Q4_0x32;
    const TILE: usize = q4_0::TILE;
    const ZERO: i32 = 8;

    #[inline(always)]
    unsafe fn tile<H: Hvx, const R: usize>(
        sum: &mut [H::I; R],
        tile: *const u8,
        x: [*const u8; R],
        k: usize,
    ) {
        for v in 0..4 {
            // SAFETY: inside the tile.
            let (low, high) = H::nibbles(unsafe { H::load_b(tile.add(v * VECTOR_BYTES)) });
            for (sum, x) in sum.iter_mut().zip(x) {
                // SAFETY: inside the row.
                let (a, b) = unsafe { (packed(x, k + 4 * v), packed(x, k + 16 + 4 * v)) };
                *sum = H::vrmpy(H::vrmpy(*sum, low, a), high, b);
            }
        }
    }
}

const fn group_bytes<Q: Quants>() -> usize {
    match Q::DTYPE.tile_group() {
        Some(group) => group.bytes,
        None => unreachable!(),
    }
}

/// acc += W x over `groups` groups that start at value `k` of the rows.
///
/// Quants are stored with an offset, so the integer sum of a tile starts at minus that times the sum of the
/// activations; as in ggml's `vec_dot_q8_0_q8_0` it is then multiplied by the product of the two scales.
///
/// # Safety
/// `weights` holds the groups; each `x` is an activation row of `layout` that covers them.
#[inline(always)]
pub(super) unsafe fn multiply<Q: Quants, H: Hvx, const R: usize>(
    weights: *const u8,
    groups: usize,
    x: [*const u8; R],
    layout: ActivationRow,
    k: usize,
    acc: &mut [[H::F; PARTIAL]; R],
) {
    for g in 0..groups {
        let group = weights.wrapping_add(g * group_bytes::<Q>());
        for pair in 0..2 {
            let scales = group.wrapping_add(4 * Q::TILE + pair * VECTOR_BYTES);
            // SAFETY: inside the group.
            let scales = H::widen_f16(unsafe { H::load_b(scales) });
            for (half, scale) in [scales.0, scales.1].into_iter().enumerate() {
                let tile = pair * 2 + half;
                let block = (k + g * 128) / TILE_K + tile;
                let mut sum = [H::splat_i(0); R];
                for (sum, x) in sum.iter_mut().zip(x) {
                    // SAFETY: the rows cover the block (activation rows are padded to 256 values).
                    *sum = H::splat_i(unsafe { sum_of_32(x, layout, block) }.wrapping_mul(-Q::ZERO));
                }
                // SAFETY: the tile is inside the group, the block inside the rows.
                unsafe { Q::tile::<H, R>(&mut sum, group.add(tile * Q::TILE), x, block * TILE_K) };
                for r in 0..R {
                    // SAFETY: inside the row.
                    let d = H::mul(scale, H::splat(unsafe { scale_of_32(x[r], layout, block) }));
                    acc[r][0] = H::add(acc[r][0], H::mul(H::to_float(sum[r]), d));
                }
            }
        }
    }
}
