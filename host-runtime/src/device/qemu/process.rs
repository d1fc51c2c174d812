//! The emulator as a child process: how it is started, watched and ended.
//!
//! A thread of its own starts the child and waits for it. The child is told to die with that thread, which
//! lives as long as the child does unless this whole process is killed: so no emulator outlives its host.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use super::super::DeviceError;
use super::executables::Executables;

/// When the emulator's DMA engines move data. Ours move nothing before the program looks for it, so that one
/// that forgets to wait reads what was there before.
const DMA: &str = "HEXAGON_DMA";
/// A line for each transfer that they have made.
const DMA_TRACE: &str = "HEXAGON_DMA_TRACE";
/// Bytes of the child's last words that an error shows.
const LAST_WORDS: u64 = 600;

/// What is known of a child.
#[derive(Debug, Default)]
struct Fate {
    ended: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl Fate {
    fn status(&self) -> Option<ExitStatus> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running emulator.
#[derive(Debug)]
pub(super) struct Process {
    fate: Arc<Fate>,
    /// Names the child, and never another process.
    handle: OwnedFd,
    id: u32,
    words: File,
    /// Bytes of `words` that were given out as lines.
    told: u64,
    watcher: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts the emulator on the image, which serves the shared file `fd`.
    pub(super) fn start(programs: &Executables, fd: i32, trace: bool) -> Result<Self, DeviceError> {
        let failed = |source: io::Error| DeviceError::Unavailable {
            device: "qemu",
            reason: format!("{} cannot be started ({source})", programs.emulator.display()),
            remedy: "see that it runs by itself, and that this machine has memory and processes left"
                .to_owned(),
        };
        // Kept in memory, and read when the child has ended.
        let words = rustix::fs::memfd_create("hexflash-messages", rustix::fs::MemfdFlags::CLOEXEC);
        let words = File::from(words.map_err(|e| failed(e.into()))?);
        let mut command = Command::new(&programs.emulator);
        let host = std::process::id();
        command.arg(&programs.image).args(["serve", &format!("/proc/{host}/fd"), &fd.to_string()]);
        if env::var_os(DMA).is_none() {
            command.env(DMA, "late");
        }
        if trace {
            command.env(DMA_TRACE, "1");
        }
        command.stdin(Stdio::null());
        command.stdout(words.try_clone().map_err(failed)?).stderr(words.try_clone().map_err(failed)?);
        // Ctrl-C is for the host, which then ends the child.
        command.process_group(0);
        let die_with_host = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The host may have ended before it took effect.
            let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
            if parent == Some(host) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(die_with_host) };

        let fate = Arc::new(Fate::default());
        let (report, started) = sync_channel(1);
        let watched = Arc::clone(&fate);
        let watcher = std::thread::Builder::new()
            .name("hexflash-qemu".to_owned())
            .spawn(move || match spawn(&mut command) {
                Ok((mut child, handle)) => {
                    let _ = report.send(Ok((child.id(), handle)));
                    let status = child.wait().unwrap_or(ExitStatus::from_raw(-1));
                    *watched.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                    watched.changed.notify_all();
                }
                Err(error) => drop(report.send(Err(error))),
            })
            .map_err(|source| DeviceError::Thread { source })?;
        let lost = |_| io::Error::other("the thread that starts it ended");
        let (id, handle) = started.recv().map_err(lost).flatten().map_err(failed)?;
        Ok(Self { fate, handle, id, words, told: 0, watcher: Some(watcher) })
    }

    /// The child's process id.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// How the child ended, if it has, and its last words.
    pub(super) fn end(&self) -> Option<(String, String)> {
        let status = self.fate.status()?;
        let reason = match (status.code(), status.signal()) {
            (Some(code), _) => format!("the emulator exited with code {code}"),
            (_, Some(signal)) => format!("the emulator was ended by signal {signal}"),
            _ => "the emulator ended".to_owned(),
        };
        Some((reason, self.last_words().unwrap_or_default()))
    }

    /// The end of what the child has printed.
    fn last_words(&self) -> io::Result<String> {
        let end = self.words.metadata()?.len();
        self.read(end.saturating_sub(LAST_WORDS), end)
    }

    /// What the child has printed between two places.
    fn read(&self, from: u64, to: u64) -> io::Result<String> {
        let mut words = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        self.words.read_exact_at(&mut words, from)?;
        Ok(String::from_utf8_lossy(&words).into_owned())
    }

    /// Gives the whole lines that the child has printed since the last time.
    pub(super) fn lines(&mut self, each: impl FnMut(&str)) {
        let end = self.words.metadata().map_or(self.told, |data| data.len());
        // What cannot be read now is read later.
        let Ok(text) = self.read(self.told, end) else { return };
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        text[..whole].lines().for_each(each);
        self.told += whole as u64;
    }

    /// Waits until the child has ended, for no longer than `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let ended = self.fate.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.fate.changed.wait_timeout_while(ended, timeout, |ended| ended.is_none());
        wait.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Ends the child: by itself if it does so within `patience`, else by force.
    pub(super) fn stop(&mut self, patience: Duration) {
        let Some(watcher) = self.watcher.take() else { return };
        if !self.wait(patience) {
            // It fails only if the child has ended meanwhile.
            let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
        }
        let _ = watcher.join();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// Starts the child, with a handle to it that stays its own.
fn spawn(command: &mut Command) -> io::Result<(Child, OwnedFd)> {
    let mut child = command.spawn()?;
    let id = Pid::from_child(&child);
    match rustix::process::pidfd_open(id, PidfdFlags::empty()) {
        Ok(handle) => Ok((child, handle)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error.into())
        }
    }
}
