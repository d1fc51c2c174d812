//! Drafting: the draft model guesses tokens, and takes up the features of those that plain steps have run.

use std::fmt;
use std::ops::Deref;

use hexflash_abi::registers::{Register, StepRegisters};
use zerocopy::IntoBytes;

use super::programs::ProgramKind;
use super::sequence::{Sequence, SequenceState};
use super::{Engine, EngineError, Pending, Spec};
use crate::model::MAX_VERIFY;
use crate::setting::Setting;

/// A few tokens: those that were drafted, or those that a round emitted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftBlock {
    n: usize,
    ids: [u32; MAX_VERIFY as usize],
}

impl DraftBlock {
    /// These tokens, of which there are at most [`MAX_VERIFY`].
    pub(super) fn new(tokens: &[u32]) -> Self {
        let mut block = Self { n: tokens.len(), ..Self::default() };
        block.ids[..tokens.len()].copy_from_slice(tokens);
        block
    }
}

impl Deref for DraftBlock {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ids[..self.n]
    }
}

impl fmt::Debug for DraftBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Engine {
    /// Tokens of a block of the draft, and what speculation adds.
    pub(super) fn drafting(&mut self) -> Result<(u32, &mut Spec), EngineError> {
        let block = self.own_draft().map(|draft| draft.block());
        let block = block.ok_or(EngineError::Without { what: "a draft model" })?;
        Ok((block, self.spec()?))
    }

    /// The tokens whose features wait for the draft.
    pub(super) fn pending(&self) -> Option<Pending> {
        self.spec.as_ref()?.pending
    }

    /// Hands the features that wait to the draft model, whichever sequence they belong to.
    pub(super) fn flush_pending(&mut self) -> Result<(), EngineError> {
        let Some(Pending { slot, n, n_commit }) = self.pending() else { return Ok(()) };
        let SequenceState { n_past, history, .. } = &self.sequences[slot];
        let n_past = n_past - n;
        if self.own_draft().is_some_and(|draft| draft.reads_tokens()) {
            let ids = history[n_past as usize..].as_bytes();
            self.io.memory.write(self.layout.tokens as usize, ids);
            self.stats.host_bytes += ids.len() as u64;
        }
        let registers = StepRegisters::step(n_past, n).with(Register::NCommit, n_commit);
        self.exec(ProgramKind::Inject, slot, registers)?;
        self.spec()?.pending = None;
        Ok(())
    }

    /// The most tokens that can be drafted for a sequence now.
    pub(super) fn draft_room_of(&self, slot: usize) -> u32 {
        match self.draft_model() {
            Some(draft) if self.n_ctx() - self.sequences[slot].n_past >= draft.block() => draft.block() - 1,
            _ => 0,
        }
    }

    /// The first `n` tokens that the draft guessed last, at most a block less one.
    pub(super) fn read_drafts(&mut self, n: u32) -> Result<DraftBlock, EngineError> {
        let (block, spec) = self.drafting()?;
        let mut drafts = DraftBlock { n: n.min(block - 1) as usize, ..DraftBlock::default() };
        let buffer = spec.buffer.as_ref().ok_or(EngineError::Without { what: "a draft model" })?;
        buffer.memory.read(spec.drafts_at, drafts.ids[..drafts.n].as_mut_bytes());
        self.stats.host_bytes += 4 * drafts.n as u64;
        Ok(drafts)
    }

    /// Reads the margins of the tokens of the last [`draft`](Sequence::draft), as many as `margins` has
    /// places for. A margin is how far the logit of a draft is above all others.
    pub fn read_margins(&mut self, margins: &mut [f32]) {
        if let Some(placed) = &mut self.placed {
            return placed.engine_mut().read_margins(margins);
        }
        let n = margins.len().min(MAX_VERIFY as usize);
        self.io.memory.read(self.layout.margins as usize, margins[..n].as_mut_bytes());
        self.stats.host_bytes += 4 * n as u64;
    }
}

impl Sequence<'_> {
    /// Hands the features of plain steps to the draft model. The next step that drafts or verifies would
    /// otherwise do this.
    ///
    /// # Errors
    /// The device failed.
    pub fn catch_up(&mut self) -> Result<(), EngineError> {
        match self.engine.pending() {
            Some(pending) if pending.slot == self.slot => self.engine.flush_pending(),
            _ => Ok(()),
        }
    }

    /// Features that wait are those of tokens that are forgotten.
    pub(super) fn forget_pending(&mut self) {
        let slot = self.slot;
        if let Some(spec) = self.engine.spec.as_mut() {
            spec.pending = spec.pending.filter(|pending| pending.slot != slot);
        }
    }

    /// The most tokens that can be drafted now: 0 if the context has no room for a block.
    pub fn draft_room(&self) -> u32 {
        self.engine.draft_room_of(self.slot)
    }

    /// Guesses `n` tokens after `anchor`, the last token of the text, which is not in the context yet.
    ///
    /// # Errors
    /// There is no draft model, `n` is not 1 to [`draft_room`](Self::draft_room), or the device failed.
    pub fn draft(&mut self, anchor: u32, n: u32) -> Result<DraftBlock, EngineError> {
        if self.engine.placed.is_some() {
            return self.draft_elsewhere(anchor, n);
        }
        self.run_draft(anchor, n)?;
        self.engine.read_drafts(n)
    }

    /// That `n` tokens can be drafted after `anchor`.
    pub(super) fn admit_drafts(&mut self, anchor: u32, n: u32) -> Result<(), EngineError> {
        self.admit(&[anchor])?;
        let room = self.draft_room();
        if (1..=room).contains(&n) {
            return Ok(());
        }
        let allowed = format!("1 to {room}");
        Err(EngineError::Setting { setting: Setting::DraftLength, allowed, found: n.into() })
    }

    /// Drafts on the device, for a round or for [`draft`](Self::draft).
    pub(super) fn run_draft(&mut self, anchor: u32, n: u32) -> Result<(), EngineError> {
        let (block, _) = self.engine.drafting()?;
        self.admit_drafts(anchor, n)?;
        self.catch_up()?;
        self.engine.io.memory.write(self.engine.layout.tokens as usize, anchor.as_bytes());
        self.engine.stats.host_bytes += 4;
        let registers = StepRegisters::step(self.n_past(), block);
        let registers = registers
            .with(Register::NCommit, self.state().n_commit)
            .with(Register::DraftMax, n)
            .with(Register::NDraft, n);
        self.engine.exec(ProgramKind::DraftBlock, self.slot, registers)
    }
}
