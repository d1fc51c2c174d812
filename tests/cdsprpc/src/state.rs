//! What the library keeps: settings, memory, sessions, handles.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use hexflash_fastrpc::config::Config;
use hexflash_fastrpc::memory::Mapped;
use hexflash_fastrpc::report;

use crate::control::Notifier;
use crate::process::Process;

/// Memory that the host allocated.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) file: File,
    pub(crate) mapped: Mapped,
}

impl Allocation {
    pub(crate) fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// A session: what was said of it, and its process while it lives.
#[derive(Debug, Default)]
pub(crate) struct RpcState {
    pub(crate) reserved: bool,
    pub(crate) unsigned: bool,
    pub(crate) notifier: Option<Notifier>,
    pub(crate) process: Option<Arc<Process>>,
    /// What is mapped on the DSP, by fd.
    pub(crate) maps: HashMap<i32, usize>,
    pub(crate) handles: u32,
}

/// An open library.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) domain: i32,
    pub(crate) process: Arc<Process>,
    pub(crate) on_dsp: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) config: Config,
    counts: HashMap<&'static str, u32>,
    pub(crate) blocks: HashMap<usize, Allocation>,
    pub(crate) sessions: HashMap<i32, RpcState>,
    pub(crate) handles: HashMap<u64, Handle>,
    pub(crate) next_handle: u64,
    pub(crate) queues: u32,
    pub(crate) next_queue: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let line = std::env::var("HEXFLASH_STANDIN").unwrap_or_default();
    let config = Config::parse(&line).unwrap_or_else(|word| panic!("HEXFLASH_STANDIN: {word}"));
    Mutex::new(State { config, next_handle: 0x5a5a_0001, next_queue: 0x11, ..State::default() })
});

/// Messages written so far, over all processes.
pub(crate) static MESSAGES: AtomicU64 = AtomicU64::new(0);

pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call, and gives the code with which it is planned to fail.
pub(crate) fn planned(name: &'static str) -> Option<i32> {
    let mut state = state();
    let count = state.counts.entry(name).or_default();
    *count += 1;
    let count = *count;
    state.config.failure(name, count)
}

pub(crate) fn violation(line: &str) {
    let file = state().config.file("report");
    report::violation(file.as_deref(), line);
}

impl State {
    pub(crate) fn reconfigure(&mut self, config: Config) {
        self.config = config;
        self.counts.clear();
        MESSAGES.store(0, Ordering::SeqCst);
    }

    pub(crate) fn block_of(&self, fd: i32) -> Option<&Allocation> {
        self.blocks.values().find(|block| block.fd() == fd)
    }
}

/// Ends a function with the code that is planned for it.
#[macro_export]
macro_rules! plan {
    ($name:literal) => {
        if let Some(code) = $crate::state::planned($name) {
            return code;
        }
    };
}

/// An address that the other side of a call gave.
///
/// # Safety
/// It is null, or valid for writing a `T`.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: `to` is not null, by the check above, and so is valid for writing a T (the caller's contract);
    // the write takes any address.
    unsafe { to.write_unaligned(value) };
    true
}

/// A context that is handed back as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: nothing here reads or writes behind the pointer: it is handed back as it came.
unsafe impl Send for Context {}
// SAFETY: nothing here reads or writes behind the pointer: it is handed back as it came.
unsafe impl Sync for Context {}
