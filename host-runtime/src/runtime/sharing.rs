//! What the device keeps, in the memory that both share, where its caches may have some of it alone.
//!
//! A program without ops names all of it as tensors that the host reads: when it has run, the device has
//! written them back. Its lines are clean from then until the next step. Where the host has written over some
//! of it meanwhile, another such program names all of it as tensors that the host writes: the device drops
//! what its caches hold, which loses nothing.

use hexflash_abi::DType;
use hexflash_abi::program::{BufferRef, ProgramHeader, TensorDesc, TensorFlags};
use zerocopy::IntoBytes;

use super::copy_error::CopyError;
use super::error::EngineError;
use crate::device::Buffer;
use crate::record::RecordError;

/// Bytes of an element of the tensors.
const ELEMENT: u64 = 4;

/// A program that names these buffers for the host, and does nothing.
pub(super) fn block<'b>(
    buffers: impl Iterator<Item = &'b Buffer>,
    flags: TensorFlags,
) -> Result<Vec<u8>, EngineError> {
    let (mut references, mut tensors) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let elements = (buffer.memory.len() as u64).div_ceil(ELEMENT);
        // No device maps as much as does not fit.
        let tensor = u32::try_from(elements).ok().and_then(|n| TensorDesc::packed(DType::I32, [n, 1, 1, 1]));
        let Some(tensor) = tensor else { return Err(CopyError::Hidden.into()) };
        let number = references.len() as u16;
        references.push(BufferRef { buffer: buffer.id, reserved: 0 });
        tensors.push(TensorDesc { buffer: number, flags: flags.bits(), ..tensor });
    }
    let counts = [references.len(), tensors.len(), 0];
    let header = ProgramHeader::new(1, 1).with_counts(counts).ok_or(RecordError::TooLarge { counts })?;
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(references.as_bytes());
    bytes.extend_from_slice(tensors.as_bytes());
    Ok(bytes)
}
