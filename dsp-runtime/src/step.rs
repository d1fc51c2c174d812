//! A step: whose rows are where on the token axis.
//!
//! A step has a register block for every sequence that takes part in it. What kernels need of them are the
//! *spans*: the adjacent rows of one sequence, with the slot that has its state. Units of work are numbered
//! span by span, and a [`Cursor`] leads a worker from one to the next, so that an op runs in one job however
//! many sequences there are.

use heapless::Vec;
use hexflash_abi::program::{MAX_SLOTS, ProgramHeader};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::check_step;
use hexflash_abi::{ErrorCode, Fault};

/// Most register blocks of a step.
pub const MAX_BLOCKS: usize = MAX_SLOTS as usize;

/// The rows of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the sequence's state. No two spans have the same.
    pub slot: usize,
    /// First row on the token axis.
    pub first: usize,
    /// Rows.
    pub rows: usize,
    /// Tokens of the sequence before these.
    pub n_past: usize,
    /// Tokens on the tapes that are to be folded before these.
    pub n_commit: usize,
    /// Whether the rows enter the states at once, whatever the op defers.
    pub fold: bool,
}

impl Span {
    /// No rows.
    pub const NONE: Self = Self { slot: 0, first: 0, rows: 0, n_past: 0, n_commit: 0, fold: false };

    /// Index, on the outermost axis of a state, of batch `batch` of `batches`.
    #[inline(always)]
    pub const fn entry(&self, batch: usize, batches: usize) -> usize {
        self.slot * batches + batch
    }

    /// Tokens of the sequence after these.
    #[inline(always)]
    pub const fn end(&self) -> usize {
        self.n_past + self.rows
    }

    /// Whether an op that was recorded with `defer` leaves the states as they are, and tapes the rows.
    #[inline(always)]
    pub const fn defers(&self, defer: bool) -> bool {
        defer && !self.fold
    }
}

/// The register blocks of a step, as ops have left them, and the spans that follow from them. It is kept from
/// step to step: it is too large to be made for every op.
pub struct Step {
    /// As the host sent them.
    sent: Vec<StepRegisters, MAX_BLOCKS>,
    blocks: Vec<StepRegisters, MAX_BLOCKS>,
    spans: Vec<Span, MAX_BLOCKS>,
    rows: usize,
    /// Its program has nothing more to do.
    ended: bool,
}

impl Step {
    /// A step without rows.
    pub const fn new() -> Self {
        Self { sent: Vec::new(), blocks: Vec::new(), spans: Vec::new(), rows: 0, ended: false }
    }

    /// A step with these blocks, [`MAX_BLOCKS`] at most, which are yet to be [checked](Self::check).
    pub fn begin(&mut self, blocks: impl Iterator<Item = StepRegisters>) {
        self.sent.clear();
        self.sent.extend(blocks.take(MAX_BLOCKS));
        self.rewind();
    }

    /// The same step again, from what the host sent.
    pub fn rewind(&mut self) {
        self.blocks.clone_from(&self.sent);
        self.ended = false;
        self.lay_out();
    }

    /// Checks the blocks against a program's bounds, and lays out their rows.
    ///
    /// # Errors
    /// Those of [`check_step`].
    pub fn check(&mut self, header: &ProgramHeader) -> Result<(), Fault> {
        check_step(header, &self.blocks)?;
        self.lay_out();
        Ok(())
    }

    /// Rows that follow each other. Of blocks that nobody has checked they may be any numbers.
    fn lay_out(&mut self) {
        self.spans.clear();
        self.rows = 0;
        for block in &self.blocks {
            let get = |register| block.get(register) as usize;
            let rows = get(Register::NTokens);
            let span = Span {
                slot: get(Register::Slot),
                first: self.rows,
                rows,
                n_past: get(Register::NPast),
                n_commit: get(Register::NCommit),
                fold: get(Register::Fold) != 0,
            };
            // There is a place for each: both lists have the same capacity.
            let _ = self.spans.push(span);
            self.rows = self.rows.saturating_add(rows);
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> &[StepRegisters] {
        &self.blocks
    }

    /// The blocks, to change: they must be checked afterwards.
    pub fn blocks_mut(&mut self) -> &mut [StepRegisters] {
        &mut self.blocks
    }

    /// The only block.
    ///
    /// # Errors
    /// [`ErrorCode::BadCount`] with the number of blocks, if there is not exactly one.
    pub fn only_mut(&mut self) -> Result<&mut StepRegisters, Fault> {
        let count = self.blocks.len() as u32;
        match &mut self.blocks[..] {
            [only] => Ok(only),
            _ => Err(Fault::new(ErrorCode::BadCount, count)),
        }
    }

    /// Says that its program has nothing more to do.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether no further op runs: the program has [ended](Self::end), or the sequence has halted. A step of
    /// several blocks has none that has halted: see [`check_step`].
    pub fn halted(&self) -> bool {
        self.ended || matches!(&self.blocks[..], [only] if only.halted())
    }

    /// Rows of the token axis.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of each block, in the blocks' order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The spans over `rows` rows of an op. One span alone has all of them: in a program with one slot they
    /// need not lie on the token axis. Several have the token axis between them, which is then the op's (the
    /// shape rules). `only` is where the one span goes.
    #[inline]
    pub fn spans_over<'s>(&'s self, rows: usize, only: &'s mut Option<Span>) -> &'s [Span] {
        match &self.spans[..] {
            [span] => core::slice::from_ref(only.insert(Span { rows, ..*span })),
            spans => spans,
        }
    }

    /// Checks that every sequence commits no more than its tape, which has room for `room` tokens, can hold,
    /// nor than there were: such a commit would be a guess, as would one without a tape. And that the tape
    /// has room for the rows that an op with this `defer` puts there.
    ///
    /// # Errors
    /// [`ErrorCode::BadRegister`].
    pub fn check_tapes(&self, room: usize, defer: bool) -> Result<(), Fault> {
        let bad = |register: Register| Err(Fault::new(ErrorCode::BadRegister, register.wire()));
        if self.spans.iter().any(|span| span.n_commit > room || span.n_commit > span.n_past) {
            return bad(Register::NCommit);
        }
        if self.spans.iter().any(|span| span.defers(defer) && span.rows > room) {
            return bad(Register::NTokens);
        }
        Ok(())
    }
}

impl Default for Step {
    fn default() -> Self {
        Self::new()
    }
}

/// Units of work of all spans, of which a span has so many.
pub fn units(spans: &[Span], of_span: impl Fn(&Span) -> usize) -> usize {
    spans.iter().fold(0, |sum, span| sum.saturating_add(of_span(span)))
}

/// Where a worker is among the spans. The units that a worker claims only grow, so that it moves from span to
/// span and searches nothing; with one span it is a comparison per unit.
pub struct Cursor<'s> {
    span: &'s Span,
    left: &'s [Span],
    /// The span's first unit.
    start: usize,
    /// One past its last.
    end: usize,
}

impl<'s> Cursor<'s> {
    /// Before the first unit. `of_span` says how many units a span has, as [`units`] was told.
    #[inline(always)]
    pub fn new(spans: &'s [Span], of_span: impl Fn(&Span) -> usize) -> Self {
        let (span, left) = spans.split_first().unwrap_or((&Span::NONE, &[]));
        Self { span, left, start: 0, end: of_span(span) }
    }

    /// The span of a claimed unit, and the unit's number in it. `of_span` is that of [`new`](Self::new).
    ///
    /// # Panics
    /// If there are fewer units than that.
    #[inline(always)]
    pub fn seek(&mut self, unit: usize, of_span: impl Fn(&Span) -> usize) -> (&'s Span, usize) {
        if unit >= self.end {
            self.advance(unit, of_span);
        }
        (self.span, unit - self.start)
    }

    /// Moves on to the span of a unit. A function of its own, so that the loops of kernels, which need all
    /// registers, leave the cursor in memory.
    #[cold]
    #[inline(never)]
    fn advance(&mut self, unit: usize, of_span: impl Fn(&Span) -> usize) {
        while unit >= self.end {
            let Some((next, left)) = self.left.split_first() else { panic!("a unit past the last span") };
            (self.span, self.left, self.start) = (next, left, self.end);
            self.end += of_span(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(blocks: &[StepRegisters]) -> Step {
        let mut step = Step::new();
        step.begin(blocks.iter().copied());
        step
    }

    fn block(slot: u32, n_past: u32, n_tokens: u32) -> StepRegisters {
        StepRegisters::step(n_past, n_tokens).with(Register::Slot, slot)
    }

    #[test]
    fn rows_follow_each_other_in_the_order_of_the_blocks() {
        let step = step(&[block(5, 7, 3), block(0, 0, 1).with(Register::Fold, 1), block(2, 9, 17)]);
        let spans: std::vec::Vec<_> =
            step.spans().iter().map(|s| (s.slot, s.first, s.rows, s.n_past, s.end(), s.fold)).collect();
        assert_eq!(spans, [(5, 0, 3, 7, 10, false), (0, 3, 1, 0, 1, true), (2, 4, 17, 9, 26, false)]);
        assert_eq!((step.rows(), step.halted()), (21, false));
    }

    /// What ops change is laid out when it has been checked, and forgotten when the step begins again.
    #[test]
    fn a_step_can_be_run_again() {
        let header = ProgramHeader { n_slots: 4, ..ProgramHeader::new(8, 64) };
        let mut step = step(&[block(3, 1, 2), block(1, 5, 2)]);
        step.blocks_mut()[0].set(Register::NTokens, 6);
        step.check(&header).unwrap();
        assert_eq!((step.spans()[1].first, step.rows()), (6, 8));
        step.blocks_mut()[0].set(Register::NTokens, 7);
        let fault = Fault::new(ErrorCode::BadRegister, Register::NTokens.wire());
        assert_eq!(step.check(&header), Err(fault));
        step.rewind();
        assert_eq!(step.blocks(), [block(3, 1, 2), block(1, 5, 2)]);
        assert_eq!((step.spans()[1].first, step.rows()), (2, 4));
    }

    #[test]
    fn one_block_alone_halts_and_may_be_changed() {
        let halted = block(0, 0, 1).with(Register::Halt, 1);
        assert!(step(&[halted]).halted() && step(&[halted]).only_mut().is_ok());
        let mut two = step(&[halted, block(1, 0, 1)]);
        assert!(!two.halted());
        assert_eq!(two.only_mut().unwrap_err(), Fault::new(ErrorCode::BadCount, 2));
    }

    /// A worker that claims any of the units finds each where a plain count finds it, past spans without
    /// units as well.
    #[test]
    fn a_cursor_finds_what_a_count_finds() {
        let blocks: std::vec::Vec<_> = [3, 1, 17, 2, 1].into_iter().map(|rows| block(0, 0, rows)).collect();
        let step = step(&blocks);
        for of_span in [|s: &Span| s.rows, |s: &Span| s.rows / 2 * 3, |_: &Span| 4] {
            let plain: std::vec::Vec<_> =
                step.spans().iter().flat_map(|s| (0..of_span(s)).map(move |i| (*s, i))).collect();
            assert_eq!(units(step.spans(), of_span), plain.len());
            for stride in [1, 2, 5] {
                for from in 0..stride.min(plain.len()) {
                    let mut cursor = Cursor::new(step.spans(), of_span);
                    for unit in (from..plain.len()).step_by(stride) {
                        let (span, local) = cursor.seek(unit, of_span);
                        assert_eq!((*span, local), plain[unit]);
                    }
                }
            }
        }
    }

    #[test]
    fn one_span_has_all_rows_of_an_op_and_several_have_their_own() {
        let mut only = None;
        assert_eq!(step(&[block(1, 2, 3)]).spans_over(9, &mut only)[0].rows, 9);
        let two = step(&[block(1, 2, 3), block(0, 0, 4)]);
        assert_eq!(two.spans_over(9, &mut None), two.spans());
    }

    #[test]
    fn nobody_commits_more_than_the_tape_holds() {
        let with = |commit| block(0, 4, 1).with(Register::NCommit, commit);
        let bad = Err(Fault::new(ErrorCode::BadRegister, Register::NCommit.wire()));
        assert_eq!(step(&[with(4), with(3)]).check_tapes(4, false), Ok(()));
        assert_eq!(step(&[with(0), with(4)]).check_tapes(3, false), bad);
        assert_eq!(step(&[with(0), with(5)]).check_tapes(9, false), bad);
    }

    /// Rows that fold at once need no room on the tape.
    #[test]
    fn nobody_defers_more_than_the_tape_holds() {
        let bad = Err(Fault::new(ErrorCode::BadRegister, Register::NTokens.wire()));
        let (few, many) = (block(0, 4, 3), block(1, 9, 20));
        assert_eq!(step(&[few, many]).check_tapes(16, false), Ok(()));
        assert_eq!(step(&[few, many]).check_tapes(16, true), bad);
        assert_eq!(step(&[few, many.with(Register::Fold, 1)]).check_tapes(16, true), Ok(()));
    }
}
