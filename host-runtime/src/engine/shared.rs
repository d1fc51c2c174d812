//! Steps that several sequences share: their rows go through the model together, so that weights are read
//! once for all of them. What a sequence gets does not depend on the others, bit for bit.

use std::time::Instant;

use hexflash_abi::registers::{Register, StepRegisters};
use zerocopy::IntoBytes;

use super::programs::ProgramKind;
use super::sequence::too_wide;
use super::{Engine, EngineError, SequenceId};
use crate::model::MAX_SHARED;
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
    /// [`Sequence::commit`](super::Sequence::commit) says how many become part of the context: a token that
    /// was chosen, and drafts. There are logits after each of them. They are at most
    /// [`MAX_VERIFY`](crate::model::MAX_VERIFY).
    Verify,
}

impl Engine {
    /// Rows of the widest step that sequences share.
    pub fn shared_rows(&self) -> usize {
        MAX_SHARED.min(self.n_ctx()) as usize
    }

    /// Rows of the last step.
    pub(crate) fn last_rows(&self) -> usize {
        self.tokens.len()
    }

    /// Runs rows of one or several sequences in one step. Afterwards row `i` of each of these sequences has
    /// logits, see [`RowKind`].
    ///
    /// # Errors
    /// A sequence is named twice, there are more rows than [`shared_rows`](Self::shared_rows), or what
    /// [`prefill`](super::Sequence::prefill) and [`verify`](super::Sequence::verify) say of the rows of any
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
        self.fill_step(rows);
        let at = &self.layout;
        let (ids, listed) = (self.tokens.as_bytes(), self.rows.as_bytes());
        self.io.memory.write(at.tokens as usize, ids);
        self.io.memory.write(at.row as usize, listed);
        self.stats.host_bytes += (ids.len() + listed.len()) as u64;
        self.steps += 1;
        self.stats.host += start.elapsed();
        self.exec_table(ProgramKind::Shared)?;
        let (mut first, mut row) = (0, 0);
        for &StepRows { sequence, tokens, kind } in rows {
            let (slot, n) = (sequence.slot(), outputs(tokens, kind));
            self.hand_features(ProgramKind::Shared, slot, row, tokens)?;
            row += tokens.len();
            match kind {
                RowKind::Append => self.sequences[slot].advance(tokens),
                RowKind::Verify => self.sequences[slot].defer(tokens),
            }
            self.gave_rows(slot, first, n);
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
                self.spec()?;
                too_wide(tokens)?;
            }
            let mut sequence = self.sequence(id)?;
            sequence.admit(tokens)?;
            sequence.catch_up()?;
        }
        Ok(())
    }

    /// Lists the tokens of a step, the rows with logits, and the registers of each sequence.
    fn fill_step(&mut self, rows: &[StepRows<'_>]) {
        self.tokens.clear();
        self.rows.clear();
        self.table.clear();
        for &StepRows { sequence, tokens, kind } in rows {
            let n = outputs(tokens, kind);
            let end = (self.tokens.len() + tokens.len()) as u32;
            self.rows.extend(end - n as u32..end);
            // Ids are below n_vocab, which is below 2^20.
            self.tokens.extend(tokens.iter().map(|&token| token as i32));
            let state = &self.sequences[sequence.slot()];
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
