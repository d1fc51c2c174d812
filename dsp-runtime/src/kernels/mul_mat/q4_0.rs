//! Groups of Q4_0 weights: per tile 4 vectors of nibbles and a scale per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{ActivationRow, DType, TILE_K, q4_0};

use super::PARTIAL;
use super::q8_0::{packed, scale_of_32, sum_of_32};
use crate::hvx::Hvx;

const GROUP: usize = match DType::Q4_0x32.tile_group() {
    Some(group) => group.bytes,
    None => unreachable!(),
};

/// acc += W x over `groups` groups that start at value `k` of the rows.
///
/// Low nibbles are the k-groups 0 to 3 of a tile, high nibbles 4 to 7: no shuffle. Weights are q + 8; the sum
/// starts at -8 times the sum of the activations.
///
/// # Safety
/// `weights` holds the groups; each `x` is an activation row of `layout` that covers them.
#[inline(always)]
pub(super) unsafe fn multiply<H: Hvx, const R: usize>(
    weights: *const u8,
    groups: usize,
    x: [*const u8; R],
    layout: ActivationRow,
    k: usize,
    acc: &mut [[H::F; PARTIAL]; R],
) {
    for g in 0..groups {
        let group = weights.wrapping_add(g * GROUP);
        for pair in 0..2 {
            // SAFETY: inside the group.
            let scales = H::widen_f16(unsafe { H::load_b(group.add(q4_0::SCALES + pair * VECTOR_BYTES)) });
            for (half, scale) in [scales.0, scales.1].into_iter().enumerate() {
                let tile = pair * 2 + half;
                let block = (k + g * 128) / TILE_K + tile;
                // SAFETY: the rows cover the block (activation rows are padded to 256 values).
                let mut sum = [H::splat_i(0); R];
                for r in 0..R {
                    // SAFETY: as above.
                    sum[r] = H::splat_i(unsafe { sum_of_32(x[r], layout, block) }.wrapping_mul(-8));
                }
                for v in 0..4 {
                    // SAFETY: inside the tile.
                    let w = unsafe { H::load_b(group.add(tile * q4_0::TILE + v * VECTOR_BYTES)) };
                    let (low, high) = H::nibbles(w);
                    for r in 0..R {
                        // SAFETY: inside the block.
                        let (a, b) = unsafe {
                            let at = block * TILE_K + 4 * v;
                            (packed(x[r], at), packed(x[r], at + 16))
                        };
                        sum[r] = H::vrmpy(H::vrmpy(sum[r], low, a), high, b);
                    }
                }
                for r in 0..R {
                    // SAFETY: inside the row.
                    let d = H::mul(scale, H::splat(unsafe { scale_of_32(x[r], layout, block) }));
                    acc[r][0] = H::add(acc[r][0], H::mul(H::to_float(sum[r]), d));
                }
            }
        }
    }
}
