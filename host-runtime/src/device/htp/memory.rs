//! Shared memory of FastRPC.
//!
//! The DSP looks after its caches itself: it drops what the host may have written, and writes back what the
//! host reads, as programs name it. The CPU's caches are coherent with it, on which other clients rely, too.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use hexflash_abi::message::MapFlags;

use super::super::Memory;
use super::error::{Call, HtpError, check};
use super::ffi::{CACHED, HEAP_SYSTEM, MAP_FD_DELAYED};
use super::library::Library;

/// A piece of shared memory.
pub struct RpcMemory {
    vendor: Arc<Library>,
    base: NonNull<u8>,
    /// Bytes that users asked for, and that were allocated.
    bytes: usize,
    fd: c_int,
}

// SAFETY: only the pointer keeps the memory from being `Send`. FastRPC frees memory on any thread, and who
// reads or writes there does so by unsafe code, which obeys `Memory`.
unsafe impl Send for RpcMemory {}
// SAFETY: `&RpcMemory` gives an address and sizes. Who reads or writes the memory does so by unsafe code,
// which obeys `Memory`.
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
        let memory = Self { vendor: Arc::clone(library), base, bytes, fd };
        // Dropped, and so freed, if it has no fd.
        if fd > 0 { Ok(memory) } else { Err(HtpError::call(Call::ToFd, fd)) }
    }

    /// Its file descriptor.
    pub(super) fn fd(&self) -> c_int {
        self.fd
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
}

/// Shared memory that the DSP may map, until it is dropped.
pub struct Mapped {
    memory: Arc<RpcMemory>,
    domain: c_int,
    flags: MapFlags,
}

impl Mapped {
    /// Lets the DSP map the memory, as `flags` say.
    pub(super) fn new(memory: Arc<RpcMemory>, domain: c_int, flags: MapFlags) -> Result<Self, HtpError> {
        let functions = memory.vendor.functions();
        let (at, bytes) = (memory.base.as_ptr().cast::<c_void>(), memory.bytes);
        // SAFETY: `memory` lives as long as `self`, and `at`, its fd and its size are those of one allocation
        // of the library's.
        let code = unsafe { (functions.fastrpc_mmap)(domain, memory.fd, at, 0, bytes, MAP_FD_DELAYED) };
        check(Call::Map, code)?;
        Ok(Self { memory, domain, flags })
    }

    /// How it is mapped.
    pub(super) fn flags(&self) -> MapFlags {
        self.flags
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
