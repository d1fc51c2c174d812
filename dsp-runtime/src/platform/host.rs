//! The `host` platform: the DSP side on threads of the host process.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexflash_abi::{ErrorCode, Fault, Fd};

use super::{CacheOp, Platform};

/// Memory that the host shares with the session, under a made-up fd.
#[derive(Clone, Copy, Debug)]
struct Shared {
    fd: Fd,
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: an address range; `HostPlatform::share` says who may touch it.
unsafe impl Send for Shared {}

/// Threads, time and memory of the host process.
#[derive(Debug)]
pub struct HostPlatform {
    start: Instant,
    /// One lock and condition for all futexes: a handful of threads, asleep only when idle.
    sleep: Mutex<()>,
    wake: Condvar,
    shared: Mutex<Vec<Shared>>,
}

impl HostPlatform {
    /// A platform that shares no memory yet.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            shared: Mutex::new(Vec::new()),
        }
    }

    /// Lets sessions map `bytes` at `base` under `fd`.
    ///
    /// # Safety
    /// 1. The memory is aligned to 128 bytes and valid for reads (and, unless it is mapped read-only, writes) until
    ///    [`revoke`](Self::revoke) after the session has unmapped it.
    /// 2. Nobody holds a Rust reference to it while a program runs that uses it.
    pub unsafe fn share(&self, fd: Fd, base: NonNull<u8>, bytes: u64) {
        self.registry().push(Shared { fd, base, bytes });
    }

    /// Takes back what [`share`](Self::share) gave.
    pub fn revoke(&self, fd: Fd) {
        self.registry().retain(|s| s.fd != fd);
    }

    /// As [`Platform::futex_wait`], but for no longer than `timeout`.
    pub fn futex_wait_for(&self, word: &AtomicU32, expected: u32, timeout: Duration) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        // The waker changes the word before it takes the lock, so the change is seen here or the wake is.
        if word.load(Ordering::SeqCst) == expected {
            drop(self.wake.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Vec<Shared>> {
        // A panic elsewhere leaves the list whole: every change to it is a single call.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HostPlatform {
    fn default() -> Self {
        Self::new()
    }
}

impl Platform for HostPlatform {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        // The waker changes the word before it takes the lock, so the change is seen here or the wake is.
        if word.load(Ordering::SeqCst) == expected {
            drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn futex_wake(&self, _word: &AtomicU32) {
        drop(self.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        let shared = self.registry().iter().find(|s| s.fd == fd).copied();
        let failed = Fault::new(ErrorCode::MapFailed, fd.0 as u32);
        let shared = shared.filter(|s| size > 0 && size <= s.bytes).ok_or(failed)?;
        if shared.base.addr().get() % hexflash_abi::VECTOR_BYTES == 0 { Ok(shared.base) } else { Err(failed) }
    }

    fn unmap(&self, _fd: Fd, _base: NonNull<u8>, _size: u64) {}

    fn cache(&self, _op: CacheOp, _base: *const u8, _bytes: usize) {
        // One coherent memory.
    }
}
