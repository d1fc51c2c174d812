//! Speculative rounds: a block is drafted, verified and accepted on the device, one message a round.
//!
//! The device advances the registers itself, so that the next round can be sent before this one has been read. What a
//! round emits stands in shared memory, in two places by turns (see [`hexflash_abi::accept`]).

use std::collections::VecDeque;
use std::fmt;
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

/// What bounds rounds.
#[derive(Clone, Copy, Debug)]
pub struct RoundLimits<'a> {
    /// Tokens to draft per round, at least 1; more than a block less one counts as that.
    pub draft_max: u32,
    /// Tokens to emit in all; at least 1.
    pub tokens: u32,
    /// Ids that end the generation.
    pub stops: &'a [u32],
}

/// A few tokens: what was drafted, or what a round emitted.
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

/// What a round gave.
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
            in_flight: VecDeque::with_capacity(SLOTS),
            next: 0,
            halt: Halt::Finished,
            emitted: 0,
            anchor: 0,
        }
    }
}

impl State {
    /// That no round is under way.
    fn idle(&self) -> Result<(), EngineError> {
        match self.in_flight.len() as u64 {
            0 => Ok(()),
            found => {
                let what = "the number of rounds in flight";
                Err(EngineError::Setting { what, allowed: "0".to_owned(), found })
            }
        }
    }

    /// Something else than a round comes next.
    pub(super) fn leave(&mut self) -> Result<(), EngineError> {
        self.idle()?;
        (self.emitted, self.halt) = (0, Halt::Finished);
        Ok(())
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

    /// Hands the features of plain steps to the draft, which the next step that drafts or verifies would do as well.
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

    /// Most tokens that can be drafted now: none where the context has no room for a block.
    pub fn draft_room(&self) -> u32 {
        match self.draft_model() {
            Some(draft) if self.n_ctx() - self.n_past >= draft.block() => draft.block() - 1,
            _ => 0,
        }
    }

    /// Guesses `n` tokens after `anchor`, the last token of the text, which is not in the context yet.
    ///
    /// # Errors
    /// There is no draft, or `n` is not 1 to [`draft_room`](Self::draft_room); the device failed.
    pub fn draft(&mut self, anchor: u32, n: u32) -> Result<Block, EngineError> {
        self.run_draft(anchor, n)?;
        self.read_drafts(n)
    }

    /// The first `n` tokens that the draft guessed last, at most a block less one. There must be no round in flight.
    ///
    /// # Errors
    /// There is no draft.
    pub fn read_drafts(&mut self, n: u32) -> Result<Block, EngineError> {
        let (block, spec) = self.drafting()?;
        let mut drafts = Block { n: n.min(block - 1) as usize, ..Block::default() };
        let buffer = spec.buffer.as_ref().ok_or(EngineError::Without { what: "a draft model" })?;
        buffer.memory.read(spec.drafts_at, drafts.ids[..drafts.n].as_mut_bytes());
        self.stats.host_bytes += 4 * drafts.n as u64;
        Ok(drafts)
    }

    /// How sure the draft is of the first tokens that it guessed last, as many as `margins` has places for: how far
    /// each one's logit is above all others. There must be no round in flight.
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
            return Err(EngineError::Setting { what: "the draft length", allowed, found: n.into() });
        }
        self.catch_up()?;
        self.io.memory.write(self.layout.tokens as usize, anchor.as_bytes());
        self.stats.host_bytes += 4;
        let registers = StepRegisters::step(self.n_past, block);
        self.exec(Program::Draft, registers.with(Register::DraftMax, n).with(Register::NDraft, n))
    }

    /// Prepares rounds after `anchor`, the last token of the text, which is not in the context yet: drafts the first
    /// block. `false` if the context has no room for one.
    ///
    /// # Errors
    /// There is no draft, a limit is out of range, or the device failed.
    pub fn begin_rounds(&mut self, anchor: u32, limits: &RoundLimits<'_>) -> Result<bool, EngineError> {
        let (block, _) = self.drafting()?;
        let setting = |what, allowed: String, found: u64| Err(EngineError::Setting { what, allowed, found });
        if limits.draft_max == 0 {
            return setting("the draft length", "at least 1".to_owned(), 0);
        }
        if limits.tokens == 0 {
            return setting("the number of tokens", "at least 1".to_owned(), 0);
        }
        if limits.stops.len() > MAX_STOPS as usize {
            let allowed = format!("at most {MAX_STOPS}");
            return setting("the number of stop tokens", allowed, limits.stops.len() as u64);
        }
        if self.draft_room() == 0 {
            return Ok(false);
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
        rounds.anchor = anchor;
        Ok(true)
    }

    /// Sends a round; up to two may be in flight.
    ///
    /// # Errors
    /// Rounds were not begun or have ended, too many are in flight, or the device failed.
    pub fn submit_round(&mut self) -> Result<(), EngineError> {
        self.usable()?;
        let start = Instant::now();
        let rounds = &self.spec()?.rounds;
        if rounds.halt != Halt::Running {
            return Err(EngineError::Without { what: "rounds that go on" });
        }
        if rounds.in_flight.len() == SLOTS {
            let allowed = format!("at most {SLOTS}");
            let what = "the number of rounds in flight";
            return Err(EngineError::Setting { what, allowed, found: SLOTS as u64 + 1 });
        }
        let seq = self.submit(Program::Round)?;
        self.spec()?.rounds.in_flight.push_back(seq);
        self.stats.host += start.elapsed();
        Ok(())
    }

    /// Rounds that were sent and not read.
    pub fn rounds_in_flight(&self) -> usize {
        self.spec.as_ref().map_or(0, |spec| spec.rounds.in_flight.len())
    }

    /// Waits for the next round and gives what it emitted: nothing if rounds had ended before it.
    ///
    /// # Errors
    /// No round is in flight, or the device failed; then the context is lost.
    pub fn next_round(&mut self) -> Result<RoundReport, EngineError> {
        let Some(seq) = self.spec()?.rounds.in_flight.pop_front() else {
            return Err(EngineError::Without { what: "a round in flight" });
        };
        if let Err(error) = self.finish(Program::Round, seq) {
            let behind = std::mem::take(&mut self.spec()?.rounds.in_flight);
            if !error.is_loss() {
                // The device answers all the same, and who goes on with another text should not find those answers.
                let patience = self.device.patience();
                behind.iter().try_for_each(|_| self.device.wait(patience).map(drop))?;
            }
            return Err(error);
        }
        let start = Instant::now();
        let rounds = &self.spec()?.rounds;
        let (number, halt) = (rounds.next, rounds.halt);
        if halt != Halt::Running {
            return Ok(RoundReport { drafted: 0, tokens: Block::default(), halt });
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
            return Err(DeviceError::Fault { request, status: Status::Fatal, fault }.into());
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
        Ok(report)
    }

    /// Cuts the drafts of the next round to `now`, and lets the rounds from then on draft up to `next` tokens, at most a
    /// block less one. What was drafted already is not made longer.
    ///
    /// # Errors
    /// A round is in flight or none was begun; a length is 0, or `now` is more than `next`.
    pub fn set_drafts(&mut self, now: u32, next: u32) -> Result<(), EngineError> {
        let (block, spec) = self.drafting()?;
        spec.rounds.idle()?;
        let next = next.min(block - 1);
        if !(1..=next).contains(&now) {
            let allowed = format!("1 to {next}");
            return Err(EngineError::Setting { what: "the draft length", allowed, found: now.into() });
        }
        let mut registers = StepRegisters::default();
        self.io.memory.read(IoLayout::REGISTERS as usize, registers.as_mut_bytes());
        let drafted = registers.get(Register::NDraft);
        if (drafted.min(now), next) == (drafted, registers.get(Register::DraftMax)) {
            return Ok(());
        }
        let now = drafted.min(now);
        let registers = registers
            .with(Register::DraftMax, next)
            .with(Register::NDraft, now)
            .with(Register::NTokens, 1 + now);
        self.write_registers(&registers);
        Ok(())
    }

    /// Ends rounds of which none is in flight, keeping the first `n` tokens that the last one emitted: where a
    /// generation stops in the middle of what a round gave. Plain steps and new rounds go on from there.
    ///
    /// # Errors
    /// A round is in flight, or the last one emitted fewer tokens; nothing has changed.
    pub fn end_rounds(&mut self, n: u32) -> Result<(), EngineError> {
        let rounds = &mut self.spec()?.rounds;
        let emitted = rounds.emitted;
        if !rounds.in_flight.is_empty() || n > emitted {
            return Err(EngineError::Commit { wanted: n as usize, verified: emitted as usize });
        }
        (rounds.emitted, rounds.halt) = (0, Halt::Finished);
        // Without a round, what there was to commit before is still there.
        if emitted > 0 {
            self.n_past -= emitted - n;
            self.n_commit = n;
            self.history.truncate(self.n_past as usize);
        }
        Ok(())
    }
}
