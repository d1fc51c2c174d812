//! Groups of Q6_K weights: 256 k with an int8 scale per 16 and one d per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{ActivationRow, DType, TILE_K, q6k};

use super::PARTIAL;
use super::activations::{packed, scale_of_32, sum_of_16};
use crate::hvx::Hvx;

const GROUP: usize = match DType::Q6Kx32.tile_group() {
    Some(group) => group.bytes,
    None => unreachable!(),
};

/// Byte `i` of every word, sign-extended.
#[inline(always)]
fn signed_byte<H: Hvx>(words: H::I, i: usize) -> H::I {
    match i {
        0 => H::sar_i::<24>(H::shl_i::<24>(words)),
        1 => H::sar_i::<24>(H::shl_i::<16>(words)),
        2 => H::sar_i::<24>(H::shl_i::<8>(words)),
        _ => H::sar_i::<24>(words),
    }
}

/// Bits 2i, 2i+1 of every byte, moved to bits 4 and 5.
#[inline(always)]
fn high_bits<H: Hvx>(x: H::B, i: usize) -> H::B {
    let masked = H::and_i(H::words(x), H::splat_i((0x0303_0303_u32 << (2 * i)) as i32));
    H::bytes(match i {
        0 => H::shl_i::<4>(masked),
        1 => H::shl_i::<2>(masked),
        2 => masked,
        _ => H::shr_i::<2>(masked),
    })
}

/// acc += W x over `groups` groups that start at value `k` of the rows.
///
/// Weights are q + 32. Per tile two sums of 16, each times its block's scale (exact in 32 bits: at most
/// 16 * 63 * 127 * 128 < 2^25), then times d and the activations' scale.
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
        // SAFETY: inside the group.
        let d = H::widen_f16(unsafe { H::load_b(group.add(q6k::D)) }).0;
        for tile in 0..8 {
            let block = (k + g * 256) / TILE_K + tile;
            // SAFETY: inside the group.
            let scales = unsafe { H::words(H::load_b(group.add(q6k::SCALES + tile / 2 * VECTOR_BYTES))) };
            let first = tile % 2 * 2;
            let scales = [signed_byte::<H>(scales, first), signed_byte::<H>(scales, first + 1)];
            let at = group.wrapping_add(q6k::HIGH + tile * q6k::HIGH_TILE);
            // SAFETY: inside the group.
            let high = unsafe { [H::load_b(at), H::load_b(at.add(VECTOR_BYTES))] };
            let mut sums = [[H::splat_i(0); 2]; R];
            for (sums, x) in sums.iter_mut().zip(x) {
                for (half, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the rows cover the block.
                    let activations = unsafe { sum_of_16(x, layout, 2 * block + half) };
                    *sum = H::splat_i(activations.wrapping_mul(-32));
                }
            }
            for v in 0..4 {
                // SAFETY: inside the tile.
                let nibbles =
                    H::nibbles(unsafe { H::load_b(group.add(tile * q6k::LOW_TILE + v * VECTOR_BYTES)) });
                for (half, low) in [nibbles.0, nibbles.1].into_iter().enumerate() {
                    let w = H::or_b(low, high_bits::<H>(high[half], v));
                    for r in 0..R {
                        // SAFETY: inside the block.
                        let a = unsafe { packed(x[r], block * TILE_K + half * 16 + 4 * v) };
                        sums[r][half] = H::vrmpy(sums[r][half], w, a);
                    }
                }
            }
            for r in 0..R {
                let sum = H::add_i(H::mul_i(sums[r][0], scales[0]), H::mul_i(sums[r][1], scales[1]));
                // SAFETY: inside the row.
                let d = H::mul(d, H::splat(unsafe { scale_of_32(x[r], layout, block) }));
                acc[r][0] = H::add(acc[r][0], H::mul(H::to_float(sum), d));
            }
        }
    }
}
