//! The boundary to C: what comes in is checked, what goes out is owned by one side, and no panic crosses.
//!
//! Handles and places for results arrive as `Option`s of references, which have the layout of pointers that
//! may be null; what they lead to is the caller's contract, as in any C library. Texts are the one thing that
//! has to be read through a bare pointer.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::failure::{Failure, HEXFLASH_OK, Status};

/// Result of the inside of a call.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Text of C, which may be null.
///
/// It can be made of any pointer: whoever reads it has to know where it is from.
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Text of an argument.
    ///
    /// # Safety
    /// 1. The pointer is null, or leads to bytes that end with a zero byte.
    /// 2. They stay as they are as long as the call lasts, and the value is not kept beyond it.
    pub(crate) unsafe fn new(pointer: *const c_char) -> Self {
        Self(pointer)
    }

    /// The text; `None` where it is null.
    ///
    /// # Errors
    /// It is no UTF-8.
    pub(crate) fn get(&self, name: &str) -> Outcome<Option<&str>> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: it is not null, so that it leads to bytes that end with a zero byte and stay as they are (1
        // and 2 of `new`); the borrow of this value keeps the result within the call (2).
        let bytes = unsafe { CStr::from_ptr(self.0) };
        let no_utf8 = |error: std::str::Utf8Error| {
            let at = error.valid_up_to();
            Failure::input(format!("the argument {name} is no UTF-8 from byte {at} on; encode it so"))
        };
        bytes.to_str().map(Some).map_err(no_utf8)
    }

    /// The text.
    ///
    /// # Errors
    /// It is null, or no UTF-8.
    pub(crate) fn require(&self, name: &str) -> Outcome<&str> {
        self.get(name)?.ok_or_else(|| Failure::missing(name))
    }
}

/// Runs the inside of a call. Failures and panics become its status, and the last failure of the thread.
pub(crate) fn call(run: impl FnOnce() -> Outcome<Status>) -> Status {
    // What a panic may have left half done is behind locks, which are poisoned by it.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failure.report(),
        Err(cause) => Failure::panic(&*cause).report(),
    }
}

/// Runs the inside of a call that makes something, and puts that into the caller's place: null after a
/// failure.
pub(crate) fn give<T>(
    place: Option<&mut MaybeUninit<*mut T>>,
    name: &str,
    run: impl FnOnce() -> Outcome<*mut T>,
) -> Status {
    call(|| {
        let place = place.ok_or_else(|| Failure::missing(name))?.write(std::ptr::null_mut());
        *place = run()?;
        Ok(HEXFLASH_OK)
    })
}

/// Handle of an argument.
///
/// # Errors
/// It is null.
pub(crate) fn given<T>(handle: Option<T>, name: &str) -> Outcome<T> {
    handle.ok_or_else(|| Failure::missing(name))
}

/// Pointer to a new handle, which is the caller's.
pub(crate) fn handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Copy of a text for the caller, who frees it.
///
/// # Errors
/// There is a zero byte in it.
pub(crate) fn owned(text: String) -> Outcome<*mut c_char> {
    let text =
        CString::new(text).map_err(|_| Failure::system("a result has a zero byte; please report it"))?;
    Ok(text.into_raw())
}

/// Locks what several threads use, one after the other.
///
/// # Errors
/// A bug has left it half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Outcome<MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| Failure::poisoned())
}

/// Locks what one call at a time may use.
///
/// # Errors
/// Another call uses it, or a bug has left it half done.
pub(crate) fn lock_alone<'a, T>(mutex: &'a Mutex<T>, name: &str) -> Outcome<MutexGuard<'a, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::Poisoned(_) => Failure::poisoned(),
        TryLockError::WouldBlock => {
            Failure::input(format!("another call uses this {name}; wait until it has returned"))
        }
    })
}

/// Frees a text that a function of this library gave as a `char *`. NULL is allowed.
///
/// # Safety
/// 1. The text is NULL, or such a text that was not freed yet.
/// 2. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the pointer is of `CString::into_raw` in `owned`, the one place that such texts come from,
        // was not freed yet (1), and is not used any more (2).
        drop(unsafe { CString::from_raw(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{HEXFLASH_ERROR_BUG, HEXFLASH_ERROR_INPUT, hexflash_last_error_text};

    fn last() -> String {
        // SAFETY: the text is good until the next failure on this thread.
        unsafe { CStr::from_ptr(hexflash_last_error_text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error_and_poisons_what_it_held() {
        let shared = Mutex::new(());
        let status = call(|| {
            let _held = lock(&shared)?;
            panic!("oh no");
        });
        assert_eq!(status, HEXFLASH_ERROR_BUG);
        assert!(last().contains("oh no"), "{}", last());
        assert_eq!(call(|| lock(&shared).map(|_| HEXFLASH_OK)), HEXFLASH_ERROR_BUG);
        assert_eq!(call(|| lock_alone(&shared, "handle").map(|_| HEXFLASH_OK)), HEXFLASH_ERROR_BUG);
    }

    #[test]
    fn texts_are_checked() {
        // SAFETY: the bytes are constants that end with a zero byte.
        let (good, bad) = unsafe { (Text::new(c"a\u{fc}".as_ptr()), Text::new(c"a\xff".as_ptr())) };
        assert_eq!(good.require("prompt").unwrap(), "a\u{fc}");
        assert_eq!(call(|| bad.get("prompt").map(|_| HEXFLASH_OK)), HEXFLASH_ERROR_INPUT);
        assert!(last().contains("the argument prompt is no UTF-8 from byte 1 on"), "{}", last());
        // SAFETY: it is null.
        let none = unsafe { Text::new(std::ptr::null()) };
        assert_eq!(none.get("prompt").unwrap(), None);
        assert_eq!(call(|| none.require("prompt").map(|_| HEXFLASH_OK)), HEXFLASH_ERROR_INPUT);
        assert!(last().contains("prompt is NULL"), "{}", last());
    }

    #[test]
    fn a_place_is_null_after_a_failure_and_must_be_there() {
        let mut place = MaybeUninit::new(std::ptr::dangling_mut::<u8>());
        let fails = || Err(Failure::input("x"));
        assert_eq!(give(Some(&mut place), "place", fails), HEXFLASH_ERROR_INPUT);
        // SAFETY: it was made with a value.
        assert!(unsafe { place.assume_init() }.is_null());
        assert_eq!(give(None, "place", || Ok(std::ptr::dangling_mut::<u8>())), HEXFLASH_ERROR_INPUT);
        assert!(last().contains("place is NULL"), "{}", last());
    }

    #[test]
    fn one_call_at_a_time() {
        let shared = Mutex::new(());
        let _held = shared.lock().unwrap();
        assert_eq!(call(|| lock_alone(&shared, "generation").map(|_| HEXFLASH_OK)), HEXFLASH_ERROR_INPUT);
        assert!(last().contains("another call uses this generation"), "{}", last());
    }
}
