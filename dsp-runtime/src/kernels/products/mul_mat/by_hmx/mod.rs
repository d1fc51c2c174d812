//! MUL_MAT and MUL_MAT_ID by the matrix unit: F32 activations, weights of all types but F32, in programs of
//! the classes `fast` and `hmx`.
//!
//! Activations and weights become matrix tiles of fp16 in VTCM (`matrix_rows.rs`, `weights/`). Both are
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

mod layout;
mod turn;
pub mod weights;

use hexflash_abi::dtype::TILE_ROWS;
use hexflash_abi::op::{mul_mat as abi, mul_mat_id as by_id};
use hexflash_abi::program::TensorDesc;
use hexflash_abi::{DType, ErrorCode, Fault};

use self::layout::{Extent, Layout};
use self::turn::{Pack, Pass, Turn};
pub use self::weights::Tiles;
use super::routes::{GATHERED, Routes};
use crate::kernels::shared::row_scale::Depth;
use crate::op_run::OpRun;
use crate::plan::OpShapes;
use crate::variant::Variant;
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
        DType::Q1_0x32 => Some(Variant::MulMatHmxQ1_0),
        DType::Q2_0x32 => Some(Variant::MulMatHmxQ2_0),
        DType::Q2Kx32 => Some(Variant::MulMatHmxQ2K),
        DType::Q3Kx32 => Some(Variant::MulMatHmxQ3K),
        DType::Q4Kx32 => Some(Variant::MulMatHmxQ4K),
        DType::Q5Kx32 => Some(Variant::MulMatHmxQ5K),
        DType::Q6Kx32 => Some(Variant::MulMatHmxQ6K),
        DType::IQ4XSx32 => Some(Variant::MulMatHmxIQ4XS),
        DType::BF16x32 => Some(Variant::MulMatHmxBF16),
        DType::MXFP4x32 => Some(Variant::MulMatHmxMXFP4),
        // What is F32 in a file is what its maker did not want to be rounded, such as routers of experts.
        DType::F32x32 => None,
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
    let routed = |(ids, _): (&TensorDesc, _)| (ids.ne[0] as usize * ids.ne[1] as usize).min(GATHERED);
    let extent = Extent::of(w, group, shapes.optional(by_id::IDS).map_or(x.ne[1] as usize, routed));
    let fit = |bytes| Layout::fit(extent, shapes.resources.workers, bytes);
    let shared = match fit(shapes.resources.vtcm_bytes) {
        Some(layout) => layout.bytes(),
        None => extent.least_bytes(),
    };
    VtcmPlan { shared, own: 0 }
}

/// w{k,n,r2,r3} tiled, x{k,m,b2,b3} -> y{n,m,b2,b3}; with ids{n_used,m}, which make it MUL_MAT_ID,
/// w{k,n,n_expert}, x{k,n_used|1,m} -> y{n,n_used,m}.
///
/// # Errors
/// [`ErrorCode::NotFinite`] for a row of x that has an infinity or a NaN, which the unit would take for
/// numbers; an id that is no expert's ([`ErrorCode::BadRowIndex`], with the id); a failed transfer.
pub fn run<T: Tiles>(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let internal = Fault::new(ErrorCode::Internal, line!());
    let (w, x, y) = (run.operand(abi::W)?, run.operand(abi::X)?, run.operand(abi::Y)?);
    let group = w.dtype.tile_group().ok_or(internal)?;
    let ids = run.optional(by_id::IDS);
    let rows = ids.map_or(x.ne[1], |ids| (ids.ne[0] * ids.ne[1]).min(GATHERED));
    let extent = Extent::new([w.ne[0], w.ne[1]], group, rows);
    let layout = Layout::fit(extent, run.pool.workers(), run.plan.vtcm.shared).ok_or(internal)?;
    let (depth, most) = (Depth::of(w.ne[0]), layout.row_tiles * TILE_ROWS);
    let (batch, matrix) = ([0; 2], [0; 2]);
    let mut pass = Pass {
        w,
        x,
        y,
        group,
        extent,
        layout,
        depth,
        routes: None,
        batch,
        matrix,
        first: 0,
        rows,
        ordinary: false,
    };
    let Some(ids) = ids else {
        for batch in 0..x.ne[2] * x.ne[3] {
            pass.batch = [batch % x.ne[2], batch / x.ne[2]];
            pass.matrix = [pass.batch[0] / (x.ne[2] / w.ne[2]), pass.batch[1] / (x.ne[3] / w.ne[3])];
            for first in (0..rows).step_by(most) {
                (pass.first, pass.rows) = (first, (rows - first).min(most));
                multiply::<T>(run, pass)?;
            }
        }
        return Ok(());
    };
    let (mut routes, mut token) = (Routes::new(), 0);
    while token < ids.ne[1] {
        token += routes.gather(&ids, token, w.ne[2])?;
        let mut share = 0;
        while share < routes.shares() {
            let (expert, first, _) = routes.share(share);
            share += routes.alike(share, most);
            let (_, last, of_last) = routes.share(share - 1);
            let end = last + of_last;
            for first in (first..end).step_by(most) {
                let (matrix, rows) = ([expert, 0], (end - first).min(most));
                multiply::<T>(run, Pass { routes: Some(&routes), matrix, first, rows, ..pass })?;
            }
        }
    }
    Ok(())
}

/// The jobs of a pass.
fn multiply<T: Tiles>(run: &mut OpRun<'_>, pass: Pass<'_>) -> Result<(), Fault> {
    let pack = Pack::<T>::new(pass);
    run.parallel(&pack)?;
    let pass = pack.packed();
    let chunks = pass.extent.strips.div_ceil(pass.layout.strips);
    // The last chunk is stored two turns after it was unpacked.
    for turn in 0..chunks + 2 {
        run.parallel(&Turn::<T>::new(pass, turn, chunks))?;
    }
    Ok(())
}
