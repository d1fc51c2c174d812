//! MUL_MAT: tiled weights times activations, y = W x per row of x. MUL_MAT_ID: the same, where each row has a
//! matrix of its own (`routes.rs`).
//!
//! A unit of work is a strip of 32 output rows, or some short ones, for up to `ROWS` rows of x. Its weights
//! stream from DDR into the worker's VTCM in pieces, double-buffered: while one piece is multiplied, the next
//! (of this unit or of the next claimed one) is on its way. A piece is part of a strip, or all the strips of
//! a unit. Activations are read as scalars through the cache: `vrmpy` takes four of them from a register, so
//! they need no vector form.
//!
//! Where the program has a weight stream ([`crate::stream`]), pieces come from there instead: fetched ahead,
//! while earlier ops ran, by the worker that multiplies them.
//!
//! Bytes moved: every weight byte once per `ROWS` rows. Partial sums of a strip wait in VTCM between pieces,
//! so how a strip is cut does not change the order of operations: a row's result depends on that row alone.

mod activations;
pub(crate) mod by_hmx;
mod flat;
mod float;
mod groups;
mod half;
mod product;
mod quants;
mod routes;
mod row_scales;
mod sums;
mod super_block;
mod tuning;
mod two_blocks;
mod types;
mod weight_format;

use core::marker::PhantomData;

use hexflash_abi::dtype::{TILE_ROWS, TileGroup};
pub(crate) use hexflash_abi::op::mul_mat as abi;
use hexflash_abi::op::{Operand, mul_mat_id as by_id};
use hexflash_abi::program::{Numerics, TensorDesc};
use hexflash_abi::{DType, ErrorCode, Fault, VECTOR_BYTES};

use self::product::{Product, StagedGroups};
use self::routes::Routes;
use self::row_scales::Scaling;
use self::tuning::{PIECE_BYTES, ROWS, STRIPS_BYTES, UNITS_OF_WORKER, fewest_rows_for_hmx};
pub(crate) use self::types::*;
use self::weight_format::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::op_run::OpRun;
use crate::plan::{OpShapes, Resources};
use crate::pool::{Kernel, Worker};
use crate::stream::{StreamedMatrix, unit_strips};
use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

struct MulMat<'r, W> {
    weights: PhantomData<W>,
    shape: Product<'r>,
}

impl<'r, W> MulMat<'r, W> {
    fn new(shape: Product<'r>) -> Self {
        Self { weights: PhantomData, shape }
    }
}

/// Bytes of partial sums.
const SUMS: usize = ROWS * PARTIAL * VECTOR_BYTES;

/// The kernel for these operands.
///
/// # Errors
/// [`ErrorCode::NoMatrixUnit`]: only the matrix unit may multiply them, in this program, and the session has
/// none; [`ErrorCode::BadType`]: nothing can; [`ErrorCode::Internal`]: w is not tiled, which validation
/// excludes.
pub(crate) fn variant(shapes: &OpShapes<'_>) -> Result<Variant, Fault> {
    let internal = Fault::new(ErrorCode::Internal, line!());
    let (_, w) = shapes.optional(abi::W).ok_or(internal)?;
    let by_hvx = types::variant(w).ok_or(internal)?;
    let x_is_f32 = shapes.optional(abi::X).is_some_and(|(_, dtype)| dtype == DType::F32);
    let hvx_can = !(x_is_f32 && w.wants_q8_activations());
    match wanted_of_hmx(shapes) {
        Some(by_hmx) if shapes.resources.units.hmx > 0 => Ok(by_hmx),
        // Nothing else has the bits that the class promises.
        Some(_) if !hvx_can || shapes.numerics == Numerics::Hmx => {
            Err(Fault::new(ErrorCode::NoMatrixUnit, 0))
        }
        _ if hvx_can => Ok(by_hvx),
        _ => Err(Fault::new(ErrorCode::BadType, abi::X.number())),
    }
}

/// The kernel of the matrix unit, if the program wants that one.
fn wanted_of_hmx(shapes: &OpShapes<'_>) -> Option<Variant> {
    let ((matrix, w), (x, x_type)) = (shapes.optional(abi::W)?, shapes.optional(abi::X)?);
    if x_type != DType::F32 {
        return None;
    }
    let rows = shapes
        .optional(by_id::IDS)
        .map_or(x.ne[1], |(ids, _)| rows_of_expert(ids.ne[0], ids.ne[1], matrix.ne[2]));
    let only_hmx_can = shapes.numerics.wants_matrix_unit() && w.wants_q8_activations();
    if prefers_hmx(shapes.numerics, w, rows) || only_hmx_can { by_hmx::variant(w) } else { None }
}

/// Rows that an expert has on average, if `used` of `experts` are chosen for each token.
pub const fn rows_of_expert(used: u32, tokens: u32, experts: u32) -> u32 {
    used.saturating_mul(tokens) / if experts > 0 { experts } else { 1 }
}

/// Whether a program of a class leaves products of weights of this type and `rows` rows to the matrix unit,
/// if that has a kernel for the type. The rows are F32 then.
pub const fn prefers_hmx(numerics: Numerics, weights: DType, rows: u32) -> bool {
    match numerics {
        Numerics::Exact => false,
        Numerics::Fast => rows >= fewest_rows_for_hmx(weights),
        // Rows have the same bits at any width.
        Numerics::Hmx => true,
    }
}

/// The kernel of the matrix unit, if it is to be used.
fn hmx_variant(shapes: &OpShapes<'_>) -> Option<Variant> {
    if shapes.resources.units.hmx > 0 { wanted_of_hmx(shapes) } else { None }
}

/// Whether a matrix unit multiplies weights of this type with F32 activations, in programs of the classes
/// `fast` and `hmx`.
pub const fn has_hmx_kernel(dtype: DType) -> bool {
    by_hmx::variant(dtype).is_some()
}

/// Per worker: partial sums, then two pieces. The matrix unit has a layout of its own.
pub(crate) fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    if hmx_variant(shapes).is_some() {
        return by_hmx::plan(shapes);
    }
    let Some((w, Some(group))) = shapes.optional(abi::W).map(|(w, dtype)| (w, dtype.tile_group())) else {
        return VtcmPlan::default();
    };
    let Resources { workers, vtcm_bytes, .. } = shapes.resources;
    let room = (vtcm_bytes / workers).saturating_sub(SUMS) / 2;
    // Of MUL_MAT_ID a token has so many strips for each of its experts.
    let used = shapes.optional(by_id::IDS).map_or(1, |(ids, _)| ids.ne[0] as usize);
    // At least a group; if even that does not fit, `fit` says so.
    let piece = piece_groups(w, group, used, workers, room).max(1);
    VtcmPlan::new(SUMS + 2 * piece * group.bytes)
}

/// Groups of a piece that has `room`: part of a strip, or of several strips whole. 0 if there is too little.
fn piece_groups(w: &TensorDesc, group: TileGroup, used: usize, workers: usize, room: usize) -> usize {
    let strip = group.strip_bytes(w.ne[0] as usize);
    let all = (w.ne[1] as usize).div_ceil(TILE_ROWS);
    let share = (all.saturating_mul(used) / (UNITS_OF_WORKER * workers)).min(all);
    let strips = (STRIPS_BYTES.min(room) / strip).min(share);
    if strips > 1 { strips * strip / group.bytes } else { strip.min(PIECE_BYTES).min(room) / group.bytes }
}

/// The plan of an op that takes its weights from the weight stream.
pub const SUMS_PLAN: VtcmPlan = VtcmPlan::new(SUMS);

/// How w is cut in the weight stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCut {
    /// Groups of a piece.
    pub piece_groups: usize,
    /// Units.
    pub units: usize,
}

/// Whether an op may take its weights from the weight stream: one matrix, read once per step.
pub fn can_stream(shapes: &OpShapes<'_>) -> bool {
    let (Some((w, dtype)), Some((x, _))) = (shapes.optional(abi::W), shapes.optional(abi::X)) else {
        return false;
    };
    // Strips without gaps and tails, so that several are one transfer.
    let strip = dtype.tile_group().map(|group| group.count(w.ne[0] as usize) * group.bytes);
    strip == Some(w.nb[1] as usize)
        && [w.ne[2], w.ne[3], x.ne[2], x.ne[3]] == [1; 4]
        && x.ne[1] as usize <= ROWS
        && hmx_variant(shapes).is_none()
}

/// How w is cut in a weight stream whose pieces are of `room` bytes at most; `None` if that is too little.
pub fn cut(shapes: &OpShapes<'_>, room: usize) -> Option<StreamCut> {
    let (w, dtype) = shapes.optional(abi::W)?;
    let group = dtype.tile_group()?;
    let piece_groups = piece_groups(w, group, 1, shapes.resources.workers, room);
    let groups = group.count(w.ne[0] as usize);
    let strips = (w.ne[1] as usize).div_ceil(TILE_ROWS);
    let units = strips.div_ceil(unit_strips(piece_groups, groups));
    (piece_groups > 0).then_some(StreamCut { piece_groups, units })
}

/// The matrix w, whose buffer is mapped at `base`, as a part of a weight stream in which its units are
/// numbered up to `end`; `None` if it is not tiled.
pub fn matrix(
    base: *const u8,
    w: &TensorDesc,
    dtype: DType,
    piece_groups: usize,
    end: u32,
) -> Option<StreamedMatrix> {
    let group = dtype.tile_group()?;
    let shape = [(w.ne[1] as usize).div_ceil(TILE_ROWS), group.count(w.ne[0] as usize)];
    Some(StreamedMatrix::new(base.wrapping_add(w.offset as usize), shape, piece_groups, group.bytes, end))
}

/// w{k,n,r2,r3} tiled, x{k,m,b2,b3} -> y{n,m,b2,b3}; with ids{n_used,m}, which make it MUL_MAT_ID,
/// w{k,n,n_expert}, x{k,n_used|1,m} -> y{n,n_used,m}.
///
/// # Errors
/// A failed transfer; an id that is no expert's ([`ErrorCode::BadRowIndex`], with the id); int8 activations
/// that are not finite. These are looked at here and not left to the product, because qfloat arithmetic
/// multiplies a NaN scale as if it were a number. F32 activations and all weights are: a float that large,
/// number or not, gives results that the next norm or ARGMAX does not let through.
pub(crate) fn run<W: WeightFormat + 'static>(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (w, x, y) = (run.operand(abi::W)?, run.operand(abi::X)?, run.operand(abi::Y)?);
    let group = w.dtype.tile_group().ok_or(Fault::new(ErrorCode::Internal, line!()))?;
    let stream = run.stream;
    let piece_groups =
        stream.map_or((run.plan.vtcm.own - SUMS) / 2 / group.bytes, |(_, matrix)| matrix.piece_groups);
    let groups = group.count(w.ne[0]);
    let strips = unit_strips(piece_groups, groups);
    let mut shape =
        Product { w, x, y, repeat: [1; 2], group, groups, piece_groups, strips, routes: None, stream };
    if let Some(ids) = run.optional(by_id::IDS) {
        let (mut routes, mut token) = (Routes::new(), 0);
        while token < ids.ne[1] {
            token += routes.gather(&ids, token, w.ne[2])?;
            run.parallel(&MulMat::<W>::new(Product { routes: Some(&routes), ..shape }))?;
        }
    } else {
        shape.repeat = [x.ne[2] / w.ne[2], x.ne[3] / w.ne[3]];
        run.parallel(&MulMat::<W>::new(shape))?;
    }
    // Here, not in the kernel, whose loops need all registers. It is a word per 128 values.
    if W::QUANTIZED { shape.check_activations() } else { Ok(()) }
}

impl<W: WeightFormat> MulMat<'_, W> {
    /// Multiplies one piece for all rows of its unit.
    ///
    /// # Safety
    /// 1. The piece has arrived at `weights`, its slot.
    /// 2. `sums` is this worker's own and has room for the unit's rows, PARTIAL vectors each.
    #[inline(always)]
    unsafe fn multiply<H: Hvx>(
        &self,
        piece: &StagedGroups,
        weights: VectorPtr,
        sums: VectorPtr,
        scales: &W::Scaling,
    ) {
        let rows = piece.unit.rows;
        let mut done = 0;
        // As many rows at a time as the register file has sums for.
        //
        // SAFETY: the piece has arrived, and `sums` is this worker's own and has room for the unit's rows
        // (points 1 and 2 of the caller's contract, which `rows` has too); the rows from `done` on, as many
        // as each call takes, are rows of the unit.
        unsafe {
            if H::REGISTERS >= 16 && W::most_rows::<H>() >= 4 {
                while rows - done >= 4 {
                    self.rows::<H, 4>(piece, weights, sums, scales, done);
                    done += 4;
                }
                if rows - done == 3 {
                    return self.rows::<H, 3>(piece, weights, sums, scales, done);
                }
            }
            if H::REGISTERS >= 4 && W::most_rows::<H>() >= 2 {
                while rows - done >= 2 {
                    self.rows::<H, 2>(piece, weights, sums, scales, done);
                    done += 2;
                }
            }
            while done < rows {
                self.rows::<H, 1>(piece, weights, sums, scales, done);
                done += 1;
            }
        }
    }

    /// One piece for `R` rows of the unit from `at`.
    ///
    /// # Safety
    /// Points 1 and 2 of [`multiply`](Self::multiply); rows `at..at + R` are the unit's.
    #[inline(always)]
    unsafe fn rows<H: Hvx, const R: usize>(
        &self,
        p: &StagedGroups,
        weights: VectorPtr,
        sums: VectorPtr,
        scales: &W::Scaling,
        at: usize,
    ) {
        let (shape, unit) = (&self.shape, &p.unit);
        let rows: [(*const u8, *mut f32); R] = core::array::from_fn(|r| shape.row(unit, at + r));
        let (x, y) = (rows.map(|(x, _)| x), rows.map(|(_, y)| y));
        let sums = sums.skip(at * PARTIAL);
        let factors: [f32; R] = core::array::from_fn(|r| scales.factor(at + r));
        let parts = W::parts(R);
        let k = (p.first * shape.group.k, shape.x.ne[0]);
        let vectors = p.groups * (shape.group.bytes / VECTOR_BYTES);
        let last = p.first + p.groups == shape.groups;
        let (mut weights, mut column) = (weights, unit.strip * TILE_ROWS);
        for _ in 0..unit.strips {
            let mut acc = [[H::splat(0.0); PARTIAL]; R];
            if p.first > 0 {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (i, v) in acc.iter_mut().enumerate().take(parts) {
                        // SAFETY: `sums` has PARTIAL vectors for each of the unit's rows (the caller's
                        // contract, point 2), of which these R begin at row `at`.
                        *v = unsafe { sums.load::<H>(r * PARTIAL + i) };
                    }
                }
            }
            // SAFETY: `weights` holds `p.groups` groups of the strip, which have arrived (the caller's
            // contract, point 1), and `k.0` is the first value of one. `at` has checked the indices of the
            // rows of x, which have `k.1` values of the type that these weights want (validation).
            unsafe { W::multiply::<H, R>(weights, p.groups, x, factors, k, &mut acc) };
            for (r, &acc) in acc.iter().enumerate() {
                if last {
                    // SAFETY: row `r` of y has `w.ne[1]` columns, of which `column` and the others of the
                    // strip are written by this unit alone; they are aligned for f32 (validation).
                    unsafe {
                        let left = shape.w.ne[1] - column;
                        self.finish::<H>(y[r].add(column), &acc[..parts], scales, at + r, left);
                    }
                    continue;
                }
                for (i, &v) in acc.iter().enumerate().take(parts) {
                    // SAFETY: `sums` has PARTIAL vectors for each of the unit's rows (the caller's contract,
                    // point 2), of which these R begin at row `at`. (Only a unit of one strip comes here:
                    // several are whole in a piece.)
                    unsafe { sums.store::<H>(r * PARTIAL + i, v) };
                }
            }
            (weights, column) = (weights.skip(vectors), column + TILE_ROWS);
        }
    }

    /// Stores the sums of a strip in row `row` of the unit, whose y has `left` columns from there on.
    ///
    /// # Safety
    /// `left` is at least 1, and as many columns, or 32 if that is less, are aligned for f32 and valid for
    /// writing at `y`.
    #[inline(always)]
    unsafe fn finish<H: Hvx>(&self, y: *mut f32, acc: &[H::F], scales: &W::Scaling, row: usize, left: usize) {
        let v = if acc.len() == 1 { acc[0] } else { H::add(acc[0], acc[1]) };
        let v = scales.give_back::<H>(row, v);
        // SAFETY: 32 columns, or `left`, which is at least 1, if that is less, are aligned and valid for
        // writing at `y` (the caller's contract).
        unsafe { if left >= LANES { H::store(y, v) } else { H::store_n(y, v, left) } }
    }
}

impl<W: WeightFormat> Kernel for MulMat<'_, W> {
    fn units(&self) -> usize {
        let Product { x, routes, .. } = &self.shape;
        let passes = match routes {
            None => x.ne[1].div_ceil(ROWS) * x.ne[2] * x.ne[3],
            Some(routes) => routes.shares(),
        };
        self.shape.turns() * passes
    }

    fn stream_end(&self) -> u32 {
        self.shape.stream.map_or(0, |(_, matrix)| matrix.end)
    }

    fn work(&self) -> usize {
        let rows = self.shape.routes.map_or_else(|| self.shape.x.rows(), Routes::rows);
        (self.shape.turns() * self.shape.strips * self.shape.groups * (self.shape.group.bytes / VECTOR_BYTES))
            .saturating_mul(rows)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let sums = worker.own_vtcm();
        let mut scales = W::Scaling::new();
        let streamed = self.shape.stream.is_some();
        let mut next =
            if streamed { self.shape.streamed(worker, false) } else { self.shape.fetch(worker, None) };
        while let Some(piece) = next {
            if !streamed {
                next = self.shape.fetch(worker, Some(&piece));
            }
            worker.dma.wait(piece.ticket)?;
            let weights = self.shape.slot(worker, piece.slot);
            scales.find::<H>(&self.shape, &piece.unit);
            // SAFETY: the transfer of the piece was waited for above, and the worker's own region starts with
            // the sums of up to ROWS rows, as planned.
            unsafe { self.multiply::<H>(&piece, weights, sums, &scales) };
            if streamed {
                next = self.shape.streamed(worker, true);
            }
        }
        Ok(())
    }
}
