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
use zerocopy::IntoBytes;

use super::programs::ProgramKind;
use super::{DraftBlock, Engine, EngineError, Sequence};
use crate::model::{MAX_SHARED, MAX_STOPS, MAX_VERIFY, draft_tap_width};

/// A draft model and its device.
pub(super) struct PlacedDraft {
    /// It has the programs of the draft model alone.
    engine: Engine,
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
    pub(super) fn new(engine: Engine) -> Self {
        let width = engine.own_draft().map_or(0, |draft| draft_tap_width(draft, &engine.config)) as usize;
        // As many as a step has are appended before those that were there are handed over.
        let room = 2 * engine.batch.max(MAX_SHARED) as usize;
        let waiting = || Waiting {
            tokens: Vec::with_capacity(room),
            features: Vec::with_capacity(room * width),
            ..Waiting::default()
        };
        let sequences = engine.sequences().map(|_| waiting()).collect();
        Self { engine, width, sequences }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub(super) fn reset_stats(&mut self) {
        self.engine.reset_stats();
    }

    /// Starts the device again. Nothing of any text is known there.
    pub(super) fn recover(&mut self) -> Result<(), EngineError> {
        for waiting in &mut self.sequences {
            waiting.cut(0, self.width);
        }
        self.engine.recover()
    }

    /// Writes the first `n` waiting tokens of a sequence, and their features, into shared memory.
    fn write_waiting(&mut self, slot: usize, n: usize) {
        let (Waiting { tokens, features, .. }, engine) = (&self.sequences[slot], &mut self.engine);
        let (ids, rows) = (tokens[..n].as_bytes(), features[..n * self.width].as_bytes());
        engine.io.memory.write(engine.layout.tokens as usize, ids);
        engine.io.memory.write(engine.layout.probes as usize, rows);
        engine.stats.host_bytes += (ids.len() + rows.len()) as u64;
    }

    /// Hands over all that waits of a sequence but the last `left` tokens.
    fn hand_over(&mut self, slot: usize, left: usize) -> Result<(), EngineError> {
        loop {
            let Waiting { from, n_commit, ref tokens, .. } = self.sequences[slot];
            let n = tokens.len().saturating_sub(left).min(self.engine.batch as usize);
            if n == 0 {
                return Ok(());
            }
            self.write_waiting(slot, n);
            let registers = StepRegisters::step(from, n as u32).with(Register::NCommit, n_commit);
            self.engine.exec(ProgramKind::Inject, slot, registers)?;
            self.sequences[slot].seen(n, 0, self.width);
        }
    }

    /// Drafts `n` tokens after `anchor`, which comes after `n_past` tokens.
    fn draft(&mut self, slot: usize, n_past: u32, anchor: u32, n: u32) -> Result<DraftBlock, EngineError> {
        let most = MAX_VERIFY.min(self.engine.n_ctx()) as usize;
        self.sequences[slot].cut(n_past, self.width);
        if self.sequences[slot].tokens.len() > most {
            self.hand_over(slot, 0)?;
        }
        let (block, _) = self.engine.drafting()?;
        let Waiting { from, n_commit, ref tokens, .. } = self.sequences[slot];
        let waiting = tokens.len();
        let (program, registers) = if waiting == 0 {
            self.engine.io.memory.write(self.engine.layout.tokens as usize, anchor.as_bytes());
            self.engine.stats.host_bytes += 4;
            (ProgramKind::DraftBlock, StepRegisters::step(n_past, block).with(Register::NDraft, n))
        } else {
            // Each token is what comes after the one before it, and the anchor after the last.
            let mut best = [0; MAX_VERIFY as usize];
            best[..waiting - 1].copy_from_slice(&tokens[1..]);
            best[waiting - 1] = anchor;
            let stops = [-1i32; MAX_STOPS as usize];
            let (best, stops) = (best[..waiting].as_bytes(), stops.as_bytes());
            self.engine.io.memory.write(self.engine.layout.argmax as usize, best);
            self.engine.io.memory.write(self.engine.layout.stops as usize, stops);
            self.engine.stats.host_bytes += (best.len() + stops.len()) as u64;
            self.write_waiting(slot, waiting);
            // The text goes on as long as drafts are of use.
            let left = waiting as u32 + n + 1;
            let step = StepRegisters::step(from, waiting as u32);
            (ProgramKind::Round, step.with(Register::NLeft, left))
        };
        let registers = registers.with(Register::NCommit, n_commit).with(Register::DraftMax, n);
        self.engine.exec(program, slot, registers)?;
        if waiting > 0 {
            self.sequences[slot].seen(waiting, waiting as u32, self.width);
        }
        self.engine.read_drafts(n)
    }
}

impl Engine {
    /// The last step, of `program`, ran `tokens` of a sequence, of which it had the context before them, as
    /// rows from `first` on: keeps their features for a draft model on another device.
    pub(super) fn hand_features(
        &mut self,
        program: ProgramKind,
        slot: usize,
        first: usize,
        tokens: &[u32],
    ) -> Result<(), EngineError> {
        // The taps of all rows that the program has room for lie one after the other.
        let rows = match program {
            ProgramKind::Decode => 1,
            ProgramKind::Prefill => self.batch as usize,
            ProgramKind::Shared => self.shared_rows(),
            ProgramKind::Verify => MAX_VERIFY.min(self.n_ctx()) as usize,
            // They run no tokens of the host.
            ProgramKind::Round
            | ProgramKind::DraftBlock
            | ProgramKind::Inject
            | ProgramKind::Save
            | ProgramKind::Restore => return Ok(()),
        };
        let Some(placed) = &mut self.placed else { return Ok(()) };
        let (n_past, n_embd, width) =
            (self.sequences[slot].n_past, self.config.n_embd as usize, placed.width);
        let waiting = &mut placed.sequences[slot];
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
                let at = 4 * n_embd * (tap * rows + first + i);
                let part = &mut row[tap * n_embd..][..n_embd];
                self.io.memory.read(self.layout.probes as usize + at, part.as_mut_bytes());
            }
        }
        self.stats.host_bytes += (4 * width * tokens.len()) as u64;
        let batch = placed.engine.batch as usize;
        if placed.sequences[slot].tokens.len() > batch.max(MAX_VERIFY as usize) {
            placed.hand_over(slot, MAX_VERIFY as usize)?;
        }
        Ok(())
    }
}

impl Sequence<'_> {
    /// As [`draft`](Self::draft), on the draft model's own device.
    pub(super) fn draft_elsewhere(&mut self, anchor: u32, n: u32) -> Result<DraftBlock, EngineError> {
        self.admit_drafts(anchor, n)?;
        let (slot, n_past) = (self.slot, self.n_past());
        let placed = self.engine.placed.as_mut().ok_or(EngineError::Without { what: "a draft model" })?;
        placed.draft(slot, n_past, anchor, n)
    }
}
