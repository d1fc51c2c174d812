//! What differs between the DSP's operating systems: threads that sleep and wake, time, mapping, caches.

#[cfg(feature = "host")]
pub mod host;
#[cfg(all(target_arch = "hexagon", feature = "linux"))]
pub mod linux;

use core::ptr::NonNull;

use hexflash_abi::sync::AtomicU32;
use hexflash_abi::{Fault, Fd};

use crate::dma::Channel;
use crate::plan::Units;

/// A range operation on the data cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOp {
    /// Write dirty lines back, so that the host sees what we wrote.
    Flush,
    /// Drop lines, so that we see what the host wrote.
    Invalidate,
}

/// The seam to the operating system.
pub trait Platform: Sync {
    /// Whether [`map`](Self::map) may fail for lack of room, so that it is worth to drop other mappings for
    /// one.
    const LIMITED: bool = false;
    /// Whether workers may lose their processors to other programs at any time, so that waiting for them may
    /// cost more than they help.
    const CONTENDED: bool = false;
    /// Sleeps while `*word == expected`; may wake early.
    fn futex_wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes all who sleep on `word`.
    fn futex_wake(&self, word: &AtomicU32);
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// What the parts of a program are measured in, from some start on: nanoseconds, unless the platform
    /// knows better.
    fn cost(&self) -> u64 {
        self.now_ns()
    }
    /// The cost since [`cost`](Self::cost) gave `start`.
    fn cost_since(&self, start: u64) -> u64 {
        self.cost().saturating_sub(start)
    }
    /// Cycles of the processor so far, in 32 bits, where this is a Hexagon; an emulator counts this thread's
    /// packets.
    fn cycles(&self) -> u32 {
        0
    }
    /// Maps `size` bytes of shared memory, aligned to 128 bytes at least.
    ///
    /// # Errors
    /// [`hexflash_abi::ErrorCode::MapFailed`] with the platform's own error as the detail.
    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault>;
    /// Drops a mapping made by [`map`](Self::map).
    fn unmap(&self, fd: Fd, base: NonNull<u8>, size: u64);
    /// Cache maintenance of a range of shared memory.
    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize);
    /// Runs a worker's part of a kernel. A platform that counts what kernels cost does it here.
    fn observe<R>(&self, _worker: usize, part: impl FnOnce() -> R) -> R {
        part()
    }
    /// The ops that follow are those of the program with this number. A platform on which somebody may ask
    /// what runs takes a note of it.
    fn begin_program(&self, _program: u32) {}
    /// The op with this index in its program begins.
    fn begin_op(&self, _op: usize) {}
    /// The DMA engine of a worker, from 0, and memory for its descriptors, for
    /// [`DmaMode::Engine`](crate::dma::DmaMode); `None` where there is none. Only the thread that is this
    /// worker uses it.
    fn dma(&self, _worker: usize) -> Option<Channel> {
        None
    }
    /// The units that kernels may ask for; none unless the platform lends some. A matrix unit is held by the
    /// thread that dispatches.
    fn units(&self) -> Units {
        Units::default()
    }
    /// Hint that the caller spins.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}
