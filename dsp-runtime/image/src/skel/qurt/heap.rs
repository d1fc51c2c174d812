//! Memory of the process's heap.
//!
//! The library has next to no static memory: the first memory of a process that runs unsigned libraries is
//! 5 MB (FastRPC's `remote.h`), in which the library itself must fit, and more comes from `memalign`.

use core::ptr::NonNull;

use super::sys;

/// Alignment of all of it: a vector, and a line of the second-level cache.
const ALIGN: usize = 128;

/// Zeroed memory, until it is dropped.
pub(in super::super) struct HeapBlock {
    base: NonNull<u8>,
    bytes: usize,
}

impl HeapBlock {
    /// `bytes` of memory; `None` if there are not so many.
    pub(in super::super) fn zeroed(bytes: usize) -> Option<Self> {
        // SAFETY: the call takes two numbers, the first of which is a power of two.
        let base = NonNull::new(unsafe { sys::memalign(ALIGN, bytes) }.cast::<u8>())?;
        // SAFETY: `base` is not null, so that `bytes` bytes are there, which nobody else has.
        unsafe { base.write_bytes(0, bytes) };
        Some(Self { base, bytes })
    }

    /// Address of the memory, a multiple of 128.
    pub(in super::super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Size of the memory, in bytes.
    pub(in super::super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it, `None` if that is not inside.
    pub(in super::super) fn part(&self, offset: usize, bytes: usize) -> Option<*mut [u8]> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        // SAFETY: `offset` is inside the block, by the line above.
        let base = inside.then(|| unsafe { self.base.add(offset) })?;
        Some(core::ptr::slice_from_raw_parts_mut(base.as_ptr(), bytes))
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: `zeroed` has allocated it, and this is the last use of it, for `self` is being dropped.
        unsafe { sys::free(self.base.as_ptr().cast()) };
    }
}
