//! The emulator as a child of this process.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::process::Signal;

use crate::state::{CONFIG, violation};
use crate::{queue, qurt};

/// When the emulator's DMA engines move data, unless the environment says otherwise: not before the program
/// looks for it.
const DMA: &str = "HEXAGON_DMA";

/// A running emulator.
pub(super) struct Process {
    ended: Arc<(Mutex<Option<ExitStatus>>, Condvar)>,
    /// What it says.
    words: File,
}

impl Process {
    /// Starts the emulator of this folder on the guest that lies there, as a chip of the configured version.
    pub(super) fn start(folder: &Path, socket: &str) -> io::Result<Self> {
        let words = File::from(rustix::fs::memfd_create("hexflash-words", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(folder.join("qemu-hexagon"));
        command.arg("-cpu").arg(format!("v{:x}", CONFIG.arch()));
        command.arg(folder.join("hexflash-guest")).arg(socket);
        command.arg(format!("/proc/{}/fd", std::process::id()));
        // Where nobody can ask for a vector context, the first vector instruction gives one.
        if !qurt::is_missing("qurt_hvx_lock") {
            command.env("HEXAGON_HVX_CONTEXT", "1");
        }
        if std::env::var_os(DMA).is_none() {
            command.env(DMA, CONFIG.text("engines").unwrap_or("late"));
        }
        command.stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words.try_clone()?);
        // SAFETY: between fork and exec it makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let ended = Arc::new((Mutex::new(None), Condvar::new()));
        let told = Arc::clone(&ended);
        let (report, started) = std::sync::mpsc::sync_channel(1);
        // The thread that starts the child must outlive it: the child is told to die with it.
        std::thread::spawn(move || match command.spawn() {
            Ok(mut child) => {
                let _ = report.send(Ok(()));
                if let Ok(status) = child.wait() {
                    *told.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                    told.1.notify_all();
                    if !status.success() {
                        super::lost(status);
                    }
                }
            }
            Err(error) => drop(report.send(Err(error))),
        });
        started.recv().map_err(io::Error::other)??;
        Ok(Self { ended, words })
    }

    /// What the emulator and the guest have said, on one line.
    pub(super) fn words(&self) -> String {
        let mut text = Vec::new();
        let read = self.words.try_clone().and_then(|mut file| {
            file.rewind()?;
            file.read_to_end(&mut text)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&text).lines().collect::<Vec<_>>().join(" / "),
            Err(error) => error.to_string(),
        }
    }

    /// Waits for its end, which is a good one.
    pub(super) fn wait(&self) {
        let ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.1.wait_while(ended, |ended| ended.is_none()));
        let words = self.words();
        if !words.is_empty() {
            violation(&format!("the emulator says: {words}"));
        }
    }

    /// It is gone in the middle of a call.
    pub(super) fn is_lost(&self) -> ! {
        queue::end_process()
    }
}
