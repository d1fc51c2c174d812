//! A plain step: one token through the whole model.

use std::time::Instant;

use super::{Generation, Outcome, Phase};
use crate::engine::Sequence;

impl Generation {
    /// Runs the last token and chooses the one after it.
    pub(super) fn plain_step(&mut self, sequence: &mut Sequence<'_>) -> Outcome {
        let start = Instant::now();
        sequence.decode(self.last)?;
        self.plain_token(sequence, start)
    }

    /// Chooses the token after a step that was begun at `start`.
    pub(super) fn plain_token(&mut self, sequence: &mut Sequence<'_>, start: Instant) -> Outcome {
        self.last = self.choose(sequence, 0)?;
        self.speculation.stepped(self.last, start.elapsed());
        Ok((Phase::Next, self.emit()?))
    }
}
