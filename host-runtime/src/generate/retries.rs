//! How often a lost device is started again in the course of a generation.

use super::error::{GenerateError, MAX_RETRIES};
use crate::engine::{EngineError, Sequence};

/// What became of a lost device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// It has the context again.
    Done,
    /// The generation was cancelled, so the device was not started again.
    Cancelled,
}

/// Restarts of the device.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// All of them.
    total: u32,
    /// Those since the text last grew.
    in_a_row: u32,
    /// Length of the text at the last one.
    tokens: Option<usize>,
}

impl Retries {
    /// Restarts since the beginning.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Brings the engine back after `loss`, with `tokens` generated so far, unless the generation is
    /// cancelled.
    ///
    /// # Errors
    /// The last loss, when there were too many; or what is no loss.
    pub(crate) fn recover(
        &mut self,
        sequence: &mut Sequence<'_>,
        mut loss: EngineError,
        tokens: usize,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Recovery, GenerateError> {
        if self.tokens.replace(tokens) != Some(tokens) {
            self.in_a_row = 0;
        }
        while self.in_a_row < MAX_RETRIES {
            if is_cancelled() {
                tracing::warn!("{loss}; it is not started again, because the generation was interrupted");
                return Ok(Recovery::Cancelled);
            }
            self.in_a_row += 1;
            self.total += 1;
            tracing::warn!("{loss}; starting it again ({} of {MAX_RETRIES})", self.in_a_row);
            match sequence.engine_mut().recover() {
                Ok(()) => return Ok(Recovery::Done),
                Err(error) if error.is_loss() => loss = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(loss.into())
    }
}
