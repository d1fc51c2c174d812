//! Loom's.
//!
//! Loom takes sequentially consistent accesses for acquire and release. They are made of what it does model:
//! a sequentially consistent fence before each, which is how processors without such accesses do it.
//!
//! Shared memory is an array of loom's words: `base` is the address of the first, and byte `at` lies in word
//! `at / 4`. Bytes that are copied travel in words without any order of their own, so that a copy made too
//! early finds old ones.

use core::ptr::NonNull;

pub use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{Ordering, fence};

fn lead(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty $(, $arithmetic:ident)*) => {
        /// An atomic, as the language's.
        #[derive(Debug)]
        pub struct $name(loom::sync::atomic::$name);

        #[allow(missing_docs, reason = "the language's functions")]
        impl $name {
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                lead(order);
                self.0.load(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
            }

            pub fn store(&self, value: $value, order: Ordering) {
                lead(order);
                self.0.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                lead(order);
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                lead(success);
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                lead(success);
                self.0.fetch_update(success, failure, update)
            }

            $(pub fn $arithmetic(&self, value: $value, order: Ordering) -> $value {
                lead(order);
                self.0.$arithmetic(value, order)
            })*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_and, fetch_or);
atomic!(AtomicUsize, usize, fetch_add);

/// The word at byte `at` of shared memory.
///
/// # Safety
/// `base` is the first of an array of [`AtomicU32`] that lives for `'m` and has a word for `at`, a multiple
/// of 4.
pub unsafe fn word<'m>(base: NonNull<u8>, at: usize) -> &'m AtomicU32 {
    // SAFETY: `base` is the first of an array of words that lives for `'m`, and the array has word `at / 4`
    // (the caller's contract).
    unsafe { base.cast::<AtomicU32>().add(at / 4).as_ref() }
}

/// Copies bytes to byte `at` of shared memory, a multiple of 4, in whole words.
///
/// # Safety
/// Each word from `at` to `at + bytes.len()` is as [`word`] asks.
pub unsafe fn copy_in(base: NonNull<u8>, at: usize, bytes: &[u8]) {
    for (i, chunk) in bytes.chunks(4).enumerate() {
        let mut value = [0; 4];
        value[..chunk.len()].copy_from_slice(chunk);
        // SAFETY: the array has a word for every byte from `at` to `at + bytes.len()`, and `at + 4 * i` is a
        // multiple of 4 as `at` is (the caller's contract).
        let word = unsafe { word(base, at + 4 * i) };
        word.store(u32::from_le_bytes(value), Ordering::Relaxed);
    }
}

/// Copies bytes from byte `at` of shared memory, a multiple of 4, in whole words.
///
/// # Safety
/// Each word from `at` to `at + out.len()` is as [`word`] asks.
pub unsafe fn copy_out(base: NonNull<u8>, at: usize, out: &mut [u8]) {
    for (i, chunk) in out.chunks_mut(4).enumerate() {
        // SAFETY: the array has a word for every byte from `at` to `at + out.len()`, and `at + 4 * i` is a
        // multiple of 4 as `at` is (the caller's contract).
        let word = unsafe { word(base, at + 4 * i) };
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..chunk.len()]);
    }
}
