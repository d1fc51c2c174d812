//! MUL_MAT by the matrix unit: F32 activations, weights of some types, in programs of the classes `fast` and
//! `hmx`.
//!
//! Activations and weights become matrix tiles of fp16 in VTCM (`activations.rs`, `weights.rs`). Both are
//! scaled by powers of two, each row of x and each row of w by its own, so that no sum overflows, and results
//! of fp16 keep their bits. Sums are those of the unit: see [`hexflash_hvx_float::matrix`].
//!
//! Weights pass in chunks of some strips (`turn.rs`): while the unit multiplies a chunk, driven by the thread
//! that dispatches, the other workers unpack the next one and store the results of the one before. The rows
//! that fit into VTCM (`layout.rs`) share a pass over the weights.
//!
//! A result is a sum in an order that k alone decides, of values that depend on its own row of x and its own
//! row of w: like in an exact kernel, its bits do not depend on other rows, workers or VTCM. But they are not
//! those of an exact kernel, nor the same on v73 and on what came after it.

pub(in crate::kernels) mod activations;
mod layout;
mod turn;
pub(in crate::kernels) mod weights;

use hexflash_abi::dtype::TILE_ROWS;
use hexflash_abi::{DType, ErrorCode, Fault};

use self::activations::Depth;
use self::layout::{Extent, Layout};
use self::turn::{Pack, Pass, Turn};
pub(in crate::kernels) use self::weights::Tiles;
use super::abi;
use crate::kernels::{OpRun, Variant};
use crate::plan::OpShapes;
use crate::vtcm::VtcmPlan;

/// The kernel for weights of a type; `None` if there is none.
pub(super) const fn variant(dtype: DType) -> Option<Variant> {
    match dtype {
        DType::F16x32 => Some(Variant::MulMatHmxF16),
        DType::Q8_0x32 => Some(Variant::MulMatHmxQ8_0),
        DType::Q4_0x32 => Some(Variant::MulMatHmxQ4_0),
        DType::Q5_0x32 => Some(Variant::MulMatHmxQ5_0),
        DType::IQ4NLx32 => Some(Variant::MulMatHmxIQ4NL),
        DType::Q4_1x32 => Some(Variant::MulMatHmxQ4_1),
        DType::Q5_1x32 => Some(Variant::MulMatHmxQ5_1),
        DType::Q2Kx32 => Some(Variant::MulMatHmxQ2K),
        DType::Q3Kx32 => Some(Variant::MulMatHmxQ3K),
        DType::Q4Kx32 => Some(Variant::MulMatHmxQ4K),
        DType::Q5Kx32 => Some(Variant::MulMatHmxQ5K),
        DType::Q6Kx32 => Some(Variant::MulMatHmxQ6K),
        DType::IQ4XSx32 => Some(Variant::MulMatHmxIQ4XS),
        DType::F32x32 | DType::BF16x32 | DType::MXFP4x32 => None,
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act | DType::Q8_0 => None,
        DType::Q8_0Cache | DType::Q4RCache => None,
    }
}

/// Room for all rows at once, or as much of it as VTCM has; too much for any VTCM if not even the smallest
/// layout fits.
pub(super) fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let (Some((w, dtype)), Some((x, _))) = (shapes.optional(abi::W), shapes.optional(abi::X)) else {
        return VtcmPlan::default();
    };
    let Some(group) = dtype.tile_group() else { return VtcmPlan::default() };
    let extent = Extent::of(w, group, x.ne[1] as usize);
    let fit = |bytes| Layout::fit(extent, shapes.resources.workers, bytes);
    let shared = match fit(shapes.resources.vtcm_bytes) {
        Some(layout) => layout.bytes(),
        None => extent.least_bytes(),
    };
    VtcmPlan { shared, own: 0 }
}

/// w{k,n,r2,r3} tiled, x{k,m,b2,b3} -> y{n,m,b2,b3}.
///
/// # Errors
/// [`ErrorCode::NotFinite`] for a row of x that has an infinity or a NaN, which the unit would take for
/// numbers; a failed transfer.
pub(in crate::kernels) fn run<T: Tiles>(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let internal = Fault::new(ErrorCode::Internal, line!());
    let (w, x, y) = (run.operand(abi::W)?, run.operand(abi::X)?, run.operand(abi::Y)?);
    let group = w.dtype.tile_group().ok_or(internal)?;
    let extent = Extent::new([w.ne[0], w.ne[1]], group, x.ne[1]);
    let layout = Layout::fit(extent, run.pool.workers(), run.plan.vtcm.shared).ok_or(internal)?;
    let chunks = extent.strips.div_ceil(layout.strips);
    for batch in 0..x.ne[2] * x.ne[3] {
        let batch = [batch % x.ne[2], batch / x.ne[2]];
        let matrix = [batch[0] / (x.ne[2] / w.ne[2]), batch[1] / (x.ne[3] / w.ne[3])];
        for first in (0..x.ne[1]).step_by(layout.row_tiles * TILE_ROWS) {
            let rows = (x.ne[1] - first).min(layout.row_tiles * TILE_ROWS);
            let depth = Depth::of(w.ne[0]);
            let pass = Pass { w, x, y, group, extent, layout, depth, batch, matrix, first, rows };
            run.parallel(&Pack::<T>::new(pass))?;
            // The last chunk is stored two turns after it was unpacked.
            for turn in 0..chunks + 2 {
                run.parallel(&Turn::<T>::new(pass, turn, chunks))?;
            }
        }
    }
    Ok(())
}
