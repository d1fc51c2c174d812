//! QUANTIZE: F32 rows to int8 activations per 32 values, once for all matrices that read them.
//!
//! The numbers are those of ggml's Q8_0 activations (`quantize_row_q8_0`): d = max|x| / 127 rounded to f16,
//! q = x * (127 / max|x|) to the nearest integer, ties to even.
//!
//! Blocks are done 32 at a time, so that what is one number per block fills a vector: the maxima of 32 blocks
//! are found together, and there is one division for all of them.

use hexflash_abi::dtype::{ActivationRow, TILE_K};
use hexflash_abi::op::quantize as abi;
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::{Hvx, LANES, VectorPtr, Vectors, math};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

struct Quantize {
    x: View,
    y: View,
}

/// x{k,m,..} F32 -> y{k,m,..} Q8_ACT.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let kernel = Quantize { x: run.operand(abi::X)?, y: run.operand(abi::Y)? };
    run.parallel(&kernel)
}

impl Kernel for Quantize {
    fn units(&self) -> usize {
        self.x.rows()
    }

    fn work(&self) -> usize {
        self.x.rows().saturating_mul(self.x.ne[0].div_ceil(LANES) * 24)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let layout = ActivationRow::new(self.x.ne[0]);
        while let Some(r) = worker.claim() {
            let i = self.x.unravel(r);
            // Activation rows are aligned to vectors (validation).
            let y = VectorPtr::new(self.y.at(i)).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
            // SAFETY: `y` is a row of the validated view y, which has `ActivationRow::bytes` bytes inside the
            // buffer, and `claim` gave it to this worker alone.
            unsafe { quantize_row::<H>(self.x.row(i), y, layout) };
        }
        Ok(())
    }
}

/// Blocks of a chunk: as many as a vector has lanes. Each is a vector.
const CHUNK: usize = LANES;
const _: () = assert!(TILE_K == LANES);

/// A chunk in memory, for rows that end inside of it.
struct Staged([f32; CHUNK * LANES]);

/// # Safety
/// `y` is valid for writing `layout.bytes()`, and nobody else touches them; `layout` is that of `x`'s length.
#[inline(always)]
unsafe fn quantize_row<H: Hvx>(x: Row<'_>, y: VectorPtr, layout: ActivationRow) {
    let all = layout.padded_k / TILE_K;
    // The last chunk of a row without padding overlaps the one before, and does some blocks again: the same
    // numbers.
    let last = if x.len() == layout.padded_k { all.saturating_sub(CHUNK) } else { all };
    for first in (0..all).step_by(CHUNK) {
        let first = first.min(last);
        let blocks = (all - first).min(CHUNK);
        let out = Out { y, layout, first, blocks };
        let start = first * TILE_K;
        let here = x.part(start.min(x.len()), (x.len() - start.min(x.len())).min(CHUNK * LANES));
        // SAFETY: `blocks` blocks from `first` on are blocks of the row, because `first + blocks` is at most
        // `all`, and the row is valid for writing by nobody else (the caller's contract). A store into
        // `staged` is of a vector below 32, because `here` has no more, and the row made of it reads all of
        // `staged`, which lives longer.
        unsafe {
            if here.whole() == CHUNK {
                match here.aligned() {
                    Some(here) => out.chunk::<H, true>(here),
                    None => out.chunk::<H, false>(here),
                }
            } else {
                // What the row does not have is zeros.
                let mut staged = Staged([0.0; CHUNK * LANES]);
                for v in 0..here.vectors() {
                    H::store(staged.0.as_mut_ptr().add(v * LANES), here.vector::<H>(v));
                }
                out.chunk::<H, false>(Row::new(staged.0.as_ptr(), staged.0.len()));
            }
        }
    }
}

/// The sizes of a chunk's blocks.
struct Sizes<'m, const ALIGNED: bool>(Row<'m, ALIGNED>);

impl<H: Hvx, const ALIGNED: bool> Vectors<H> for Sizes<'_, ALIGNED> {
    #[inline(always)]
    fn get(&self, i: usize) -> H::F {
        // A block that is not finite must not turn into finite numbers. A comparison with NaN picks the other
        // operand, so NaN would be lost on its way through a maximum; infinity is not.
        let x = self.0.full::<H>(i);
        math::or_infinity::<H>(x, math::abs::<H>(x))
    }
}

/// Where a chunk goes: blocks `first..first + blocks` of a row.
struct Out {
    y: VectorPtr,
    layout: ActivationRow,
    first: usize,
    blocks: usize,
}

impl Out {
    /// Quantizes a chunk.
    ///
    /// # Safety
    /// `y` is valid for writing the bytes of `layout`, and nobody else touches them; the blocks are blocks of
    /// that row, and `first` and `blocks` are multiples of 4.
    #[inline(always)]
    unsafe fn chunk<H: Hvx, const ALIGNED: bool>(&self, x: Row<'_, ALIGNED>) {
        let Self { layout, first, blocks, .. } = *self;
        let (zero, infinity) = (H::splat(0.0), H::splat(f32::INFINITY));
        // Lane i: block i.
        let max = H::max_lanes(&Sizes(x));
        // Of a block so small that 127 / max overflows nothing is left: its scale is zero in f16.
        let inverse = H::div(H::splat(127.0), max);
        let inverse = H::lanes(H::select_gt(infinity, inverse, inverse, zero));
        // The scale of a block that is not finite says so.
        let halves = math::f32_to_f16_bits::<H>(H::div(max, H::splat(127.0)));
        let nan = H::from_bits(H::splat_i(0x7e00));
        let halves = H::bits(H::select_gt(infinity, max, H::from_bits(halves), nan));
        let scales = math::f16_bits_to_f32::<H>(H::shl_i::<16>(halves));

        let row = self.y.get();
        // SAFETY: blocks `first..first + blocks` are blocks of the row, which is valid for writing (the
        // caller's contract), so their scales lie inside it, aligned as their types are. `blocks` is 1 to 32,
        // and `part` is an array of 32 halves.
        unsafe {
            let scales_at = row.add(layout.scales()).cast::<f32>().add(first);
            let halves_at = row.add(layout.halves()).cast::<u16>().add(first);
            if blocks == CHUNK {
                H::store(scales_at, scales);
                H::store_low_halves(halves_at, halves);
            } else {
                let mut part = [0; CHUNK];
                H::store_low_halves(part.as_mut_ptr(), halves);
                H::store_n(scales_at, scales, blocks);
                core::ptr::copy_nonoverlapping(part.as_ptr(), halves_at, blocks);
            }
        }
        // The sums of all blocks, sixteen at a time.
        let mut sums_of_blocks = [H::splat_i(0); 2];
        let mut block = 0;
        while block < blocks {
            // Sixteen blocks: four vectors of quants, and their sums fill one.
            let mut quants = [H::splat_b(0); 4];
            for (g, quants) in quants.iter_mut().enumerate() {
                let four = block + 4 * g;
                *quants = H::low_bytes([
                    quantize::<H, ALIGNED>(x, &inverse, four),
                    quantize::<H, ALIGNED>(x, &inverse, four + 1),
                    quantize::<H, ALIGNED>(x, &inverse, four + 2),
                    quantize::<H, ALIGNED>(x, &inverse, four + 3),
                ]);
                if four < blocks {
                    // SAFETY: the row is valid for writing (the caller's contract). It has whole vectors of
                    // quants, four blocks each, and `first` and `blocks` are multiples of 4, so this is one
                    // of them.
                    unsafe { self.y.store_b::<H>((first + four) / 4, *quants) };
                }
            }
            sums_of_blocks[block / 16] = H::sums_of_16(quants);
            block += 16;
        }
        // Two halves, and so a word, for each block.
        let negative = H::low_halves(sums_of_blocks.map(|sums| H::sub_i(H::splat_i(0), sums)));
        let negative = H::from_bits(H::words(negative));
        let sums = H::to_float(H::add_pairs(sums_of_blocks[0], sums_of_blocks[1]));
        let scaled = H::mul_ieee(scales, sums);
        // SAFETY: the row is valid for writing (the caller's contract), and it has two negative sums and a
        // scaled one, a word each, for each of the `blocks` blocks from `first` on, aligned as words are.
        // `blocks` is 1 to 32.
        unsafe {
            let negative_at = row.add(layout.negative_sums()).cast::<f32>().add(first);
            let scaled_at = row.add(layout.scaled_sums()).cast::<f32>().add(first);
            if blocks == CHUNK {
                H::store(negative_at, negative);
                H::store(scaled_at, scaled);
            } else {
                H::store_n(negative_at, negative, blocks);
                H::store_n(scaled_at, scaled, blocks);
            }
        }
    }
}

/// Block `i` as integers. What is no number, because its block is not finite, becomes zero.
#[inline(always)]
fn quantize<H: Hvx, const ALIGNED: bool>(x: Row<'_, ALIGNED>, inverse: &H::Lanes, i: usize) -> H::I {
    let v = H::mul(x.full::<H>(i), H::lane(inverse, i));
    H::to_int(H::select_gt(H::splat(128.0), v, v, H::splat(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hvx::portable::Portable;
    use crate::hvx::qf32::Qf32;
    use crate::testing::random;

    const K: usize = 1024;
    const LAYOUT: ActivationRow = ActivationRow::new(K);

    #[repr(C, align(128))]
    struct Quantized([u8; LAYOUT.bytes()]);

    impl Quantized {
        fn of<H: Hvx>(values: &[f32]) -> Self {
            let mut row = Self([0; LAYOUT.bytes()]);
            // SAFETY: the row is aligned to vectors and has the layout's bytes; the values are a slice.
            unsafe {
                let y = VectorPtr::new_unchecked(row.0.as_mut_ptr());
                quantize_row::<H>(Row::new(values.as_ptr(), values.len()), y, LAYOUT);
            }
            row
        }

        /// The bits of the blocks' scales.
        fn scales(&self) -> Vec<u16> {
            let bytes = &self.0[LAYOUT.halves()..][..2 * K / TILE_K];
            bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
        }

        fn quants(&self) -> Vec<i8> {
            self.0[..K].iter().map(|&q| q as i8).collect()
        }
    }

    /// Scales of small numbers are subnormal f16: a unit more is a twelfth of them.
    #[test]
    fn qfloat_gives_the_scales_of_the_definition() {
        for amplitude in [1e-7, 1e-5, 1e-4, 1e-3, 1.0, 1e4] {
            let values = random(7, K, -amplitude, amplitude);
            let (want, got) = (Quantized::of::<Portable>(&values), Quantized::of::<Qf32>(&values));
            assert_eq!(got.scales(), want.scales(), "{amplitude}");
            for (got, want) in got.quants().into_iter().zip(want.quants()) {
                assert!(got.abs_diff(want) <= 1, "{amplitude}: {got}, not {want}");
            }
        }
    }
}
