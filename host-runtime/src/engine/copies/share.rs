//! What the device keeps, in the memory that both share, where its caches may have some of it alone.
//!
//! A program without ops names all of it as tensors that the host reads: when it has run, the device has
//! written them back. Its lines are clean from then until the next step, so that nothing is lost when it
//! drops those that the host has written over meanwhile.

use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::program::{BufferRef, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{BufferId, DType};
use zerocopy::IntoBytes;

use super::super::sequence::Health;
use super::{CopyError, Engine, EngineError, Sequence};
use crate::device::{Buffer, KeptAccess};
use crate::model::IoLayout;
use crate::record::RecordError;

/// Bytes of an element of the tensors.
const ELEMENT: u64 = 4;

impl Sequence<'_> {
    /// Makes memory what the device has, until the next step.
    pub(super) fn share(&mut self) -> Result<(), EngineError> {
        match self.engine.device.kept_access() {
            KeptAccess::Always => Ok(()),
            KeptAccess::AfterRun => {
                let outcome = self.engine.write_back();
                if let Err(loss) = outcome.as_ref()
                    && loss.is_loss()
                {
                    self.state_mut().health = Health::Lost;
                }
                outcome
            }
            KeptAccess::Never => Err(CopyError::Hidden.into()),
        }
    }
}

impl Engine {
    /// Has the device write back all that it keeps between steps.
    fn write_back(&mut self) -> Result<(), EngineError> {
        let spec = self.spec.as_ref().and_then(|spec| spec.buffer.as_ref());
        let bytes = block(self.state.iter().chain(spec))?;
        let buffer = self.device.allocate(bytes.len() as u64)?;
        buffer.memory.write(0, &bytes);
        self.write_registers(&StepRegisters::step(0, 1));
        let range = |buffer: BufferId, len: usize, offset| Range { buffer, len: len as u32, offset };
        let registers = range(self.io.id, size_of::<StepRegisters>(), IoLayout::REGISTERS);
        let run = Run { block: range(buffer.id, bytes.len(), 0), registers };
        let patience = self.device.patience();
        self.stats.messages += 1;
        let ran = self.device.call(&Message::Run(run), patience);
        // The block is of no use, whatever became of it; a device that is lost has nothing mapped any more.
        let freed = self.device.free(buffer);
        ran?;
        Ok(freed?)
    }
}

/// A program that names these buffers for the host to read, and does nothing.
fn block<'b>(buffers: impl Iterator<Item = &'b Buffer>) -> Result<Vec<u8>, EngineError> {
    let (mut references, mut tensors) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let elements = (buffer.memory.len() as u64).div_ceil(ELEMENT);
        // No device maps as much as does not fit.
        let tensor = u32::try_from(elements).ok().and_then(|n| TensorDesc::packed(DType::I32, [n, 1, 1, 1]));
        let Some(tensor) = tensor else { return Err(CopyError::Hidden.into()) };
        let number = references.len() as u16;
        references.push(BufferRef { buffer: buffer.id, reserved: 0 });
        tensors.push(TensorDesc { buffer: number, flags: TensorFlags::HOST_READS.bits(), ..tensor });
    }
    let counts = [references.len(), tensors.len(), 0];
    let header = ProgramHeader::new(1, 1).with_counts(counts).ok_or(RecordError::TooLarge { counts })?;
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(references.as_bytes());
    bytes.extend_from_slice(tensors.as_bytes());
    Ok(bytes)
}
