//! The language's own.

use core::ptr::NonNull;

pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// A cell that threads pass to each other.
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell with a value.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with the place, to be read. (Nobody may write it meanwhile: what a model checks.)
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with the place, to be written. (Nobody else may use it meanwhile: what a model checks.)
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The word at byte `at` of shared memory.
///
/// # Safety
/// 1. `at` is a multiple of 4, and so is `base`.
/// 2. The word is valid for reads and writes for `'m`, and nobody accesses it but by atomics.
#[inline(always)]
pub unsafe fn word<'m>(base: NonNull<u8>, at: usize) -> &'m AtomicU32 {
    // SAFETY: byte `at` from `base` is aligned to 4 (point 1), and the word there is valid for `'m` and
    // accessed by atomics only (point 2).
    unsafe { AtomicU32::from_ptr(base.as_ptr().add(at).cast()) }
}

/// Copies bytes to byte `at` of shared memory.
///
/// # Safety
/// `bytes.len()` bytes from `base + at` on are valid for writing, and `bytes` lies elsewhere.
#[inline(always)]
pub unsafe fn copy_in(base: NonNull<u8>, at: usize, bytes: &[u8]) {
    // SAFETY: `bytes.len()` bytes from `at` on are valid for writing, and `bytes` lies elsewhere (the
    // caller's contract).
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), base.as_ptr().add(at), bytes.len()) };
}

/// Copies bytes from byte `at` of shared memory.
///
/// # Safety
/// `out.len()` bytes from `base + at` on are valid for reading, and `out` lies elsewhere.
#[inline(always)]
pub unsafe fn copy_out(base: NonNull<u8>, at: usize, out: &mut [u8]) {
    // SAFETY: `out.len()` bytes from `at` on are valid for reading, and `out` lies elsewhere (the caller's
    // contract).
    unsafe { core::ptr::copy_nonoverlapping(base.as_ptr().add(at), out.as_mut_ptr(), out.len()) };
}
