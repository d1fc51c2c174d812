//! ACCEPT against plain greedy decoding, told one token at a time.

use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, REPORTS, ROUND};
use hexflash_abi::op::{MAX_STOPS, Op, params};
use hexflash_abi::registers::{Halt, Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault};

use crate::testing::{Batch, Setup, random, setups};

/// Rows of the token axis.
const MAX: usize = 8;

/// A round: what the target says after each token of a block, and the registers that matter.
#[derive(Clone, Debug)]
struct Round {
    /// As many as there are valid rows.
    best: Vec<i32>,
    tokens: Vec<i32>,
    stops: Vec<i32>,
    n_ctx: u32,
    block: u32,
    past: u32,
    left: u32,
    draft_max: u32,
    round: u32,
}

/// A block of `width` tokens of which the target agrees with the first `kept` drafts; room and budget for
/// more.
fn round(width: usize, kept: usize) -> Round {
    let best: Vec<i32> = (100..100 + width as i32).collect();
    let mut tokens = vec![99];
    tokens.extend(&best[..width - 1]);
    if kept + 1 < width {
        tokens[kept + 1] = 7;
    }
    let (n_ctx, block, past, left, draft_max, round) = (1000, MAX as u32, 50, 200, 5, 0);
    Round { best, tokens, stops: vec![-1], n_ctx, block, past, left, draft_max, round }
}

/// What a round leaves behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    emitted: Vec<i32>,
    halt: Halt,
    registers: StepRegisters,
}

/// What stands in the rows of `out` before the round.
const OLD: i32 = -77;

impl Round {
    fn width(&self) -> usize {
        self.tokens.len()
    }

    fn step(&self) -> StepRegisters {
        StepRegisters::step(self.past, self.width() as u32)
            .with(Register::NLeft, self.left)
            .with(Register::DraftMax, self.draft_max)
            .with(Register::Round, self.round)
            // What the round before has left, or a host that does not care.
            .with(Register::NAccept, 3)
            .with(Register::NCommit, 2)
            .with(Register::NDraft, 1)
    }

    /// Decodes greedily: the model, asked for the token after the ones that it was given, says `best` as long
    /// as it was given the tokens of the block.
    fn expected(&self) -> Outcome {
        let mut emitted = Vec::new();
        let halt = loop {
            let t = emitted.len();
            let known = (1..=t).all(|i| i < self.width() && self.tokens[i] == emitted[i - 1]);
            if t > 0 && !known {
                // What follows would need another pass. Is there room for a block?
                let end = self.past as usize + t;
                let room = self.n_ctx as usize - end;
                break if room == 0 {
                    Halt::Finished
                } else if room < self.block as usize {
                    Halt::NoRoom
                } else {
                    Halt::Running
                };
            }
            emitted.push(self.best[t]);
            if self.stops.contains(&self.best[t]) || emitted.len() == self.left as usize {
                break Halt::Finished;
            }
        };
        let e = emitted.len() as u32;
        let left = self.left - e;
        // No more than can be of use: one token of the next round is the target's own.
        let useful = (1..self.block).take_while(|&d| d == 1 || (d <= self.draft_max && d < left));
        let registers = self
            .step()
            .with(Register::NPast, self.past + e)
            .with(Register::NTokens, self.block)
            .with(Register::NAccept, e - 1)
            .with(Register::NCommit, e)
            .with(Register::NDraft, useful.last().unwrap())
            .with(Register::NLeft, left)
            .with(Register::Round, self.round.wrapping_add(1))
            .with(Register::Halt, halt.wire());
        Outcome { emitted, halt, registers }
    }

    /// The op's outcome, and that it wrote nothing but the round's row, and of that no more than there is to
    /// say.
    fn run(&self, setup: Setup) -> Result<Outcome, Fault> {
        let mut batch = Batch::new(MAX as u32, self.n_ctx);
        let mut rows = |values: &[i32]| {
            // Rows past the step: would all be accepted.
            let mut all = vec![*values.last().unwrap(); MAX];
            all[..values.len()].copy_from_slice(values);
            let whole = batch.i32([MAX as u32, 1, 1, 1], &all);
            batch.view(whole, |t| t.token_axis = 0)
        };
        let (best, tokens) = (rows(&self.best), rows(&self.tokens));
        let stops = batch.i32([self.stops.len() as u32, 1, 1, 1], &self.stops);
        let out = batch.i32([(HEAD + MAX) as u32, REPORTS as u32, 1, 1], &[OLD; (HEAD + MAX) * REPORTS]);
        let anchor = batch.i32([1; 4], &[OLD]);
        let params = params::Accept { block: self.block, n_ctx: self.n_ctx };
        let (src, dst) = ([best, tokens, stops], [out, anchor]);
        let registers = batch.advance(setup, Op::Accept, &src, &dst, &params, &[self.step()])?[0];
        let out = batch.ints(out);
        let (even, odd) = out.split_at(HEAD + MAX);
        let (row, other) = if self.round.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        assert!(other.iter().all(|&x| x == OLD), "the other round's row: {self:?}");
        let count = row[EMITTED] as usize;
        let (emitted, rest) = row[HEAD..].split_at(count);
        assert!(rest.iter().all(|&x| x == OLD), "{row:?}: {self:?}");
        assert_eq!((row[ROUND] as u32, row[DRAFTED]), (self.round, self.width() as i32 - 1));
        assert_eq!(batch.ints(anchor), emitted[count - 1..], "the last token begins the next block");
        let halt = Halt::parse(row[HALT] as u32).unwrap();
        Ok(Outcome { emitted: emitted.to_vec(), halt, registers })
    }

    #[track_caller]
    fn check(&self) -> Outcome {
        let outcome = self.run(small()).unwrap();
        assert_eq!(outcome, self.expected(), "{self:?}");
        outcome
    }
}

/// The op needs no VTCM, and one thread.
fn small() -> Setup {
    Setup { vtcm_bytes: 128, ..setups()[0] }
}

/// Every number of kept drafts at every width: they come out, with the target's next token on top.
#[test]
fn every_number_of_drafts() {
    for (width, kept) in (1..=MAX).flat_map(|width| (0..width).map(move |kept| (width, kept))) {
        let outcome = round(width, kept).check();
        assert_eq!(outcome.emitted, (100..=100 + kept as i32).collect::<Vec<_>>());
        assert_eq!(outcome.halt, Halt::Running);
        for setup in setups() {
            assert_eq!(round(width, kept).run(setup), Ok(round(width, kept).expected()));
        }
    }
}

/// A draft that is right again after a wrong one is wrong: its past is another.
#[test]
fn nothing_counts_after_the_first_wrong_draft() {
    for wrong in 1..MAX {
        let mut round = round(MAX, MAX - 1);
        round.tokens[wrong] = 7;
        assert_eq!(round.check().emitted.len(), wrong);
    }
}

/// The first stop token among what is emitted ends it, and is emitted itself; one among what is not, does
/// nothing.
#[test]
fn stop_tokens() {
    for (width, kept) in (1..=MAX).flat_map(|width| (0..width).map(move |kept| (width, kept))) {
        for at in 0..width {
            for others in [0, 1, MAX_STOPS as i32 - 1] {
                let mut round = round(width, kept);
                round.stops = (0..others).map(|i| -2 - i).collect();
                // A later one, too; and the wrong draft and the anchor, which are not the target's words.
                round.stops.extend([100 + at as i32, 100 + width as i32, 99, 7]);
                round.stops.truncate(MAX_STOPS as usize);
                let (outcome, listed) = (round.check(), round.stops.contains(&(100 + at as i32)));
                let stopped = listed && at <= kept;
                assert_eq!(outcome.halt == Halt::Finished, stopped);
                assert_eq!(outcome.emitted.len(), if stopped { at + 1 } else { kept + 1 });
            }
        }
    }
}

/// The budget cuts exactly; what is left of it bounds the next draft.
#[test]
fn budget() {
    for (width, kept) in (1..=MAX).flat_map(|width| (0..width).map(move |kept| (width, kept))) {
        for left in 1..=2 * MAX as u32 {
            for draft_max in 1..MAX as u32 {
                for block in [2, 5, MAX as u32] {
                    let outcome = Round { left, draft_max, block, ..round(width, kept) }.check();
                    assert_eq!(outcome.halt == Halt::Finished, kept + 1 >= left as usize);
                    assert_eq!(outcome.emitted.len(), (left as usize).min(kept + 1));
                }
            }
        }
    }
    let huge = Round { left: u32::MAX, ..round(4, 2) }.check();
    assert_eq!(huge.registers.get(Register::NLeft), u32::MAX - 3);
}

/// No budget: refused before anything is written.
#[test]
fn no_budget() {
    let fault = Round { left: 0, ..round(4, 2) }.run(small()).unwrap_err();
    assert_eq!((fault.code, fault.detail), (ErrorCode::BadRegister, Register::NLeft.wire()));
}

/// The context's last positions: full, or too little for a block.
#[test]
fn end_of_the_context() {
    for (width, kept) in (1..=MAX).flat_map(|width| (0..width).map(move |kept| (width, kept))) {
        for spare in 0..2 * MAX as u32 {
            for block in [2, 5, MAX as u32] {
                let base = round(width, kept);
                let n_ctx = base.past + width as u32 + spare;
                let outcome = Round { n_ctx, block, ..base }.check();
                let room = n_ctx - outcome.registers.get(Register::NPast);
                let expected = match room {
                    0 => Halt::Finished,
                    room if room < block => Halt::NoRoom,
                    _ => Halt::Running,
                };
                assert_eq!(outcome.halt, expected);
            }
        }
    }
}

/// Rounds take the rows in turn, and their number wraps.
#[test]
fn rows_alternate() {
    for round in [0, 1, 2, 3, i32::MAX as u32, 1 << 31, u32::MAX - 1, u32::MAX] {
        Round { round, ..self::round(5, 3) }.check();
    }
}

/// Few words, so that stops, drafts and the target's choices coincide in every way; little budget and room.
#[test]
fn anything() {
    let mut dice = random(1, 1 << 20, 0.0, 1.0).into_iter();
    let mut below = |n: usize| (dice.next().unwrap() * n as f32) as usize;
    let mut halts = [0; 3];
    for round in 0..20_000 {
        let width = 1 + below(MAX);
        let mut words = |n: usize, of: usize| (0..n).map(|_| below(of) as i32).collect::<Vec<_>>();
        let (best, tokens) = (words(width, 2), words(width, 2));
        let stops = if round % 3 == 0 { words(1, 2) } else { words(3, 9) };
        let (past, block, draft_max) =
            (below(30) as u32, 2 + below(MAX - 1) as u32, 1 + below(MAX - 1) as u32);
        let n_ctx = past + (width + below(3 * MAX)) as u32;
        let left = 1 + below(2 * MAX) as u32;
        let round = Round { best, tokens, stops, n_ctx, block, past, left, draft_max, round };
        halts[round.check().halt as usize] += 1;
    }
    assert!(halts.iter().all(|&n| n > 500), "{halts:?}");
}

/// SET_TOKENS of every register: the sum, unless there is none, and nothing else changes.
#[test]
fn set_tokens() {
    let mut step = StepRegisters::default();
    Register::ALL.iter().for_each(|&r| step.set(r, 10 * (1 + r as u32)));
    step.set(Register::NTokens, 4);
    step.set(Register::Round, u32::MAX);
    for &register in Register::ALL {
        for plus in [0, 1, MAX as u32] {
            let mut batch = Batch::new(MAX as u32, 1000);
            let params = params::SetTokens { register: register.wire(), plus };
            let outcome = batch.advance(small(), Op::SetTokens, &[], &[], &params, &[step]);
            match step.get(register).checked_add(plus) {
                Some(sum) => assert_eq!(outcome, Ok(vec![step.with(Register::NTokens, sum)])),
                None => {
                    let fault = outcome.unwrap_err();
                    assert_eq!((fault.code, fault.detail), (ErrorCode::BadRegister, register.wire()));
                }
            }
        }
    }
}

fn next_draft(params: params::NextDraft, registers: StepRegisters) -> Result<Vec<StepRegisters>, Fault> {
    let mut batch = Batch::new(MAX as u32, 1000);
    batch.advance(small(), Op::NextDraft, &[], &[], &params, &[registers])
}

/// All drafts of a chain may be at one position, even at the first.
#[test]
fn next_draft_may_stay_where_it_is() {
    for (past, n_draft) in [(0, 0), (0, 1), (50, 1), (50, 2), (50, MAX as u32 - 1)] {
        let before = StepRegisters::step(past, MAX as u32).with(Register::NDraft, n_draft);
        let mut registers = before;
        for draft in 0..n_draft {
            registers = next_draft(params::NextDraft { draft, stays: 1 }, registers).unwrap()[0];
            assert_eq!(registers, before.with(Register::NTokens, 1));
        }
        let verified = before.with(Register::NTokens, 1 + n_draft);
        let end = params::NextDraft { draft: n_draft, stays: 1 };
        assert_eq!(next_draft(end, registers), Ok(vec![verified]), "{n_draft} drafts at {past}");
    }
}

/// A chain leads from position to position, one token at a time, as long as drafts are wanted. Then the
/// registers are those of the step that verifies them.
#[test]
fn next_draft_leads_through_a_chain() {
    let next = |draft, registers| next_draft(params::NextDraft { draft, stays: 0 }, registers);
    for n_draft in 0..MAX as u32 {
        let before = StepRegisters::step(50, MAX as u32)
            .with(Register::DraftMax, MAX as u32 - 1)
            .with(Register::NDraft, n_draft)
            .with(Register::NCommit, 3);
        let mut registers = before;
        for draft in 0..n_draft {
            registers = next(draft, registers).unwrap()[0];
            assert_eq!(registers, before.with(Register::NPast, 50 + draft).with(Register::NTokens, 1));
        }
        let verified = before.with(Register::NTokens, 1 + n_draft);
        assert_eq!(next(n_draft, registers), Ok(vec![verified]), "{n_draft} drafts");
    }
    let bad = |register: Register| Err(Fault::new(ErrorCode::BadRegister, register.wire()));
    let lost = |fault: Fault| Fault::new(fault.code, fault.detail);
    let registers = |past| StepRegisters::step(past, 1);
    assert_eq!(next(5, registers(3)).map_err(lost), bad(Register::NPast));
    let endless = registers(u32::MAX).with(Register::NDraft, 2);
    assert_eq!(next(1, endless).map_err(lost), bad(Register::NPast));
}

/// A round moves its own rows, and so those of all behind it.
#[test]
fn accept_takes_one_sequence() {
    let mut batch = Batch::new(4, 64).with_slots(2);
    let ids = |batch: &mut Batch, n| {
        let whole = batch.i32([n, 1, 1, 1], &vec![0; n as usize]);
        batch.view(whole, |t| t.token_axis = if n == 4 { 0 } else { t.token_axis })
    };
    let src = [ids(&mut batch, 4), ids(&mut batch, 4), ids(&mut batch, 1)];
    let out = batch.i32([HEAD as u32 + 4, REPORTS as u32, 1, 1], &[OLD; (HEAD + 4) * REPORTS]);
    let dst = [out, ids(&mut batch, 1)];
    let block = |slot| StepRegisters::step(3, 2).with(Register::NLeft, 9).with(Register::Slot, slot);
    let params = params::Accept { block: 2, n_ctx: 64 };
    let mut accept = |blocks: &[_]| batch.advance(small(), Op::Accept, &src, &dst, &params, blocks);
    assert_eq!(accept(&[block(1), block(0)]).unwrap_err(), Fault::new(ErrorCode::BadCount, 2));
    assert!(accept(&[block(1)]).is_ok());
}

#[test]
fn every_block_gets_its_tokens() {
    let mut batch = Batch::new(30, 64).with_slots(3);
    let block = |slot, n_output| {
        StepRegisters::step(3, 9).with(Register::Slot, slot).with(Register::NOutput, n_output)
    };
    let params = params::SetTokens { register: Register::NOutput.wire(), plus: 1 };
    let set =
        batch.advance(small(), Op::SetTokens, &[], &[], &params, &[block(2, 0), block(0, 5), block(1, 8)]);
    let tokens: Vec<_> = set.unwrap().iter().map(|block| block.get(Register::NTokens)).collect();
    assert_eq!(tokens, [1, 6, 9]);
}
