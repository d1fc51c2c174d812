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
//!
//! ```text
//! none --rounds()--> live --suspend()--> suspended --step of another sequence--> displaced
//!   ^                 ^ |                   | |                                     |
//!   |   submit, next -+ |   resume_rounds() | |              resume_rounds(): reads |
//!   |                   |<------------------+ |              what waits, sends none |
//!   +---- finish(n) ----+---------------------+-------------------------------------+
//!          (suspended rounds are finished by the sequence's own next step)
//! ```

use std::fmt;
use std::mem::ManuallyDrop;

use hexflash_abi::registers::{Register, StepRegisters};

use super::block::DraftBlock;
use super::engine::Engine;
use super::report::{RoundLimits, RoundReport};
use super::view::Sequence;
use crate::model::MAX_STOPS;
use crate::runtime::error::EngineError;
use crate::setting::Setting;

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
        let block = self.engine.runtime.draft_block()?;
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

        let (n_past, n_commit, slot) = (self.n_past(), self.state().n_commit, self.slot);
        let engine = &mut *self.engine;
        engine.runtime.write_stops(limits.stops);
        let registers = StepRegisters::step(n_past, 1 + n)
            .with(Register::Slot, slot as u32)
            .with(Register::NCommit, n_commit)
            .with(Register::NDraft, n)
            .with(Register::DraftMax, most)
            .with(Register::NLeft, limits.tokens);
        engine.runtime.write_registers(&[registers]);
        engine.rounds.begin(slot, anchor);
        Ok(Some(Rounds { sequence: self }))
    }

    /// Goes on with rounds that were [suspended](Rounds::suspend). `None` if there are none, or if the
    /// sequence has done something else since, which ended them.
    pub fn resume_rounds(&mut self) -> Option<Rounds<'_>> {
        self.reborrow().into_resumed()
    }

    /// As [`resume_rounds`](Self::resume_rounds).
    pub(super) fn into_resumed(self) -> Option<Rounds<'e>> {
        self.engine.rounds.are_of(self.slot).then_some(Rounds { sequence: self })
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
        self.sequence.engine.rounds.unread()
    }

    /// Sends a round, unless two are in flight, the text has ended, or a step of another sequence came
    /// between; returns whether it was sent.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn submit(&mut self) -> Result<bool, EngineError> {
        self.sequence.usable()?;
        let Engine { runtime, rounds, .. } = &mut *self.sequence.engine;
        rounds.send(runtime)
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
        let Engine { runtime, texts, rounds, .. } = &mut *self.sequence.engine;
        rounds.next(runtime, texts)
    }

    /// Access to the drafts of the next round, which is possible while no round is in flight; `None` while
    /// one is, and where there can be no next round because a step of another sequence came between.
    pub fn idle(&mut self) -> Option<IdleRounds<'_>> {
        let rounds = &self.sequence.engine.rounds;
        let is_idle = rounds.unread() == 0 && !rounds.are_displaced();
        is_idle.then(|| IdleRounds { sequence: self.sequence.reborrow() })
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
        let Sequence { engine, slot } = &mut rounds.sequence;
        let (Engine { runtime, texts, rounds: under_way, .. }, slot) = (&mut **engine, *slot);
        let before = texts[slot].n_past;
        let outcome = under_way.drain(runtime, texts);
        under_way.close(texts, if texts[slot].n_past == before { n } else { u32::MAX });
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
    sequence: Sequence<'r>,
}

impl IdleRounds<'_> {
    /// The first `n` tokens that are drafted for the next round, at most a block less one.
    ///
    /// # Errors
    /// There is no draft model.
    pub fn drafts(&mut self, n: u32) -> Result<DraftBlock, EngineError> {
        DraftBlock::drafted(&mut self.sequence.engine.runtime, n)
    }

    /// Reads the margins of the drafts of the next round, as many as `margins` has places for. A margin is
    /// how far the logit of a draft is above all others.
    pub fn margins(&mut self, margins: &mut [f32]) {
        self.sequence.engine.read_margins(margins);
    }

    /// Cuts the drafts of the next round to `now`, and lets the rounds from then on draft up to `next`
    /// tokens, at most a block less one. Drafts that are there already do not become more.
    ///
    /// # Errors
    /// A length is 0, or `now` is more than `next`.
    pub fn set_drafts(&mut self, now: u32, next: u32) -> Result<(), EngineError> {
        let runtime = &mut self.sequence.engine.runtime;
        let block = runtime.draft_block()?;
        let next = next.min(block - 1);
        if !(1..=next).contains(&now) {
            let allowed = format!("1 to {next}");
            return Err(EngineError::Setting { setting: Setting::DraftLength, allowed, found: now.into() });
        }
        let registers = runtime.registers();
        let drafted = registers.get(Register::NDraft);
        if (drafted.min(now), next) == (drafted, registers.get(Register::DraftMax)) {
            return Ok(());
        }
        let now = drafted.min(now);
        let registers = registers
            .with(Register::DraftMax, next)
            .with(Register::NDraft, now)
            .with(Register::NTokens, 1 + now);
        runtime.write_registers(&[registers]);
        Ok(())
    }
}
