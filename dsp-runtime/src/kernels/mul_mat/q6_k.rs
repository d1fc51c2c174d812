//! Groups of Q6_K weights: 256 k with an int8 scale per 16 and one d per row.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{DType, q6k};

use super::activations::Activations;
use super::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, VectorPtr};

/// Vectors of a group.
const GROUP: usize = match DType::Q6Kx32.tile_group() {
    Some(group) => group.bytes / VECTOR_BYTES,
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

/// Stored as q + 32. Per tile two sums of 16, each times its block's scale (exact in 32 bits: at most
/// 16 * 63 * 127 * 128 < 2^25), then times d and the activations' scale.
pub(in crate::kernels) struct Q6K;

impl WeightFormat for Q6K {
    const QUANTIZED: bool = true;

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        k: (usize, usize),
        acc: &mut [[H::Q; PARTIAL]; R],
    ) {
        // SAFETY: each `x` is an activation row of `k.1` values (the caller's contract, point 2), aligned to
        // vectors (validation), and `k.0` is the first value of a group, and so of a block.
        let x = &unsafe { Activations::all(x, k) };
        for g in 0..groups {
            let group = weights.skip(g * GROUP);
            // SAFETY: `g` is below `groups`, so `group` holds a group (the caller's contract, point 1), which
            // has the vector of d at `q6k::D`.
            let d = H::words(unsafe { group.load_b::<H>(q6k::D / VECTOR_BYTES) });
            // d in both halves, for a pair of tiles.
            let d = H::and_i(d, H::splat_i(0xffff));
            let d = H::bytes(H::or_i(d, H::shl_i::<16>(d)));
            for pair in 0..4 {
                // SAFETY: `group` holds a group (the caller's contract, point 1), which has four vectors of
                // scales at `q6k::SCALES`, and `pair` is below 4.
                let scales = H::words(unsafe { group.load_b::<H>(q6k::SCALES / VECTOR_BYTES + pair) });
                let block = 8 * g + 2 * pair;
                let mut sums = [[H::splat_i(0); R]; 2];
                for (half, sums) in sums.iter_mut().enumerate() {
                    let scales = [signed_byte::<H>(scales, 2 * half), signed_byte::<H>(scales, 2 * half + 1)];
                    // SAFETY: `group` holds a group (the caller's contract, point 1), which has eight tiles,
                    // and each `x` has its eight blocks, because activation rows are padded to 256 values.
                    unsafe { tile::<H, R>(sums, group, 2 * pair + half, x, block + half, scales) };
                }
                for r in 0..R {
                    // SAFETY: each `x` has the eight blocks of the group, because activation rows are padded
                    // to 256 values. `block` is even, and the row starts with a group, which is at an even
                    // block.
                    let (halves, floats) = unsafe { x[r].scales(block) };
                    let (even, odd) = H::widen_f16_scaled(d, halves, floats);
                    acc[r][0] = H::add_q(acc[r][0], H::mul_q(H::to_float(sums[0][r]), even));
                    acc[r][0] = H::add_q(acc[r][0], H::mul_q(H::to_float(sums[1][r]), odd));
                }
            }
        }
    }
}

/// out = W x for a tile of a group and a block of activations, block scales included.
///
/// # Safety
/// `group` holds a group, and `tile` is below 8; each `x` has the block.
#[inline(always)]
unsafe fn tile<H: Hvx, const R: usize>(
    out: &mut [H::I; R],
    group: VectorPtr,
    tile: usize,
    x: &[Activations; R],
    block: usize,
    scales: [H::I; 2],
) {
    let at = group.skip((q6k::HIGH + tile * q6k::HIGH_TILE) / VECTOR_BYTES);
    // SAFETY: a group has two vectors of high bits for each of its eight tiles (the caller's contract).
    let high = unsafe { [at.load_b::<H>(0), at.load_b::<H>(1)] };
    let mut sums = [[H::splat_i(0); 2]; R];
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: each `x` has the block (the caller's contract).
        *sums = unsafe { x.sums::<H>(block) }.map(|sum| H::splat_i(sum.wrapping_mul(-32)));
    }
    for v in (0..4).step_by(2) {
        let low = group.skip(tile * q6k::LOW_TILE / VECTOR_BYTES + v);
        // SAFETY: a group has four vectors of low bits for each of its eight tiles (the caller's contract),
        // and `v + 1` is below 4.
        let low = unsafe { [H::nibbles(low.load_b::<H>(0)), H::nibbles(low.load_b::<H>(1))] };
        for half in 0..2 {
            let pick = |nibbles: (H::B, H::B)| if half == 0 { nibbles.0 } else { nibbles.1 };
            let w = [
                H::or_b(pick(low[0]), high_bits::<H>(high[half], v)),
                H::or_b(pick(low[1]), high_bits::<H>(high[half], v + 1)),
            ];
            for r in 0..R {
                // SAFETY: each `x` has the block (the caller's contract), `half * 16` is 0 or 16 and `4 * v`
                // is 0 or 8.
                let a = unsafe { x[r].eight::<H>(block, half * 16 + 4 * v) };
                sums[r][half] = H::vrmpy(H::vrmpy(sums[r][half], w[0], a[0]), w[1], a[1]);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(&sums) {
        *out = H::add_i(H::mul_i(sums[0], scales[0]), H::mul_i(sums[1], scales[1]));
    }
}
