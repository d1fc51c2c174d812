//! Files without a name, mapped by both sides.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use hexflash_abi::guest::FILE_ALIGN;
use rustix::fs::{MemfdFlags, SealFlags};

use super::super::{Memory, Source};

/// A new file of at least `bytes` zeroed bytes, a whole number of the emulator's pages.
fn create(bytes: u64) -> io::Result<File> {
    let file =
        File::from(rustix::fs::memfd_create("hexflash", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    let bytes = bytes.max(1).checked_next_multiple_of(FILE_ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// A file of either kind, kept open.
#[derive(Clone)]
pub enum Backing {
    /// Memory of both sides.
    Shared(Arc<SharedFile>),
    /// Weights.
    Sealed(Arc<SealedFile>),
}

/// Memory that the emulator maps as a file. It is gone when both sides have dropped it, however they ended.
pub struct SharedFile {
    base: NonNull<u8>,
    map: memmap2::MmapMut,
    bytes: usize,
    file: File,
}

// SAFETY: only the pointer keeps the file from being `Send`, and it belongs to the map, which is. Who reads
// or writes there does so by unsafe code, which obeys `Memory`.
unsafe impl Send for SharedFile {}
// SAFETY: `&SharedFile` gives an address, a length and a descriptor. Who reads or writes there does so by
// unsafe code, which obeys `Memory`.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// `bytes` zeroed bytes.
    pub(super) fn zeroed(bytes: u64) -> io::Result<Self> {
        let file = create(bytes)?;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the file has no name and only the emulator opens it, which never changes its length. What
        // it writes is plain data to us.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file)? };
        // The pointer is taken once; after this no reference to the bytes is made.
        let base = NonNull::from(&mut map[..]).cast();
        Ok(Self { base, map, bytes, file })
    }

    /// The number by which the emulator opens it.
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

// SAFETY: the map is page-aligned, readable, writable and does not move; `SharedFile` hands out no
// references.
unsafe impl Memory for SharedFile {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        debug_assert!(self.bytes <= self.map.len());
        self.bytes
    }

    fn writable(&self) -> bool {
        true
    }
}

/// A copy of weights that the emulator can read and that cannot be written.
pub struct SealedFile {
    /// Private: no part of it is touched unless the host looks at its weights.
    map: memmap2::Mmap,
    bytes: usize,
    file: File,
}

impl SealedFile {
    /// Copies `source`.
    pub(super) fn of(source: &dyn Source) -> io::Result<Self> {
        let file = create(source.bytes())?;
        let bytes = usize::try_from(source.bytes()).map_err(io::Error::other)?;
        // SAFETY: the file has no name, and nobody else has it yet; it is as long as it will be.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file)? };
        source.copy_to(&mut map[..bytes])?;
        // A file that can be written through a mapping cannot be sealed.
        drop(map);
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: the file is sealed: nobody can change or shorten it while it is mapped.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file)? };
        Ok(Self { map, bytes, file })
    }

    /// The number by which the emulator opens it.
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

// SAFETY: the map is page-aligned, readable, not writable, does not move, and holds at least `bytes` bytes.
unsafe impl Memory for SealedFile {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(&self.map[..]).cast()
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn writable(&self) -> bool {
        false
    }
}
