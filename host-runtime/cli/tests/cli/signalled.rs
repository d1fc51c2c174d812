//! A command that gets a signal: what it prints, how it ends, and that it leaves nothing behind.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

/// Set for every command here, so that its children can be told from all other processes.
const MARK: &str = "HEXFLASH_TEST_MARK";
/// Time that the system may take to end the children of a process that has ended. One that is left behind
/// stays for longer.
const REAPED: Duration = Duration::from_secs(60);

pub const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    pub signal: i32,
    /// The exit code, or the signal that ended the process before it had a handler.
    pub code: Result<i32, i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A command under way. It ends with the test, however that ends.
pub struct Running {
    /// There until its end was waited for.
    child: Option<Child>,
    mark: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    /// Starts a command, reading what it prints.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::start_with(command)
    }

    /// Starts a command whose inputs and outputs are set.
    pub fn start_with(mut command: Command) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        command.env(MARK, &mark);
        // SAFETY: `signal` may be called between fork and exec, and takes nothing from this process.
        unsafe {
            command.pre_exec(|| {
                // What runs in the background of a shell ignores Ctrl-C, what nohup runs ignores hangups, and
                // so would the command.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        Self { child: Some(command.spawn().unwrap()), mark }
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    /// Sends a signal. The process may have ended, but nobody has asked for its end yet: it has its number.
    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Waits for the end, and for that of all processes that it has started.
    pub fn end(mut self, signal: Signal) -> Ended {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let since = Instant::now();
        while is_left(&self.mark) {
            assert!(since.elapsed() < REAPED, "a child of the command was left behind: {output:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ended {
            signal: signal.as_raw(),
            code: output.status.code().ok_or_else(|| output.status.signal().unwrap()),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Whether there is a process with this mark.
fn is_left(mark: &str) -> bool {
    let variable = format!("{MARK}={mark}");
    let has_it = |process: &Path| {
        let variables = std::fs::read(process.join("environ")).unwrap_or_default();
        variables.split(|&byte| byte == 0).any(|found| found == variable.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| has_it(&entry.path()))
}

/// Runs a command that gets `signal`, perhaps twice in a row, `delay` after its start.
pub fn signalled(command: Command, signal: Signal, twice: bool, delay: Duration) -> Ended {
    let running = Running::start(command);
    std::thread::sleep(delay);
    running.send(signal);
    if twice {
        running.send(signal);
    }
    running.end(signal)
}

impl Ended {
    /// Whether the signal cut something off; the exit code must say so, and there must be no complaint.
    #[track_caller]
    fn was_interrupted(&self) -> bool {
        assert!(!self.stderr.contains("panicked") && !self.stderr.contains("error"), "{self:#?}");
        match self.code {
            Ok(0) => false,
            Ok(code) => {
                assert_eq!(code, 128 + self.signal, "{self:#?}");
                true
            }
            Err(signal) => {
                assert_eq!(signal, self.signal, "{self:#?}");
                assert_eq!(
                    self.stdout, "",
                    "ended by the system when there was something to lose: {self:#?}"
                );
                true
            }
        }
    }

    /// It printed `whole`, or after `prompt` the beginning of it and a word about the interruption. Gives
    /// whether it was interrupted.
    #[track_caller]
    pub fn printed_text(&self, prompt: &str, whole: &str) -> bool {
        if !self.was_interrupted() {
            assert_eq!(self.stdout, whole, "{self:#?}");
            return false;
        }
        if self.code.is_ok() {
            assert!(self.stderr.contains("[interrupted"), "{self:#?}");
        }
        if !self.stdout.is_empty() {
            let text = self.stdout.strip_suffix('\n').unwrap_or_else(|| panic!("no last line: {self:#?}"));
            assert!(text.starts_with(prompt) && whole.starts_with(text), "{self:#?}");
        }
        true
    }

    /// It printed a report like `whole`, or one of its beginning. Gives whether it was interrupted.
    #[track_caller]
    pub fn printed_json(&self, whole: &Json) -> bool {
        let interrupted = self.was_interrupted();
        if self.code.is_err() {
            return true;
        }
        let report: Json = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"));
        let tokens = |report: &Json| report["tokens"].as_array().unwrap().clone();
        let text = |report: &Json| report["text"].as_str().unwrap().to_owned();
        if interrupted {
            assert_eq!(report["finish_reason"], "interrupted", "{self:#?}");
            assert!(tokens(whole).starts_with(&tokens(&report)), "{self:#?}");
            assert!(text(whole).starts_with(&text(&report)), "{self:#?}");
            assert_eq!(report["stats"]["generated_tokens"], tokens(&report).len(), "{self:#?}");
            assert_eq!(report["prompt_ids"], whole["prompt_ids"], "{self:#?}");
        } else {
            assert_eq!((tokens(&report), text(&report)), (tokens(whole), text(whole)), "{self:#?}");
        }
        interrupted
    }
}

/// Reproducible moments: uniform in 0 to 1 (xorshift64*).
pub struct Moments(u64);

impl Moments {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}
