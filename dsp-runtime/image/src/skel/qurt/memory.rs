//! Memory of the host: mapped by its fd, and kept coherent by hand.

use core::ptr::NonNull;

use hexflash_abi::{ErrorCode, Fault, Fd, VECTOR_BYTES};

use super::sys;

/// What is done to the lines of a range.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Clean {
    /// Dirty lines are written back.
    Flush = 0,
    /// Lines are dropped.
    Invalidate = 1,
    /// Both.
    FlushInvalidate = 2,
    /// Both, for all that the caches hold, whoever's it is.
    FlushInvalidateAll = 4,
}

/// Bytes above which one walk through all of the cache is cheaper than one line after the other: the L2 of
/// v73 and v79 has 1 MiB (their PMU guides name it), and 1 GiB has 8 million lines. ggml-hexagon flushes all
/// of it above 4 MB.
const WHOLE_CACHE_BYTES: usize = 4 << 20;

/// Cache maintenance of a range of a mapping.
pub(super) fn clean(op: Clean, base: *const u8, bytes: usize) {
    const DATA: u32 = 1;
    let (at, bytes, op) = match bytes {
        0 => return,
        1..=WHOLE_CACHE_BYTES => (base.addr(), bytes, op),
        // Nobody loses anything: dirty lines are written back before they are dropped. Of a range that
        // `Invalidate` names none are dirty, for the host writes there.
        _ => (0, 0, Clean::FlushInvalidateAll),
    };
    // SAFETY: a range of a mapping, or no range; what `Invalidate` drops is the host's to write.
    unsafe { sys::qurt_mem_cache_clean(at, bytes, op as u32, DATA) };
}

/// Read and write.
const ACCESS: i32 = 3;

/// Maps `size` bytes of what the host announced under `fd`. FastRPC maps no more than the memory has, so that
/// the size is a fact from here on.
///
/// # Errors
/// [`ErrorCode::MapFailed`]: there is no such memory, it is smaller, or the address space is used up. The
/// image gives no reason, so the detail is the size in KiB.
pub(super) fn map(fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
    let failed = Fault::new(ErrorCode::MapFailed, u32::try_from(size >> 10).unwrap_or(u32::MAX));
    if size == 0 {
        return Err(failed);
    }
    // SAFETY: each asks for a new mapping at an address of the system's choice, and touches no other.
    let base = unsafe {
        match (sys::HAP_mmap2(), sys::HAP_mmap()) {
            (Some(map), _) => {
                let size = usize::try_from(size).map_err(|_| failed)?;
                map(core::ptr::null_mut(), size, ACCESS, 0, fd.0, 0)
            }
            (None, Some(map)) => {
                let size = i32::try_from(size).map_err(|_| failed)?;
                map(core::ptr::null_mut(), size, ACCESS, 0, fd.0, 0)
            }
            (None, None) => return Err(failed),
        }
    };
    let base = NonNull::new(base).filter(|base| base.addr().get() != usize::MAX).ok_or(failed)?;
    if base.addr().get().is_multiple_of(VECTOR_BYTES) {
        Ok(base)
    } else {
        unmap(base, size);
        Err(failed)
    }
}

/// Gives back what [`map`] gave.
pub(super) fn unmap(base: NonNull<u8>, size: u64) {
    let at = base.as_ptr().cast();
    // SAFETY: mapped by `map` with this size, which fits, and by the first of the two functions that is
    // there, which each of these belongs to; the session uses the memory no more.
    unsafe {
        match (sys::HAP_munmap2(), sys::HAP_munmap()) {
            (Some(unmap), _) => unmap(at, size as usize),
            (None, Some(unmap)) => unmap(at, size as i32),
            (None, None) => 0,
        };
    }
}
