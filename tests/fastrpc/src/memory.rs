//! Memory of the host under a file descriptor, which the process on the DSP maps as well.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// Pages of this size.
pub const PAGE: usize = 4096;

/// A mapping of a whole file, shared.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `Mapped` is an address and a length, which it gives out; who touches the memory does so by unsafe
// code.
unsafe impl Send for Mapped {}
// SAFETY: `&Mapped` gives an address and a length; who touches the memory does so by unsafe code.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `bytes` of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this asks for a new mapping at an address of the system's choice, and touches no other.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes.max(1), access, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; whoever has the address has promised to use it no more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes.max(1)) };
    }
}

/// The emulator maps files in units of this size, and falls over beyond the end of one.
const FILE: u64 = 64 << 10;

/// A new file without a name, of at least `bytes` zeroed bytes.
///
/// # Errors
/// The system's.
pub fn nameless(bytes: usize) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create("rpcmem", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len((bytes as u64).next_multiple_of(FILE))?;
    Ok(file)
}
