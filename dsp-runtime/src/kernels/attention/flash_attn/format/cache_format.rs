//! What a number format of caches does, and where a cache has what.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::TILE_K;

use crate::dma::Transfer;
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::memory::View;
use crate::row::Row;

/// Where a cache has a key or a value.
#[derive(Clone, Copy)]
pub struct CachePlace<'c> {
    pub cache: &'c View,
    pub position: usize,
    pub head: usize,
    /// The batch of the slot.
    pub entry: usize,
}

impl CachePlace<'_> {
    /// The strip of the position, for tiled types.
    #[inline(always)]
    pub fn strip(&self) -> *mut u8 {
        self.cache.at([self.position / TILE, self.head, self.entry])
    }

    /// What brings `bytes` of each row up to position `to` to a tile at `slot` whose rows are `stride` apart:
    /// these rows and no others.
    #[inline(always)]
    pub fn rows(&self, to: usize, slot: *mut u8, bytes: usize, stride: usize) -> Transfer {
        Transfer {
            src: self.cache.at([self.position, self.head, self.entry]),
            dst: slot.wrapping_add(self.lane() * stride),
            row_bytes: bytes,
            rows: to - self.position,
            src_stride: self.cache.nb[1],
            dst_stride: stride,
        }
    }

    /// The position within its strip.
    #[inline(always)]
    pub fn lane(&self) -> usize {
        self.position % TILE
    }
}

/// The accumulators of a row of attention: sums of values, in the order of a format's floats.
#[derive(Clone, Copy)]
pub struct ValueSums {
    pub first: VectorPtr,
    pub vectors: usize,
}

/// A number format of caches.
pub trait CacheFormat {
    /// Bytes of a tile of keys of width `d` in VTCM.
    fn key_tile(d: usize) -> usize;

    /// Bytes of a tile of values of width `dv` in VTCM.
    fn value_tile(dv: usize) -> usize;

    /// Vectors of floats of a value, an even number. What they have beyond the value's own means nothing.
    fn value_vectors(dv: usize) -> usize;

    /// Writes a key, rounded; whether what is written is finite.
    ///
    /// # Safety
    /// 1. The cache is of this format and has the place's head; `x` is as long as its rows.
    /// 2. This worker alone has claimed the head of the entry.
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool;

    /// Writes a value, as [`store_key`](Self::store_key) writes a key.
    ///
    /// # Safety
    /// As there.
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool;

    /// What brings at least the keys at `place.position..to`, which are in one tile, to a tile at `slot`: the
    /// whole strip, where there are strips.
    #[inline(always)]
    fn transfer_keys(place: CachePlace<'_>, _to: usize, slot: *mut u8) -> Transfer {
        Transfer::linear(place.strip(), slot, Self::key_tile(place.cache.ne[0]))
    }

    /// What brings at least the values at `place.position..to`, which are in one tile, to a tile at `slot`.
    fn transfer_values(place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer;

    /// Makes a vector of floats of each dimension of a tile of keys, positions in the lanes.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes, and `wide` for writing [`wide_keys`]\(d).
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize);

    /// Makes the scores of a tile's keys from the products of R queries with what
    /// [`widen_keys`](Self::widen_keys) gave, and from what a step along the [axis](super::axis) adds to
    /// each.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes.
    #[inline(always)]
    unsafe fn complete_scores<H: Hvx, const R: usize>(
        _tile: VectorPtr,
        _d: usize,
        _steps: [f32; R],
        _scores: &mut [H::F; R],
    ) {
    }

    /// Makes `value_vectors(dv)` vectors of floats of each value at `from..to` of a tile. Of rotated values
    /// it makes a vector of each position for 32 dimensions, then for the next 32, without their scales.
    ///
    /// # Safety
    /// `tile` is valid for reading `value_tile(dv)` bytes, of which the transfer has brought those of
    /// `from..to`, and `wide` for writing the floats of 32 values.
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize);
}

/// Bytes of a tile of keys of width `d` as floats: those of whole pairs of tiles of dimensions, which rows
/// need on their way into the lanes ([`super::f16_rows`]).
pub const fn wide_keys(d: usize) -> usize {
    d.next_multiple_of(2 * TILE_K) * VECTOR_BYTES
}
