//! A device that was lost in the middle of a text: started again, with the model and the context that it had.
//!
//! Nothing on the device survives. The engine keeps the programs' blocks, the weights' images and the tokens of the context,
//! maps and loads everything under the ids that it had, and runs the tokens again. As steps of any width give the same
//! bits, states and caches are what they were.

use std::sync::Arc;

use hexflash_abi::ProgramId;

use super::{Engine, EngineError, load_program, rounds};
use crate::device::{Buffer, Device, DeviceError};

impl EngineError {
    /// Whether the device itself failed, so that starting it again may help; what it refuses, it will refuse again.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Device(DeviceError::Fault { status, .. }) => *status == hexflash_abi::Status::Fatal,
            Self::Device(
                DeviceError::Timeout(_) | DeviceError::Lost { .. } | DeviceError::OutOfOrder { .. },
            ) => true,
            #[cfg(unix)]
            Self::Device(DeviceError::Htp(_)) => true,
            _ => false,
        }
    }
}

/// Allocates a buffer as large as the one before, which must get its id: programs name it.
fn again(device: &mut dyn Device, old: &Buffer) -> Result<Buffer, EngineError> {
    let new = device.allocate(old.memory.len() as u64)?;
    same_id(old, new)
}

fn same_id(old: &Buffer, new: Buffer) -> Result<Buffer, EngineError> {
    if new.id == old.id {
        return Ok(new);
    }
    let reason = format!("buffer {} became buffer {}", old.id, new.id);
    Err(DeviceError::Lost { reason }.into())
}

impl Engine {
    /// Starts the device again and brings the context back. Rounds have ended, and no step has logits.
    ///
    /// # Errors
    /// The device failed again; then this can be tried again.
    pub fn recover(&mut self) -> Result<(), EngineError> {
        self.broken = true;
        self.device.reset()?;
        let device = &mut *self.device;
        for (image, old) in self.weights.iter().zip(&mut self.weight_buffers) {
            *old = same_id(old, device.import(Arc::clone(image) as _)?)?;
        }
        self.state = again(device, &self.state)?;
        self.io = again(device, &self.io)?;
        if let Some(spec) = &mut self.spec {
            spec.buffer = again(device, &spec.buffer)?;
            spec.write_tables();
            (spec.pending, spec.rounds) = (0, rounds::State::default());
        }
        self.activations = again(device, &self.activations)?;
        for (id, block) in self.blocks.iter().enumerate() {
            load_program(device, ProgramId(id as u32), block)?;
        }
        (self.n_past, self.n_commit, self.verified, self.rows, self.broken) = (0, 0, 0, 0, false);
        let history = std::mem::take(&mut self.history);
        if history.is_empty() {
            return Ok(());
        }
        let outcome = self.prefill(&history, |_| {});
        self.rows = 0;
        // All of them, also if it failed half-way: the next attempt begins from here again.
        self.history = history;
        outcome
    }
}
