//! A state in VTCM, and the room that a worker has for states.

use hexflash_abi::VECTOR_BYTES;

use super::sweep::{KEYS, SPARE};
use crate::dma::Transfer;
use crate::hvx::LANES;

/// Bytes of three rows of keys.
pub const KEY_ROWS: usize = 3 * KEYS * size_of::<f32>();

/// A state in VTCM: a row of whole vectors per key, and some to spare, which a sweep may read. Lanes past S
/// hold anything: no lane ever meets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Keys, and values.
    pub size: usize,
    /// Vectors of values of a key.
    pub vectors: usize,
}

impl Tile {
    pub const fn new(size: usize) -> Self {
        Self { size, vectors: size.div_ceil(LANES) }
    }

    /// Bytes from key to key.
    pub const fn stride(self) -> usize {
        self.vectors * VECTOR_BYTES
    }

    /// Bytes that the tile takes.
    pub const fn bytes(self) -> usize {
        (self.size + SPARE) * self.stride()
    }

    /// The transfer between a tile and a packed state, each `row` bytes from key to key.
    pub fn transfer(self, src: *const u8, dst: *mut u8, src_stride: usize, dst_stride: usize) -> Transfer {
        if src_stride == dst_stride {
            return Transfer::linear(src, dst, self.size * src_stride);
        }
        Transfer { src, dst, row_bytes: self.size * 4, rows: self.size, src_stride, dst_stride }
    }
}
