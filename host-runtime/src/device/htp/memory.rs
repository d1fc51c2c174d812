//! Shared memory of FastRPC, and what the host has written in it since the DSP was last told.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hexflash_abi::message::MapFlags;

use super::super::Memory;
use super::error::{Call, HtpError, check};
use super::ffi::{CACHED, HEAP_SYSTEM, MAP_FD_DELAYED};
use super::library::Library;

/// What caches work on, on either side.
const LINE: usize = 128;
/// Separate ranges that are kept; more become one.
const RANGES: usize = 8;

/// Ranges of bytes, whole lines, that do not touch.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// Adds a range.
    fn add(&mut self, offset: usize, bytes: usize, limit: usize) {
        if bytes == 0 {
            return;
        }
        let mut new = offset / LINE * LINE..(offset + bytes).next_multiple_of(LINE).min(limit);
        self.0.retain(|old| {
            let apart = old.end < new.start || new.end < old.start;
            if !apart {
                new = new.start.min(old.start)..new.end.max(old.end);
            }
            apart
        });
        self.0.push(new);
        if self.0.len() > RANGES {
            let start = self.0.iter().map(|r| r.start).min().unwrap_or(0);
            let end = self.0.iter().map(|r| r.end).max().unwrap_or(0);
            self.0.clear();
            self.0.push(start..end);
        }
    }
}

/// A piece of shared memory.
pub(super) struct RpcMemory {
    vendor: Arc<Library>,
    base: NonNull<u8>,
    /// Bytes that users asked for, and that were allocated.
    bytes: usize,
    fd: c_int,
    /// For each mapping what was written since it was last told: sessions may share the memory.
    written: Mutex<Vec<Ranges>>,
}

// SAFETY: only the pointer keeps the memory from being `Send`. FastRPC frees memory on any thread, and who
// reads or writes there does so by unsafe code, which obeys `Memory`.
unsafe impl Send for RpcMemory {}
// SAFETY: `&RpcMemory` gives an address, sizes and a list behind a lock. Who reads or writes the memory does
// so by unsafe code, which obeys `Memory`.
unsafe impl Sync for RpcMemory {}

impl RpcMemory {
    /// `bytes` zeroed bytes.
    pub(super) fn zeroed(library: &Arc<Library>, bytes: u64) -> Result<Self, HtpError> {
        let none = || HtpError::call(Call::Allocate, super::aee::AeeCode::NO_MEMORY as i32);
        let bytes = usize::try_from(bytes).map_err(|_| none())?.max(1);
        let functions = library.functions();
        // SAFETY: `library` is loaded, so its functions are there. They take numbers only, and the size fits
        // the type of each.
        let base = unsafe {
            match (functions.rpcmem_alloc2, c_int::try_from(bytes)) {
                (Some(allocate), _) => allocate(HEAP_SYSTEM, CACHED, bytes),
                (None, Ok(bytes)) => (functions.rpcmem_alloc)(HEAP_SYSTEM, CACHED, bytes),
                // Older libraries count in an `int`.
                (None, Err(_)) => return Err(none()),
            }
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(none)?;
        // SAFETY: `base` is not null, so the library has allocated `bytes` bytes there, which nobody else has
        // yet.
        unsafe { base.write_bytes(0, bytes) };
        // SAFETY: `base` is the address of memory that the library has allocated above and that was not
        // freed.
        let fd = unsafe { (functions.rpcmem_to_fd)(base.as_ptr().cast()) };
        let written = Mutex::new(Vec::new());
        let memory = Self { vendor: Arc::clone(library), base, bytes, fd, written };
        // Dropped, and so freed, if it has no fd.
        if fd > 0 { Ok(memory) } else { Err(HtpError::call(Call::ToFd, fd)) }
    }

    /// Its file descriptor.
    pub(super) fn fd(&self) -> c_int {
        self.fd
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Ranges>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RpcMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed`, mapped nowhere any more (`Mapped` holds this), and used by nobody.
        unsafe { (self.vendor.functions().rpcmem_free)(self.base.as_ptr().cast()) };
    }
}

// SAFETY: FastRPC's memory is page-aligned, readable, writable and does not move; nobody is given references
// to it.
unsafe impl Memory for RpcMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn writable(&self) -> bool {
        true
    }

    fn written(&self, offset: usize, bytes: usize) {
        self.ranges().iter_mut().for_each(|ranges| ranges.add(offset, bytes, self.bytes));
    }
}

/// Shared memory that the DSP may map, until it is dropped.
pub(super) struct Mapped {
    memory: Arc<RpcMemory>,
    domain: c_int,
    flags: MapFlags,
    /// Which of the memory's lists of written ranges is this mapping's.
    list: usize,
}

impl Mapped {
    /// Lets the DSP map the memory, as `flags` say. What was written before is in no cache of the DSP.
    pub(super) fn new(memory: Arc<RpcMemory>, domain: c_int, flags: MapFlags) -> Result<Self, HtpError> {
        let functions = memory.vendor.functions();
        let (at, bytes) = (memory.base.as_ptr().cast::<c_void>(), memory.bytes);
        // SAFETY: `memory` lives as long as `self`, and `at`, its fd and its size are those of one allocation
        // of the library's.
        let code = unsafe { (functions.fastrpc_mmap)(domain, memory.fd, at, 0, bytes, MAP_FD_DELAYED) };
        check(Call::Map, code)?;
        let mut lists = memory.ranges();
        lists.push(Ranges::default());
        let list = lists.len() - 1;
        drop(lists);
        Ok(Self { memory, domain, flags, list })
    }

    /// How it is mapped.
    pub(super) fn flags(&self) -> MapFlags {
        self.flags
    }

    /// What was written since the last call.
    pub(super) fn take_written(&self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.memory.ranges()[self.list].0)
    }

    /// This session wrote there: the others that have the memory must be told.
    pub(super) fn written_here(&self, offset: usize, bytes: usize) {
        let mut lists = self.memory.ranges();
        let others = lists.iter_mut().enumerate().filter(|&(list, _)| list != self.list);
        others.for_each(|(_, ranges)| ranges.add(offset, bytes, self.memory.bytes));
    }

    /// Puts a range back into the list of written ranges, since it could not be reported to the session.
    pub(super) fn untold(&self, offset: usize, bytes: usize) {
        self.memory.ranges()[self.list].add(offset, bytes, self.memory.bytes);
    }

    /// The memory.
    pub(super) fn memory(&self) -> &Arc<RpcMemory> {
        &self.memory
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let memory = &self.memory;
        let at = memory.base.as_ptr().cast::<c_void>();
        // SAFETY: `new` has mapped the memory with this domain, fd, address and size, and only this value,
        // which is being dropped, names that mapping.
        let code =
            unsafe { (memory.vendor.functions().fastrpc_munmap)(self.domain, memory.fd, at, memory.bytes) };
        if code != 0 {
            // The mapping ends with its session at the latest.
            tracing::debug!("fastrpc_munmap gave {}", super::aee::AeeCode(code));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_lines_and_join_where_they_touch() {
        let mut ranges = Ranges::default();
        for (at, bytes) in [(130, 4), (1000, 0), (900, 30), (260, 1), (4000, 100)] {
            ranges.add(at, bytes, 4050);
        }
        assert_eq!(ranges.0, [896..1024, 128..384, 3968..4050]);
        for i in 0..9 {
            ranges.add(10_000 + 1000 * i, 1, 100_000);
        }
        assert_eq!(ranges.0.len(), 3 + 9 - RANGES);
        assert!(ranges.0.iter().any(|r| r.start == 128 && r.end >= 15_000));
    }
}
