//! Rounds on the device: it drafts, verifies and accepts, and the host reads tokens. One of them is one step
//! of the generation; the next round is under way before the tokens of this one are given, wherever that can
//! be.

use std::time::Instant;

use hexflash_abi::registers::Halt;

use super::{Finish, GenerateError, Generation, Outcome, Phase};
use crate::engine::{EngineError, RoundLimits, RoundReport, Rounds, Sequence};
use crate::model::MAX_VERIFY;
use crate::speculation::{By, Choice};

/// Rounds between two steps.
pub(super) struct RoundState {
    /// The round that was read last.
    report: RoundReport,
    /// Tokens of it that are emitted.
    given: usize,
    /// Drafts of the block that the next round verifies.
    drafted: u32,
    /// Rounds to have in flight.
    depth: usize,
    /// What comes after the round: another one, or what else is better.
    then: Choice,
    /// The end was asked for, and what is in flight is still read.
    interrupted: bool,
    /// When the round that is read next was sent.
    start: Instant,
    /// The next round could not be sent. What was read before is emitted first: the context has it.
    loss: Option<EngineError>,
}

impl RoundState {
    /// Ends the rounds with the tokens of the report that are emitted, and takes the others back.
    fn cut(&self, sequence: &mut Sequence<'_>) -> Result<(), EngineError> {
        if let Some(rounds) = sequence.resume_rounds() {
            return rounds.finish(self.given as u32);
        }
        // The device was started again for another text, and has computed all of the report's tokens.
        let unseen = self.report.tokens.len() - self.given;
        sequence.roll_back(sequence.n_past() - unseen as u32)
    }
}

impl Generation {
    /// Begins rounds with up to `length` drafts, or runs a plain step if they do not pay.
    pub(super) fn begin_rounds(&mut self, sequence: &mut Sequence<'_>, length: u32) -> Outcome {
        let left = self.out.left().and_then(|left| u32::try_from(left).ok());
        let (tokens, stops) = (left.unwrap_or(u32::MAX), self.out.stops());
        let start = Instant::now();
        let Some(mut rounds) =
            sequence.rounds(self.last, &RoundLimits { draft_max: length, tokens, stops })?
        else {
            return self.plain_step(sequence);
        };
        self.speculation.drafted(start.elapsed());
        let adaptive = self.speculation.is_adaptive();
        let mut drafted = length;
        if adaptive {
            let choice = self.choose_length(&mut rounds, self.last, &mut drafted, &[])?;
            if !matches!(choice, Choice::Draft(_)) {
                rounds.finish(0)?;
                return self.begin_block(sequence, choice);
            }
        }
        // What only the host can see may end the text in the middle of a round: then none may be under way
        // beyond it.
        let depth = if self.out.device_sees_all_ends() && !adaptive { 2 } else { 1 };
        let mut state = RoundState {
            report: RoundReport { drafted: 0, tokens: Default::default(), halt: Halt::Running },
            given: 0,
            drafted,
            depth,
            then: Choice::Draft(length),
            interrupted: false,
            start: Instant::now(),
            loss: None,
        };
        submit(&mut rounds, depth)?;
        self.read_round(&mut rounds, &mut state)?;
        rounds.suspend();
        self.next_of_rounds(sequence, state)
    }

    /// Goes on with rounds. If that is cancelled, the text ends with the tokens that are emitted; but what is
    /// in flight cannot be called back, and is text like any other.
    pub(super) fn go_on_with_rounds(
        &mut self,
        sequence: &mut Sequence<'_>,
        mut state: RoundState,
    ) -> Outcome {
        if self.out.is_cancelled() && !state.interrupted {
            let in_flight = sequence.resume_rounds().map_or(0, |rounds| {
                let in_flight = rounds.in_flight();
                rounds.suspend();
                in_flight
            });
            if in_flight == 0 && state.loss.is_none() {
                let outcome = state.cut(sequence);
                return self.end_rounds(sequence, outcome, &state, Finish::Interrupted);
            }
            state.interrupted = true;
        }
        self.next_of_rounds(sequence, state)
    }

    /// Emits the next token of the report, and reads another one where there is none left.
    fn next_of_rounds(&mut self, sequence: &mut Sequence<'_>, mut state: RoundState) -> Outcome {
        loop {
            if let Some(&token) = state.report.tokens.get(state.given) {
                self.last = token;
                state.given += 1;
                let Some(finish) = self.emit()? else {
                    match state.report.tokens.len() - state.given {
                        // The target's own token ends a round.
                        0 => self.out.replaces(state.report.drafted.saturating_sub(state.given as u32 - 1)),
                        _ => self.out.was_drafted(),
                    }
                    return Ok((Phase::Rounds(state), None));
                };
                let outcome = state.cut(sequence);
                return self.end_rounds(sequence, outcome, &state, finish);
            }
            if !state.report.tokens.is_empty() {
                self.speculation.count(By::Model, state.report.drafted, state.report.tokens.len() - 1);
            }
            if let Some(loss) = state.loss {
                return Err(loss.into());
            }
            let interrupted = state.interrupted.then_some(Finish::Interrupted);
            // There are none after the device was started again for another text.
            let Some(mut rounds) = sequence.resume_rounds() else { return Ok((Phase::Next, interrupted)) };
            if state.report.halt != Halt::Running {
                rounds.finish(u32::MAX)?;
                return Ok((Phase::Next, interrupted));
            }
            if rounds.in_flight() == 0 {
                if interrupted.is_some() || !matches!(state.then, Choice::Draft(_)) {
                    rounds.finish(u32::MAX)?;
                    return if interrupted.is_some() {
                        Ok((Phase::Next, interrupted))
                    } else {
                        self.begin_block(sequence, state.then)
                    };
                }
                state.start = Instant::now();
                submit(&mut rounds, state.depth)?;
            }
            self.read_round(&mut rounds, &mut state)?;
            rounds.suspend();
        }
    }

    /// Reads the next round, and sends the one after it where the host need not look at this one first.
    fn read_round(&mut self, rounds: &mut Rounds<'_>, state: &mut RoundState) -> Result<(), GenerateError> {
        let nothing = RoundReport { drafted: 0, tokens: Default::default(), halt: Halt::Finished };
        let report = rounds.next()?.unwrap_or(nothing);
        let anchor = report.tokens.last().copied().unwrap_or(self.last);
        if !report.tokens.is_empty() {
            self.speculation.rounded(By::Model, report.drafted, &report.tokens, state.start.elapsed());
        }
        let more = report.halt == Halt::Running && !state.interrupted && !self.out.is_cancelled();
        state.then = match more {
            true if self.speculation.is_adaptive() => {
                self.choose_length(rounds, anchor, &mut state.drafted, &report.tokens)?
            }
            true => Choice::Draft(state.drafted),
            false => Choice::Plain,
        };
        if matches!(state.then, Choice::Draft(_)) && self.out.device_sees_all_ends() {
            state.start = Instant::now();
            state.loss = submit(rounds, state.depth).err();
        }
        (state.report, state.given) = (report, 0);
        Ok(())
    }

    /// The text ends within a round, whose rest is taken back; `outcome` says how reading the others went.
    fn end_rounds(
        &mut self,
        sequence: &mut Sequence<'_>,
        outcome: Result<(), EngineError>,
        state: &RoundState,
        finish: Finish,
    ) -> Outcome {
        match outcome {
            // The text is complete, but its context is needed by all that follow.
            Err(error) if error.is_loss() => {
                self.recover(sequence, error)?;
            }
            other => other?,
        }
        self.speculation.count(By::Model, state.report.drafted, state.given - 1);
        Ok((Phase::Next, Some(finish)))
    }

    /// Chooses the length of the next round, of whose block after `anchor` `drafted` tokens are drafted, and
    /// of the block after it, which `drafted` is then; the tokens `unseen` are yet to be emitted. Or says
    /// that something else than a round is better.
    fn choose_length(
        &mut self,
        rounds: &mut Rounds<'_>,
        anchor: u32,
        drafted: &mut u32,
        unseen: &[u32],
    ) -> Result<Choice, GenerateError> {
        let room = self.draft_room(rounds.sequence(), unseen.len());
        let most = room.model.min(*drafted);
        // Where lengths change, none is in flight now.
        let Some(mut idle) = rounds.idle() else { return Ok(Choice::Draft(*drafted)) };
        let drafts = idle.drafts(most)?;
        let mut margins = [0.0; MAX_VERIFY as usize];
        idle.margins(&mut margins[..drafts.len()]);
        let choice = self.speculation.take((anchor, unseen), &drafts, Some(&margins), room);
        if let Choice::Draft(now) = choice {
            *drafted = self.speculation.next_block().max(now);
            idle.set_drafts(now, *drafted)?;
        }
        Ok(choice)
    }
}

/// Sends rounds until `depth` are in flight.
fn submit(rounds: &mut Rounds<'_>, depth: usize) -> Result<(), EngineError> {
    while rounds.in_flight() < depth && rounds.submit()? {}
    Ok(())
}
