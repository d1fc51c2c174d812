//! The host's side of rounds: which are in flight, and what becomes of their reports.
//!
//! ```text
//! none --begin()--> live --displace()--> displaced: what was in flight waits, and no more can be sent
//!   ^                |                       |
//!   +---- close() ---+-----------------------+
//! ```

use std::collections::VecDeque;
use std::time::Instant;

use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, REPORTS, ROUND};
use hexflash_abi::message::MessageKind;
use hexflash_abi::registers::Halt;
use hexflash_abi::{ErrorCode, Fault, Seq, Status};

use super::block::DraftBlock;
use super::report::RoundReport;
use super::state::{Health, Outputs, Texts};
use crate::device::DeviceError;
use crate::model::ROUND_WORDS;
use crate::runtime::error::EngineError;
use crate::runtime::kind::ProgramKind;
use crate::runtime::loaded::Runtime;

/// Rounds under way.
pub(super) struct UnderWay {
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

impl Default for UnderWay {
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

impl UnderWay {
    /// Rounds of a sequence begin after `anchor`.
    pub(super) fn begin(&mut self, slot: usize, anchor: u32) {
        (self.next, self.halt, self.emitted) = (0, Halt::Running, 0);
        (self.anchor, self.open, self.slot, self.displaced) = (anchor, true, slot, false);
        self.failed = None;
    }

    /// Whether they are of this sequence, begun and not finished.
    pub(super) fn are_of(&self, slot: usize) -> bool {
        self.open && self.slot == slot
    }

    /// Whether another sequence took its turn, so that no more rounds can be sent.
    pub(super) fn are_displaced(&self) -> bool {
        self.displaced
    }

    /// Rounds that were sent, and that are not in the context yet.
    pub(super) fn unread(&self) -> usize {
        self.in_flight.len() + self.waiting.len()
    }

    /// Sends a round, unless two are in flight, the text has ended, or another sequence took its turn;
    /// whether it was sent.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn send(&mut self, runtime: &mut Runtime) -> Result<bool, EngineError> {
        let start = Instant::now();
        if self.displaced || self.halt != Halt::Running || self.unread() == REPORTS {
            return Ok(false);
        }
        match runtime.submit(ProgramKind::Round, 1) {
            Ok(seq) => self.in_flight.push_back(seq),
            Err(error) => {
                if error.is_loss() {
                    // What is in flight is not answered any more, and must not be waited for.
                    self.in_flight.clear();
                }
                return Err(error);
            }
        }
        runtime.worked(start);
        Ok(true)
    }

    /// A sequence takes its turn. Rounds of another one are read, and wait, and so does what is wrong with
    /// them.
    ///
    /// # Errors
    /// The device was lost.
    pub(super) fn displace(&mut self, runtime: &mut Runtime, texts: &mut Texts) -> Result<(), EngineError> {
        if !self.open {
            return Ok(());
        }
        self.displaced = true;
        loop {
            match self.receive(runtime, texts) {
                Ok(Some(report)) => self.waiting.push_back(report),
                Ok(None) => return Ok(()),
                Err(loss) if loss.is_loss() => return Err(loss),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Waits for the next round in flight.
    fn receive(
        &mut self,
        runtime: &mut Runtime,
        texts: &mut Texts,
    ) -> Result<Option<RoundReport>, EngineError> {
        let Some(seq) = self.in_flight.pop_front() else { return Ok(None) };
        if let Err(error) = runtime.finish(ProgramKind::Round, seq) {
            let behind = std::mem::take(&mut self.in_flight);
            texts[self.slot].health = Health::after(&error);
            if !error.is_loss() {
                // The device answers nevertheless, and another text must not find those answers.
                runtime.drop_answers(behind.len())?;
            }
            return Err(error);
        }
        let start = Instant::now();
        let (number, halt) = (self.next, self.halt);
        if halt != Halt::Running {
            return Ok(Some(RoundReport { drafted: 0, tokens: DraftBlock::default(), halt }));
        }
        let words = runtime.report(number);
        let emitted = words[EMITTED];
        let halt = Halt::parse(words[HALT]);
        let sound = words[ROUND] == number
            && (1..=words[DRAFTED].saturating_add(1)).contains(&emitted)
            && HEAD as u32 + emitted <= ROUND_WORDS;
        let Some(halt) = halt.filter(|_| sound) else {
            texts[self.slot].health = Health::Lost;
            let fault = Fault::new(ErrorCode::BadMessage, words[ROUND]);
            return Err(DeviceError::fault(MessageKind::Exec, Status::Fatal, fault).into());
        };
        let tokens = DraftBlock::new(&words[HEAD..][..emitted as usize]);
        (self.next, self.halt) = (number.wrapping_add(1), halt);
        runtime.worked(start);
        Ok(Some(RoundReport { drafted: words[DRAFTED], tokens, halt }))
    }

    /// The next round, which is in the context then. How many of its tokens are on the tape is known when the
    /// rounds end.
    ///
    /// # Errors
    /// The device failed, now or when the rounds were displaced.
    pub(super) fn next(
        &mut self,
        runtime: &mut Runtime,
        texts: &mut Texts,
    ) -> Result<Option<RoundReport>, EngineError> {
        let report = match (self.waiting.pop_front(), self.failed.take()) {
            (Some(report), failed) => {
                self.failed = failed;
                report
            }
            (None, Some(error)) => return Err(error),
            (None, None) => match self.receive(runtime, texts)? {
                Some(report) => report,
                None => return Ok(None),
            },
        };
        let Some((&last, others)) = report.tokens.split_last() else { return Ok(Some(report)) };
        self.emitted = report.tokens.len() as u32;
        let anchor = std::mem::replace(&mut self.anchor, last);
        let text = &mut texts[self.slot];
        text.history.push(anchor);
        text.history.extend_from_slice(others);
        text.n_past += self.emitted;
        text.outputs = Outputs::default();
        Ok(Some(report))
    }

    /// Reads all that is in flight.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(super) fn drain(&mut self, runtime: &mut Runtime, texts: &mut Texts) -> Result<(), EngineError> {
        while self.next(runtime, texts)?.is_some() {}
        Ok(())
    }

    /// Keeps the first `n` tokens of the last report, and forgets the rounds.
    pub(super) fn close(&mut self, texts: &mut Texts, n: u32) {
        let emitted = self.emitted;
        (self.open, self.emitted, self.halt) = (false, 0, Halt::Finished);
        self.waiting.clear();
        let n = n.min(emitted);
        // If no round has emitted anything, the tokens to commit are still those from before the rounds.
        if emitted > 0 {
            let text = &mut texts[self.slot];
            text.n_past -= emitted - n;
            text.n_commit = n;
            text.history.truncate(text.n_past as usize);
        }
    }
}
