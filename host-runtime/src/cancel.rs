//! Cancellation of work under way, by a flag that is shared between the work and its callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to end some work. All clones share one flag, and a cancellation cannot be taken back.
///
/// The work looks at the flag between short steps (a step of the device, a piece of a weight). It then ends
/// in order and returns what it has by then.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels the work. This is safe in a handler of signals, and on any thread.
    pub fn cancel(&self) {
        // Relaxed: the flag publishes no other memory.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Succeeds unless the work was cancelled.
    ///
    /// # Errors
    /// [`Cancelled`] if it was.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

/// The work was cancelled by [`Cancel::cancel`], and there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted before the work was done; start it again")]
pub struct Cancelled;
