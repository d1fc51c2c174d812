//! Speculative rounds: a block is drafted, verified and accepted on the device, one message a round.
//!
//! The device advances the registers itself, so that the next round can be sent before this one has been
//! read. What a round emits stands in shared memory, in two places by turns (see [`hexflash_abi::accept`]).
//!
//! [`Rounds`] is a guard: as long as it lives, the engine does nothing else. It can be
//! [suspended](Rounds::suspend) with rounds in flight, for callers that hand out a token at a time. Any other
//! step of the sequence then first reads what is in flight. A step of another sequence *displaces* the
//! rounds: what was in flight is read, and waits for the rounds to be resumed, but there can be no more of
//! them.

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::time::Instant;

use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, REPORTS, ROUND};
use hexflash_abi::registers::{Halt, Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault, Seq, Status};
use zerocopy::IntoBytes;

use super::programs::ProgramKind;
use super::sequence::{Health, Outputs, Sequence};
use super::{DraftBlock, Engine, EngineError, Spec};
use crate::device::DeviceError;
use crate::model::{IoLayout, KeptLayout, MAX_STOPS, ROUND_WORDS};
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

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundReport {
    /// Drafts that were verified.
    pub drafted: u32,
    /// Tokens emitted: the drafts accepted, and the target's next one.
    pub tokens: DraftBlock,
    /// Whether there can be more rounds.
    pub halt: Halt,
}

/// Rounds under way.
pub(super) struct State {
    /// Rounds were begun, and have not been finished.
    open: bool,
    /// The slot of the sequence whose rounds they are.
    slot: usize,
    in_flight: VecDeque<Seq>,
    /// Rounds that were read when another sequence took its turn, and are not in the context yet.
    waiting: VecDeque<RoundReport>,
    /// Another sequence took its turn, so that no more rounds can be sent.
    displaced: bool,
    /// What was wrong with a round that was read then.
    failed: Option<EngineError>,
    /// Number of the next round to be read from the device.
    next: u32,
    /// What the last round that was read from the device says.
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
            slot: 0,
            in_flight: VecDeque::with_capacity(REPORTS),
            waiting: VecDeque::with_capacity(REPORTS),
            displaced: false,
            failed: None,
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

    /// Whether a sequence has rounds that were begun and not finished.
    fn has_rounds(&self, slot: usize) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.rounds.open && spec.rounds.slot == slot)
    }

    /// Rounds that were sent, and that are not in the context yet.
    fn unread_rounds(&self) -> usize {
        self.spec.as_ref().map_or(0, |spec| spec.rounds.in_flight.len() + spec.rounds.waiting.len())
    }

    /// A sequence takes its turn. Rounds of another one are read, and wait, and so does what is wrong with
    /// them.
    ///
    /// # Errors
    /// The device was lost.
    pub(crate) fn displace_rounds(&mut self) -> Result<(), EngineError> {
        if self.spec.as_ref().is_none_or(|spec| !spec.rounds.open) {
            return Ok(());
        }
        self.spec()?.rounds.displaced = true;
        loop {
            let read = self.receive_round();
            let rounds = &mut self.spec()?.rounds;
            match read {
                Ok(Some(report)) => rounds.waiting.push_back(report),
                Ok(None) => return Ok(()),
                Err(loss) if loss.is_loss() => return Err(loss),
                Err(error) => rounds.failed = Some(error),
            }
        }
    }

    /// Waits for the next round in flight.
    fn receive_round(&mut self) -> Result<Option<RoundReport>, EngineError> {
        let Some(seq) = self.spec()?.rounds.in_flight.pop_front() else { return Ok(None) };
        if let Err(error) = self.finish(ProgramKind::Round, seq) {
            let rounds = &mut self.spec()?.rounds;
            let (slot, behind) = (rounds.slot, std::mem::take(&mut rounds.in_flight));
            self.sequences[slot].health = Health::after(&error);
            if !error.is_loss() {
                // The device answers nevertheless, and another text must not find those answers.
                let patience = self.device.patience();
                behind.iter().try_for_each(|_| self.device.wait(patience).map(drop))?;
            }
            return Err(error);
        }
        let start = Instant::now();
        let rounds = &self.spec()?.rounds;
        let (number, halt, slot) = (rounds.next, rounds.halt, rounds.slot);
        if halt != Halt::Running {
            return Ok(Some(RoundReport { drafted: 0, tokens: DraftBlock::default(), halt }));
        }
        let mut words = [0u32; ROUND_WORDS as usize];
        let at = self.layout.rounds as usize + number as usize % REPORTS * 4 * ROUND_WORDS as usize;
        self.io.memory.read(at, words.as_mut_bytes());
        self.stats.host_bytes += size_of_val(&words) as u64;
        let emitted = words[EMITTED];
        let halt = Halt::parse(words[HALT]);
        let sound = words[ROUND] == number
            && (1..=words[DRAFTED].saturating_add(1)).contains(&emitted)
            && HEAD as u32 + emitted <= ROUND_WORDS;
        let Some(halt) = halt.filter(|_| sound) else {
            self.sequences[slot].health = Health::Lost;
            let fault = Fault::new(ErrorCode::BadMessage, words[ROUND]);
            let request = hexflash_abi::message::MessageKind::Exec;
            return Err(DeviceError::fault(request, Status::Fatal, fault).into());
        };
        let tokens = DraftBlock::new(&words[HEAD..][..emitted as usize]);
        let rounds = &mut self.spec()?.rounds;
        (rounds.next, rounds.halt) = (number.wrapping_add(1), halt);
        self.stats.host += start.elapsed();
        Ok(Some(RoundReport { drafted: words[DRAFTED], tokens, halt }))
    }
}

impl<'e> Sequence<'e> {
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
        self.reborrow().into_rounds(anchor, limits)
    }

    /// As [`rounds`](Self::rounds).
    pub(super) fn into_rounds(
        mut self,
        anchor: u32,
        limits: &RoundLimits<'_>,
    ) -> Result<Option<Rounds<'e>>, EngineError> {
        let (block, _) = self.engine.drafting()?;
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
        for (place, &id) in stops.iter_mut().zip(limits.stops) {
            *place = id as i32;
        }
        let (n_past, n_commit, slot) = (self.n_past(), self.state().n_commit, self.slot);
        let engine = &mut *self.engine;
        engine.io.memory.write(engine.layout.stops as usize, stops.as_bytes());
        engine.stats.host_bytes += size_of_val(&stops) as u64;
        let registers = StepRegisters::step(n_past, 1 + n)
            .with(Register::Slot, slot as u32)
            .with(Register::NCommit, n_commit)
            .with(Register::NDraft, n)
            .with(Register::DraftMax, most)
            .with(Register::NLeft, limits.tokens);
        engine.write_registers(&registers);
        let rounds = &mut engine.spec()?.rounds;
        (rounds.next, rounds.halt, rounds.emitted) = (0, Halt::Running, 0);
        (rounds.anchor, rounds.open, rounds.slot, rounds.displaced) = (anchor, true, slot, false);
        rounds.failed = None;
        Ok(Some(Rounds { sequence: self }))
    }

    /// Goes on with rounds that were [suspended](Rounds::suspend). `None` if there are none, or if the
    /// sequence has done something else since, which ended them.
    pub fn resume_rounds(&mut self) -> Option<Rounds<'_>> {
        self.reborrow().into_resumed()
    }

    /// As [`resume_rounds`](Self::resume_rounds).
    pub(super) fn into_resumed(self) -> Option<Rounds<'e>> {
        self.engine.has_rounds(self.slot).then_some(Rounds { sequence: self })
    }

    /// Something else than a round comes next: reads rounds that are in flight. All that they emitted stays.
    pub(super) fn end_rounds(&mut self) -> Result<(), EngineError> {
        if !self.engine.has_rounds(self.slot) {
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
        let Some(spec) = &mut self.engine.spec else { return };
        let emitted = spec.rounds.emitted;
        (spec.rounds.open, spec.rounds.emitted, spec.rounds.halt) = (false, 0, Halt::Finished);
        spec.rounds.waiting.clear();
        let n = n.min(emitted);
        // If no round has emitted anything, the tokens to commit are still those from before the rounds.
        if emitted > 0 {
            let state = self.state_mut();
            state.n_past -= emitted - n;
            state.n_commit = n;
            state.history.truncate(state.n_past as usize);
        }
    }

    /// The next round, which is in the context then. How many of its tokens are on the tape is known when the
    /// rounds end.
    fn next_round(&mut self) -> Result<Option<RoundReport>, EngineError> {
        let rounds = &mut self.engine.spec()?.rounds;
        let report = match (rounds.waiting.pop_front(), rounds.failed.take()) {
            (Some(report), failed) => {
                rounds.failed = failed;
                report
            }
            (None, Some(error)) => return Err(error),
            (None, None) => match self.engine.receive_round()? {
                Some(report) => report,
                None => return Ok(None),
            },
        };
        let Some((&last, others)) = report.tokens.split_last() else { return Ok(Some(report)) };
        let emitted = report.tokens.len() as u32;
        let rounds = &mut self.engine.spec()?.rounds;
        rounds.emitted = emitted;
        let anchor = std::mem::replace(&mut rounds.anchor, last);
        let state = self.state_mut();
        state.history.push(anchor);
        state.history.extend_from_slice(others);
        state.n_past += emitted;
        state.outputs = Outputs::default();
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
    sequence: Sequence<'e>,
}

impl Rounds<'_> {
    /// The sequence, for reading.
    pub fn sequence(&self) -> &Sequence<'_> {
        &self.sequence
    }

    /// The number of rounds that were sent and not read.
    pub fn in_flight(&self) -> usize {
        self.sequence.engine.unread_rounds()
    }

    /// Sends a round, unless two are in flight, the text has ended, or a step of another sequence came
    /// between; returns whether it was sent.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn submit(&mut self) -> Result<bool, EngineError> {
        self.sequence.usable()?;
        let engine = &mut *self.sequence.engine;
        let start = Instant::now();
        let unread = engine.unread_rounds();
        let rounds = &engine.spec()?.rounds;
        if rounds.displaced || rounds.halt != Halt::Running || unread == REPORTS {
            return Ok(false);
        }
        match engine.submit(ProgramKind::Round, 1) {
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
        self.sequence.next_round()
    }

    /// Access to the drafts of the next round, which is possible while no round is in flight; `None` while
    /// one is, and where there can be no next round because a step of another sequence came between.
    pub fn idle(&mut self) -> Option<IdleRounds<'_>> {
        let engine = &mut *self.sequence.engine;
        let displaced = engine.spec.as_ref().is_none_or(|spec| spec.rounds.displaced);
        (engine.unread_rounds() == 0 && !displaced).then_some(IdleRounds { engine })
    }

    /// Releases the engine and leaves rounds in flight; [`Sequence::resume_rounds`] goes on with them.
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
        let sequence = &mut rounds.sequence;
        let before = sequence.n_past();
        let outcome = sequence.drain_rounds();
        sequence.close_rounds(if sequence.n_past() == before { n } else { u32::MAX });
        outcome
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        // A device that failed says so again at the next step: the engine is broken from here on.
        if let Err(error) = self.sequence.end_rounds() {
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
    pub fn drafts(&mut self, n: u32) -> Result<DraftBlock, EngineError> {
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
