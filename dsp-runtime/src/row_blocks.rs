//! Row blocks as ggml has them in memory: Q8_0, of which one is an f16 d and 32 int8 q, for values d q.
//!
//! What is written has the bits of ggml's `quantize_row_q8_0` for x86, which llama.cpp's tests compare with:
//! d = max|x| / 127, rounded to f16, and q = x (127 / max|x|) to the nearest integer, ties to even. ggml's
//! reference takes 1 / d and sends ties away from zero, and values of f16 have many ties. A value that is
//! read is exact: a product of 11 bits and 7.
//!
//! The functions are compiled for one kind of vectors ([`Hvx::Everywhere`]), and called wherever they are
//! used: on a DSP, where floats between operations have bits that memory has not, a loop of its own leaves
//! registers to its callers.

use half::f16;
use hexflash_abi::DType;
use hexflash_abi::dtype::RowBlock;

use crate::hvx::{BYTES, Hvx, LANES, math};

/// The block of Q8_0.
pub const Q8_0: RowBlock = match DType::Q8_0.row_block() {
    Some(block) => block,
    None => panic!("rows of Q8_0 are blocks"),
};
/// Bytes of d, which are before the codes.
const D_BYTES: usize = 2;
const _: () = assert!(Q8_0.values == LANES && Q8_0.bytes == D_BYTES + LANES && Q8_0.align == D_BYTES);

/// Bytes that [`unpack`] may read beyond the end of a block, because it loads whole vectors.
pub const BEYOND: usize = BYTES - LANES;

/// Blocks whose bytes are enough for a load of a whole vector of codes from the first one.
const LOADABLE: usize = (D_BYTES + BYTES).div_ceil(Q8_0.bytes);

/// Where a tile of blocks is unpacked to: floats from one to the next.
#[derive(Clone, Copy)]
pub struct Steps {
    /// From a block of a row to the same block of the next row.
    pub row: usize,
    /// From a block to the next one of its row.
    pub block: usize,
}

/// The values of a block with the bits of d, whose codes are the first bytes of a vector.
#[inline(always)]
fn values<H: Hvx>(d: u16, codes: H::B) -> H::F {
    let [words, ..] = H::unpack_bytes(codes);
    let q = H::to_float(H::sar_i::<24>(H::shl_i::<24>(words)));
    let (d, _) = H::widen_f16(H::bytes(H::splat_i(d.into())));
    H::mul_ieee(q, d)
}

/// Unpacks `blocks` blocks of each of `rows` rows, which are `stride` bytes apart.
///
/// # Safety
/// 1. The rows' blocks from `from` on are aligned to 2 bytes and valid for reading, with [`BEYOND`] bytes
///    behind each.
/// 2. Vectors `row * to.row + block * to.block` floats from `into` on are valid for writing, for all of these
///    rows and blocks, and no other thread touches them.
#[inline(never)]
pub unsafe fn unpack<H: Hvx>(
    from: *const u8,
    stride: usize,
    into: *mut f32,
    to: Steps,
    [rows, blocks]: [usize; 2],
) {
    for row in 0..rows {
        for block in 0..blocks {
            let at = from.wrapping_add(row * stride + block * Q8_0.bytes);
            // SAFETY: the block is one of the rows', aligned to 2 bytes, and readable together with `BEYOND`
            // bytes, so that 128 bytes of codes are (the caller's contract, point 1). The vector is the
            // block's own place (point 2).
            unsafe {
                let x = values::<H>(at.cast::<u16>().read(), H::load_b(at.add(D_BYTES)));
                H::store(into.add(row * to.row + block * to.block), x);
            }
        }
    }
}

/// A vector of bytes.
#[repr(C, align(128))]
struct Codes([u8; BYTES]);

/// Unpacks a row of `blocks` blocks, and reads nothing beyond it.
///
/// # Safety
/// 1. `from` is aligned to 2 bytes and valid for reading `blocks` blocks.
/// 2. `into` is aligned for f32 and valid for writing 32 floats for each, and no other thread touches them.
#[inline(never)]
pub unsafe fn unpack_row<H: Hvx>(from: *const u8, into: *mut f32, blocks: usize) {
    let mut last = Codes([0; BYTES]);
    for block in 0..blocks {
        let at = from.wrapping_add(block * Q8_0.bytes);
        // SAFETY: the block is one of the row's, aligned to 2 bytes (the caller's contract, point 1). Where a
        // vector is loaded from its codes on, there are enough blocks for that; else its 32 codes are copied
        // as 16 halves to an aligned vector of 128 bytes. The 32 floats are the block's own place (point 2).
        unsafe {
            let codes = at.add(D_BYTES);
            let codes = if blocks - block >= LOADABLE {
                H::load_b(codes)
            } else {
                let to = last.0.as_mut_ptr().cast::<u16>();
                core::ptr::copy_nonoverlapping(codes.cast::<u16>(), to, LANES / 2);
                H::load_b(last.0.as_ptr())
            };
            H::store(into.add(block * LANES), values::<H>(at.cast::<u16>().read(), codes));
        }
    }
}

/// Packs a row into `blocks` blocks; whether all of it is finite, and as f16 its d. The d of a block that is
/// not finite is NaN, so that its values are.
///
/// # Safety
/// 1. `from` is aligned for f32 and valid for reading 32 floats for each block.
/// 2. `into` is aligned to 2 bytes and valid for writing the blocks, and no other thread touches them.
#[inline(never)]
pub unsafe fn pack_row<H: Hvx>(from: *const f32, into: *mut u8, blocks: usize) -> bool {
    let mut finite = true;
    for block in 0..blocks {
        // SAFETY: these are 32 floats of the row (the caller's contract, point 1).
        let (d, q) = quantize::<H>(unsafe { H::load(from.add(block * LANES)) });
        finite &= d.is_finite();
        let mut codes = Codes([0; BYTES]);
        // SAFETY: `codes` has room for 32 bytes, which are copied as 16 aligned halves to the block's own
        // place, behind its d (the caller's contract, point 2).
        unsafe {
            H::store_low_bytes(codes.0.as_mut_ptr(), q);
            let at = into.add(block * Q8_0.bytes).cast::<u16>();
            at.write(d.to_bits());
            core::ptr::copy_nonoverlapping(codes.0.as_ptr().cast(), at.add(D_BYTES / 2), LANES / 2);
        }
    }
    finite
}

/// The d and the codes of a block.
#[inline(always)]
fn quantize<H: Hvx>(x: H::F) -> (f16, H::I) {
    // A maximum passes over NaN, but it keeps infinity.
    let max = H::max_lane(math::or_infinity::<H>(x, math::abs::<H>(x)));
    // Numbers of their own, because the quotients of vectors may be off by an ulp.
    let d = max / 127.0;
    let inverse = 127.0 / max;
    // Of a block so small that this overflows nothing is left: its d is zero in f16.
    let inverse = if inverse < f32::INFINITY { inverse } else { 0.0 };
    let scaled = H::mul_ieee(x, H::splat(inverse));
    // What is no number, because its block is not finite, becomes zero.
    let q = H::to_int(H::select_gt(H::splat(128.0), math::abs::<H>(scaled), scaled, H::splat(0.0)));
    (if max < f32::INFINITY { f16::from_f32(d) } else { f16::NAN }, q)
}

#[cfg(test)]
pub(crate) mod tests {
    use hexflash_abi::TensorIndex;
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;

    use super::*;
    use crate::hvx::portable::Portable;
    use crate::hvx::qf32::Qf32;
    use crate::testing::{Batch, everywhere, random};

    /// ggml's `quantize_row_q8_0` for x86.
    pub(crate) fn reference(x: &[f32]) -> Vec<u8> {
        let mut row = Vec::new();
        for x in x.chunks_exact(LANES) {
            let max = x.iter().fold(0f32, |max, x| max.max(x.abs()));
            let d = max / 127.0;
            let id = if max == 0.0 { 0.0 } else { 127.0 / max };
            row.extend(f16::from_f32(d).to_bits().to_le_bytes());
            row.extend(x.iter().map(|x| (x * id).round_ties_even() as i8 as u8));
        }
        row
    }

    fn pack<H: Hvx>(x: &[f32]) -> (Vec<u8>, bool) {
        let blocks = x.len() / LANES;
        let mut row = vec![0u16; blocks * Q8_0.bytes / 2];
        // SAFETY: the row has the bytes of the blocks, aligned to 2, and the floats are a slice of 32 for
        // each.
        let finite = unsafe { pack_row::<H>(x.as_ptr(), row.as_mut_ptr().cast(), blocks) };
        (row.iter().flat_map(|half| half.to_le_bytes()).collect(), finite)
    }

    fn unpacked<H: Hvx>(row: &[u8]) -> Vec<f32> {
        let (blocks, mut halves) = (row.len() / Q8_0.bytes, Vec::new());
        halves.extend(row.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])));
        let mut x = vec![0.0; blocks * LANES];
        // SAFETY: the row has the bytes of the blocks, aligned to 2, and there are 32 floats for each.
        unsafe { unpack_row::<H>(halves.as_ptr().cast(), x.as_mut_ptr(), blocks) };
        x
    }

    /// Sizes from subnormal to almost too large for d, zeros, and ties of both signs.
    #[test]
    fn blocks_have_the_bits_of_ggml() {
        let mut rows: Vec<_> = [1e-36, 1e-9, 1e-6, 1e-5, 1e-3, 1.0, 100.0, 8e6]
            .into_iter()
            .map(|size| random(7, 7 * LANES, -size, size))
            .collect();
        rows.push(vec![0.0; LANES]);
        rows.push((0..2 * LANES).map(|i| if i % LANES == 0 { 127.0 } else { i as f32 - 32.5 }).collect());
        let below_half = 0.5f32.next_down();
        let near_ties = [127.0, below_half, -below_half, 0.5, -0.5, 1.5, -1.5, 126.5, -126.5];
        rows.push(near_ties.into_iter().cycle().take(LANES).collect());
        for x in rows {
            let want = reference(&x);
            assert_eq!(pack::<Portable>(&x), (want.clone(), true));
            assert_eq!(pack::<Qf32>(&x), (want.clone(), true));
            let values: Vec<_> = want
                .chunks_exact(Q8_0.bytes)
                .flat_map(|block| {
                    let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    block[D_BYTES..].iter().map(move |&q| d * f32::from(q as i8))
                })
                .collect();
            assert_eq!(unpacked::<Portable>(&want), values);
            assert_eq!(unpacked::<Qf32>(&want), values);
        }
    }

    /// CPY into blocks, of rows and of columns; out of them, from rows in another order; and as they are.
    #[test]
    fn copies_of_blocks() {
        let [k, m, b] = [96usize, 3, 2];
        let values = random(3, k * m * b, -5.0, 5.0);
        let row = |i: usize| &values[i * k..][..k];
        let blocks = reference(&values);
        let ne = [k, m, b, 1].map(|n| n as u32);
        let copy = |setup, write: &dyn Fn(&mut Batch) -> TensorIndex, to| {
            let mut batch = Batch::new(1, 1);
            let x = write(&mut batch);
            let y = batch.tensor(to, ne);
            batch.run(setup, Op::Cpy, &[x], &[y], &[0u32; 0], StepRegisters::step(0, 1)).unwrap();
            batch.read(y).to_vec()
        };
        let rows = |batch: &mut Batch| batch.f32(ne, &values);
        assert!(everywhere(|setup| copy(setup, &rows, DType::Q8_0)) == blocks);
        // Axes 0 and 1 exchanged in memory.
        let columns = |batch: &mut Batch| {
            let turned: Vec<_> =
                (0..b * k * m).map(|i| row(i / (k * m) * m + i % m)[i % (k * m) / m]).collect();
            let x = batch.f32([ne[1], ne[0], ne[2], 1], &turned);
            batch.view(x, |t| {
                t.ne.swap(0, 1);
                t.nb.swap(0, 1);
            })
        };
        assert!(everywhere(|setup| copy(setup, &columns, DType::Q8_0)) == blocks);
        // Axes 1 and 2 exchanged in memory.
        let crossed = |batch: &mut Batch| {
            let order = (0..b * m).map(|i| i % b * m + i / b);
            let crossed: Vec<_> = order.flat_map(|i| reference(row(i))).collect();
            let x = batch.tensor(DType::Q8_0, [ne[0], ne[2], ne[1], 1]);
            batch.write(x, &crossed);
            batch.view(x, |t| {
                t.ne.swap(1, 2);
                t.nb.swap(1, 2);
            })
        };
        assert!(everywhere(|setup| copy(setup, &crossed, DType::Q8_0)) == blocks);
        let floats: Vec<_> = unpacked::<Portable>(&blocks).iter().flat_map(|x| x.to_le_bytes()).collect();
        assert!(everywhere(|setup| copy(setup, &crossed, DType::F32)) == floats);
    }

    /// A block with one value that is no number says so for all of them; one whose 1 / d is none is zero.
    #[test]
    fn what_is_not_finite_is_seen() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 3 * LANES];
            x[LANES + 5] = bad;
            for (row, finite) in [pack::<Portable>(&x), pack::<Qf32>(&x)] {
                assert!(!finite);
                let values = unpacked::<Portable>(&row);
                let nan: Vec<_> = values.chunks_exact(LANES).map(|x| x.iter().all(|x| x.is_nan())).collect();
                assert_eq!(nan, [false, true, false], "{bad}");
            }
        }
        let tiny = vec![1e-44; LANES];
        assert_eq!(pack::<Portable>(&tiny), (vec![0; Q8_0.bytes], true));
        // Finite, but its d is too large for f16.
        assert!(!pack::<Portable>(&[3e7; LANES]).1);
    }
}
