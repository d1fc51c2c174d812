//! Groups of Q8_0 weights: per tile 8 vectors of unsigned bytes and a scale per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{ActivationRow, DType, TILE_K, q8_0};

use super::PARTIAL;
use crate::hvx::Hvx;

const GROUP: usize = match DType::Q8_0x32.tile_group() {
    Some(group) => group.bytes,
    None => unreachable!(),
};

/// Sum of the 32 activations of block `block`, from the two sums of 16 that follow the values.
///
/// # Safety
/// `x` is an activation row with that block.
#[inline(always)]
pub(super) unsafe fn sum_of_32(x: *const u8, layout: ActivationRow, block: usize) -> i32 {
    // SAFETY: the caller's promise.
    let [a, b] = unsafe { x.add(layout.sums() + block * 8).cast::<[i32; 2]>().read() };
    a.wrapping_add(b)
}

/// The scale of block `block`.
///
/// # Safety
/// `x` is an activation row with that block.
#[inline(always)]
pub(super) unsafe fn scale_of_32(x: *const u8, layout: ActivationRow, block: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { x.add(layout.scales() + block * 4).cast::<f32>().read() }
}

/// The four activations from `k`, packed.
///
/// # Safety
/// `x` is an activation row with these values; `k` is a multiple of 4.
#[inline(always)]
pub(super) unsafe fn packed(x: *const u8, k: usize) -> i32 {
    // SAFETY: the caller's promise; rows are aligned to vectors.
    unsafe { x.add(k).cast::<i32>().read() }
}

/// acc += W x over `groups` groups that start at value `k` of the rows.
///
/// Per tile: weights are q + 128, so the sum starts at -128 times the sum of the activations; as in ggml's
/// `vec_dot_q8_0_q8_0` the integer sum is then multiplied by the product of the two scales.
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
            let scales = H::widen_f16(unsafe { H::load_b(group.add(q8_0::SCALES + pair * VECTOR_BYTES)) });
            for (half, scale) in [scales.0, scales.1].into_iter().enumerate() {
                let tile = pair * 2 + half;
                let block = (k + g * 128) / TILE_K + tile;
                // SAFETY: the rows cover the block (activation rows are padded to 256 values).
                let mut sum = [H::splat_i(0); R];
                for r in 0..R {
                    // SAFETY: as above.
                    sum[r] = H::splat_i(unsafe { sum_of_32(x[r], layout, block) }.wrapping_mul(-128));
                }
                for v in 0..8 {
                    // SAFETY: inside the tile.
                    let w = unsafe { H::load_b(group.add(tile * q8_0::TILE + v * VECTOR_BYTES)) };
                    for r in 0..R {
                        // SAFETY: inside the block.
                        sum[r] = H::vrmpy(sum[r], w, unsafe { packed(x[r], block * TILE_K + 4 * v) });
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
