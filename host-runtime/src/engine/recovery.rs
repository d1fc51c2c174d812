//! A device that was lost in the middle of a text: started again, with the model and the contexts that it
//! had.
//!
//! Nothing on the device survives. The engine keeps the programs' blocks, the weights' images and the tokens
//! of all sequences, maps and loads everything under the ids that it had, and runs the tokens again. As steps
//! of any width give the same bits, states and caches are what they were.

use super::sequence::{Health, Outputs};
use super::{Engine, EngineError, Sequence, rounds};
use crate::device::{Buffer, Device, DeviceError, SessionSet};

impl EngineError {
    /// Whether the device itself failed: see [`DeviceError::is_loss`].
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_loss())
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
    /// Starts the device again and computes the contexts of all sequences again, but of those that an earlier
    /// step has damaged. Afterwards no rounds are under way, and there are neither logits nor snapshots.
    ///
    /// # Errors
    /// The device failed again. The call can be repeated.
    pub fn recover(&mut self) -> Result<(), EngineError> {
        for sequence in self.sequences.iter_mut().filter(|sequence| sequence.health == Health::Sound) {
            sequence.health = Health::Lost;
        }
        if let Some(placed) = &mut self.placed {
            placed.recover()?;
        }
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
            (spec.pending, spec.rounds) = (None, rounds::State::default());
        }
        for (session, activations) in self.activations.iter_mut().enumerate() {
            *activations = again(device, SessionSet::one(session), activations)?;
        }
        if let Some(handed) = &mut self.handed {
            *handed = again(device, all, handed)?;
        }
        self.stages.iter().try_for_each(|stage| stage.load(device))?;
        self.snapshots.forget_all();
        for slot in 0..self.sequences.len() {
            if self.sequences[slot].health == Health::Lost {
                (Sequence { engine: self, slot }).rebuild()?;
            }
        }
        Ok(())
    }
}

impl Sequence<'_> {
    /// Computes the context again, on a device that knows nothing of it.
    fn rebuild(&mut self) -> Result<(), EngineError> {
        let state = self.state_mut();
        let history = std::mem::take(&mut state.history);
        state.clear();
        let outcome = match history.is_empty() {
            true => Ok(()),
            false => self.prefill(&history, |_| {}),
        };
        let state = self.state_mut();
        state.outputs = Outputs::default();
        // The whole history is kept, also after a failure, so that the next attempt can run it again.
        state.history = history;
        if outcome.is_err() {
            state.health = Health::Lost;
        }
        outcome
    }
}
