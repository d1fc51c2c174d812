//! Products with matrices, and rows of them: MUL_MAT, MUL_MAT_ID, GET_ROWS, SET_ROWS.
//!
//! Kernels read matrices in tiles. Those in a buffer of tiles are there already. Others are put into tiles
//! by the host before each run ([`TileJob`]), because nobody tells when they change: that serves programs
//! which know no special buffers, such as upstream's tests, and not models.

use hexflash::gguf::GgmlType;
use hexflash::record;
use hexflash::weights::tiles::tile_dtype;
use hexflash_abi::program::TensorFlags;
use hexflash_abi::{DType, Op as DspOp, VECTOR_BYTES};

use super::operand::{Operand, Value, lengths, type_of};
use super::{Place, Places, Refusal, Translator, source_of};
use crate::abi::Tensor;
use crate::op::Op;

const NO_PARAMS: [u32; 0] = [];

/// A matrix, or several, to be put into tiles.
#[derive(Clone, Copy, Debug)]
pub struct TileJob {
    /// Where it lies.
    pub from: Place,
    /// Its type.
    pub ty: GgmlType,
    /// Elements per axis.
    pub ne: [u32; 4],
    /// Bytes per step along an axis.
    pub nb: [u64; 4],
    /// First byte in the buffer for tiles.
    pub at: u64,
}

/// Bytes that a node needs in the buffer for tiles.
///
/// # Errors
/// It is a product that does not run here.
pub fn needs_tiles(node: &Tensor, places: &dyn Places) -> Result<u64, Refusal> {
    match Op::of(node.op) {
        Some(Op::MulMat | Op::MulMatId | Op::GetRows) if !node.ne.contains(&0) => {}
        _ => return Ok(0),
    }
    let matrix = source_of(node, 0).ok_or(Refusal("a missing operand"))?;
    let place = places.place(matrix).ok_or(Refusal("memory of another device"))?;
    if place.tiled || reads_rows(node, matrix) {
        return Ok(0);
    }
    Ok(tile_bytes(matrix)?.next_multiple_of(VECTOR_BYTES as u64))
}

/// Bytes of a tensor in tiles.
pub fn tile_bytes(matrix: &Tensor) -> Result<u64, Refusal> {
    let dtype = type_of(matrix).and_then(tile_dtype).ok_or(Refusal("the type of the weights"))?;
    record::packed_bytes(dtype, lengths(matrix)?).map_err(|_| Refusal("a stride of 4 GiB"))
}

/// Whether GET_ROWS takes the table as it is.
fn reads_rows(node: &Tensor, table: &Tensor) -> bool {
    Op::of(node.op) == Some(Op::GetRows)
        && matches!(type_of(table), Some(GgmlType::F32 | GgmlType::F16 | GgmlType::I32 | GgmlType::Q8_0))
}

/// Whether a tensor is a part of what somebody has put into memory, rather than what an op gives.
fn is_leaf(mut tensor: &Tensor) -> bool {
    loop {
        match Op::of(tensor.op) {
            Some(Op::None) => return true,
            Some(Op::Reshape | Op::View | Op::Permute | Op::Transpose) => match source_of(tensor, 0) {
                Some(source) => tensor = source,
                None => return false,
            },
            _ => return false,
        }
    }
}

impl Translator<'_> {
    /// A matrix in tiles.
    fn matrix(&mut self, tensor: &Tensor) -> Result<(DType, Value), Refusal> {
        let ty = type_of(tensor).ok_or(Refusal("the type of the weights"))?;
        let dtype = tile_dtype(ty).ok_or(Refusal("the type of the weights"))?;
        let place = self.places.place(tensor).ok_or(Refusal("memory of another device"))?;
        let ne = lengths(tensor)?;
        let (buffer, offset, flags) = if place.tiled {
            if !tensor.view_src.is_null() {
                return Err(Refusal("a part of weights in tiles"));
            }
            (place.buffer, place.offset, TensorFlags::CONST)
        } else {
            if !self.places.packs_each_time(tensor) {
                return Err(Refusal("a product with what is in no buffer of tiles"));
            }
            if !is_leaf(tensor) || tensor.nb[0] as u64 != ty.block_bytes() {
                return Err(Refusal("a product with what an op has computed"));
            }
            let at = self.tiles_used;
            let nb = tensor.nb.map(|nb| nb as u64);
            self.out.jobs.push(TileJob { from: place, ty, ne, nb, at });
            self.tiles_used += tile_bytes(tensor)?.next_multiple_of(VECTOR_BYTES as u64);
            (self.tiles, at, TensorFlags::HOST_WRITES)
        };
        // Whatever is wrong with the shape, `finish` or validation finds.
        let tensor = self.out.recorder.tensor(buffer, offset, dtype, ne, flags);
        Ok((dtype, Value { tensor, at: None }))
    }

    /// Activations as products with a type of weights read them, which the matrix unit does or HVX.
    fn activations(&mut self, x: &Operand, weights: DType, by_unit: bool) -> Result<Value, Refusal> {
        if by_unit || !weights.wants_q8_activations() {
            return self.rows(x);
        }
        if let Some((_, tensor)) = self.quantized.iter().find(|(source, _)| source == x) {
            return Ok(Value { tensor: *tensor, at: None });
        }
        let floats = self.rows(x)?;
        let quants = self.scratch(DType::Q8Act, x.ne);
        self.emit(DspOp::Quantize, &[Some(floats)], quants, &NO_PARAMS);
        self.quantized.push((*x, quants.tensor));
        Ok(quants)
    }

    pub(super) fn mul_mat(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let weights = source_of(node, 0).ok_or(Refusal("a missing operand"))?;
        let (x, dst) = (self.src(node, 1)?, self.float_result(node)?);
        let (dtype, w) = self.matrix(weights)?;
        let by_unit = self.out.recorder.by_matrix_unit(w.tensor, x.ne[1]);
        let x = self.activations(&x, dtype, by_unit)?;
        self.emit_into(DspOp::MulMat, &[Some(w), Some(x)], (&dst, DType::F32), &NO_PARAMS)
    }

    pub(super) fn mul_mat_id(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let weights = source_of(node, 0).ok_or(Refusal("a missing operand"))?;
        let (x, ids, dst) = (self.src(node, 1)?, self.src(node, 2)?, self.float_result(node)?);
        let (dtype, w) = self.matrix(weights)?;
        let ids = self.source(&ids);
        let by_unit = self.out.recorder.by_matrix_unit_id(w.tensor, ids.tensor);
        let x = self.activations(&x, dtype, by_unit)?;
        self.emit_into(DspOp::MulMatId, &[Some(w), Some(x), Some(ids)], (&dst, DType::F32), &NO_PARAMS)
    }

    pub(super) fn get_rows(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let table = source_of(node, 0).ok_or(Refusal("a missing operand"))?;
        let (ids, dst) = (self.src(node, 1)?, self.operand(Some(node))?);
        let integers = type_of(table) == Some(GgmlType::I32);
        let tiled = self.places.place(table).is_some_and(|place| place.tiled);
        let table = if reads_rows(node, table) && !tiled {
            let table = Operand::of_rows(table, self.places)?;
            self.source(&table)
        } else {
            self.matrix(table)?.1
        };
        let ids = self.source(&ids);
        let result = if integers { DType::I32 } else { DType::F32 };
        self.emit_into(DspOp::GetRows, &[Some(table), Some(ids)], (&dst, result), &NO_PARAMS)
    }

    /// GET_ROWS of the only row of a table, which stays as it is as long as anybody reads the result.
    pub(super) fn only_row(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (table, dst) = (self.src(node, 0)?, self.operand(Some(node))?);
        self.elsewhere.retain(|(result, _)| !result.overlaps(&dst));
        self.elsewhere.push((dst, table.place));
        Ok(())
    }

    pub(super) fn set_rows(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (x, dst) = (self.src(node, 0)?, Operand::of_rows(node, self.places)?);
        let ids = source_of(node, 1).ok_or(Refusal("a missing operand"))?;
        let ids = self.source(&Operand::of_integers(ids, self.places)?);
        let x = self.rows(&x)?;
        if dst.dtype == DType::I32 || !dst.has_rows() || x.at.is_some_and(|at| at.overlaps(&dst)) {
            return Err(Refusal("the result of SET_ROWS"));
        }
        let dst = self.target(&dst);
        self.emit(DspOp::SetRows, &[Some(x), Some(ids)], dst, &NO_PARAMS);
        Ok(())
    }
}
