//! Blocks that the host checks: drafts of any source are verified in one step, then compared row by row with
//! what the sampler draws. One row is one step of the generation.

use std::time::Instant;

use super::{Finish, GenerateError, Generation, Outcome, Phase};
use crate::engine::Sequence;
use crate::model::MAX_VERIFY;
use crate::speculation::{By, Choice};

/// A block that was verified, and its rows that were compared.
pub(super) struct BlockCheck {
    /// Rows whose tokens are emitted.
    pub(super) row: usize,
    /// Drafts that were verified.
    pub(super) taken: u32,
    /// Who made them.
    pub(super) by: By,
    /// When drafting began.
    pub(super) start: Instant,
}

impl BlockCheck {
    /// Of a block none of whose rows was compared yet.
    pub(super) fn new(by: By, block: &[u32], start: Instant) -> Self {
        Self { row: 0, taken: block.len() as u32 - 1, by, start }
    }
}

impl Generation {
    /// Verifies a block of drafts as chosen, or runs a plain step if there are none.
    pub(super) fn begin_block(&mut self, sequence: &mut Sequence<'_>, choice: Choice) -> Outcome {
        let start = Instant::now();
        let Some(by) = self.draft_block(sequence, choice)? else { return self.plain_step(sequence) };
        sequence.verify(&self.block)?;
        self.compare_row(sequence, BlockCheck::new(by, &self.block, start))
    }

    /// Makes a block of the last token and drafts as chosen; who made them. `None` if none of them is worth
    /// it.
    pub(super) fn draft_block(
        &mut self,
        sequence: &mut Sequence<'_>,
        choice: Choice,
    ) -> Result<Option<By>, GenerateError> {
        let (n, by) = match choice {
            Choice::Plain => return Ok(None),
            Choice::Guess(n) => (n, By::Host),
            Choice::Draft(length) => match self.draft_by_model(sequence, length)? {
                Choice::Plain => return Ok(None),
                Choice::Guess(n) => (n, By::Host),
                Choice::Draft(n) => (n, By::Model),
            },
        };
        if by == By::Host {
            self.block.clear();
            self.block.push(self.last);
            self.block.extend_from_slice(self.speculation.guess(n));
        }
        self.block.truncate(1 + n as usize);
        let vocabulary = sequence.engine().config().n_vocab;
        if let Some(stranger) = self.block.iter().position(|&token| token >= vocabulary) {
            self.block.truncate(stranger);
        }
        Ok((self.block.len() > 1).then_some(by))
    }

    /// Makes a block of the last token and up to `length` drafts of the draft model; how many of them are
    /// worth it, or what else is.
    fn draft_by_model(&mut self, sequence: &mut Sequence<'_>, length: u32) -> Result<Choice, GenerateError> {
        let start = Instant::now();
        sequence.catch_up()?;
        self.block.clear();
        self.block.push(self.last);
        let drafts = sequence.draft(self.last, length)?;
        self.block.extend_from_slice(&drafts);
        self.speculation.drafted(start.elapsed());
        let mut margins = [0.0; MAX_VERIFY as usize];
        let margins = self.speculation.is_adaptive().then(|| {
            let margins = &mut margins[..drafts.len()];
            sequence.engine_mut().read_margins(margins);
            &*margins
        });
        let room = self.draft_room(sequence, 0);
        Ok(self.speculation.take((self.last, &[]), &drafts, margins, room))
    }

    /// Goes on with a block, unless it is cancelled: then it ends with the rows that are emitted.
    pub(super) fn check_row(&mut self, sequence: &mut Sequence<'_>, check: BlockCheck) -> Outcome {
        if self.out.is_cancelled() {
            self.end_block(sequence, &check)?;
            return Ok((Phase::Next, Some(Finish::Interrupted)));
        }
        self.compare_row(sequence, check)
    }

    /// Chooses the token after the next row. The block goes on if it was drafted; after its last row there is
    /// no draft.
    pub(super) fn compare_row(&mut self, sequence: &mut Sequence<'_>, mut check: BlockCheck) -> Outcome {
        self.last = self.choose(sequence, check.row)?;
        let finish = self.emit()?;
        check.row += 1;
        if finish.is_none() && self.block.get(check.row) == Some(&self.last) {
            self.out.was_drafted();
            return Ok((Phase::Checking(check), None));
        }
        if finish.is_none() {
            self.out.replaces(check.taken - (check.row as u32 - 1));
        }
        self.end_block(sequence, &check)?;
        Ok((Phase::Next, finish))
    }

    /// Keeps the rows that were compared.
    fn end_block(&mut self, sequence: &mut Sequence<'_>, check: &BlockCheck) -> Result<(), GenerateError> {
        sequence.commit(check.row as u32)?;
        self.speculation.count(check.by, check.taken, check.row - 1);
        self.block.truncate(check.row);
        self.block.push(self.last);
        self.speculation.rounded(check.by, check.taken, &self.block[1..], check.start.elapsed());
        Ok(())
    }
}
