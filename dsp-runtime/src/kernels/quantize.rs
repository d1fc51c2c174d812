//! QUANTIZE: F32 rows to int8 activations per 32 values, once for all matrices that read them.
//!
//! The numbers are those of ggml's Q8_0 activations (`quantize_row_q8_0`): d = max|x| / 127 rounded to f16,
//! q = x * (127 / max|x|) to the nearest integer, ties to even.

use half::f16;
use hexflash_abi::Fault;
use hexflash_abi::dtype::{ActivationRow, TILE_K};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::platform::Platform;
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
pub fn run<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let kernel = Quantize { x: run.src(0)?, y: run.dst()? };
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
        const { assert!(TILE_K == LANES) };
        let layout = ActivationRow::new(self.x.ne[0]);
        while let Some(r) = worker.claim() {
            let i = self.x.unravel(r);
            let y = self.y.at(i);
            // SAFETY: the row's bytes are inside the buffer (validation counts `ActivationRow::bytes` per row), and
            // this worker alone has claimed the row.
            unsafe { quantize_row::<H>(self.x.row(i), y, layout) };
        }
        Ok(())
    }
}

/// # Safety
/// `y` is valid for writing `layout.bytes()`, and nobody else touches them.
#[inline(always)]
unsafe fn quantize_row<H: Hvx>(x: Row<'_>, y: *mut u8, layout: ActivationRow) {
    let scales = y.wrapping_add(layout.scales()).cast::<f32>();
    let sums = y.wrapping_add(layout.sums()).cast::<i32>();
    let blocks = x.vectors();
    for block in 0..blocks {
        let v = x.vector::<H>(block);
        // A block that is not finite must not turn into finite numbers: its scale says so. A comparison with NaN picks
        // the other operand, so NaN would be lost on its way through a maximum; infinity is not.
        let infinity = H::splat(f32::INFINITY);
        let size = H::max(v, H::sub(H::splat(0.0), v));
        let max = H::max_lane(H::select_gt(infinity, size, size, infinity));
        // Of a block so small that 127 / max overflows nothing is left: its scale is zero in f16.
        let inverse = Some(127.0 / max).filter(|inverse| inverse.is_finite()).unwrap_or(0.0);
        let (scale, q) = if max.is_finite() {
            (f16::from_f32(max / 127.0).to_f32(), H::to_int(H::mul(v, H::splat(inverse))))
        } else {
            (f32::NAN, H::splat_i(0))
        };
        let bytes = y.wrapping_add(block * TILE_K);
        // SAFETY: block `block` of the row, its scale and its two sums lie inside the row's bytes.
        unsafe {
            H::store_low_bytes(bytes, q);
            scales.add(block).write(scale);
            for half in 0..2 {
                let q = bytes.add(half * 16).cast::<[i8; 16]>().read();
                sums.add(2 * block + half).write(q.iter().map(|&q| i32::from(q)).sum());
            }
        }
    }
    // SAFETY: from the last block to the padded end, inside the row's bytes.
    unsafe {
        y.add(blocks * TILE_K).write_bytes(0, layout.padded_k - blocks * TILE_K);
        scales.add(blocks).write_bytes(0, layout.padded_k / 32 - blocks);
        sums.add(2 * blocks).write_bytes(0, layout.padded_k / 16 - 2 * blocks);
    }
}
