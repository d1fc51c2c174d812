//! Failures: a code for programs, a line for people, and the last one of each thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};

use hexflash::{Blame, Error};

/// How a call went: zero or more is success, less is a failure.
pub type Status = i32;

/// Success.
pub const HEXFLASH_OK: Status = 0;
/// Success: the text has ended, and there is no further piece.
pub const HEXFLASH_END: Status = 1;
/// Files, settings or arguments are at fault; the same call will fail again.
pub const HEXFLASH_ERROR_INPUT: Status = -1;
/// The machine, the device or hexflash itself failed.
pub const HEXFLASH_ERROR_SYSTEM: Status = -2;
/// Nothing failed: the work was cancelled, and there is no result.
pub const HEXFLASH_ERROR_CANCELLED: Status = -3;
/// A bug in hexflash: the call was given up. Handles that it had can only be freed from then on.
pub const HEXFLASH_ERROR_BUG: Status = -4;

/// Failure of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

/// Last failure of a thread.
struct Last {
    status: Status,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Failure {
    /// Failure that arguments are charged with.
    pub(crate) fn input(text: impl Into<String>) -> Self {
        Self { status: HEXFLASH_ERROR_INPUT, text: text.into() }
    }

    /// Argument that is missing.
    pub(crate) fn missing(name: &str) -> Self {
        Self::input(format!("the argument {name} is NULL; give one"))
    }

    /// Failure of hexflash itself.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        Self { status: HEXFLASH_ERROR_SYSTEM, text: text.into() }
    }

    /// Panic of this call.
    pub(crate) fn panic(cause: &(dyn Any + Send)) -> Self {
        let words = cause.downcast_ref::<&str>().copied();
        let words = words.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
        let words = words.unwrap_or("a panic without words");
        let text = format!("a bug in hexflash ({words}): the call was given up; please report it");
        Self { status: HEXFLASH_ERROR_BUG, text }
    }

    /// Panic of an earlier call, which has left a handle as it was in the midst of work.
    pub(crate) fn poisoned() -> Self {
        let text = "an earlier call on this handle was given up over a bug; free it, and open another one";
        Self { status: HEXFLASH_ERROR_BUG, text: text.to_owned() }
    }

    /// Makes it the last failure of this thread, and gives its code.
    pub(crate) fn report(self) -> Status {
        let text = CString::new(self.text.replace('\0', "\u{fffd}")).unwrap_or_default();
        // A thread that ends keeps none any more.
        let _ = LAST.try_with(|last| last.replace(Some(Last { status: self.status, text })));
        self.status
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let status = match error.blame() {
            Blame::Input => HEXFLASH_ERROR_INPUT,
            Blame::System => HEXFLASH_ERROR_SYSTEM,
            Blame::Cancelled => HEXFLASH_ERROR_CANCELLED,
        };
        Self { status, text: error.to_string() }
    }
}

/// The code of the last failure on this thread; `HEXFLASH_OK` if there was none. A success does not change
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_last_error_code() -> Status {
    let code = |last: &RefCell<Option<Last>>| last.borrow().as_ref().map_or(HEXFLASH_OK, |last| last.status);
    // A thread that ends has none any more.
    LAST.try_with(code).unwrap_or(HEXFLASH_OK)
}

/// The text of the last failure on this thread, in one line with a cause and a remedy; empty if there was
/// none. It belongs to the library, and is good until the next failure on this thread or the thread's end.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_last_error_text() -> *const c_char {
    let text = |last: &RefCell<Option<Last>>| last.borrow().as_ref().map(|last| last.text.as_ptr());
    LAST.try_with(text).ok().flatten().unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use hexflash::cancel::Cancelled;

    use super::*;

    #[test]
    fn the_code_says_what_a_failure_is_charged_to() {
        assert_eq!(hexflash_last_error_code(), HEXFLASH_OK);
        for (failure, status) in [
            (Failure::from(Cancelled), HEXFLASH_ERROR_CANCELLED),
            (Failure::missing("model"), HEXFLASH_ERROR_INPUT),
            (Failure::system("x"), HEXFLASH_ERROR_SYSTEM),
            (Failure::panic(&"words"), HEXFLASH_ERROR_BUG),
        ] {
            assert_eq!(failure.report(), status);
            assert_eq!(hexflash_last_error_code(), status);
        }
        // Other threads have failures of their own.
        let other = std::thread::spawn(|| hexflash_last_error_code()).join().unwrap();
        assert_eq!(other, HEXFLASH_OK);
    }
}
