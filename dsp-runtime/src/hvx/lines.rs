//! Addresses of whole vectors.

use super::{BYTES, Hvx};

/// The address of adjacent vectors: a multiple of [`BYTES`], which makes a load or store one instruction on a
/// DSP (elsewhere it is three). A row that happens to be aligned, a place in VTCM, a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorPtr(*mut u8);

impl VectorPtr {
    /// The address, if it is aligned.
    #[inline(always)]
    pub fn new(p: *mut u8) -> Option<Self> {
        p.addr().is_multiple_of(BYTES).then_some(Self(p))
    }

    /// The address, which is aligned.
    ///
    /// # Safety
    /// `p` is a multiple of [`BYTES`].
    #[inline(always)]
    pub unsafe fn new_unchecked(p: *mut u8) -> Self {
        debug_assert!(p.addr().is_multiple_of(BYTES));
        Self(p)
    }

    /// The address.
    #[inline(always)]
    pub const fn get(self) -> *mut u8 {
        self.0
    }

    /// The vectors from number `n` on.
    #[inline(always)]
    pub const fn skip(self, n: usize) -> Self {
        Self(self.0.wrapping_add(n * BYTES))
    }

    /// Loads vector `i` as floats.
    ///
    /// # Safety
    /// Vector `i` from here is valid for reading.
    #[inline(always)]
    pub unsafe fn load<H: Hvx>(self, i: usize) -> H::F {
        // SAFETY: vector `i` from here is valid for reading (the caller's contract), and its address is a
        // multiple of 128, as the first one is by construction and every vector has 128 bytes.
        unsafe { H::load_aligned(self.skip(i).0.cast()) }
    }

    /// Loads vector `i` as bytes.
    ///
    /// # Safety
    /// Vector `i` from here is valid for reading.
    #[inline(always)]
    pub unsafe fn load_b<H: Hvx>(self, i: usize) -> H::B {
        // SAFETY: vector `i` from here is valid for reading (the caller's contract), and its address is a
        // multiple of 128, as the first one is by construction and every vector has 128 bytes.
        H::bytes(H::bits(unsafe { H::load_aligned(self.skip(i).0.cast()) }))
    }

    /// Stores vector `i`.
    ///
    /// # Safety
    /// Vector `i` from here is valid for writing.
    #[inline(always)]
    pub unsafe fn store<H: Hvx>(self, i: usize, v: H::F) {
        // SAFETY: vector `i` from here is valid for writing (the caller's contract), and its address is a
        // multiple of 128, as the first one is by construction and every vector has 128 bytes.
        unsafe { H::store_aligned(self.skip(i).0.cast(), v) }
    }

    /// Stores vector `i` of bytes.
    ///
    /// # Safety
    /// Vector `i` from here is valid for writing.
    #[inline(always)]
    pub unsafe fn store_b<H: Hvx>(self, i: usize, v: H::B) {
        // SAFETY: vector `i` from here is valid for writing (the caller's contract), and its address is a
        // multiple of 128, as the first one is by construction and every vector has 128 bytes.
        unsafe { H::store_aligned(self.skip(i).0.cast(), H::from_bits(H::words(v))) }
    }
}
