//! Notices the end of the process on the DSP. The vendor's library reports it by a call on one of its own
//! threads.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::control::control;
use super::error::{Call, HtpError, check};
use super::ffi::{NotifyRegister, session};
use super::library::Library;

/// What has become of a session's process.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// 0 while nothing is known to be wrong, else one more than the status.
    fate: AtomicU32,
}

/// One per library and domain. It lives as long as the process, because a registration cannot be undone.
static WATCHES: LazyLock<Mutex<HashMap<(usize, c_int), &'static Watch>>> = LazyLock::new(Mutex::default);

/// Called by the library.
unsafe extern "C" fn notify(context: *mut c_void, _domain: c_int, _session: c_int, status: u32) -> c_int {
    const UP: u32 = 0;
    // SAFETY: a `Watch` that lives for ever, see `Watch::register`.
    let watch = unsafe { &*context.cast::<Watch>() };
    if status != UP {
        // Release: nothing else is published; the waiter only looks at this word.
        watch.fate.store(status.saturating_add(1), Ordering::Release);
    }
    0
}

impl Watch {
    /// Asks the library to report the end of the domain's process.
    pub(super) fn register(library: &Library, domain: c_int) -> Result<&'static Self, HtpError> {
        let key = (library.functions().remote_session_control as usize, domain);
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        let watch: &'static Self = watches.entry(key).or_insert_with(|| Box::leak(Box::default()));
        watch.fate.store(0, Ordering::Release);
        let context = (&raw const *watch).cast_mut().cast::<c_void>();
        let mut request = NotifyRegister { context, domain, notify };
        check(Call::Notifications, control(library, session::REGISTER_STATUS_NOTIFICATIONS, &mut request))?;
        Ok(watch)
    }

    /// What has become of the process, if it has ended.
    pub(super) fn end(&self) -> Option<&'static str> {
        match self.fate.load(Ordering::Acquire) {
            0 => None,
            2 => Some("the process on the DSP exited"),
            3 => Some("the system ended the process on the DSP, which needed its resources"),
            4 => Some("the process on the DSP crashed"),
            5 => Some("the DSP restarted"),
            _ => Some("the process on the DSP ended"),
        }
    }
}
