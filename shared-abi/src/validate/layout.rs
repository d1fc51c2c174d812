//! Where a tensor lies: bounds, alignment, strides and overlap.

use super::{BufferInfo, fail};
use crate::VECTOR_BYTES;
use crate::dtype::{ActivationRow, DType, TILE_ROWS};
use crate::op::{Layout, OperandSpec};
use crate::program::{MAX_BUFFERS, NO_TOKEN_AXIS, ProgramHeader, TensorDesc, TensorFlags};
use crate::status::{ErrorCode, Fault};

/// Checks one tensor by itself: type, shape, alignment, extent inside its buffer.
pub(super) fn check_tensor(
    index: u32,
    t: &TensorDesc,
    header: &ProgramHeader,
    infos: &[Option<BufferInfo>; MAX_BUFFERS],
) -> Result<(), Fault> {
    let index = u64::from(index);
    let Some(dtype) = DType::parse(t.dtype) else {
        return fail(ErrorCode::UnknownType, t.dtype.into());
    };
    if t.reserved != 0 || TensorFlags::from_bits(t.flags).is_none() {
        return fail(ErrorCode::ReservedNotZero, index);
    }
    let Some(info) = infos.get(t.buffer as usize).copied().flatten() else {
        return fail(ErrorCode::UnknownBuffer, t.buffer.into());
    };
    if t.ne.iter().any(|&n| n == 0 || n > i32::MAX as u32) {
        return fail(ErrorCode::BadShape, index);
    }
    if t.token_axis != NO_TOKEN_AXIS {
        let axis = t.token_axis as usize;
        let rows = matches!(dtype, DType::Q8Act | DType::Q8_0);
        let clippable = dtype.element_bytes().is_some() || (rows && axis > 0);
        if axis >= 4 || !clippable || t.ne[axis] != header.max_tokens {
            return fail(ErrorCode::BadShape, index);
        }
    }
    let block = dtype.row_block();
    if block.is_some_and(|block| !(t.ne[0] as usize).is_multiple_of(block.values)) {
        return fail(ErrorCode::BadShape, index);
    }
    let align = block.map_or(VECTOR_BYTES, |block| block.align) as u64;
    let strides = if dtype.element_bytes().is_some() { &t.nb[..] } else { &t.nb[1..] };
    if !t.offset.is_multiple_of(align) || strides.iter().any(|&nb| !u64::from(nb).is_multiple_of(align)) {
        return fail(ErrorCode::Misaligned, index);
    }
    let end = t.extent(dtype).and_then(|extent| t.offset.checked_add(extent));
    if end.is_none_or(|end| end > info.size) {
        return fail(ErrorCode::OutOfBounds, index);
    }
    Ok(())
}

/// Whether the tensor's strides are what the operand may have.
pub(super) fn fits(operand: &OperandSpec, t: &TensorDesc, dtype: DType) -> bool {
    let row = match (dtype.tile_group(), dtype.row_block()) {
        (Some(group), _) => {
            // Strips of a matrix follow each other, so that DMA and prefetch see one stream. In u64: on the
            // DSP the bytes of a strip that no buffer holds overflow a usize.
            let groups = group.count(t.ne[0] as usize) as u64;
            let strip = groups * group.bytes as u64 + group.tail as u64;
            let tiled = u64::from(t.nb[0]) == group.bytes as u64 && u64::from(t.nb[1]) == strip;
            if !tiled || !matches!(operand.layout, Layout::Tiled | Layout::TiledOrRows) {
                return false;
            }
            strip
        }
        (None, Some(block)) => {
            if operand.layout == Layout::Tiled {
                return false;
            }
            // Blocks are adjacent wherever they may lie: a value of one has no address.
            let apart = operand.layout == Layout::Strided && block.values == 1;
            if !apart && t.nb[0] as usize != block.bytes {
                return false;
            }
            block.count(t.ne[0] as usize) as u64 * block.bytes as u64
        }
        (None, None) => {
            if t.nb[0] != 1 {
                return false;
            }
            ActivationRow::new(t.ne[0] as usize).bytes() as u64
        }
    };
    let mut inner = row;
    for axis in 1..4 {
        let mut n = u64::from(t.ne[axis]);
        if axis == 1 && dtype.tile_group().is_some() {
            n = n.div_ceil(TILE_ROWS as u64);
        }
        let stride = u64::from(t.nb[axis]);
        if n > 1 {
            // A written tensor must not overlap itself; a contiguous one has no gaps either.
            if operand.written && stride < inner {
                return false;
            }
            if operand.layout == Layout::Contiguous && stride != inner {
                return false;
            }
            inner = stride.saturating_mul(n);
        }
    }
    true
}

/// Whether the byte extents of two tensors meet.
pub(super) fn overlap(a: &TensorDesc, a_type: DType, b: &TensorDesc, b_type: DType) -> bool {
    if a.buffer != b.buffer {
        return false;
    }
    let end = |t: &TensorDesc, dtype| t.extent(dtype).map_or(u64::MAX, |e| t.offset.saturating_add(e));
    a.offset < end(b, b_type) && b.offset < end(a, a_type)
}

/// Whether two descriptors name the same elements in the same order.
pub(super) fn same_place(a: &TensorDesc, b: &TensorDesc) -> bool {
    (a.offset, a.dtype, a.ne, a.nb) == (b.offset, b.dtype, b.ne, b.nb)
}
