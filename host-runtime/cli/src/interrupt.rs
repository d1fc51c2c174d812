//! Signals that ask the program to end: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! Commands that have something to lose ask for [`cancel_on_signals`]. Then the first signal cancels their
//! work, and what is there by then is printed. Others leave the signals as they are: the system ends them at
//! once.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use hexflash::cancel::Cancel;

#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Another signal ends the process at once, but not within this time after the first. Many signals come
/// twice: `timeout` sends its own to the process and to its group, and a terminal that closes has the shell
/// and the kernel tell of it.
const TWICE: Duration = Duration::from_millis(200);

/// The first signal and when it came: milliseconds since the handlers were set, times 256, plus the number of
/// the signal. 0 as long as none came.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// From now on, a signal cancels what is returned.
pub(super) fn cancel_on_signals() -> Cancel {
    let (cancel, start) = (Cancel::default(), Instant::now());
    for signal in SIGNALS.into_iter().filter(|&signal| !is_ignored(signal)) {
        let flag = cancel.clone();
        let handler = move || {
            let now = start.elapsed().as_millis() as u64;
            // Relaxed: the word publishes no other memory.
            match FIRST.compare_exchange(0, now << 8 | signal as u64, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => flag.cancel(),
                Err(first) if now.saturating_sub(first >> 8) < TWICE.as_millis() as u64 => {}
                Err(_) => low_level::exit(128 + signal),
            }
        };
        // SAFETY: the handler reads the clock, exchanges and stores atomic words and calls `_exit`. All of
        // that may be done while any thread is interrupted anywhere: nothing takes a lock, allocates or
        // unwinds.
        if let Err(error) = unsafe { low_level::register(signal, handler) } {
            tracing::warn!("signal {signal} will end the process without what it has by then: {error}");
        }
    }
    cancel
}

/// The exit code that shells give a process that was ended by the signal that came first: 128 and its number.
pub(super) fn exit_code() -> ExitCode {
    let signal = FIRST.load(Ordering::Relaxed) as u8;
    ExitCode::from(128 + if signal == 0 { SIGINT as u8 } else { signal })
}

/// Whether a signal has come.
pub(super) fn has_come() -> bool {
    FIRST.load(Ordering::Relaxed) != 0
}

/// Whether the process was started with a signal ignored, as `nohup` does with SIGHUP, and shells without job
/// control do with SIGINT in the background.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros is a value of this struct of integers and a signal set.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer as the new action changes nothing; the old action goes to a place of its type.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(not(unix))]
fn is_ignored(_: i32) -> bool {
    false
}
