//! Sequences off the device: what a text has in caches and states, copied to the host and back.
//!
//! A [`SequenceCopy`] has the rows of all caches that the tokens of its text wrote, the recurrent states
//! after them, and the sequence's snapshots. A sequence that it was copied into goes on with the bits of the
//! one that it was copied from. The host reads and writes the memory that both share, between two steps.
//! Where the device may have some of it in its caches alone, a message makes it write that back.

use super::block::DraftBlock;
use super::copy::SequenceCopy;
use super::state::{Health, Outputs};
use super::view::Sequence;
use crate::model::is_picture_row;
use crate::runtime::copy_error::CopyError;
use crate::runtime::error::EngineError;
use crate::runtime::loaded::Runtime;
use crate::runtime::pieces::{self, Piece};

impl Sequence<'_> {
    /// Copies what the text has on the device to the host: its caches, states and snapshots. Tokens that the
    /// last verification kept, and that are not in recurrent states yet, are left out.
    ///
    /// # Errors
    /// The device failed, or its states cannot be copied ([`CopyError::Hidden`]).
    pub fn copy_out(&mut self) -> Result<SequenceCopy, EngineError> {
        self.prepare_copy()?;
        self.usable()?;
        self.catch_up()?;
        self.with_memory(Runtime::share)?;
        if self.history().iter().any(|&id| is_picture_row(id)) {
            return Err(CopyError::Pictures.into());
        }
        let (engine, slot) = (&*self.engine, self.slot);
        let state = self.state();
        let lag = if engine.runtime.has_states() { state.n_commit } else { 0 };
        let n = state.n_past - lag;
        let mut snapshots: Vec<(u32, Vec<u8>)> = engine
            .snapshots
            .of(slot)
            .map(|(place, n_past)| {
                (n_past, engine.runtime.read_pieces(&pieces::of_snapshot(engine.kept(), place)))
            })
            .collect();
        snapshots.sort_unstable_by_key(|&(n_past, _)| n_past);
        Ok(SequenceCopy {
            origin: engine.runtime.origin(),
            tokens: state.history[..n as usize].to_vec(),
            written: self.written(),
            state: engine.runtime.read_pieces(&pieces::of_sequence(engine.kept(), slot, n)),
            snapshots,
        })
    }

    /// Makes the sequence what another one was when it was copied. What it had before is forgotten. There are
    /// no logits until the next step.
    ///
    /// # Errors
    /// The copy does not fit this engine, or the states of its device cannot be copied. The sequence is as
    /// before then.
    pub fn copy_in(&mut self, copy: &SequenceCopy) -> Result<(), EngineError> {
        let engine = &*self.engine;
        if copy.origin != engine.runtime.origin() {
            return Err(CopyError::Origin.into());
        }
        let (tokens, n_ctx) = (copy.tokens.len(), engine.n_ctx());
        if tokens > n_ctx as usize {
            return Err(CopyError::TooLong { tokens, n_ctx }.into());
        }
        let pieces = pieces::of_sequence(engine.kept(), self.slot, tokens as u32);
        let of_snapshot = pieces::of_snapshot(engine.kept(), 0);
        let bytes = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes).sum::<usize>();
        let fits = |(_, state): &(u32, Vec<u8>)| of_snapshot.is_empty() || state.len() == bytes(&of_snapshot);
        if copy.state.len() != bytes(&pieces) || !copy.snapshots.iter().all(fits) {
            return Err(CopyError::Damaged { what: "it has not the size of its text" }.into());
        }
        let n_vocab = engine.config().n_vocab;
        if copy.tokens.iter().any(|&token| token >= n_vocab) {
            return Err(CopyError::Damaged { what: "it has tokens that are in no vocabulary" }.into());
        }
        if copy.snapshots.iter().any(|&(n, _)| n as usize > tokens) {
            return Err(CopyError::Damaged { what: "it has snapshots of a longer text" }.into());
        }
        self.prepare_copy()?;
        self.with_memory(Runtime::share)?;
        self.reset();
        self.engine.runtime.write_pieces(&pieces, &copy.state);
        for (n, state) in &copy.snapshots {
            if let Some(place) = self.engine.snapshots.place(self.slot, *n) {
                let pieces = pieces::of_snapshot(self.engine.kept(), place);
                self.engine.runtime.write_pieces(&pieces, state);
                self.engine.snapshots.fill(place, self.slot, *n);
            }
        }
        if let Err(error) = self.with_memory(Runtime::take_over) {
            self.reset();
            return Err(error);
        }
        let state = self.state_mut();
        (state.n_past, state.written) = (tokens as u32, copy.written);
        (state.verified, state.outputs) = (DraftBlock::default(), Outputs::default());
        state.history.extend_from_slice(&copy.tokens);
        Ok(())
    }

    /// Waits until the device does nothing, and sees that its memory can be used.
    fn prepare_copy(&mut self) -> Result<(), EngineError> {
        if !self.engine.copies_sequences() {
            return Err(CopyError::Hidden.into());
        }
        self.end_rounds()?;
        self.engine.displace_rounds()
    }

    /// Has the device and the memory that both share agree; a device that is lost has lost this text, too.
    fn with_memory(
        &mut self,
        agree: impl FnOnce(&mut Runtime) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let outcome = agree(&mut self.engine.runtime);
        if outcome.as_ref().is_err_and(EngineError::is_loss) {
            self.state_mut().health = Health::Lost;
        }
        outcome
    }
}
