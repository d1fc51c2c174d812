//! The process on the DSP: started, asked, watched, ended.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use hexflash_fastrpc::config::Config;
use hexflash_fastrpc::frame::{self, Ask, Cursor, Words};
use hexflash_fastrpc::queue::Memory;
use rustix::process::{Pid, Signal};

use crate::control::{Notifier, Status};
use crate::state::MESSAGES;

/// A process on the DSP.
#[derive(Debug)]
pub(crate) struct Process {
    socket: Mutex<UnixStream>,
    pid: Pid,
    dead: AtomicBool,
    /// Told to end: its end is no accident.
    ending: AtomicBool,
    queues: Mutex<Vec<(u64, Memory)>>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// This library's own file.
fn own_file() -> Option<PathBuf> {
    // SAFETY: all zeros is a valid value of this struct of addresses.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = (own_file as fn() -> Option<PathBuf>) as *const libc::c_void;
    // SAFETY: an address of this library; the result goes to `info`.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` has found the name, which is not null, by the check above: a text of the loader's that
    // ends with 0 and stays as long as this library is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_str().ok()?))
}

/// The program: as configured, or beside the library.
fn program(config: &Config) -> io::Result<PathBuf> {
    let beside = || {
        let file = own_file()?;
        file.ancestors().skip(1).take(2).map(|dir| dir.join("hexflash-pd")).find(|file| file.is_file())
    };
    config.file("pd").or_else(beside).ok_or_else(|| io::Error::other("there is no hexflash-pd"))
}

impl Process {
    /// Starts a process for the session of `domain`.
    pub(crate) fn start(
        config: &Config,
        domain: i32,
        notifier: Option<Notifier>,
    ) -> io::Result<std::sync::Arc<Self>> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program(config)?);
        command.arg(pd_config(config).line()).arg(std::process::id().to_string());
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        command.process_group(0);
        // SAFETY: between fork and exec it makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let (report, started) = sync_channel(1);
        let (hand, process) = sync_channel::<std::sync::Weak<Self>>(1);
        // The thread that starts the child must outlive it: the child is told to die with it.
        let watcher = std::thread::Builder::new().name("cdsprpc-pd".to_owned()).spawn(move || {
            let child = command.spawn();
            drop(command);
            let mut child = match child {
                Ok(child) => child,
                Err(error) => return drop(report.send(Err(error))),
            };
            let _ = report.send(Ok(Pid::from_child(&child)));
            let status = child.wait();
            if let Some(process) = process.recv().ok().and_then(|process| process.upgrade()) {
                process.ended(status.is_ok_and(|status| status.success()), domain, notifier);
            }
        })?;
        let pid = started.recv().map_err(io::Error::other)??;
        let process = std::sync::Arc::new(Self {
            socket: Mutex::new(ours),
            pid,
            dead: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            queues: Mutex::new(Vec::new()),
            watcher: Mutex::new(Some(watcher)),
        });
        let _ = hand.send(std::sync::Arc::downgrade(&process));
        Ok(process)
    }

    fn ended(&self, well: bool, domain: i32, notifier: Option<Notifier>) {
        self.dead.store(true, Ordering::SeqCst);
        for (_, queue) in &*self.queues.lock().unwrap_or_else(PoisonError::into_inner) {
            queue.fail(hexflash_fastrpc::aee::INTERRUPTED);
        }
        let ending = self.ending.load(Ordering::SeqCst);
        if let Some(notifier) = notifier {
            notifier.tell(domain, if well || ending { Status::Exit } else { Status::Exception });
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Asks, and waits for the answer: a code, and what goes with it.
    pub(crate) fn ask(&self, what: Ask, words: Words) -> io::Result<(i32, Cursor)> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        frame::send(&mut *socket, what as u32, words)?;
        let (code, cursor) = frame::receive(&mut *socket)?;
        Ok((code as i32, cursor))
    }

    pub(crate) fn add_queue(&self, id: u64, memory: Memory) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push((id, memory));
    }

    pub(crate) fn remove_queue(&self, id: u64) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != id);
    }

    /// Ends it by force.
    pub(crate) fn kill(&self) {
        // It fails only if the process has ended.
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }

    /// Ends it, by force if it does not answer, and waits for its end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        if !self.is_dead() {
            if let Ok(socket) = self.socket.lock() {
                let _ = socket.set_read_timeout(Some(std::time::Duration::from_secs(2)));
            }
            if self.ask(Ask::End, Words::default()).is_err() {
                self.kill();
            }
        }
        if let Ok(socket) = self.socket.lock() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A notifier that ends the session from its own thread cannot wait for itself.
        if let Some(watcher) = watcher.filter(|watcher| watcher.thread().id() != std::thread::current().id())
        {
            let _ = watcher.join();
        }
    }
}

/// The settings for a new process: messages are counted over all processes on this side, and by each on its
/// own.
fn pd_config(config: &Config) -> Config {
    let mut own = config.clone();
    let sent = MESSAGES.load(Ordering::SeqCst);
    for key in ["crash", "crash-answer", "hang"] {
        match config.number(key) {
            Some(at) if at > sent => own.set(key, at - sent),
            _ => own.remove(key),
        }
    }
    if let Some(report) = config.file("report").filter(|file| file.is_relative()) {
        own.set("report", std::env::current_dir().unwrap_or_default().join::<&Path>(&report).display());
    }
    own
}
