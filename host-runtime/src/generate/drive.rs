//! The loops behind a generation: plain steps, blocks drafted for the host to check, rounds on the device.

use std::time::Instant;

use hexflash_abi::registers::Halt;

use super::emit::Emitter;
use super::retries::Retries;
use super::{Finish, GenerateError};
use crate::engine::{Engine, RoundLimits};
use crate::model::{MAX_STOPS, MAX_VERIFY};
use crate::sampler::Sampler;
use crate::speculation::{Choice, Speculation};

/// The parties of a generation. Between methods, the last token of the text is emitted and not in the context.
pub(super) struct Drive<'a, 't, F> {
    pub engine: &'a mut Engine,
    pub sampler: &'a mut Sampler,
    pub speculation: &'a mut Speculation,
    pub out: &'a mut Emitter<'t, F>,
    pub retries: Retries,
}

impl<F: FnMut(&str) -> bool> Drive<'_, '_, F> {
    /// Generates until something ends it. Row 0 has the logits after the prompt.
    ///
    /// A device that is lost is started again (see [`Retries`]): what a method has emitted stands, the rest of it comes
    /// again.
    pub(super) fn run(&mut self) -> Result<Finish, GenerateError> {
        let mut last = self.choose(0)?;
        if let Some(finish) = self.emit(last)? {
            return Ok(finish);
        }
        loop {
            if self.engine.n_past() == self.engine.n_ctx() {
                return Ok(Finish::Context);
            }
            match self.advance(&mut last) {
                Ok(None) => {}
                Ok(Some(finish)) => return Ok(finish),
                Err(GenerateError::Engine(error)) if error.is_loss() => {
                    self.retries.recover(self.engine, error, self.out.count())?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A step, a block or rounds.
    fn advance(&mut self, last: &mut u32) -> Result<Option<Finish>, GenerateError> {
        let most = self.most_drafts();
        let on_device = self.sampler.is_argmax() && self.speculation.is_model();
        match self.speculation.choose(most) {
            Choice::Plain => self.step(last),
            Choice::Rounds(length) if on_device => self.rounds(last, length),
            Choice::Probe(length) | Choice::Rounds(length) => self.checked(last, length),
        }
    }

    /// Drafts that can be of use now.
    fn most_drafts(&self) -> u32 {
        if !self.speculation.is_on() {
            return 0;
        }
        // A budget of n tokens has no use for more than n - 1 drafts, nor has the context.
        let left = self.out.left().map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        let room = self.engine.n_ctx() - self.engine.n_past();
        let block = if self.speculation.is_model() { self.engine.draft_room() } else { MAX_VERIFY - 1 };
        (left - 1).min(room - 1).min(block)
    }

    /// The token after row `row`: the device's argmax where the sampler would choose just that, else drawn from the
    /// logits.
    fn choose(&mut self, row: usize) -> Result<u32, GenerateError> {
        let sampler = &mut *self.sampler;
        Ok(if sampler.is_argmax() {
            self.engine.argmax(row)
        } else {
            sampler.sample(self.engine.logits(row))?
        })
    }

    fn emit(&mut self, token: u32) -> Result<Option<Finish>, GenerateError> {
        self.sampler.accept(token);
        self.speculation.push(token);
        self.out.push(token)
    }

    /// One plain step.
    fn step(&mut self, last: &mut u32) -> Result<Option<Finish>, GenerateError> {
        let start = Instant::now();
        self.engine.decode(*last)?;
        *last = self.choose(0)?;
        self.speculation.stepped(start.elapsed());
        self.emit(*last)
    }

    /// A block whose drafts the host checks against what it samples, row by row.
    fn checked(&mut self, last: &mut u32, length: u32) -> Result<Option<Finish>, GenerateError> {
        self.engine.catch_up()?;
        let start = Instant::now();
        let mut block = vec![*last];
        if self.speculation.is_model() {
            block.extend(self.engine.draft(*last, length)?);
        } else {
            self.speculation.guess(length as usize, &mut block);
        }
        let vocabulary = self.engine.config().n_vocab;
        if let Some(stranger) = block.iter().position(|&token| token >= vocabulary) {
            block.truncate(stranger);
        }
        block.truncate(1 + length as usize);
        if block.len() == 1 {
            return self.step(last);
        }
        self.engine.verify(&block)?;
        let drafts = &block[1..];
        for row in 0..block.len() {
            *last = self.choose(row)?;
            let finish = self.emit(*last)?;
            if finish.is_some() || drafts.get(row) != Some(last) {
                self.engine.commit(row as u32 + 1)?;
                self.speculation.rounded(drafts.len() as u32, row, start.elapsed());
                return Ok(finish);
            }
        }
        unreachable!("no draft stands after the last row");
    }

    /// Rounds on the device, until the text ends, there is no room for more, or another length is wanted.
    fn rounds(&mut self, last: &mut u32, length: u32) -> Result<Option<Finish>, GenerateError> {
        let (stops, only) = self.out.stops(MAX_STOPS as usize);
        let left = self.out.left().and_then(|left| u32::try_from(left).ok());
        let limits = RoundLimits { draft_max: length, tokens: left.unwrap_or(u32::MAX), stops: &stops };
        if !self.engine.begin_rounds(*last, &limits)? {
            return Ok(None);
        }
        let mut start = Instant::now();
        // What only the host can see may end the text in the middle of a round: then none may be under way beyond it.
        let depth = if only && !self.speculation.is_adaptive() { 2 } else { 1 };
        let mut interrupted = false;
        loop {
            while self.engine.rounds_in_flight() < depth && !interrupted {
                self.engine.submit_round()?;
            }
            let report = self.engine.next_round()?;
            for (i, &token) in report.tokens.iter().enumerate() {
                *last = token;
                match self.emit(token)? {
                    None => {}
                    // What is under way cannot be called back, but it is text like any other.
                    Some(Finish::Interrupted) if self.engine.rounds_in_flight() > 0 || interrupted => {
                        interrupted = true;
                    }
                    Some(finish) => {
                        let drained = self.drain();
                        self.engine.end_rounds(i as u32 + 1)?;
                        // The text is complete, but who goes on with it needs its context.
                        match drained {
                            Err(GenerateError::Engine(error)) if error.is_loss() => {
                                self.retries.recover(self.engine, error, self.out.count())?;
                            }
                            other => other?,
                        }
                        self.speculation.rounded(report.drafted, i, start.elapsed());
                        return Ok(Some(finish));
                    }
                }
            }
            let accepted = report.tokens.len().saturating_sub(1);
            if !report.tokens.is_empty() {
                self.speculation.rounded(report.drafted, accepted, start.elapsed());
            }
            start = Instant::now();
            if report.halt != Halt::Running {
                self.drain()?;
                return Ok(interrupted.then_some(Finish::Interrupted));
            }
            if interrupted && self.engine.rounds_in_flight() == 0 {
                return Ok(Some(Finish::Interrupted));
            }
            if self.speculation.is_adaptive() {
                match self.speculation.choose(self.most_drafts()) {
                    Choice::Rounds(length) => self.engine.set_draft_max(length)?,
                    Choice::Plain | Choice::Probe(_) => return Ok(None),
                }
            }
        }
    }

    /// Reads rounds that were sent before it was known that there would be none.
    fn drain(&mut self) -> Result<(), GenerateError> {
        while self.engine.rounds_in_flight() > 0 {
            self.engine.next_round()?;
        }
        Ok(())
    }
}
