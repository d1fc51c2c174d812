//! Panics of the template engine become errors: no template may end the process.
//!
//! minijinja 3.1 divides by zero in `loop.cycle()`, takes a frame that is not there after `continue` inside
//! of `with`, and, where overflows are checked, negates the smallest integer in
//! `'ab'[::-9223372036854775808]`.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// In contained work: what the last panic said.
    static CONTAINED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic gives its place and message, and nobody else is told.
pub(super) fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let contained = CONTAINED.with_borrow_mut(|message| {
                message.as_mut().map(|message| *message = panic.to_string()).is_some()
            });
            if !contained {
                others(panic);
            }
        }));
    });
    CONTAINED.set(Some(String::new()));
    // What the work can leave half done is the engine's: the next use of a template begins anew.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let message = CONTAINED.take().unwrap_or_default();
    result.map_err(|_| message)
}
