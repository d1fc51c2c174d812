//! A sequence: one text in an engine, and what can be done with it.

use std::time::Instant;

use hexflash_abi::registers::{Register, StepRegisters};

use super::block::DraftBlock;
use super::engine::Engine;
use super::pictures::{PictureRows, PictureStore};
use super::state::{Health, Outputs, SequenceState};
use crate::model::{Encoder, MAX_SHARED, MAX_VERIFY, is_picture_row};
use crate::runtime::error::EngineError;
use crate::runtime::id::SequenceId;
use crate::runtime::kind::ProgramKind;
use crate::setting::Setting;

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
    /// Number of the sequence.
    pub fn id(&self) -> SequenceId {
        SequenceId::new(self.slot as u32)
    }

    /// Engine that the sequence is part of.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Engine that the sequence is part of. Steps of other sequences end the life of this one's logits.
    pub fn engine_mut(&mut self) -> &mut Engine {
        self.engine
    }

    /// View of the same sequence for a shorter time.
    pub fn reborrow(&mut self) -> Sequence<'_> {
        Sequence { engine: self.engine, slot: self.slot }
    }

    pub(super) fn state(&self) -> &SequenceState {
        &self.engine.texts[self.slot]
    }

    pub(super) fn state_mut(&mut self) -> &mut SequenceState {
        &mut self.engine.texts[self.slot]
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
    /// position 0.
    pub fn reset(&mut self) {
        // Their context is forgotten, and so is what went wrong with them.
        if let Err(error) = self.end_rounds() {
            tracing::debug!("while rounds were ended: {error}");
        }
        self.state_mut().clear();
        self.engine.pending.forget(self.slot);
        self.engine.snapshots.forget_after(self.slot, 0);
    }

    /// Runs a prompt, a batch at a time; afterwards row 0 has the logits after its last token. `progress`
    /// gets the tokens done.
    ///
    /// # Errors
    /// The context is too small, a token is not in the vocabulary, or the device failed.
    pub fn prefill(&mut self, tokens: &[u32], mut progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.admit_prompt(tokens)?;
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
        let first = *tokens.first().ok_or(EngineError::NoTokens)?;
        if self.state().n_commit > 0 && !is_picture_row(first) {
            // Prefill needs the memory of what is still to be committed: a plain step does that.
            return self.decode(first).map(|()| 1);
        }
        let batch = self.engine.batch() as usize;
        let at_once = self.engine.encoder().map_or(0, Encoder::rows_at_once) as usize;
        let (piece, picture) = self.engine.pictures.run(tokens, [batch, batch.max(at_once)]);
        self.admit_prompt(piece)?;
        let is_whole = |(tile, _): &(PictureRows, usize)| tile.ids().len() == piece.len();
        if at_once > 0 && !picture.as_ref().is_none_or(is_whole) {
            return Err(EngineError::PartOfPicture);
        }
        self.catch_up()?;
        let program = match picture {
            None => ProgramKind::Prefill,
            Some((tile, at)) => {
                let width = self.engine.config().n_embd as usize;
                let rows = &tile.values()[at * width..(at + piece.len()) * width];
                self.engine.runtime.write_picture(rows);
                ProgramKind::Picture
            }
        };
        self.step(program, piece)?;
        self.engine.hand_features(program, self.slot, 0, piece)?;
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
        if !self.engine.pending.has_room(slot) {
            self.engine.flush_pending()?;
        }
        self.step(ProgramKind::Decode, &[token])?;
        self.engine.hand_features(ProgramKind::Decode, slot, 0, &[token])?;
        let n_commit = self.state().n_commit;
        self.state_mut().advance(&[token]);
        if self.engine.runtime.draft().is_some() {
            self.engine.pending.add(slot, n_commit);
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
        if self.engine.speculates() {
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
        self.engine.must_speculate()?;
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

    /// That `tokens` can be run next, as tokens and not as rows of pictures. Rounds of this sequence end
    /// here, and those of another one wait.
    pub(crate) fn admit(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.admit_which(tokens, |_, _| false)
    }

    /// As [`admit`](Self::admit), for a prompt, which may have rows of pictures.
    pub(crate) fn admit_prompt(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.admit_which(tokens, PictureStore::has)
    }

    fn admit_which(
        &mut self,
        tokens: &[u32],
        is_row: impl Fn(&PictureStore, u32) -> bool,
    ) -> Result<(), EngineError> {
        self.usable()?;
        self.end_rounds()?;
        self.engine.displace_rounds()?;
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        let n_vocab = self.engine.config().n_vocab;
        let pictures = &self.engine.pictures;
        if let Some(&token) = tokens.iter().find(|&&t| t >= n_vocab && !is_row(pictures, t)) {
            return Err(EngineError::Token { token, n_vocab });
        }
        let (n_ctx, n_past) = (self.engine.n_ctx(), self.n_past());
        if tokens.len() > (n_ctx - n_past) as usize {
            let (wanted, n_ctx_train) = (tokens.len(), self.engine.config().n_ctx_train);
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
            ProgramKind::Prefill | ProgramKind::Picture => Some(tokens.len() as u32 - 1),
            ProgramKind::Decode => self.engine.speculates().then(|| self.engine.pending.len()),
            _ => None,
        };
        let (n_past, n_commit) = (self.n_past(), self.state().n_commit);
        let (engine, slot) = (&mut *self.engine, self.slot);
        if program != ProgramKind::Picture {
            engine.runtime.write_tokens(tokens);
        } else if engine.runtime.target().per_layer.is_some() {
            // What layers read of a token besides is that of token 0, a padding.
            engine.runtime.write_tokens(&vec![0; tokens.len()]);
        }
        if let Some(row) = row {
            engine.runtime.write_rows(&[row]);
        }
        let registers = StepRegisters::step(n_past, tokens.len() as u32);
        engine.texts.begin_step();
        engine.last_rows = tokens.len();
        engine.runtime.worked(start);
        engine.exec(program, slot, registers.with(Register::NCommit, n_commit))
    }

    /// The last step gave `n` rows of logits.
    fn gave(&mut self, n: usize) {
        self.engine.texts.gave(self.slot, 0, n);
    }

    /// The best token of a row of the sequence's last step: the first maximum, found on the device.
    ///
    /// # Panics
    /// If the last step of the engine gave no such row of this sequence.
    pub fn argmax(&mut self, row: usize) -> u32 {
        let row = self.engine.texts.output(self.slot, row);
        self.engine.runtime.best(row)
    }

    /// The logits of a row of the sequence's last step, `n_vocab` of them.
    ///
    /// # Panics
    /// If the last step of the engine gave no such row of this sequence.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        let row = self.engine.texts.output(self.slot, row);
        self.engine.runtime.logits(row)
    }

    /// Something else than a round comes next: reads rounds that are in flight. All that they emitted stays.
    pub(super) fn end_rounds(&mut self) -> Result<(), EngineError> {
        let Engine { runtime, texts, rounds, .. } = &mut *self.engine;
        if !rounds.are_of(self.slot) {
            return Ok(());
        }
        let outcome = rounds.drain(runtime, texts);
        rounds.close(texts, u32::MAX);
        outcome
    }

    /// Hands the features of plain steps to the draft model. The next step that drafts or verifies would
    /// otherwise do this.
    ///
    /// # Errors
    /// The device failed.
    pub fn catch_up(&mut self) -> Result<(), EngineError> {
        if self.engine.pending.are_of(self.slot) { self.engine.flush_pending() } else { Ok(()) }
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
            self.admit_drafts(anchor, n)?;
            let (slot, n_past) = (self.slot, self.n_past());
            let placed = self.engine.placed.as_mut().ok_or(EngineError::Without { what: "a draft model" })?;
            return placed.draft(slot, n_past, anchor, n);
        }
        self.run_draft(anchor, n)?;
        DraftBlock::drafted(&mut self.engine.runtime, n)
    }

    /// That `n` tokens can be drafted after `anchor`.
    fn admit_drafts(&mut self, anchor: u32, n: u32) -> Result<(), EngineError> {
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
        let block = self.engine.runtime.draft_block()?;
        self.admit_drafts(anchor, n)?;
        self.catch_up()?;
        self.engine.runtime.write_tokens(&[anchor]);
        let registers = StepRegisters::step(self.n_past(), block);
        let registers = registers
            .with(Register::NCommit, self.state().n_commit)
            .with(Register::DraftMax, n)
            .with(Register::NDraft, n);
        self.engine.exec(ProgramKind::DraftBlock, self.slot, registers)
    }

    /// Keeps a snapshot, if there is [room](crate::engine::EngineOptions::snapshot_bytes) for any, and
    /// returns how many tokens of the context are in it. Tokens of the last verification are not, as they are
    /// not in the states yet. Without recurrent states there is nothing to keep.
    ///
    /// # Errors
    /// The device failed.
    pub fn save(&mut self) -> Result<u32, EngineError> {
        self.end_rounds()?;
        self.usable()?;
        self.engine.displace_rounds()?;
        self.catch_up()?;
        let state = self.state();
        let n_past = state.n_past - state.n_commit;
        if n_past > 0
            && let Some(place) = self.engine.snapshots.place(self.slot, n_past)
        {
            self.copy_states(ProgramKind::Save, place)?;
            self.engine.snapshots.fill(place, self.slot, n_past);
        }
        Ok(n_past)
    }

    /// Takes back all tokens but the first `n`. What follows has the bits that it would have had, had those
    /// tokens never come. Recurrent states are restored from the best snapshot, and the tokens after it are
    /// computed again; without a snapshot all `n` are. So are they where a cache that keeps a window only has
    /// lost what the next token sees. There are no logits afterwards.
    ///
    /// # Errors
    /// The context has fewer tokens, or the device failed.
    pub fn roll_back(&mut self, n: u32) -> Result<(), EngineError> {
        self.end_rounds()?;
        self.usable()?;
        self.engine.displace_rounds()?;
        let (n_past, n_commit) = (self.n_past(), self.state().n_commit);
        if n > n_past {
            return Err(EngineError::RollBack { wanted: n, n_past });
        }
        self.catch_up()?;
        let slot = self.slot;
        self.engine.snapshots.forget_after(slot, n);
        let in_states = n_past - n_commit;
        let state = self.state_mut();
        (state.verified, state.outputs) = (DraftBlock::default(), Outputs::default());
        let has_windows = self.has_windows(n);
        self.state_mut().written = self.written();
        let is_in_states = !self.engine.runtime.has_states() || n >= in_states;
        if n == n_past || is_in_states && has_windows {
            // Tokens that are on the tape, and not in the states, are cut off there.
            let state = self.state_mut();
            state.history.truncate(n as usize);
            (state.n_past, state.n_commit) = (n, n.saturating_sub(in_states));
            return Ok(());
        }
        let best = self.engine.snapshots.best(slot, n).filter(|&(_, from)| self.has_windows(from));
        let from = match best {
            Some((place, from)) => {
                self.copy_states(ProgramKind::Restore, place)?;
                from
            }
            None => 0,
        };
        let state = self.state_mut();
        if from == 0 {
            state.written = 0;
        }
        let again = state.history[from as usize..n as usize].to_vec();
        state.history.truncate(from as usize);
        (state.n_past, state.n_commit) = (from, 0);
        if !again.is_empty() {
            self.prefill(&again, |_| ())?;
            self.state_mut().outputs = Outputs::default();
        }
        Ok(())
    }

    /// The most tokens, at most `n`, to which the sequence can be [rolled back](Self::roll_back) without
    /// computing any of them again.
    pub fn reach(&self, n: u32) -> u32 {
        let (n_past, n_commit) = (self.n_past(), self.state().n_commit);
        if self.usable().is_err() {
            0
        } else if n >= n_past {
            n_past
        } else {
            let is_in_states = !self.engine.runtime.has_states() || n >= n_past - n_commit;
            let most = if is_in_states { n } else { self.engine.snapshots.longest(self.slot, n) };
            if self.has_windows(most) { most } else { 0 }
        }
    }

    /// Tokens of a prompt that the context begins with: all but the last at most, for the text after the
    /// prompt begins with the logits of that one.
    pub fn common(&self, prompt: &[u32]) -> usize {
        let most = prompt.len().saturating_sub(1);
        self.history().iter().zip(&prompt[..most]).take_while(|(a, b)| a == b).count()
    }

    /// Takes back from the context what a prompt does not begin with, and as much more as computes no token
    /// again; returns how many tokens of the prompt are left to be used, at most those in
    /// [common](Self::common).
    ///
    /// # Errors
    /// As [`roll_back`](Self::roll_back).
    pub fn keep_common(&mut self, prompt: &[u32]) -> Result<usize, EngineError> {
        let reach = self.reach(self.common(prompt) as u32);
        self.roll_back(reach)?;
        Ok(reach as usize)
    }

    /// Positions below it may have been written: no step of which tokens were taken back was wider.
    pub(super) fn written(&self) -> u32 {
        self.state().written.max(self.n_past() + MAX_SHARED)
    }

    /// Whether KV rings have what a token at position `n` sees: they hold the last positions that were
    /// written.
    fn has_windows(&self, n: u32) -> bool {
        self.engine.kept().kv_ring_slack.is_none_or(|slack| n.saturating_add(slack) >= self.written())
    }

    fn copy_states(&mut self, program: ProgramKind, place: usize) -> Result<(), EngineError> {
        // The program has one row, which no op reads.
        let registers = StepRegisters::step(0, 1).with(Register::Snapshot, place as u32);
        self.engine.exec(program, self.slot, registers)
    }

    /// Computes the context again, on a device that knows nothing of it.
    pub(super) fn rebuild(&mut self) -> Result<(), EngineError> {
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

/// That a step that gives all of its rows is not too wide.
pub(super) fn too_wide(tokens: &[u32]) -> Result<(), EngineError> {
    if tokens.len() <= MAX_VERIFY as usize {
        return Ok(());
    }
    let allowed = format!("at most {MAX_VERIFY}");
    Err(EngineError::Setting { setting: Setting::StepWidth, allowed, found: tokens.len() as u64 })
}

impl Engine {
    /// A sequence.
    ///
    /// # Errors
    /// [`EngineError::NoSequence`]: the engine has fewer.
    pub fn sequence(&mut self, id: SequenceId) -> Result<Sequence<'_>, EngineError> {
        let slot = self.slot(id)?;
        Ok(Sequence { engine: self, slot })
    }
}
