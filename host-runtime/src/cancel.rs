//! Asking for the end of work under way: one flag, shared by those who ask and those who work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks for the end of some work. All clones share one flag, and what was asked for cannot be taken back.
///
/// Whoever works looks at it between steps that are short (a step of the device, a piece of a weight), leaves
/// everything in order and gives what is there by then.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks for the end. This is safe in a handler of signals, and on any thread.
    pub fn cancel(&self) {
        // Relaxed: the flag publishes no other memory.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for the end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on, unless somebody has asked for the end.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

/// Somebody has asked for the end by [`Cancel::cancel`], and there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted before the work was done; start it again")]
pub struct Cancelled;
