//! News for the session's thread: a packet that a callback announced, a call of FastRPC's, the order to stop.
//!
//! A thread that reads what the news are counts them first ([`seen`]), looks, and then waits for more
//! ([`wait`]): nothing that comes in between is missed.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_dsp::platform::Platform;

use super::{QurtPlatform, sys};

/// Counts the news. (One session per process.)
static NEWS: AtomicU32 = AtomicU32::new(0);

/// Looks without sleep before the first nap: between two messages of a text the host thinks for about this
/// long.
const LOOKS_NS: u64 = 100_000;
/// One nap. QuRT's futex has no time-out, so that a thread that has something to do later must look again.
const NAP_US: u64 = 100;

/// Announces news, and wakes who waits for them.
pub(in super::super) fn tell() {
    // Release: pairs with `seen`, whose caller then looks at what was published.
    NEWS.fetch_add(1, Ordering::Release);
    QurtPlatform::PLAIN.futex_wake(&NEWS);
}

/// Number of news so far.
pub(super) fn seen() -> u32 {
    NEWS.load(Ordering::Acquire)
}

/// Waits until there are more than were `seen`, for `most_us` microseconds; without an end where that is
/// `None`.
pub(super) fn wait(seen: u32, most_us: Option<u32>) {
    let platform = QurtPlatform::PLAIN;
    let Some(most_us) = most_us else {
        // It may wake without news: the caller looks again.
        return platform.futex_wait(&NEWS, seen);
    };
    let (start, most_ns) = (platform.now_ns(), u64::from(most_us) * 1000);
    while self::seen() == seen {
        match platform.now_ns() - start {
            waited if waited >= most_ns => return,
            waited if waited < LOOKS_NS => platform.relax(),
            // SAFETY: the call takes a number and returns after that many microseconds.
            _ => unsafe { sys::qurt_sleep(NAP_US) },
        }
    }
}
