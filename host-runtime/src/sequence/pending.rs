//! Features of plain steps that wait for the draft model on the same device.

use hexflash_abi::registers::{Register, StepRegisters};

use super::state::{SequenceState, Texts};
use crate::model::MAX_PENDING;
use crate::runtime::error::EngineError;
use crate::runtime::kind::ProgramKind;
use crate::runtime::loaded::Runtime;

/// The tokens whose features wait, if any do.
#[derive(Debug, Default)]
pub(super) struct PendingFeatures(Option<Pending>);

/// The last `n` tokens of a sequence.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: usize,
    n: u32,
    /// Tokens before these that were on the tapes when the first of these was run, and are on the draft's
    /// still.
    n_commit: u32,
}

impl PendingFeatures {
    /// Number of tokens whose features wait.
    pub(super) fn len(&self) -> u32 {
        self.0.map_or(0, |pending| pending.n)
    }

    /// Whether they are of this sequence.
    pub(super) fn are_of(&self, slot: usize) -> bool {
        self.0.is_some_and(|pending| pending.slot == slot)
    }

    /// Whether those of another token of a sequence can wait with them.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        self.0.is_none_or(|pending| pending.slot == slot && pending.n < MAX_PENDING)
    }

    /// Adds the features of a token of a sequence; for the first one that waits, `n_commit` tokens were on
    /// the tapes before it.
    pub(super) fn add(&mut self, slot: usize, n_commit: u32) {
        self.0.get_or_insert(Pending { slot, n: 0, n_commit }).n += 1;
    }

    /// Forgets what waits of a sequence.
    pub(super) fn forget(&mut self, slot: usize) {
        self.0 = self.0.filter(|pending| pending.slot != slot);
    }

    /// Hands them to the draft model.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn flush(&mut self, runtime: &mut Runtime, texts: &mut Texts) -> Result<(), EngineError> {
        let Some(Pending { slot, n, n_commit }) = self.0 else { return Ok(()) };
        let SequenceState { n_past, history, .. } = &texts[slot];
        let n_past = n_past - n;
        if runtime.draft().is_some_and(|draft| draft.reads_tokens()) {
            runtime.write_tokens(&history[n_past as usize..]);
        }
        let registers = StepRegisters::step(n_past, n).with(Register::NCommit, n_commit);
        texts.exec(runtime, ProgramKind::Inject, slot, registers)?;
        self.0 = None;
        Ok(())
    }
}
