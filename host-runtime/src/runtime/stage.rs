//! What a session runs of a program.

use hexflash_abi::message::{Load, Range};
use hexflash_abi::{Fault, ProgramId};

use super::error::EngineError;
use crate::device::{Device, SessionSet};
use crate::record::Site;

/// What a session runs of a program.
pub(super) struct SessionProgram {
    pub(super) session: usize,
    pub(super) program: ProgramId,
    pub(super) bytes: Vec<u8>,
    /// The op and the weight behind each op number, for messages.
    pub(super) sites: Vec<Site>,
}

impl SessionProgram {
    /// Loads it; the block is only needed in shared memory until the device has its own copy.
    pub(super) fn load(&self, device: &mut dyn Device) -> Result<(), EngineError> {
        let buffer = device.allocate_in(SessionSet::one(self.session), self.bytes.len() as u64)?;
        buffer.memory.write(0, &self.bytes);
        let block = Range { buffer: buffer.id, len: self.bytes.len() as u32, offset: 0 };
        let loaded = device.load_in(self.session, &Load { program: self.program, reserved: 0, block });
        device.free(buffer)?;
        device.name_ops(self.session, self.program, &self.sites);
        let named = |fault: &Fault| Some(self.sites.get(fault.op.0 as usize)?.explain(fault));
        loaded.map_err(|error| error.explained(named).into())
    }
}
