//! A plain step: one token through the whole model.

use std::time::Instant;

use super::{Generation, Outcome, Phase};
use crate::engine::Engine;

impl Generation {
    /// Runs the last token and chooses the one after it.
    pub(super) fn plain_step(&mut self, engine: &mut Engine) -> Outcome {
        let start = Instant::now();
        engine.decode(self.last)?;
        self.last = self.choose(engine, 0)?;
        self.speculation.stepped(self.last, start.elapsed());
        Ok((Phase::Next, self.emit()?))
    }
}
