//! The `linux` platform: Hexagon code under qemu in user mode, on nothing but system calls.
//!
//! Buffers are files of the host process, opened by number in its directory of open files. VTCM and thread
//! stacks are mappings of their own between guard pages, so that a kernel that leaves them ends the process
//! rather than going on with wrong bytes.

pub mod sys;

use core::arch::asm;
use core::fmt::Write;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::guest::{FILE_ALIGN, GuestConfig, TRACED_OP};
use hexflash_abi::{ErrorCode, Fault, Fd};
use sys::Call;
pub use sys::Errno;

use super::{CacheOp, Platform};
use crate::dma::Channel;
use crate::plan::Units;

/// Pages of the emulated machine; guards are one page.
const PAGE: usize = FILE_ALIGN as usize;
const READ: u32 = 1;
const READ_WRITE: u32 = 3;
const SHARED: u32 = 1;
/// Private, anonymous, no reservation.
const ANONYMOUS: u32 = 0x4022;
const NO_FILE: u32 = u32::MAX;
/// Bytes of a thread's stack: kernels keep vectors on it, and call nothing deep.
const STACK: usize = 512 << 10;

/// Time, futexes and the host's shared files.
#[derive(Debug)]
pub struct LinuxPlatform<'a> {
    /// The host's directory of open files.
    files: &'a str,
    engines: Engines,
    watched: Option<Watched<'a>>,
    units: Units,
}

/// Who is told which op runs.
#[derive(Debug)]
struct Watched<'a> {
    /// A word of the host's, see [`GuestConfig::place`].
    place: &'a AtomicU32,
    /// Whether there is a line on stderr for each op.
    trace: bool,
    program: AtomicU32,
}

/// The DMA engine of each worker, where the processor has engines.
type Engines = fn(usize) -> Option<Channel>;

impl<'a> LinuxPlatform<'a> {
    /// A platform that finds shared files in the directory `files`.
    pub const fn new(files: &'a str) -> Self {
        Self { files, engines: |_| None, watched: None, units: Units::NONE }
    }

    /// The same, where `place` says which op runs and, if `trace` is set, a line on stderr does too.
    #[must_use]
    pub const fn watched(self, place: &'a AtomicU32, trace: bool) -> Self {
        let program = AtomicU32::new(GuestConfig::NO_PROGRAM);
        Self { watched: Some(Watched { place, trace, program }), ..self }
    }

    /// The same, where this thread, which will dispatch, holds the process's matrix unit.
    #[must_use]
    pub const fn with_matrix_unit(self) -> Self {
        Self { units: Units { hmx: 1, ..self.units }, ..self }
    }

    /// The same on a processor that has DMA engines.
    #[must_use]
    pub const fn with_engines(self, engines: Engines) -> Self {
        Self { engines, ..self }
    }

    /// Maps the first `size` bytes of a file: to read and write, or only to read where the host allows no
    /// more.
    ///
    /// # Errors
    /// The system's reason, or [`FILE_TOO_SHORT`](Self::FILE_TOO_SHORT).
    pub fn map_file(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Errno> {
        let mut path = heapless::String::<64>::new();
        write!(path, "{}/{}\0", self.files, fd.0).map_err(|_| Self::FILE_TOO_SHORT)?;
        self.map_path(&path, READ_WRITE, size).or_else(|error| match error {
            sys::EACCES | sys::EPERM => self.map_path(&path, READ, size),
            error => Err(error),
        })
    }

    /// A range that the file does not have (ENXIO). The emulator would fall over it.
    pub const FILE_TOO_SHORT: Errno = Errno(6);

    fn map_path(&self, path: &str, protection: u32, size: u64) -> Result<NonNull<u8>, Errno> {
        const CURRENT_DIR: u32 = -100_i32 as u32;
        const END: u32 = 2;
        let open = if protection == READ { 0 } else { 2 };
        // SAFETY: the path ends in NUL (`map_file` writes it), and the system only reads it.
        let fd = unsafe { sys::call(Call::OpenAt, [CURRENT_DIR, path.as_ptr() as u32, open, 0, 0, 0])? };
        let mut end = 0_u64;
        // SAFETY: the system writes 8 bytes at the fourth argument, which are those of `end`.
        let seek = unsafe { sys::call(Call::Seek, [fd, 0, 0, (&raw mut end) as u32, END, 0]) };
        let bytes = size.checked_next_multiple_of(FILE_ALIGN).filter(|&bytes| size > 0 && bytes <= end);
        let map = seek.and_then(|_| {
            let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok()).ok_or(Self::FILE_TOO_SHORT)?;
            // SAFETY: this asks for a new mapping at an address of the system's choice, of bytes that the
            // file has (`bytes <= end`).
            unsafe { sys::call(Call::Map, [0, bytes, protection, SHARED, fd, 0]) }
        });
        // SAFETY: `fd` was opened above and is used no more; a mapping stays when its file is closed.
        let _ = unsafe { sys::call(Call::Close, [fd, 0, 0, 0, 0, 0]) };
        // The system gives no mapping at 0.
        NonNull::new(core::ptr::with_exposed_provenance_mut(map? as usize)).ok_or(Self::FILE_TOO_SHORT)
    }
}

/// Monotonic nanoseconds.
pub fn now_ns() -> u64 {
    const MONOTONIC: u32 = 1;
    // The emulator's timespec is two 32-bit words.
    let mut time = [0_u32; 2];
    // SAFETY: the system writes two 32-bit words at the second argument, which are those of `time`.
    let _ = unsafe { sys::call(Call::ClockGettime, [MONOTONIC, (&raw mut time) as u32, 0, 0, 0, 0]) };
    u64::from(time[0]) * 1_000_000_000 + u64::from(time[1])
}

impl Platform for LinuxPlatform<'_> {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        const WAIT: u32 = 0;
        // SAFETY: the word lives through the call. It may be the host's too, so the futex is a shared one.
        let _ = unsafe { sys::call(Call::Futex, [word.as_ptr() as u32, WAIT, expected, 0, 0, 0]) };
    }

    fn futex_wake(&self, word: &AtomicU32) {
        const WAKE: u32 = 1;
        // SAFETY: the system reads nothing at this address: it only compares it with those that others sleep
        // on.
        let _ = unsafe { sys::call(Call::Futex, [word.as_ptr() as u32, WAKE, i32::MAX as u32, 0, 0, 0]) };
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn begin_program(&self, program: u32) {
        if let Some(watched) = &self.watched {
            // Relaxed: the thread that dispatches is the only one that uses it.
            watched.program.store(program.min(GuestConfig::NO_PROGRAM), Ordering::Relaxed);
        }
    }

    fn begin_op(&self, op: usize) {
        let Some(watched) = &self.watched else { return };
        let (program, op) = (watched.program.load(Ordering::Relaxed), op as u32);
        // Relaxed: the host looks at it when this process has ended.
        watched.place.store(GuestConfig::place_of(program, op), Ordering::Relaxed);
        if watched.trace {
            // Written at once, so that no line of another thread lies within. A trace that nobody can read
            // is no reason to stop.
            let mut line = heapless::String::<32>::new();
            let _ = writeln!(line, "{TRACED_OP}{program} {op}");
            let _ = Stream::Error.write_str(&line);
        }
    }

    fn dma(&self, worker: usize) -> Option<Channel> {
        (self.engines)(worker)
    }

    fn units(&self) -> Units {
        self.units
    }

    // Time means nothing under emulation; packets are exact. Those of the thread that dispatches: with one
    // worker, all.
    fn cost(&self) -> u64 {
        counters()[0].into()
    }

    fn cost_since(&self, start: u64) -> u64 {
        // The counter has 32 bits.
        counters()[0].wrapping_sub(start as u32).into()
    }

    fn cycles(&self) -> u32 {
        counters()[0]
    }

    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        self.map_file(fd, size).map_err(|Errno(errno)| Fault::new(ErrorCode::MapFailed, errno))
    }

    fn unmap(&self, _fd: Fd, base: NonNull<u8>, size: u64) {
        let bytes = size.next_multiple_of(FILE_ALIGN) as u32;
        // SAFETY: `base` and `size` are those of a mapping that `map` made, and the caller uses it no more.
        // (That is up to the callers of this safe function; `BufferTable` is the one there is.)
        let _ = unsafe { sys::call(Call::Unmap, [base.addr().get() as u32, bytes, 0, 0, 0, 0]) };
    }

    fn cache(&self, _op: CacheOp, _base: *const u8, _bytes: usize) {
        // The emulator has no caches.
    }
}

/// Packets, instructions and HVX instructions of this thread so far: control registers c20 to c22, which the
/// assembler does not know and the emulator keeps.
#[inline(always)]
pub fn counters() -> [u32; 3] {
    let [packets, instructions, vectors]: [u32; 3];
    // SAFETY: the instructions copy three control registers to r0, r1 and r2, which are named as outputs, and
    // do no more.
    unsafe {
        asm!(
            ".word 0x6a14c000",
            ".word 0x6a15c001",
            ".word 0x6a16c002",
            out("r0") packets,
            out("r1") instructions,
            out("r2") vectors,
            options(nostack),
        );
    }
    [packets, instructions, vectors]
}

/// Zeroed memory between two guard pages, for the life of the process.
///
/// # Errors
/// The system's reason.
pub fn guarded(bytes: usize) -> Result<NonNull<u8>, Errno> {
    const NOTHING: u32 = 0;
    const ENOMEM: Errno = Errno(12);
    let inner = bytes.checked_next_multiple_of(PAGE).ok_or(ENOMEM)?;
    let all = inner.checked_add(2 * PAGE).ok_or(ENOMEM)?;
    // SAFETY: this asks for a new mapping at an address of the system's choice, and touches no other.
    let base = unsafe { sys::call(Call::Map, [0, all as u32, NOTHING, ANONYMOUS, NO_FILE, 0])? };
    // The end on the guard page, not the start: what runs over is caught at the byte.
    let start = base as usize + PAGE + (inner - bytes) / 128 * 128;
    // SAFETY: `base + PAGE` and `inner` are pages of the mapping made above, of `inner` bytes between two
    // guard pages, which nobody uses yet.
    unsafe { sys::call(Call::Protect, [base + PAGE as u32, inner as u32, READ_WRITE, 0, 0, 0])? };
    NonNull::new(core::ptr::with_exposed_provenance_mut(start)).ok_or(ENOMEM)
}

/// Has the emulator lend the process's matrix unit to this thread, for operands in these bytes of VTCM.
///
/// # Errors
/// ENODEV (19) where the processor has none, EBUSY (16) while another thread holds it, ENOSYS (38) from an
/// emulator that has none.
pub fn hold_matrix_unit(vtcm: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the call touches no memory: it only tells the emulator where operands will lie.
    let held = unsafe { sys::call(Call::MatrixUnit, [1, vtcm.as_ptr() as u32, bytes as u32, 0, 0, 0]) };
    held.map(|_| ())
}

/// Starts a thread that runs `entry(argument)` and ends when it returns.
///
/// # Errors
/// The system's reason.
///
/// # Safety
/// `entry` may be called with `argument` on another thread, at any time until the process ends.
pub unsafe fn spawn(entry: extern "C" fn(*mut ()), argument: *mut ()) -> Result<(), Errno> {
    /// Memory, file system, files, signals, thread group, semaphores: all shared.
    const THREAD: u32 = 0x50f00;
    let stack = guarded(STACK)?;
    // SAFETY: the stack is STACK bytes of new memory that nobody else knows, and ends at a multiple of 128:
    // its last 16 bytes have room for the argument and the function, and are aligned to 8. `entry` may be
    // called with `argument` (the caller's contract).
    unsafe {
        let top = stack.as_ptr().add(STACK - 16).cast::<u32>();
        top.write(argument.expose_provenance() as u32);
        let null = core::ptr::null();
        match sys::hexflash_clone(THREAD, top, null, null, 0, entry) {
            error if error < 0 => Err(Errno(error.unsigned_abs())),
            _ => Ok(()),
        }
    }
}

/// Ends the process.
pub fn exit(code: u32) -> ! {
    loop {
        // SAFETY: the call has no pointers, and does not return.
        let _ = unsafe { sys::call(Call::ExitGroup, [code, 0, 0, 0, 0, 0]) };
    }
}

/// Where text goes, unbuffered: messages outlive a crash.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Stream {
    /// Standard output.
    Out = 1,
    /// Standard error.
    Error = 2,
}

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the system reads `rest.len()` bytes at `rest.as_ptr()`, which are those of a slice.
            let written = unsafe {
                sys::call(Call::Write, [*self as u32, rest.as_ptr() as u32, rest.len() as u32, 0, 0, 0])
            };
            let written = written.map_err(|_| core::fmt::Error)? as usize;
            rest = rest.get(written.max(1)..).unwrap_or(&[]);
        }
        Ok(())
    }
}
