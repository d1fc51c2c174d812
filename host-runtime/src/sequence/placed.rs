//! A draft model on another device than its target's.
//!
//! The target's steps leave the features of their rows to the host, which keeps them until drafts are wanted.
//! Then one message hands the features of all accepted tokens over, with the anchor, and the draft model's
//! device takes them up and drafts: so a round is one message to each of the two devices. Features of
//! rejected tokens are never handed over. Where more tokens wait than a message takes, such as those of a
//! prompt, they go ahead in messages of their own.
//!
//! What the draft model has seen of a sequence is always a beginning of it, by position. A text that is cut
//! back is shown from there on again; of a text that is cut back by many tokens an MTP head reads a wrong row
//! of the target for one token, which may cost a draft. The text does not depend on it.

use hexflash_abi::registers::{Register, StepRegisters};

use super::block::DraftBlock;
use crate::model::{MAX_SHARED, MAX_VERIFY, draft_tap_width};
use crate::runtime::error::EngineError;
use crate::runtime::kind::ProgramKind;
use crate::runtime::loaded::Runtime;

/// A draft model and its device.
pub(super) struct PlacedDraft {
    /// The draft model on its device, whose programs are those of the draft alone.
    runtime: Runtime,
    /// Values of a token's features.
    width: usize,
    /// What waits of each sequence.
    sequences: Vec<Waiting>,
}

/// Tokens of a sequence that the draft model has not seen.
#[derive(Default)]
struct Waiting {
    /// The position of the first of them: the draft model has seen all before it.
    from: u32,
    /// Tokens before it that are on the draft model's tapes, and not in its states.
    n_commit: u32,
    tokens: Vec<u32>,
    /// The features of each.
    features: Vec<f32>,
}

impl Waiting {
    /// The context ends at `n_past`: later tokens were taken back.
    fn cut(&mut self, n_past: u32, width: usize) {
        if n_past < self.from {
            (self.from, self.n_commit) = (n_past, 0);
        }
        let left = (n_past - self.from) as usize;
        self.tokens.truncate(left);
        self.features.truncate(left * width);
    }

    /// The draft model has seen the first `n`, of which `n_commit` are on its tapes.
    fn seen(&mut self, n: usize, n_commit: u32, width: usize) {
        self.from += n as u32;
        self.n_commit = n_commit;
        self.tokens.drain(..n);
        self.features.drain(..n * width);
    }
}

impl PlacedDraft {
    /// A draft model with room for what waits of each sequence.
    pub(super) fn new(runtime: Runtime) -> Self {
        let width = runtime.draft().map_or(0, |draft| draft_tap_width(draft, runtime.target())) as usize;
        // As many as a step has are appended before those that were there are handed over.
        let room = 2 * runtime.batch().max(MAX_SHARED) as usize;
        let waiting = || Waiting {
            tokens: Vec::with_capacity(room),
            features: Vec::with_capacity(room * width),
            ..Waiting::default()
        };
        let sequences = (0..runtime.kept().n_slots).map(|_| waiting()).collect();
        Self { runtime, width, sequences }
    }

    /// The draft model on its device.
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The draft model on its device.
    pub(super) fn runtime_mut(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Starts the device again. Nothing of any text is known there.
    ///
    /// # Errors
    /// The device failed again.
    pub(super) fn recover(&mut self) -> Result<(), EngineError> {
        for waiting in &mut self.sequences {
            waiting.cut(0, self.width);
        }
        self.runtime.restart()
    }

    /// Runs a program for a sequence.
    fn exec(
        &mut self,
        program: ProgramKind,
        slot: usize,
        registers: StepRegisters,
    ) -> Result<(), EngineError> {
        self.runtime.run(program, &[registers.with(Register::Slot, slot as u32)])
    }

    /// The target's device ran `tokens` of a sequence, of which it had the context of `n_past` tokens before
    /// them: keeps their features. `read` reads a tap of row `row`, counted from the first of them.
    ///
    /// # Errors
    /// The device failed, where so many wait that some are handed over.
    pub(super) fn keep(
        &mut self,
        slot: usize,
        n_past: u32,
        tokens: &[u32],
        mut read: impl FnMut(usize, usize, &mut [f32]),
    ) -> Result<(), EngineError> {
        let (width, n_embd) = (self.width, self.runtime.target().n_embd as usize);
        let waiting = &mut self.sequences[slot];
        waiting.cut(n_past, width);
        if waiting.from + waiting.tokens.len() as u32 != n_past {
            // The states came from elsewhere. What the draft model has not seen, it will never see.
            waiting.cut(0, width);
            waiting.from = n_past;
        }
        let known = waiting.features.len();
        waiting.tokens.extend_from_slice(tokens);
        waiting.features.resize(known + tokens.len() * width, 0.0);
        for tap in 0..width / n_embd {
            for (i, row) in waiting.features[known..].chunks_exact_mut(width).enumerate() {
                read(tap, i, &mut row[tap * n_embd..][..n_embd]);
            }
        }
        if self.sequences[slot].tokens.len() > (self.runtime.batch() as usize).max(MAX_VERIFY as usize) {
            self.hand_over(slot, MAX_VERIFY as usize)?;
        }
        Ok(())
    }

    /// Writes the first `n` waiting tokens of a sequence, and their features, into shared memory.
    fn write_waiting(&mut self, slot: usize, n: usize) {
        let Waiting { tokens, features, .. } = &self.sequences[slot];
        self.runtime.write_tokens(&tokens[..n]);
        self.runtime.write_features(&features[..n * self.width]);
    }

    /// Hands over all that waits of a sequence but the last `left` tokens.
    fn hand_over(&mut self, slot: usize, left: usize) -> Result<(), EngineError> {
        loop {
            let Waiting { from, n_commit, ref tokens, .. } = self.sequences[slot];
            let n = tokens.len().saturating_sub(left).min(self.runtime.batch() as usize);
            if n == 0 {
                return Ok(());
            }
            self.write_waiting(slot, n);
            let registers = StepRegisters::step(from, n as u32).with(Register::NCommit, n_commit);
            self.exec(ProgramKind::Inject, slot, registers)?;
            self.sequences[slot].seen(n, 0, self.width);
        }
    }

    /// Drafts `n` tokens after `anchor`, which comes after `n_past` tokens.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn draft(
        &mut self,
        slot: usize,
        n_past: u32,
        anchor: u32,
        n: u32,
    ) -> Result<DraftBlock, EngineError> {
        let most = MAX_VERIFY.min(self.runtime.n_ctx()) as usize;
        self.sequences[slot].cut(n_past, self.width);
        if self.sequences[slot].tokens.len() > most {
            self.hand_over(slot, 0)?;
        }
        let block = self.runtime.draft_block()?;
        let Waiting { from, n_commit, ref tokens, .. } = self.sequences[slot];
        let waiting = tokens.len();
        let (program, registers) = if waiting == 0 {
            self.runtime.write_tokens(&[anchor]);
            (ProgramKind::DraftBlock, StepRegisters::step(n_past, block).with(Register::NDraft, n))
        } else {
            // Each token is what comes after the one before it, and the anchor after the last.
            let mut best = [0; MAX_VERIFY as usize];
            best[..waiting - 1].copy_from_slice(&tokens[1..]);
            best[waiting - 1] = anchor;
            self.runtime.write_best(&best[..waiting]);
            self.runtime.write_stops(&[]);
            self.write_waiting(slot, waiting);
            // The text goes on as long as drafts are of use.
            let left = waiting as u32 + n + 1;
            let step = StepRegisters::step(from, waiting as u32);
            (ProgramKind::Round, step.with(Register::NLeft, left))
        };
        let registers = registers.with(Register::NCommit, n_commit).with(Register::DraftMax, n);
        self.exec(program, slot, registers)?;
        if waiting > 0 {
            self.sequences[slot].seen(waiting, waiting as u32, self.width);
        }
        DraftBlock::drafted(&mut self.runtime, n)
    }
}
