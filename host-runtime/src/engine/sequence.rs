//! A sequence: one text in an engine, and what can be done with it.

use std::fmt;
use std::time::Instant;

use hexflash_abi::registers::{Register, StepRegisters};
use zerocopy::IntoBytes;

use super::programs::ProgramKind;
use super::{DraftBlock, Engine, EngineError, Pending};
use crate::model::{MAX_PENDING, MAX_VERIFY};
use crate::setting::Setting;

/// A sequence of an engine, by number. It is good for every engine that has so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u32);

impl SequenceId {
    /// The sequence that every engine has.
    pub const FIRST: Self = Self(0);

    /// Sequence number `n`, from 0.
    pub const fn new(n: u32) -> Self {
        Self(n)
    }

    /// The first `n` sequences.
    pub(super) fn first(n: usize) -> impl ExactSizeIterator<Item = Self> {
        // An engine has no more than MAX_SLOTS.
        (0..n as u32).map(Self)
    }

    /// Its slot on the device.
    pub(super) const fn slot(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}", self.0)
    }
}

/// Whether a sequence's caches and states are those of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// They are.
    Sound,
    /// The device was lost. It can be started again, and the tokens can be computed again.
    Lost,
    /// A step failed half-way. It would fail again.
    Damaged,
}

impl Health {
    /// What a failed step leaves.
    pub(super) fn after(error: &EngineError) -> Self {
        if error.is_loss() { Self::Lost } else { Self::Damaged }
    }
}

/// What the host knows of a sequence.
pub(super) struct SequenceState {
    pub(super) n_past: u32,
    /// Positions below it may have been written, though the context may have been cut back since.
    pub(super) written: u32,
    /// Tokens of the context that are on the tape and not in the recurrent states.
    pub(super) n_commit: u32,
    /// Tokens of the last verification, until a commit says how many of them stay.
    pub(super) verified: DraftBlock,
    pub(super) health: Health,
    /// The rows of logits of its last step.
    pub(super) outputs: Outputs,
    /// The tokens of the context, `n_past` of them.
    pub(super) history: Vec<u32>,
}

/// Rows of logits in shared memory, until the next step overwrites them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outputs {
    /// The step that wrote them, counted from 1.
    step: u64,
    first: usize,
    n: usize,
}

impl SequenceState {
    /// A sequence without tokens, with memory for so many.
    pub(super) fn new(room: u32) -> Self {
        Self {
            n_past: 0,
            written: 0,
            n_commit: 0,
            verified: DraftBlock::default(),
            health: Health::Sound,
            outputs: Outputs::default(),
            history: Vec::with_capacity(room as usize),
        }
    }

    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        (self.n_past, self.written, self.n_commit, self.health) = (0, 0, 0, Health::Sound);
        (self.verified, self.outputs) = (DraftBlock::default(), Outputs::default());
        self.history.clear();
    }

    /// All tokens of a step are in the states.
    pub(super) fn advance(&mut self, tokens: &[u32]) {
        (self.n_past, self.n_commit) = (self.n_past + tokens.len() as u32, 0);
        self.history.extend(tokens);
    }

    /// The tokens of a step are on the tape, until a commit says how many of them stay.
    pub(super) fn defer(&mut self, tokens: &[u32]) {
        (self.n_commit, self.verified) = (0, DraftBlock::new(tokens));
    }
}

/// One text in an engine: a view, through which its steps are run.
///
/// ```no_run
/// # use hexflash::engine::{Engine, EngineError};
/// fn best_of_each(engine: &mut Engine, prompts: &[Vec<u32>]) -> Result<Vec<u32>, EngineError> {
///     let ids = engine.sequences();
///     ids.zip(prompts)
///         .map(|(id, prompt)| {
///             let mut sequence = engine.sequence(id)?;
///             sequence.prefill(prompt, |_| ())?;
///             Ok(sequence.argmax(0))
///         })
///         .collect()
/// }
/// ```
pub struct Sequence<'e> {
    pub(super) engine: &'e mut Engine,
    pub(super) slot: usize,
}

impl Sequence<'_> {
    /// Its number.
    pub fn id(&self) -> SequenceId {
        SequenceId(self.slot as u32)
    }

    /// Its engine.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Its engine. Steps of other sequences end the life of this one's logits.
    pub fn engine_mut(&mut self) -> &mut Engine {
        self.engine
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> Sequence<'_> {
        Sequence { engine: self.engine, slot: self.slot }
    }

    pub(super) fn state(&self) -> &SequenceState {
        &self.engine.sequences[self.slot]
    }

    pub(super) fn state_mut(&mut self) -> &mut SequenceState {
        &mut self.engine.sequences[self.slot]
    }

    /// Number of tokens in the context.
    pub fn n_past(&self) -> u32 {
        self.state().n_past
    }

    /// The tokens of the context, [`n_past`](Self::n_past) of them.
    pub fn history(&self) -> &[u32] {
        &self.state().history
    }

    /// Forgets all tokens, and the snapshots of them. Nothing is cleared: states are taken as zero at
    /// position
    /// 0.
    pub fn reset(&mut self) {
        // Their context is forgotten, and so is what went wrong with them.
        if let Err(error) = self.end_rounds() {
            tracing::debug!("while rounds were ended: {error}");
        }
        self.state_mut().clear();
        self.forget_pending();
        self.engine.snapshots.forget_after(self.slot, 0);
    }

    /// Runs a prompt, a batch at a time; afterwards row 0 has the logits after its last token. `progress`
    /// gets the tokens done.
    ///
    /// # Errors
    /// The context is too small, a token is not in the vocabulary, or the device failed.
    pub fn prefill(&mut self, tokens: &[u32], mut progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.admit(tokens)?;
        let mut done = 0;
        while done < tokens.len() {
            done += self.prefill_piece(&tokens[done..])?;
            progress(done);
        }
        Ok(())
    }

    /// Runs as many tokens of a prompt as one step takes, at most a batch, and gives how many they were;
    /// afterwards row 0 has the logits after the last of them. The rest, or another prompt, can follow at any
    /// time.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), for the tokens of this step.
    pub fn prefill_piece(&mut self, tokens: &[u32]) -> Result<usize, EngineError> {
        self.end_rounds()?;
        if self.state().n_commit > 0 {
            // Prefill needs the memory of what is still to be committed: a plain step does that.
            let one = tokens.first().ok_or(EngineError::NoTokens)?;
            return self.decode(*one).map(|()| 1);
        }
        let piece = &tokens[..tokens.len().min(self.engine.batch as usize)];
        self.admit(piece)?;
        self.catch_up()?;
        self.step(ProgramKind::Prefill, piece)?;
        self.engine.hand_features(ProgramKind::Prefill, self.slot, 0, piece)?;
        self.state_mut().advance(piece);
        self.gave(1);
        Ok(piece.len())
    }

    /// Runs one token; afterwards row 0 has the logits after it.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: u32) -> Result<(), EngineError> {
        self.admit(&[token])?;
        let slot = self.slot;
        if self.engine.pending().is_some_and(|pending| pending.slot != slot || pending.n == MAX_PENDING) {
            self.engine.flush_pending()?;
        }
        self.step(ProgramKind::Decode, &[token])?;
        self.engine.hand_features(ProgramKind::Decode, slot, 0, &[token])?;
        let n_commit = self.state().n_commit;
        self.state_mut().advance(&[token]);
        if let Some(spec) = self.engine.spec.as_mut().filter(|spec| spec.draft.is_some()) {
            spec.pending.get_or_insert(Pending { slot, n: 0, n_commit }).n += 1;
        }
        self.gave(1);
        Ok(())
    }

    /// Runs up to [`MAX_VERIFY`] tokens; afterwards row i has the logits after token i.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill); there are too many tokens.
    pub fn decode_many(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.wide_step(tokens)?;
        if self.engine.spec.is_some() {
            self.state_mut().defer(tokens);
            return self.commit(tokens.len() as u32);
        }
        self.state_mut().advance(tokens);
        Ok(())
    }

    /// Runs tokens as [`decode_many`](Self::decode_many) does, but none of them becomes part of the context
    /// until [`commit`](Self::commit) says how many do. Any other step of the sequence before that takes all
    /// of them back.
    ///
    /// # Errors
    /// As [`decode_many`](Self::decode_many); the engine was loaded without speculation.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.engine.spec()?;
        self.wide_step(tokens)?;
        self.state_mut().defer(tokens);
        Ok(())
    }

    /// Keeps the first `n` tokens of the last [`verify`](Self::verify) and takes the others back. The next
    /// step folds the kept tokens into the recurrent states.
    ///
    /// # Errors
    /// [`EngineError::Commit`] if fewer tokens were verified; nothing has changed then.
    pub fn commit(&mut self, n: u32) -> Result<(), EngineError> {
        let state = self.state_mut();
        let verified = state.verified.len();
        let kept = state.verified.get(..n as usize);
        let kept = kept.ok_or(EngineError::Commit { wanted: n as usize, verified })?;
        state.history.extend_from_slice(kept);
        state.n_past += n;
        state.n_commit = n;
        state.verified = DraftBlock::default();
        Ok(())
    }

    fn wide_step(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        too_wide(tokens)?;
        self.admit(tokens)?;
        self.catch_up()?;
        self.step(ProgramKind::Verify, tokens)?;
        self.engine.hand_features(ProgramKind::Verify, self.slot, 0, tokens)?;
        self.state_mut().n_commit = 0;
        self.gave(tokens.len());
        Ok(())
    }

    /// That `tokens` can be run next. Rounds of this sequence end here, and those of another one wait.
    pub(crate) fn admit(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.usable()?;
        self.end_rounds()?;
        self.engine.displace_rounds()?;
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        let n_vocab = self.engine.config.n_vocab;
        if let Some(&token) = tokens.iter().find(|&&t| t >= n_vocab) {
            return Err(EngineError::Token { token, n_vocab });
        }
        let (n_ctx, n_past) = (self.engine.n_ctx(), self.n_past());
        if tokens.len() > (n_ctx - n_past) as usize {
            let (wanted, n_ctx_train) = (tokens.len(), self.engine.config.n_ctx_train);
            return Err(EngineError::ContextFull { wanted, n_past, n_ctx, n_ctx_train });
        }
        self.state_mut().verified = DraftBlock::default();
        Ok(())
    }

    pub(super) fn usable(&self) -> Result<(), EngineError> {
        match self.state().health {
            Health::Sound => Ok(()),
            Health::Lost | Health::Damaged => Err(EngineError::Broken),
        }
    }

    /// One message: token ids and registers into shared memory, `Exec`, response.
    fn step(&mut self, program: ProgramKind, tokens: &[u32]) -> Result<(), EngineError> {
        let start = Instant::now();
        let row = match program {
            ProgramKind::Prefill => Some(tokens.len() as u32 - 1),
            ProgramKind::Decode => {
                self.engine.spec.as_ref().map(|spec| spec.pending.map_or(0, |pending| pending.n))
            }
            _ => None,
        };
        let (n_past, n_commit) = (self.n_past(), self.state().n_commit);
        let (engine, slot) = (&mut *self.engine, self.slot);
        engine.tokens.clear();
        // Ids are below n_vocab, which is below 2^20.
        engine.tokens.extend(tokens.iter().map(|&t| t as i32));
        let (ids, at) = (engine.tokens.as_bytes(), &engine.layout);
        engine.stats.host_bytes += ids.len() as u64;
        engine.io.memory.write(at.tokens as usize, ids);
        if let Some(row) = row {
            engine.stats.host_bytes += 4;
            engine.io.memory.write(at.row as usize, row.as_bytes());
        }
        let registers = StepRegisters::step(n_past, tokens.len() as u32);
        engine.steps += 1;
        engine.stats.host += start.elapsed();
        engine.exec(program, slot, registers.with(Register::NCommit, n_commit))
    }

    /// The last step gave `n` rows of logits.
    fn gave(&mut self, n: usize) {
        let step = self.engine.steps;
        self.state_mut().outputs = Outputs { step, first: 0, n };
    }

    /// The best token of a row of the sequence's last step: the first maximum, found on the device.
    ///
    /// # Panics
    /// If the last step of the engine gave no such row of this sequence.
    pub fn argmax(&mut self, row: usize) -> u32 {
        self.engine.argmax_of(self.slot, row)
    }

    /// The logits of a row of the sequence's last step, `n_vocab` of them.
    ///
    /// # Panics
    /// If the last step of the engine gave no such row of this sequence.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        self.engine.logits_of(self.slot, row)
    }
}

/// That a step that gives all of its rows is not too wide.
pub(super) fn too_wide(tokens: &[u32]) -> Result<(), EngineError> {
    if tokens.len() <= MAX_VERIFY as usize {
        return Ok(());
    }
    let allowed = format!("at most {MAX_VERIFY}");
    Err(EngineError::Setting { setting: Setting::StepWidth, allowed, found: tokens.len() as u64 })
}

impl Engine {
    /// The last step gave rows `first..first + n` for a sequence.
    pub(super) fn gave_rows(&mut self, slot: usize, first: usize, n: usize) {
        self.sequences[slot].outputs = Outputs { step: self.steps, first, n };
    }

    /// The number of a sequence's row among those of the last step.
    fn output(&self, slot: usize, row: usize) -> usize {
        let Outputs { step, first, n } = self.sequences[slot].outputs;
        let n = if step == self.steps { n } else { 0 };
        assert!(row < n, "row {row} of {n}");
        first + row
    }

    pub(super) fn argmax_of(&mut self, slot: usize, row: usize) -> u32 {
        let row = self.output(slot, row);
        let start = Instant::now();
        let mut best = [0; 4];
        self.io.memory.read(self.layout.argmax as usize + 4 * row, &mut best);
        self.stats.host_bytes += 4;
        self.stats.host += start.elapsed();
        i32::from_le_bytes(best) as u32
    }

    pub(super) fn logits_of(&mut self, slot: usize, row: usize) -> &[f32] {
        let row = self.output(slot, row);
        let at = self.layout.logits as usize + 4 * row * self.logits.len();
        self.io.memory.read(at, self.logits.as_mut_bytes());
        self.stats.host_bytes += 4 * self.logits.len() as u64;
        &self.logits
    }
}
