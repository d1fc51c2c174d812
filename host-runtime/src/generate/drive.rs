//! The loops behind a generation: plain steps, blocks drafted for the host to check, rounds on the device.

use std::time::Instant;

use hexflash_abi::registers::Halt;

use super::emit::Emitter;
use super::retries::{Recovery, Retries};
use super::{Finish, GenerateError};
use crate::engine::{Engine, EngineError, RoundLimits};
use crate::model::{MAX_STOPS, MAX_VERIFY};
use crate::sampler::Sampler;
use crate::speculation::{Choice, Speculation};

/// The parties of a generation. Between methods, the last token of the text is emitted and not in the context.
pub(super) struct Drive<'a, 't, F> {
    pub engine: &'a mut Engine,
    pub sampler: &'a mut Sampler,
    pub speculation: &'a mut Speculation,
    pub out: &'a mut Emitter<'t, F>,
    /// Room for a block: anchor and drafts.
    pub block: Vec<u32>,
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
                    if self.recover(error)? == Recovery::Cancelled {
                        return Ok(Finish::Interrupted);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Brings a lost device back.
    fn recover(&mut self, loss: EngineError) -> Result<Recovery, GenerateError> {
        self.retries.recover(self.engine, loss, self.out.count(), self.out.cancel())
    }

    /// A step, a block or rounds.
    fn advance(&mut self, last: &mut u32) -> Result<Option<Finish>, GenerateError> {
        let on_device = self.sampler.is_argmax() && self.speculation.is_model();
        match self.speculation.choose(self.most_drafts(0)) {
            Choice::Plain => self.step(last),
            Choice::Draft(length) if on_device => self.rounds(last, length),
            Choice::Draft(length) => self.checked(last, length),
        }
    }

    /// Drafts that can be of use now, where `unseen` tokens of the context are yet to be emitted.
    fn most_drafts(&self, unseen: usize) -> u32 {
        if !self.speculation.is_on() {
            return 0;
        }
        // A budget of n tokens has no use for more than n - 1 drafts, nor has the context.
        let left = self
            .out
            .left()
            .map_or(u32::MAX, |left| u32::try_from(left.saturating_sub(unseen)).unwrap_or(u32::MAX));
        let room = self.engine.n_ctx() - self.engine.n_past();
        let block = if self.speculation.is_model() { self.engine.draft_room() } else { MAX_VERIFY - 1 };
        left.saturating_sub(1).min(room.saturating_sub(1)).min(block)
    }

    /// How sure the draft model is of its first `n` drafts.
    fn margins(&mut self, n: usize) -> [f32; MAX_VERIFY as usize] {
        let mut margins = [0.0; MAX_VERIFY as usize];
        self.engine.read_margins(&mut margins[..n]);
        margins
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
        self.speculation.stepped(*last, start.elapsed());
        self.emit(*last)
    }

    /// A block whose drafts the host checks against what it samples, row by row.
    #[expect(clippy::unreachable, reason = "the last row has no draft after it, so the loop returns there")]
    fn checked(&mut self, last: &mut u32, length: u32) -> Result<Option<Finish>, GenerateError> {
        let start = Instant::now();
        self.engine.catch_up()?;
        self.block.clear();
        self.block.push(*last);
        if self.speculation.is_model() {
            let drafts = self.engine.draft(*last, length)?;
            self.block.extend_from_slice(&drafts);
        } else {
            self.speculation.guess(length as usize, &mut self.block);
        }
        let vocabulary = self.engine.config().n_vocab;
        if let Some(stranger) = self.block.iter().position(|&token| token >= vocabulary) {
            self.block.truncate(stranger);
        }
        self.block.truncate(1 + length as usize);
        self.speculation.drafted(start.elapsed());
        let margins = (self.speculation.is_model() && self.speculation.is_adaptive())
            .then(|| self.margins(self.block.len() - 1));
        let taken =
            self.speculation.take(*last, &self.block[1..], margins.as_ref().map(<[f32; _]>::as_slice));
        if taken == 0 {
            return self.step(last);
        }
        self.block.truncate(1 + taken as usize);
        self.engine.verify(&self.block)?;
        for row in 0..self.block.len() {
            *last = self.choose(row)?;
            let finish = self.emit(*last)?;
            if finish.is_some() || self.block.get(row + 1) != Some(last) {
                self.engine.commit(row as u32 + 1)?;
                self.speculation.count(taken, row);
                self.block.truncate(1 + row);
                self.block.push(*last);
                self.speculation.rounded(taken, &self.block[1..], start.elapsed());
                return Ok(finish);
            }
        }
        unreachable!("no draft stands after the last row");
    }

    /// Rounds on the device, until the text ends, there is no room for more, or drafts do not pay.
    fn rounds(&mut self, last: &mut u32, length: u32) -> Result<Option<Finish>, GenerateError> {
        let (stops, only) = self.out.stops(MAX_STOPS as usize);
        let left = self.out.left().and_then(|left| u32::try_from(left).ok());
        let limits = RoundLimits { draft_max: length, tokens: left.unwrap_or(u32::MAX), stops: &stops };
        let start = Instant::now();
        if !self.engine.begin_rounds(*last, &limits)? {
            return Ok(None);
        }
        self.speculation.drafted(start.elapsed());
        let adaptive = self.speculation.is_adaptive();
        let mut drafted = length;
        if adaptive && !self.next_length(*last, &mut drafted, 0)? {
            return self.step(last);
        }
        // What only the host can see may end the text in the middle of a round: then none may be under way beyond it.
        let depth = if only && !adaptive { 2 } else { 1 };
        let mut interrupted = false;
        let mut start = Instant::now();
        self.submit(depth)?;
        loop {
            let report = self.engine.next_round()?;
            let accepted = report.tokens.len().saturating_sub(1);
            let anchor = report.tokens.last().copied().unwrap_or(*last);
            if !report.tokens.is_empty() {
                self.speculation.rounded(report.drafted, &report.tokens, start.elapsed());
            }
            // Whether there is another round, and whether it is sent before the host has looked at this one.
            let mut more = report.halt == Halt::Running && !interrupted && !self.out.cancel().is_cancelled();
            if more && adaptive {
                more = self.next_length(anchor, &mut drafted, report.tokens.len())?;
            }
            // A device that is lost here has given these tokens all the same: the context has them, and so must the text.
            let mut sent = Ok(());
            if more && only {
                start = Instant::now();
                sent = self.submit(depth);
            }
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
                                self.recover(error)?;
                            }
                            other => other?,
                        }
                        self.speculation.count(report.drafted, i);
                        return Ok(Some(finish));
                    }
                }
            }
            if !report.tokens.is_empty() {
                self.speculation.count(report.drafted, accepted);
            }
            sent?;
            if report.halt != Halt::Running {
                self.drain()?;
                return Ok(interrupted.then_some(Finish::Interrupted));
            }
            if self.engine.rounds_in_flight() == 0 {
                if interrupted {
                    return Ok(Some(Finish::Interrupted));
                }
                if !more {
                    return self.step(last);
                }
                start = Instant::now();
                self.submit(depth)?;
            }
        }
    }

    /// Sends rounds until `depth` are in flight.
    fn submit(&mut self, depth: usize) -> Result<(), GenerateError> {
        while self.engine.rounds_in_flight() < depth {
            self.engine.submit_round()?;
        }
        Ok(())
    }

    /// Sets the length of the next round, of whose block after `anchor` `drafted` tokens are drafted, and of the block
    /// after it, which `drafted` is then; `unseen` tokens are yet to be emitted. `false` if a plain step is better.
    fn next_length(&mut self, anchor: u32, drafted: &mut u32, unseen: usize) -> Result<bool, GenerateError> {
        let drafts = self.engine.read_drafts(self.most_drafts(unseen).min(*drafted))?;
        let margins = self.margins(drafts.len());
        let now = self.speculation.take(anchor, &drafts, Some(&margins));
        if now > 0 {
            *drafted = self.speculation.next_block().max(now);
            self.engine.set_drafts(now, *drafted)?;
        }
        Ok(now > 0)
    }

    /// Reads rounds that were sent before it was known that there would be none.
    fn drain(&mut self) -> Result<(), GenerateError> {
        while self.engine.rounds_in_flight() > 0 {
            self.engine.next_round()?;
        }
        Ok(())
    }
}
