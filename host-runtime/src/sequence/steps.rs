//! Steps of an engine: those that several sequences share, and those of its first one.
//!
//! The rows of several sequences go through the model together, so that weights are read once for all of
//! them. What a sequence gets does not depend on the others, bit for bit.

use std::time::Instant;

use hexflash_abi::registers::{Register, StepRegisters};

use super::block::DraftBlock;
use super::engine::{Engine, SharedStep};
use super::report::RoundLimits;
use super::rounds::Rounds;
use super::state::Texts;
use super::view::{Sequence, too_wide};
use crate::runtime::error::EngineError;
use crate::runtime::id::SequenceId;
use crate::runtime::kind::ProgramKind;
use crate::setting::Setting;

/// The rows of a sequence in a step.
#[derive(Clone, Copy, Debug)]
pub struct StepRows<'t> {
    /// The sequence.
    pub sequence: SequenceId,
    /// Its tokens, one per row.
    pub tokens: &'t [u32],
    /// What becomes of them.
    pub kind: RowKind,
}

/// What becomes of the tokens of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// They become part of the context: a token that was chosen, or a piece of a prompt. There are logits
    /// after the last of them.
    Append,
    /// [`Sequence::commit`] says how many become part of the context: a token that
    /// was chosen, and drafts. There are logits after each of them. They are at most
    /// [`MAX_VERIFY`](crate::model::MAX_VERIFY).
    Verify,
}

impl Engine {
    /// Runs rows of one or several sequences in one step. Afterwards row `i` of each of these sequences has
    /// logits, see [`RowKind`].
    ///
    /// # Errors
    /// A sequence is named twice, there are more rows than [`shared_rows`](Self::shared_rows), or what
    /// [`prefill`](Sequence::prefill) and [`verify`](Sequence::verify) say of the rows of any
    /// sequence. A failure of the device concerns all of these sequences.
    pub fn step(&mut self, rows: &[StepRows<'_>]) -> Result<(), EngineError> {
        if let &[StepRows { sequence, tokens, kind }] = rows {
            let mut sequence = self.sequence(sequence)?;
            return match (kind, tokens) {
                (RowKind::Append, &[token]) => sequence.decode(token),
                (RowKind::Append, _) => sequence.prefill(tokens, |_| ()),
                (RowKind::Verify, _) => sequence.verify(tokens),
            };
        }
        self.admit_all(rows)?;
        let start = Instant::now();
        self.step.fill(rows, &self.texts);
        self.runtime.write_tokens(&self.step.tokens);
        self.runtime.write_rows(&self.step.rows);
        self.texts.begin_step();
        self.last_rows = self.step.tokens.len();
        self.runtime.worked(start);
        self.texts.exec_all(&mut self.runtime, ProgramKind::Shared, &self.step.table)?;
        let (mut first, mut row) = (0, 0);
        for &StepRows { sequence, tokens, kind } in rows {
            let (slot, n) = (sequence.slot(), outputs(tokens, kind));
            self.hand_features(ProgramKind::Shared, slot, row, tokens)?;
            row += tokens.len();
            match kind {
                RowKind::Append => self.texts[slot].advance(tokens),
                RowKind::Verify => self.texts[slot].defer(tokens),
            }
            self.texts.gave(slot, first, n);
            first += n;
        }
        Ok(())
    }

    /// That a step can have these rows.
    fn admit_all(&mut self, rows: &[StepRows<'_>]) -> Result<(), EngineError> {
        if rows.is_empty() {
            return Err(EngineError::NoTokens);
        }
        let (wanted, most) = (rows.iter().map(|rows| rows.tokens.len()).sum::<usize>(), self.shared_rows());
        if wanted > most {
            let allowed = format!("at most {most}, for all sequences of a step together");
            return Err(EngineError::Setting { setting: Setting::StepWidth, allowed, found: wanted as u64 });
        }
        for (i, &StepRows { sequence: id, tokens, kind }) in rows.iter().enumerate() {
            if rows[..i].iter().any(|earlier| earlier.sequence == id) {
                return Err(EngineError::Twice { id });
            }
            if kind == RowKind::Verify {
                self.must_speculate()?;
                too_wide(tokens)?;
            }
            let mut sequence = self.sequence(id)?;
            sequence.admit(tokens)?;
            sequence.catch_up()?;
        }
        Ok(())
    }
}

impl SharedStep {
    /// Lists the tokens of a step, the rows with logits, and the registers of each sequence.
    fn fill(&mut self, rows: &[StepRows<'_>], texts: &Texts) {
        self.tokens.clear();
        self.rows.clear();
        self.table.clear();
        for &StepRows { sequence, tokens, kind } in rows {
            let n = outputs(tokens, kind);
            let end = (self.tokens.len() + tokens.len()) as u32;
            self.rows.extend(end - n as u32..end);
            self.tokens.extend_from_slice(tokens);
            let state = &texts[sequence.slot()];
            let registers = StepRegisters::step(state.n_past, tokens.len() as u32)
                .with(Register::Slot, sequence.slot() as u32)
                .with(Register::NCommit, state.n_commit)
                .with(Register::NOutput, n as u32)
                .with(Register::Fold, u32::from(kind == RowKind::Append));
            self.table.push(registers);
        }
    }
}

/// Rows of a sequence that have logits.
const fn outputs(tokens: &[u32], kind: RowKind) -> usize {
    match kind {
        RowKind::Append => 1,
        RowKind::Verify => tokens.len(),
    }
}

impl<'t> StepRows<'t> {
    /// Tokens that become part of a sequence's context.
    pub const fn append(sequence: SequenceId, tokens: &'t [u32]) -> Self {
        Self { sequence, tokens, kind: RowKind::Append }
    }

    /// Tokens of which a commit says how many become part of the context.
    pub const fn verify(sequence: SequenceId, tokens: &'t [u32]) -> Self {
        Self { sequence, tokens, kind: RowKind::Verify }
    }
}

/// Steps of the first sequence, for all who have only one text.
impl Engine {
    /// Its first sequence.
    pub(crate) fn first(&mut self) -> Sequence<'_> {
        Sequence { engine: self, slot: 0 }
    }

    /// Number of tokens in the context of the first sequence.
    pub fn n_past(&self) -> u32 {
        self.texts[0].n_past
    }

    /// The tokens of the context of the first sequence, [`n_past`](Self::n_past) of them.
    pub fn history(&self) -> &[u32] {
        &self.texts[0].history
    }

    /// [`Sequence::reset`] of the first sequence.
    pub fn reset(&mut self) {
        self.first().reset();
    }

    /// [`Sequence::prefill`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn prefill(&mut self, tokens: &[u32], progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.first().prefill(tokens, progress)
    }

    /// [`Sequence::prefill_piece`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn prefill_piece(&mut self, tokens: &[u32]) -> Result<usize, EngineError> {
        self.first().prefill_piece(tokens)
    }

    /// [`Sequence::decode`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn decode(&mut self, token: u32) -> Result<(), EngineError> {
        self.first().decode(token)
    }

    /// [`Sequence::decode_many`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn decode_many(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.first().decode_many(tokens)
    }

    /// [`Sequence::verify`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.first().verify(tokens)
    }

    /// [`Sequence::commit`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn commit(&mut self, n: u32) -> Result<(), EngineError> {
        self.first().commit(n)
    }

    /// [`Sequence::argmax`] of the first sequence.
    ///
    /// # Panics
    /// If the last step gave no such row.
    pub fn argmax(&mut self, row: usize) -> u32 {
        self.first().argmax(row)
    }

    /// [`Sequence::logits`] of the first sequence.
    ///
    /// # Panics
    /// If the last step gave no such row.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        let row = self.texts.output(0, row);
        self.runtime.logits(row)
    }

    /// [`Sequence::catch_up`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn catch_up(&mut self) -> Result<(), EngineError> {
        self.first().catch_up()
    }

    /// [`Sequence::draft_room`] of the first sequence.
    pub fn draft_room(&self) -> u32 {
        self.draft_room_of(0)
    }

    /// [`Sequence::draft`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn draft(&mut self, anchor: u32, n: u32) -> Result<DraftBlock, EngineError> {
        self.first().draft(anchor, n)
    }

    /// [`Sequence::rounds`] of the first sequence.
    ///
    /// # Errors
    /// The same.
    pub fn rounds(
        &mut self,
        anchor: u32,
        limits: &RoundLimits<'_>,
    ) -> Result<Option<Rounds<'_>>, EngineError> {
        self.first().into_rounds(anchor, limits)
    }

    /// [`Sequence::resume_rounds`] of the first sequence.
    pub fn resume_rounds(&mut self) -> Option<Rounds<'_>> {
        self.first().into_resumed()
    }
}
