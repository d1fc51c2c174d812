//! Speculative rounds: a block is drafted, verified and accepted on the device, one message a round.
//!
//! The device advances the registers itself, so that the next round can be sent before this one has been
//! read. What a round emits stands in shared memory, in two places by turns (see [`hexflash_abi::accept`]).
//!
//! [`Rounds`] is a guard: as long as it lives, the engine does nothing else. It can be
//! [suspended](Rounds::suspend) with rounds in flight, for callers that hand out a token at a time. Any other
//! call of the engine then first reads what is in flight.

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::Instant;

use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, ROUND, SLOTS};
use hexflash_abi::registers::{Halt, Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault, Seq, Status};
use zerocopy::IntoBytes;

use super::programs::Program;
use super::{Engine, EngineError, Spec};
use crate::device::DeviceError;
use crate::model::{IoLayout, KeptLayout, MAX_STOPS, MAX_VERIFY, ROUND_WORDS};
use crate::setting::Setting;

/// The limits of a series of rounds.
#[derive(Clone, Copy, Debug)]
pub struct RoundLimits<'a> {
    /// Tokens to draft per round, at least 1. The draft model's block less one is the most that is used.
    pub draft_max: u32,
    /// Tokens to emit in all; at least 1.
    pub tokens: u32,
    /// Ids that end the generation.
    pub stops: &'a [u32],
}

/// A few tokens: those that were drafted, or those that a round emitted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    n: usize,
    ids: [u32; MAX_VERIFY as usize],
}

impl Deref for Block {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ids[..self.n]
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundReport {
    /// Drafts that were verified.
    pub drafted: u32,
    /// Tokens emitted: the drafts accepted, and the target's next one.
    pub tokens: Block,
    /// Whether there can be more rounds.
    pub halt: Halt,
}

/// Rounds under way.
pub(super) struct State {
    /// Rounds were begun, and have not been finished.
    open: bool,
    in_flight: VecDeque<Seq>,
    /// Number of the next round to be read.
    next: u32,
    halt: Halt,
    /// Tokens of the last report that may still be taken back.
    emitted: u32,
    /// The last token of the text, which is not in the context yet.
    anchor: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: false,
            in_flight: VecDeque::with_capacity(SLOTS),
            next: 0,
            halt: Halt::Finished,
            emitted: 0,
            anchor: 0,
        }
    }
}

impl Spec {
    /// Fills the tables that programs only read.
    pub(super) fn write_tables(&self, kept: &KeptLayout) {
        let (Some(draft), Some(buffer)) = (&self.draft, &self.buffer) else { return };
        for (label, values) in draft.tables() {
            buffer.memory.write(kept.place(&label).offset as usize, values.as_bytes());
        }
    }
}

impl Engine {
    pub(super) fn spec(&mut self) -> Result<&mut Spec, EngineError> {
        self.spec.as_mut().ok_or(EngineError::Without { what: "speculation" })
    }

    /// Tokens of a block of the draft, and what speculation adds.
    fn drafting(&mut self) -> Result<(u32, &mut Spec), EngineError> {
        let block = self.draft_model().map(|draft| draft.block());
        let block = block.ok_or(EngineError::Without { what: "a draft model" })?;
        Ok((block, self.spec()?))
    }

    /// Hands the features of plain steps to the draft model. The next step that drafts or verifies would
    /// otherwise do this.
    ///
    /// # Errors
    /// The device failed.
    pub fn catch_up(&mut self) -> Result<(), EngineError> {
        let Some(pending) = self.spec.as_ref().map(|spec| spec.pending).filter(|&n| n > 0) else {
            return Ok(());
        };
        self.exec(Program::Inject, StepRegisters::step(self.n_past - pending, pending))?;
        self.spec()?.pending = 0;
        Ok(())
    }

    /// The most tokens that can be drafted now: 0 if the context has no room for a block.
    pub fn draft_room(&self) -> u32 {
        match self.draft_model() {
            Some(draft) if self.n_ctx() - self.n_past >= draft.block() => draft.block() - 1,
            _ => 0,
        }
    }

    /// Guesses `n` tokens after `anchor`, the last token of the text, which is not in the context yet.
    ///
    /// # Errors
    /// There is no draft model, `n` is not 1 to [`draft_room`](Self::draft_room), or the device failed.
    pub fn draft(&mut self, anchor: u32, n: u32) -> Result<Block, EngineError> {
        self.run_draft(anchor, n)?;
        self.read_drafts(n)
    }

    /// The first `n` tokens that the draft guessed last, at most a block less one.
    fn read_drafts(&mut self, n: u32) -> Result<Block, EngineError> {
        let (block, spec) = self.drafting()?;
        let mut drafts = Block { n: n.min(block - 1) as usize, ..Block::default() };
        let buffer = spec.buffer.as_ref().ok_or(EngineError::Without { what: "a draft model" })?;
        buffer.memory.read(spec.drafts_at, drafts.ids[..drafts.n].as_mut_bytes());
        self.stats.host_bytes += 4 * drafts.n as u64;
        Ok(drafts)
    }

    /// Reads the margins of the tokens of the last [`draft`](Self::draft), as many as `margins` has places
    /// for. A margin is how far the logit of a draft is above all others.
    pub fn read_margins(&mut self, margins: &mut [f32]) {
        let n = margins.len().min(MAX_VERIFY as usize);
        self.io.memory.read(self.layout.margins as usize, margins[..n].as_mut_bytes());
        self.stats.host_bytes += 4 * n as u64;
    }

    /// Drafts on the device, for a round or for [`draft`](Self::draft).
    fn run_draft(&mut self, anchor: u32, n: u32) -> Result<(), EngineError> {
        let (block, _) = self.drafting()?;
        self.admit(&[anchor])?;
        let room = self.draft_room();
        if !(1..=room).contains(&n) {
            let allowed = format!("1 to {room}");
            return Err(EngineError::Setting { setting: Setting::DraftLength, allowed, found: n.into() });
        }
        self.catch_up()?;
        self.io.memory.write(self.layout.tokens as usize, anchor.as_bytes());
        self.stats.host_bytes += 4;
        let registers = StepRegisters::step(self.n_past, block);
        self.exec(Program::Draft, registers.with(Register::DraftMax, n).with(Register::NDraft, n))
    }

    /// Begins rounds after `anchor`, the last token of the text, which is not in the context yet: drafts the
    /// first block. `None` if the context has no room for one.
    ///
    /// # Errors
    /// There is no draft model, a limit is out of range, or the device failed.
    pub fn rounds(
        &mut self,
        anchor: u32,
        limits: &RoundLimits<'_>,
    ) -> Result<Option<Rounds<'_>>, EngineError> {
        let (block, _) = self.drafting()?;
        let refuse =
            |setting, allowed: String, found: u64| Err(EngineError::Setting { setting, allowed, found });
        if limits.draft_max == 0 {
            return refuse(Setting::DraftLength, "at least 1".to_owned(), 0);
        }
        if limits.tokens == 0 {
            return refuse(Setting::MaxTokens, "at least 1".to_owned(), 0);
        }
        if limits.stops.len() > MAX_STOPS as usize {
            let allowed = format!("at most {MAX_STOPS}");
            return refuse(Setting::StopTokens, allowed, limits.stops.len() as u64);
        }
        if self.draft_room() == 0 {
            return Ok(None);
        }
        let most = limits.draft_max.min(block - 1);
        let n = limits.tokens.saturating_sub(1).min(most).max(1);
        self.run_draft(anchor, n)?;

        let mut stops = [-1i32; MAX_STOPS as usize];
        for (slot, &id) in stops.iter_mut().zip(limits.stops) {
            *slot = id as i32;
        }
        self.io.memory.write(self.layout.stops as usize, stops.as_bytes());
        self.stats.host_bytes += size_of_val(&stops) as u64;
        let registers = StepRegisters::step(self.n_past, 1 + n)
            .with(Register::NCommit, self.n_commit)
            .with(Register::NDraft, n)
            .with(Register::DraftMax, most)
            .with(Register::NLeft, limits.tokens);
        self.write_registers(&registers);
        let rounds = &mut self.spec()?.rounds;
        (rounds.next, rounds.halt, rounds.emitted) = (0, Halt::Running, 0);
        (rounds.anchor, rounds.open) = (anchor, true);
        Ok(Some(Rounds { engine: self }))
    }

    /// Goes on with rounds that were [suspended](Rounds::suspend). `None` if there are none, or if the engine
    /// has done something else since, which ended them.
    pub fn resume_rounds(&mut self) -> Option<Rounds<'_>> {
        self.spec.as_ref().is_some_and(|spec| spec.rounds.open).then(|| Rounds { engine: self })
    }

    fn rounds_in_flight(&self) -> usize {
        self.spec.as_ref().map_or(0, |spec| spec.rounds.in_flight.len())
    }

    /// Something else than a round comes next: reads rounds that are in flight. All that they emitted stays.
    pub(super) fn end_rounds(&mut self) -> Result<(), EngineError> {
        if self.spec.as_ref().is_none_or(|spec| !spec.rounds.open) {
            return Ok(());
        }
        let outcome = self.drain_rounds();
        self.close_rounds(u32::MAX);
        outcome
    }

    fn drain_rounds(&mut self) -> Result<(), EngineError> {
        while self.next_round()?.is_some() {}
        Ok(())
    }

    /// Keeps the first `n` tokens of the last report, and forgets the rounds.
    fn close_rounds(&mut self, n: u32) {
        let Some(spec) = &mut self.spec else { return };
        let emitted = spec.rounds.emitted;
        (spec.rounds.open, spec.rounds.emitted, spec.rounds.halt) = (false, 0, Halt::Finished);
        let n = n.min(emitted);
        // If no round has emitted anything, the tokens to commit are still those from before the rounds.
        if emitted > 0 {
            self.n_past -= emitted - n;
            self.n_commit = n;
            self.history.truncate(self.n_past as usize);
        }
    }

    /// Waits for the next round in flight.
    fn next_round(&mut self) -> Result<Option<RoundReport>, EngineError> {
        let Some(seq) = self.spec()?.rounds.in_flight.pop_front() else { return Ok(None) };
        if let Err(error) = self.finish(Program::Round, seq) {
            let behind = std::mem::take(&mut self.spec()?.rounds.in_flight);
            if !error.is_loss() {
                // The device answers nevertheless, and another text must not find those answers.
                let patience = self.device.patience();
                behind.iter().try_for_each(|_| self.device.wait(patience).map(drop))?;
            }
            return Err(error);
        }
        let start = Instant::now();
        let rounds = &self.spec()?.rounds;
        let (number, halt) = (rounds.next, rounds.halt);
        if halt != Halt::Running {
            return Ok(Some(RoundReport { drafted: 0, tokens: Block::default(), halt }));
        }
        let mut words = [0u32; ROUND_WORDS as usize];
        let at = self.layout.rounds as usize + number as usize % SLOTS * 4 * ROUND_WORDS as usize;
        self.io.memory.read(at, words.as_mut_bytes());
        self.stats.host_bytes += size_of_val(&words) as u64;
        let emitted = words[EMITTED];
        let halt = Halt::parse(words[HALT]);
        let sound = words[ROUND] == number
            && (1..=words[DRAFTED].saturating_add(1)).contains(&emitted)
            && HEAD as u32 + emitted <= ROUND_WORDS;
        let Some(halt) = halt.filter(|_| sound) else {
            self.broken = true;
            let fault = Fault::new(ErrorCode::BadMessage, words[ROUND]);
            let request = hexflash_abi::message::MessageKind::Exec;
            return Err(DeviceError::fault(request, Status::Fatal, fault).into());
        };
        let mut tokens = Block { n: emitted as usize, ..Block::default() };
        tokens.ids[..tokens.n].copy_from_slice(&words[HEAD..][..tokens.n]);
        let report = RoundReport { drafted: words[DRAFTED], tokens, halt };
        let rounds = &mut self.spec()?.rounds;
        (rounds.next, rounds.halt, rounds.emitted) = (number.wrapping_add(1), halt, emitted);
        let last = report.tokens.last().copied().unwrap_or_default();
        let anchor = std::mem::replace(&mut rounds.anchor, last);
        self.history.push(anchor);
        self.history.extend(&report.tokens[..report.tokens.len() - 1]);
        self.n_past += emitted;
        self.n_commit = emitted;
        self.rows = 0;
        self.stats.host += start.elapsed();
        Ok(Some(report))
    }
}

/// Rounds under way: the engine does nothing else as long as this lives.
///
/// ```no_run
/// # use hexflash::engine::{Engine, EngineError, RoundLimits};
/// fn two_rounds(engine: &mut Engine, anchor: u32) -> Result<Vec<u32>, EngineError> {
///     let limits = RoundLimits { draft_max: 7, tokens: 100, stops: &[] };
///     let mut text = Vec::new();
///     if let Some(mut rounds) = engine.rounds(anchor, &limits)? {
///         // Both are on their way before the first one is read.
///         rounds.submit()?;
///         rounds.submit()?;
///         while let Some(report) = rounds.next()? {
///             text.extend_from_slice(&report.tokens);
///         }
///     }
///     engine.decode(text[text.len() - 1])?;
///     Ok(text)
/// }
/// ```
///
/// A plain step between two rounds would run on states that the device has moved on. It does not compile:
///
/// ```compile_fail
/// # use hexflash::engine::{EngineError, Rounds, Engine};
/// fn step_between(engine: &mut Engine) -> Result<(), EngineError> {
///     let Some(mut rounds) = engine.resume_rounds() else { return Ok(()) };
///     engine.decode(1)?;
///     rounds.submit()?;
///     Ok(())
/// }
/// ```
///
/// Nor does it compile to go on with rounds that are finished, or to change drafts that a round in flight
/// reads:
///
/// ```compile_fail
/// # use hexflash::engine::{EngineError, Rounds};
/// fn after_the_end(mut rounds: Rounds<'_>) -> Result<(), EngineError> {
///     rounds.finish(1)?;
///     rounds.submit()?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail
/// # use hexflash::engine::{EngineError, Rounds};
/// fn drafts_in_flight(mut rounds: Rounds<'_>) -> Result<(), EngineError> {
///     let Some(mut idle) = rounds.idle() else { return Ok(()) };
///     rounds.submit()?;
///     idle.set_drafts(1, 3)
/// }
/// ```
///
/// Dropping it reads what is in flight and keeps all that was emitted.
pub struct Rounds<'e> {
    engine: &'e mut Engine,
}

impl Rounds<'_> {
    /// The engine, for reading.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// The number of rounds that were sent and not read.
    pub fn in_flight(&self) -> usize {
        self.engine.rounds_in_flight()
    }

    /// Sends a round, unless two are in flight or the text has ended; returns whether it was sent.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn submit(&mut self) -> Result<bool, EngineError> {
        let engine = &mut *self.engine;
        engine.usable()?;
        let start = Instant::now();
        let rounds = &engine.spec()?.rounds;
        if rounds.halt != Halt::Running || rounds.in_flight.len() == SLOTS {
            return Ok(false);
        }
        match engine.submit(Program::Round) {
            Ok(seq) => engine.spec()?.rounds.in_flight.push_back(seq),
            Err(error) => {
                if error.is_loss() {
                    // What is in flight is not answered any more, and must not be waited for.
                    engine.spec()?.rounds.in_flight.clear();
                }
                return Err(error);
            }
        }
        engine.stats.host += start.elapsed();
        Ok(true)
    }

    /// Waits for the next round and returns its report, which has no tokens if the text had ended before it.
    /// `None` if no round is in flight.
    ///
    /// # Errors
    /// The device failed; then the context is lost.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot be asked for more rounds in between"
    )]
    pub fn next(&mut self) -> Result<Option<RoundReport>, EngineError> {
        self.engine.next_round()
    }

    /// Access to the drafts of the next round, which is possible while no round is in flight; `None` while
    /// one is.
    pub fn idle(&mut self) -> Option<IdleRounds<'_>> {
        (self.in_flight() == 0).then_some(IdleRounds { engine: &mut *self.engine })
    }

    /// Releases the engine and leaves rounds in flight; [`Engine::resume_rounds`] goes on with them.
    pub fn suspend(self) {
        std::mem::forget(self);
    }

    /// Ends the rounds, and keeps the first `n` tokens that the last one emitted, or all of them if there are
    /// fewer. A text that stops within a round is cut in this way. Plain steps and new rounds go on from
    /// there.
    ///
    /// Rounds in flight are read first. What they emitted cannot be cut: then all of it stays.
    ///
    /// # Errors
    /// The device failed while rounds in flight were read. The tokens are cut nevertheless.
    pub fn finish(self, n: u32) -> Result<(), EngineError> {
        let mut rounds = ManuallyDrop::new(self);
        let engine = &mut *rounds.engine;
        let before = engine.n_past;
        let outcome = engine.drain_rounds();
        engine.close_rounds(if engine.n_past == before { n } else { u32::MAX });
        outcome
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        // A device that failed says so again at the next step: the engine is broken from here on.
        if let Err(error) = self.engine.end_rounds() {
            tracing::debug!("while rounds were ended: {error}");
        }
    }
}

impl fmt::Debug for Rounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Rounds of which none is in flight, so that the drafts of the next one can be read and cut.
pub struct IdleRounds<'r> {
    engine: &'r mut Engine,
}

impl IdleRounds<'_> {
    /// The first `n` tokens that are drafted for the next round, at most a block less one.
    ///
    /// # Errors
    /// There is no draft model.
    pub fn drafts(&mut self, n: u32) -> Result<Block, EngineError> {
        self.engine.read_drafts(n)
    }

    /// Reads the margins of the drafts of the next round, as many as `margins` has places for. A margin is
    /// how far the logit of a draft is above all others.
    pub fn margins(&mut self, margins: &mut [f32]) {
        self.engine.read_margins(margins);
    }

    /// Cuts the drafts of the next round to `now`, and lets the rounds from then on draft up to `next`
    /// tokens, at most a block less one. Drafts that are there already do not become more.
    ///
    /// # Errors
    /// A length is 0, or `now` is more than `next`.
    pub fn set_drafts(&mut self, now: u32, next: u32) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        let (block, _) = engine.drafting()?;
        let next = next.min(block - 1);
        if !(1..=next).contains(&now) {
            let allowed = format!("1 to {next}");
            return Err(EngineError::Setting { setting: Setting::DraftLength, allowed, found: now.into() });
        }
        let mut registers = StepRegisters::default();
        engine.io.memory.read(IoLayout::REGISTERS as usize, registers.as_mut_bytes());
        let drafted = registers.get(Register::NDraft);
        if (drafted.min(now), next) == (drafted, registers.get(Register::DraftMax)) {
            return Ok(());
        }
        let now = drafted.min(now);
        let registers = registers
            .with(Register::DraftMax, next)
            .with(Register::NDraft, now)
            .with(Register::NTokens, 1 + now);
        engine.write_registers(&registers);
        Ok(())
    }
}
