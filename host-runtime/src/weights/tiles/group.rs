//! A group of a strip, as it is packed: its vectors, and the parts of a quantized type's.

use hexflash_abi::dtype::{QuantGroup, TILE_ROWS};
use hexflash_abi::{DType, VECTOR_BYTES};

/// One vector: a word per row.
pub(super) type Vector = [[u8; 4]; TILE_ROWS];
const _: () = assert!(size_of::<Vector>() == VECTOR_BYTES);

/// The parts of the group of a quantized type.
#[expect(clippy::unreachable, reason = "called for constants alone, where it would end the build")]
pub(super) const fn quant_group(dtype: DType) -> QuantGroup {
    match dtype.quant_group() {
        Some(group) => group,
        None => unreachable!(),
    }
}
