//! A device that was lost in the middle of a text: started again, with the model and the contexts that it
//! had.
//!
//! Nothing on the device survives. The engine keeps the programs' blocks, the weights' images and the tokens
//! of all sequences, maps and loads everything under the ids that it had, and runs the tokens again. As steps
//! of any width give the same bits, states and caches are what they were.
//!
//! The health of a sequence, which tells whether its tokens can be computed again:
//!
//! ```text
//!          a step fails, the device is lost              recover(): the tokens run again
//! Sound ------------------------------------> Lost ------------------------------------> Sound
//!   |                                           ^  |
//!   |                                           +--+ the device is lost once more
//!   +--- a step fails on a device that answers --> Damaged --reset()--> Sound, without a context
//! ```

use super::engine::Engine;
use super::state::Health;
use super::view::Sequence;
use crate::runtime::error::EngineError;

impl Engine {
    /// Starts the device again and computes the contexts of all sequences again, but of those that an earlier
    /// step has damaged. Afterwards no rounds are under way, and there are neither logits nor snapshots.
    ///
    /// # Errors
    /// The device failed again. The call can be repeated.
    pub fn recover(&mut self) -> Result<(), EngineError> {
        for text in self.texts.iter_mut().filter(|text| text.health == Health::Sound) {
            text.health = Health::Lost;
        }
        if let Some(placed) = &mut self.placed {
            placed.recover()?;
        }
        self.runtime.restart()?;
        (self.pending, self.rounds) = Default::default();
        self.snapshots.forget_all();
        for slot in 0..self.texts.len() {
            if self.texts[slot].health == Health::Lost {
                (Sequence { engine: self, slot }).rebuild()?;
            }
        }
        Ok(())
    }
}
