//! Signals that ask the program to end: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! Commands that have something to lose ask for [`cancel_on_signals`]. Then the first signal cancels their
//! work, and what is there by then is printed. Work that has not ended a few seconds later is not waited for
//! any more: a call of the vendor's library may never return. Others leave the signals as they are: the
//! system ends them at once.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use super::output::say;
use hexflash::cancel::Cancel;

#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Another signal ends the process at once, but not within this time after the first. Many signals come
/// twice: `timeout` sends its own to the process and to its group, and a terminal that closes has the shell
/// and the kernel tell of it.
const TWICE: Duration = Duration::from_millis(200);

/// How long work may go on after the first signal, unless somebody has [allowed](allow) more.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Longer patience for steps in code of hexflash's own, which always come to their end.
pub(super) const OWN_PATIENCE: Duration = Duration::from_secs(60);
/// How long the last words may take, should nobody read them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of the stacks of threads here, which do little more than wait.
const STACK: usize = 64 << 10;

/// The longest that was allowed, in milliseconds.
static ALLOWED: AtomicU64 = AtomicU64::new(0);
/// The number of the [`Work`] under way.
static WORK: AtomicU8 = AtomicU8::new(0);

/// The first signal and when it came: milliseconds since the handlers were set, times 256, plus the number of
/// the signal. 0 as long as none came.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Work that a command may be waiting for when a signal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Files are read.
    Files,
    /// A model is downloaded.
    Download,
    /// A device is opened.
    Device,
    /// A model is loaded onto a device.
    Model,
    /// A device runs steps.
    Steps,
}

impl Work {
    const ALL: [Self; 5] = [Self::Files, Self::Download, Self::Device, Self::Model, Self::Steps];

    /// Says that the command waits for this work from now on.
    pub(super) fn begins(self) {
        // Relaxed: the number publishes no other memory.
        WORK.store(self as u8, Ordering::Relaxed);
    }

    /// Work that was begun last.
    fn under_way() -> Self {
        let number = WORK.load(Ordering::Relaxed);
        Self::ALL.into_iter().find(|work| *work as u8 == number).unwrap_or(Self::Files)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Files => "a file to be read",
            Self::Download => "the download",
            Self::Device => "the device to be opened",
            Self::Model => "the model to be loaded onto the device",
            Self::Steps => "the device to finish a step",
        }
    }
}

/// Work may go on for so long after the first signal, if not longer.
pub(super) fn allow(patience: Duration) {
    // Relaxed: the number publishes no other memory.
    ALLOWED.fetch_max(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Nothing of a conversation is under way.
const NO_TURN: u8 = 0;
/// The user is to type something.
const USERS_TURN: u8 = 1;
/// An answer is being written.
const ANSWER: u8 = 2;
/// An answer is being written, and is to stop.
const STOPPED: u8 = 3;

/// The turn of a conversation.
static TURN: AtomicU8 = AtomicU8::new(NO_TURN);

/// Turn of a conversation, which lasts until it is dropped.
pub(super) struct Turn(());

impl Turn {
    /// The user is waited for: any signal ends the process at once, as there is nothing to lose.
    pub(super) fn of_user() -> Self {
        Self::begin(USERS_TURN)
    }

    /// An answer is being written: a first Ctrl-C asks to stop it, and not to end the program.
    pub(super) fn of_model() -> Self {
        Self::begin(ANSWER)
    }

    fn begin(turn: u8) -> Self {
        // Relaxed, here and below: the number publishes no other memory.
        TURN.store(turn, Ordering::Relaxed);
        Self(())
    }

    /// Whether the answer is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        TURN.load(Ordering::Relaxed) == STOPPED
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.store(NO_TURN, Ordering::Relaxed);
    }
}

/// What a conversation makes of a signal: whether there is no more to do about it. Called in a handler.
fn is_settled_by_turn(signal: i32) -> bool {
    if TURN.load(Ordering::Relaxed) == USERS_TURN {
        low_level::exit(128 + signal);
    }
    let stop = || TURN.compare_exchange(ANSWER, STOPPED, Ordering::Relaxed, Ordering::Relaxed);
    signal == SIGINT && stop().is_ok()
}

/// From now on, a signal cancels what is returned.
pub(super) fn cancel_on_signals() -> Cancel {
    let (cancel, start) = (Cancel::default(), Instant::now());
    allow(PATIENCE);
    let bell = Bell::start();
    for signal in SIGNALS.into_iter().filter(|&signal| !is_ignored(signal)) {
        let flag = cancel.clone();
        let handler = move || {
            if is_settled_by_turn(signal) {
                return;
            }
            let now = start.elapsed().as_millis() as u64;
            // Relaxed: the word publishes no other memory.
            match FIRST.compare_exchange(0, now << 8 | signal as u64, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    flag.cancel();
                    bell.ring();
                }
                Err(first) if now.saturating_sub(first >> 8) < TWICE.as_millis() as u64 => {}
                Err(_) => low_level::exit(128 + signal),
            }
        };
        // SAFETY: the handler reads the clock, exchanges and stores atomic words, writes to a pipe and calls
        // `_exit`. All of that may be done while any thread is interrupted anywhere: nothing takes a lock,
        // allocates or unwinds, and a write that succeeds leaves `errno` as it is.
        if let Err(error) = unsafe { low_level::register(signal, handler) } {
            tracing::warn!("signal {signal} will end the process without what it has by then: {error}");
        }
    }
    #[cfg(unix)]
    super::hang_up::watch();
    cancel
}

/// Ends the process if it has not ended by itself when the time after the first signal is over.
fn end_in_time(signal: i32) {
    thread::sleep(Duration::from_millis(ALLOWED.load(Ordering::Relaxed)));
    let (said, heard) = channel::<()>();
    // On a thread of its own: whoever should read it may be what the process waits for.
    let speaker = thread::Builder::new().stack_size(STACK).spawn(move || {
        say(format_args!("[interrupted: not waiting any longer for {}]", Work::under_way().words()));
        drop(said);
    });
    if speaker.is_ok() {
        let _ = heard.recv_timeout(LAST_WORDS);
    }
    low_level::exit(128 + signal);
}

/// The thread that ends the process in time.
fn watcher() -> thread::Builder {
    thread::Builder::new().name("hexflash-signal".to_owned()).stack_size(STACK)
}

/// The number of the first signal; 0 as long as none came.
fn first() -> i32 {
    (FIRST.load(Ordering::Relaxed) & 0xff) as i32
}

/// Bell that wakes the thread which ends the process in time.
#[derive(Clone, Copy, Debug)]
struct Bell {
    /// The pipe that the thread reads from; `None` where there is no thread.
    #[cfg(unix)]
    pipe: Option<std::os::fd::RawFd>,
}

#[cfg(unix)]
impl Bell {
    /// Starts the thread, which sleeps until the bell is rung.
    fn start() -> Self {
        use std::io::Read;
        use std::os::fd::IntoRawFd;
        let pipe = std::io::pipe().and_then(|(mut reader, writer)| {
            let wait = move || {
                if reader.read(&mut [0]).is_ok() {
                    end_in_time(first());
                }
            };
            watcher().spawn(wait)?;
            // Open until the process ends: a signal may come at any time.
            Ok(writer.into_raw_fd())
        });
        if let Err(error) = &pipe {
            tracing::debug!("a call that hangs will go on after a first signal: {error}");
        }
        Self { pipe: pipe.ok() }
    }

    /// Wakes the thread. May be called in a handler of signals.
    fn ring(self) {
        if let Some(pipe) = self.pipe {
            // SAFETY: the byte is readable and lives through the call, and the file descriptor is that of the
            // pipe, which nobody closes.
            unsafe { libc::write(pipe, [0u8].as_ptr().cast(), 1) };
        }
    }
}

#[cfg(not(unix))]
impl Bell {
    /// Starts the thread, which looks now and then whether a signal has come.
    fn start() -> Self {
        let wait = || {
            while !has_come() {
                thread::sleep(TWICE);
            }
            end_in_time(first());
        };
        if let Err(error) = watcher().spawn(wait) {
            tracing::debug!("a call that hangs will go on after a first signal: {error}");
        }
        Self {}
    }

    fn ring(self) {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_what_was_begun_last() {
        assert_eq!(Work::under_way(), Work::Files);
        for work in Work::ALL {
            work.begins();
            assert_eq!(Work::under_way(), work);
        }
    }

    #[test]
    fn a_first_ctrl_c_stops_an_answer_and_a_second_one_is_for_the_program() {
        let turn = Turn::of_model();
        assert!(!is_settled_by_turn(SIGTERM) && !turn.is_stopped());
        assert!(is_settled_by_turn(SIGINT) && turn.is_stopped());
        assert!(!is_settled_by_turn(SIGINT));
        drop(turn);
        assert!(!is_settled_by_turn(SIGINT));
    }

    #[test]
    fn patience_only_grows() {
        allow(Duration::from_secs(9));
        allow(Duration::from_secs(3));
        assert_eq!(ALLOWED.load(Ordering::Relaxed), 9000);
        allow(Duration::MAX);
        assert_eq!(ALLOWED.load(Ordering::Relaxed), u64::MAX);
    }
}
