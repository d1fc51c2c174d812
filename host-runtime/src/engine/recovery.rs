//! A device that was lost in the middle of a text: started again, with the model and the context that it had.
//!
//! Nothing on the device survives. The engine keeps the programs' blocks, the weights' images and the tokens
//! of the context, maps and loads everything under the ids that it had, and runs the tokens again. As steps
//! of any width give the same bits, states and caches are what they were.

use super::{Engine, EngineError, rounds};
use crate::device::{Buffer, Device, DeviceError, SessionSet};

impl EngineError {
    /// Whether the device itself failed, so that starting it again may help. A request that it refuses would
    /// be refused again.
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
fn again(device: &mut dyn Device, sessions: SessionSet, old: &Buffer) -> Result<Buffer, EngineError> {
    let new = device.allocate_in(sessions, old.memory.len() as u64)?;
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
    /// Starts the device again and computes the context again. Afterwards no rounds are under way, and there
    /// are no logits.
    ///
    /// # Errors
    /// The device failed again. The call can be repeated.
    pub fn recover(&mut self) -> Result<(), EngineError> {
        self.broken = true;
        self.device.reset()?;
        let device = &mut *self.device;
        for weights in &mut self.weights {
            weights.buffer = same_id(&weights.buffer, weights.again(device)?)?;
        }
        for (session, part) in self.state.iter_mut().enumerate() {
            *part = again(device, SessionSet::one(session), part)?;
        }
        let all = SessionSet::all(self.state.len());
        self.io = again(device, all, &self.io)?;
        if let Some(spec) = &mut self.spec {
            if let Some(buffer) = &mut spec.buffer {
                *buffer = again(device, all, buffer)?;
            }
            spec.write_tables(&self.kept);
            (spec.pending, spec.rounds) = (0, rounds::State::default());
        }
        for (session, activations) in self.activations.iter_mut().enumerate() {
            *activations = again(device, SessionSet::one(session), activations)?;
        }
        if let Some(handed) = &mut self.handed {
            *handed = again(device, all, handed)?;
        }
        self.stages.iter().try_for_each(|stage| stage.load(device))?;
        (self.n_past, self.n_commit, self.verified, self.rows, self.broken) = (0, 0, 0, 0, false);
        let history = std::mem::take(&mut self.history);
        if history.is_empty() {
            return Ok(());
        }
        let outcome = self.prefill(&history, |_| {});
        self.rows = 0;
        // The whole history is kept, also after a failure, so that the next attempt can run it again.
        self.history = history;
        outcome
    }
}
