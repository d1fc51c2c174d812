//! The `qurt` platform: QuRT's futexes and caches, FastRPC's memory. What else the image gives is in the
//! files beside this one.

mod heap;
mod log;
mod mailbox;
mod memory;
mod news;
mod power;
mod queue;
mod sys;
mod thread;
mod transport;
mod vtcm;

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use hexflash_abi::{Fault, Fd};
use hexflash_dsp::dma::Channel;
use hexflash_dsp::plan::Units;
use hexflash_dsp::platform::{CacheOp, Platform};

use super::machine;

pub(super) use heap::HeapBlock;
pub(super) use log::error as log_error;
pub(super) use mailbox::{Mailbox, exchange};
pub(super) use news::tell as tell_news;
pub(super) use power::{Power, Profile};
pub(super) use queue::Queue;
#[cfg(target_arch = "hexagon")]
pub(super) use sys::abort;
pub(super) use thread::{Priority, Thread, VectorUnit};
pub(super) use transport::{Idle, MessageEnd, TIMEOUT_IDLE_US, Transport};
pub(super) use vtcm::{HOLD_US, VtcmGrant};

/// QuRT's sleeping and waking, its timer, FastRPC's mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct QurtPlatform {
    units: Units,
}

impl QurtPlatform {
    /// A platform without a matrix unit.
    pub(super) const PLAIN: Self = Self { units: Units::NONE };

    /// The same, where the thread that dispatches holds a matrix unit.
    pub(super) const fn with_matrix_unit(self) -> Self {
        Self { units: Units { hmx: 1, ..self.units } }
    }
}

impl Platform for QurtPlatform {
    /// A process has 32 bits of addresses, and not all of them for mappings.
    const LIMITED: bool = true;

    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        // SAFETY: `word` is a reference, so that the word lives through the call, which only reads it.
        unsafe { sys::qurt_futex_wait(word.as_ptr(), expected as i32) };
    }

    fn futex_wake(&self, word: &AtomicU32) {
        // SAFETY: the call reads nothing at the address: it only compares it with those that others sleep on.
        unsafe { sys::qurt_futex_wake(word.as_ptr(), i32::MAX) };
    }

    fn now_ns(&self) -> u64 {
        machine::now_ns()
    }

    fn cycles(&self) -> u32 {
        machine::cycles()
    }

    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        memory::map(fd, size)
    }

    fn unmap(&self, _fd: Fd, base: NonNull<u8>, size: u64) {
        // What the caches still hold of it would be written back into memory that is somebody else's by then.
        memory::clean(memory::Clean::FlushInvalidate, base.as_ptr(), size as usize);
        memory::unmap(base, size);
    }

    fn units(&self) -> Units {
        self.units
    }

    fn dma(&self, worker: usize) -> Option<Channel> {
        machine::dma(worker)
    }

    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize) {
        let op = match op {
            CacheOp::Flush => memory::Clean::Flush,
            CacheOp::Invalidate => memory::Clean::Invalidate,
        };
        memory::clean(op, base, bytes);
    }
}
