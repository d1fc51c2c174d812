//! Blocks that the host checks: drafts of any source are verified in one step, then compared row by row with
//! what the sampler draws. One row is one step of the generation.

use std::time::Instant;

use super::{Finish, GenerateError, Generation, Outcome, Phase};
use crate::engine::Sequence;
use crate::model::MAX_VERIFY;

/// A block that was verified, and its rows that were compared.
pub(super) struct BlockCheck {
    /// Rows whose tokens are emitted.
    pub(super) row: usize,
    /// Drafts that were verified.
    pub(super) taken: u32,
    /// When drafting began.
    pub(super) start: Instant,
}

impl Generation {
    /// Drafts up to `length` tokens and verifies those that are worth it, or runs a plain step if none is.
    pub(super) fn begin_block(&mut self, sequence: &mut Sequence<'_>, length: u32) -> Outcome {
        let start = Instant::now();
        let taken = self.draft_block(sequence, length)?;
        if taken == 0 {
            return self.plain_step(sequence);
        }
        sequence.verify(&self.block)?;
        self.compare_row(sequence, BlockCheck { row: 0, taken, start })
    }

    /// Makes a block of the last token and up to `length` drafts; how many of them are worth it.
    pub(super) fn draft_block(
        &mut self,
        sequence: &mut Sequence<'_>,
        length: u32,
    ) -> Result<u32, GenerateError> {
        let start = Instant::now();
        sequence.catch_up()?;
        self.block.clear();
        self.block.push(self.last);
        if self.speculation.is_model() {
            let drafts = sequence.draft(self.last, length)?;
            self.block.extend_from_slice(&drafts);
        } else {
            self.speculation.guess(length as usize, &mut self.block);
        }
        let vocabulary = sequence.engine().config().n_vocab;
        if let Some(stranger) = self.block.iter().position(|&token| token >= vocabulary) {
            self.block.truncate(stranger);
        }
        self.block.truncate(1 + length as usize);
        self.speculation.drafted(start.elapsed());
        let mut margins = [0.0; MAX_VERIFY as usize];
        let knows_margins = self.speculation.is_model() && self.speculation.is_adaptive();
        if knows_margins {
            sequence.engine_mut().read_margins(&mut margins[..self.block.len() - 1]);
        }
        let margins = knows_margins.then_some(&margins[..]);
        let taken = self.speculation.take(self.last, &self.block[1..], margins);
        self.block.truncate(1 + taken as usize);
        Ok(taken)
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
        self.speculation.count(check.taken, check.row - 1);
        self.block.truncate(check.row);
        self.block.push(self.last);
        self.speculation.rounded(check.taken, &self.block[1..], check.start.elapsed());
        Ok(())
    }
}
