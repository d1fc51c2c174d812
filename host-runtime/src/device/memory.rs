//! Memory that the host and a device share.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::DeviceError;

/// Memory that can be shared with a device: it stays where it is until dropped.
///
/// # Safety
/// `base` gives the same page-aligned address, valid for reading `len` bytes (and for writing, if `writable`)
/// by any thread, until the value is dropped. No Rust reference to the bytes exists while a device may write
/// them.
pub unsafe trait Memory: Any + Send + Sync {
    /// Address of the first byte.
    fn base(&self) -> NonNull<u8>;
    /// Number of bytes.
    fn len(&self) -> usize;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether the memory may be written.
    fn writable(&self) -> bool;
}

/// Bytes of a large page, on most systems.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed pages of this process, between two pages without access, so that a kernel that leaves its memory is
/// stopped.
pub(super) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
    _map: memmap2::MmapMut,
}

// SAFETY: only the pointer keeps `Pages` from being `Send`, and it belongs to the map, which may be dropped
// on any thread. Who reads or writes there does so by unsafe code, which obeys `Memory`.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives an address and a length. Who reads or writes there does so by unsafe code, which
// obeys `Memory`.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` zeroed bytes, at least one page.
    pub(super) fn zeroed(bytes: usize) -> std::io::Result<Self> {
        let (bytes, page) = (bytes.max(1), guard::page());
        let whole = bytes.checked_next_multiple_of(page.max(1)).and_then(|n| n.checked_add(2 * page));
        let whole = whole.ok_or(std::io::ErrorKind::OutOfMemory)?;
        let mut map = memmap2::MmapMut::map_anon(whole)?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE {
            // Weights are read from one end to the other, over and over, and the table of small pages with
            // them. Systems without large pages go on with small ones.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        // The pointer is taken once; after this no reference to the bytes is made.
        let first = NonNull::from(&mut map[..]).cast::<u8>();
        // SAFETY: `whole` is at least two pages and the bytes: the first and the last page of the map, which
        // hold nothing and are never used, and the address behind the first.
        let base = unsafe {
            guard::forbid(first, page)?;
            guard::forbid(first.add(whole - page), page)?;
            first.add(page)
        };
        Ok(Self { base, bytes, _map: map })
    }
}

#[cfg(target_os = "linux")]
mod guard {
    use std::ptr::NonNull;

    /// Bytes of a page.
    pub(super) fn page() -> usize {
        rustix::param::page_size()
    }

    /// # Safety
    /// Whole pages of a private mapping, which hold nothing and are never used.
    pub(super) unsafe fn forbid(at: NonNull<u8>, bytes: usize) -> std::io::Result<()> {
        // SAFETY: these are whole pages of a private mapping, which hold nothing and are never used (the
        // caller's contract).
        Ok(unsafe { rustix::mm::mprotect(at.as_ptr().cast(), bytes, rustix::mm::MprotectFlags::empty()) }?)
    }
}

/// Elsewhere there are no pages around.
#[cfg(not(target_os = "linux"))]
mod guard {
    use std::ptr::NonNull;

    pub(super) fn page() -> usize {
        0
    }

    /// # Safety
    /// None.
    pub(super) unsafe fn forbid(_at: NonNull<u8>, _bytes: usize) -> std::io::Result<()> {
        Ok(())
    }
}

// SAFETY: an anonymous map is page-aligned, readable, writable between the forbidden pages and does not move;
// `Pages` hands out no references.
unsafe impl Memory for Pages {
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

/// Bytes that a device imports for reading only: weights.
pub trait Source: Send + Sync {
    /// Number of bytes.
    fn bytes(&self) -> u64;

    /// The bytes in memory of this process that cannot be changed, for devices that use them in place. They
    /// are copied if they are not in memory.
    ///
    /// # Errors
    /// No memory, or as [`copy_to`](Self::copy_to).
    fn in_memory(&self) -> std::io::Result<Arc<dyn Memory>>;

    /// Copies all bytes to `out`, which must have that length.
    ///
    /// # Errors
    /// The bytes cannot be read, or have changed since they were checked.
    fn copy_to(&self, out: &mut [u8]) -> std::io::Result<()>;
}

/// A counted handle to shared memory, with bounds-checked copies in and out.
///
/// The device may read and write the memory while a program runs that uses it. Copies made meanwhile may be
/// torn. The caller must avoid that: it knows which requests are in flight.
#[derive(Clone)]
pub struct SharedMemory(Arc<dyn Memory>);

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.0.len())
    }
}

impl SharedMemory {
    /// Wraps memory.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        Self(memory)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies `data` in at `offset`.
    ///
    /// # Panics
    /// If the range leaves the memory or the memory is read-only: offsets are the caller's own layout.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(self.0.writable() && offset <= self.len() && data.len() <= self.len() - offset);
        // SAFETY: `offset + data.len()` is at most `len`, and the memory is writable, by the line above;
        // `Memory` promises that so many bytes are valid from `base` on, and that nobody has references to
        // them. `data` is a slice, and so lies elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.0.base().as_ptr().add(offset), data.len());
        }
    }

    /// Copies `data.len()` bytes out from `offset`.
    ///
    /// # Panics
    /// If the range leaves the memory.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(offset <= self.len() && data.len() <= self.len() - offset);
        // SAFETY: `offset + data.len()` is at most `len`, by the line above; `Memory` promises that so many
        // bytes are valid from `base` on. `data` is an exclusive slice, and so lies elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.base().as_ptr().add(offset), data.as_mut_ptr(), data.len());
        }
    }

    /// Address of the first byte, for who uses the memory in place.
    pub fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    /// The memory itself.
    pub(super) fn memory(&self) -> &Arc<dyn Memory> {
        &self.0
    }

    /// The memory as what a device shares; that of another device is something else.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], which says so.
    pub(super) fn shared_as<M: Memory>(&self) -> Result<Arc<M>, DeviceError> {
        let memory: Arc<dyn Any + Send + Sync> = Arc::<dyn Memory>::clone(&self.0);
        memory
            .downcast()
            .map_err(|_| DeviceError::Lost { reason: "its memory is another device's".to_owned() })
    }
}
