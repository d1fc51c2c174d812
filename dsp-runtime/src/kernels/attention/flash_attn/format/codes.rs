//! What the quantized formats share: tiles of codes that become floats, codes of one byte that become words.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{TILE_K, TILE_ROWS};

use super::cache_format::{CachePlace, ValueSums};
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::row::RowMut;

/// The scales of a tile: the vectors that it is multiplied with.
pub(super) trait Scales<H: Hvx> {
    /// That of vector `j`.
    fn of(&self, j: usize) -> H::F;
}

/// Keys have positions in the lanes, and so each lane has its own scale, in every vector.
pub(super) struct InLanes<H: Hvx>(pub H::F);

impl<H: Hvx> Scales<H> for InLanes<H> {
    #[inline(always)]
    fn of(&self, _: usize) -> H::F {
        self.0
    }
}

/// Values have a position per vector.
pub(super) struct PerVector<H: Hvx>(pub H::Lanes);

impl<H: Hvx> Scales<H> for PerVector<H> {
    #[inline(always)]
    fn of(&self, j: usize) -> H::F {
        H::lane(&self.0, j)
    }
}

/// Writes four vectors of floats, from number `j` on: bytes 0 to 3 of the words, signed, times their scales.
///
/// # Safety
/// Vectors `j..j + 4`, each `stride` vectors after the last from `to` on, are valid for writing.
#[inline(always)]
pub(super) unsafe fn spread<H: Hvx>(
    codes: H::B,
    scales: &impl Scales<H>,
    j: usize,
    to: VectorPtr,
    stride: usize,
) {
    let [b0, b1, b2, b3] = math::signed_bytes_to_f32::<H>(H::words(codes));
    // All four before any is stored, so that they overlap.
    let (v0, v1) = (H::mul(b0, scales.of(j)), H::mul(b1, scales.of(j + 1)));
    let (v2, v3) = (H::mul(b2, scales.of(j + 2)), H::mul(b3, scales.of(j + 3)));
    // SAFETY: these are the four vectors of the caller's contract.
    unsafe {
        to.store::<H>(j * stride, v0);
        to.store::<H>((j + 1) * stride, v1);
        to.store::<H>((j + 2) * stride, v2);
        to.store::<H>((j + 3) * stride, v3);
    }
}

/// Vectors of floats of a value: 32 dimensions each, in order, in whole pairs.
pub(super) const fn value_vectors(dv: usize) -> usize {
    dv.div_ceil(TILE_K).next_multiple_of(2)
}

/// The transfer of the whole strip of a place.
#[inline(always)]
pub(super) fn transfer_strip(place: CachePlace<'_>, bytes: usize, slot: *mut u8) -> Transfer {
    Transfer::linear(place.strip(), slot, bytes)
}

/// Bytes of a strip of rows of `k` values.
pub(super) const fn strip_bytes(dtype: hexflash_abi::DType, k: usize) -> usize {
    match dtype.tile_group() {
        Some(group) => group.strip_bytes(k),
        None => 0,
    }
}

/// The codes of 32 dimensions of a vector, a byte each.
#[repr(C, align(4))]
pub(super) struct Codes(pub [u8; TILE_K]);

impl Codes {
    /// The low bytes of words.
    #[inline(always)]
    pub fn of<H: Hvx>(words: H::I) -> Self {
        let mut codes = [0; TILE_K];
        // SAFETY: `codes` is an array of 32 bytes.
        unsafe { H::store_low_bytes(codes.as_mut_ptr(), words) };
        Self(codes)
    }
}

const _: () = assert!(TILE_K == LANES && TILE_ROWS == LANES && VECTOR_BYTES == 4 * LANES);

/// Writes sums that are in the order of the values, times a factor.
///
/// # Safety
/// The sums have [`value_vectors`] of the length of `y`, valid for reading.
#[inline(always)]
pub(super) unsafe fn finish<H: Hvx>(sums: ValueSums, factor: H::F, y: &mut RowMut<'_>) {
    for v in 0..y.len().div_ceil(LANES) {
        // SAFETY: `v` is below the vectors of y, and the sums have at least as many (the caller's contract).
        let value = unsafe { sums.first.load::<H>(v) };
        y.set_vector::<H>(v, H::mul(value, factor));
    }
}
