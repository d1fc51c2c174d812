//! The `host` platform: the DSP side on threads of the host process.

use std::ptr::NonNull;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hexflash_abi::sync::{AtomicU32, Ordering};
use hexflash_abi::{ErrorCode, Fault, Fd};

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};

use super::{CacheOp, Platform};
use crate::plan::Units;

/// Memory that the host shares with the session, under a made-up fd.
#[derive(Clone, Copy, Debug)]
struct Shared {
    fd: Fd,
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: an address range; `HostPlatform::share` says who may touch it.
unsafe impl Send for Shared {}

/// Fewest bytes of stack for a thread that runs kernels. Compiled without optimisation and with the address
/// sanitizer, attention alone has a frame of 2 MiB, all that a thread gets otherwise. Pages that are not
/// touched take no memory.
const STACK_BYTES: usize = 16 << 20;

/// Bells of a platform. A session has about five words that threads sleep on: with so many bells, two words
/// rarely share one. Loom allows few objects, and addresses must not decide what a model does.
const BELLS: usize = if cfg!(loom) { 1 } else { 64 };

/// What threads sleep on until one of the words that belong to it has changed.
#[derive(Debug)]
struct Bell {
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { lock: Mutex::new(()), rung: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A sleeper holds the lock from its look at the word until it sleeps, so it hears this or sees the
        // new word.
        drop(self.lock());
        self.rung.notify_all();
    }
}

/// Threads, time and memory of the host process.
#[derive(Debug)]
pub struct HostPlatform {
    start: Instant,
    /// A word's address chooses its bell. With one bell for all words, each message would wake the pool's
    /// helpers too, and on a busy machine they would take the processor from the thread that the message is
    /// for.
    bells: [Bell; BELLS],
    shared: Mutex<Vec<Shared>>,
    units: Units,
}

impl HostPlatform {
    /// A platform that shares no memory yet.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            bells: std::array::from_fn(|_| Bell::new()),
            shared: Mutex::new(Vec::new()),
            units: Units::default(),
        }
    }

    /// The same, which lends a matrix unit: the [twin](crate::hmx::twin).
    #[must_use]
    pub fn with_matrix_unit(self) -> Self {
        Self { units: Units { hmx: 1, ..self.units }, ..self }
    }

    /// Lets sessions map `bytes` at `base` under `fd`.
    ///
    /// # Safety
    /// 1. The memory is aligned to 128 bytes and valid for reads (and, unless it is mapped read-only, writes)
    ///    until [`revoke`](Self::revoke) after the session has unmapped it.
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
        self.sleep(word, expected, Some(timeout));
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let bell = self.bell(word);
        let guard = bell.lock();
        // The waker changes the word before it takes the lock, so the change is seen here or the wake is.
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        match timeout {
            None => drop(bell.rung.wait(guard).unwrap_or_else(PoisonError::into_inner)),
            Some(timeout) => {
                drop(bell.rung.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Wakes all who sleep, whatever their word: for the end of a session.
    pub fn wake_all(&self) {
        self.bells.iter().for_each(Bell::ring);
    }

    fn bell(&self, word: &AtomicU32) -> &Bell {
        // Words lie at the starts of cache lines and pages: multiplying by 2^64 over the golden ratio spreads
        // such regular addresses over the upper bits (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let address = std::ptr::from_ref(word).addr() as u64;
        let spread = address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.bells[spread as usize % BELLS]
    }

    fn registry(&self) -> MutexGuard<'_, Vec<Shared>> {
        // A panic elsewhere leaves the list whole: every change to it is a single call.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How to start a thread that runs kernels. As with other threads of Rust, `RUST_MIN_STACK` gives it a
/// larger stack.
pub fn kernel_thread(name: &str) -> std::thread::Builder {
    let wanted = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES.max(wanted))
}

/// How to start the thread of worker `id`.
pub fn worker_thread(id: usize) -> std::thread::Builder {
    kernel_thread(&format!("hexflash-hvx{id}"))
}

/// Processors that this process may use; 1 where the system does not tell.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Default for HostPlatform {
    fn default() -> Self {
        Self::new()
    }
}

impl Platform for HostPlatform {
    const CONTENDED: bool = true;

    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        self.sleep(word, expected, None);
    }

    fn futex_wake(&self, word: &AtomicU32) {
        self.bell(word).ring();
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn units(&self) -> Units {
        self.units
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
