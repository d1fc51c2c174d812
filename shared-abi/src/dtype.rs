//! Element types and the tiled layouts of weights.
//!
//! A *tile* is 32 output rows by 32 k: the 32 lanes of a vector are 32 output rows, so a matrix-vector
//! product needs no horizontal reduction. Tiles of one 32-row *strip* follow each other along k in *groups*,
//! each a whole number of vectors, so that a strip is one linear DMA. Rows past the matrix and k past the row
//! are zero.
//!
//! | type | group (k x bytes) | bytes of a group, in order |
//! |---|---|---|
//! | `F32x32` | 32 x 4096 | per k one vector: 32 rows |
//! | `F16x32` | 32 x 2048 | per pair of k one vector: word r = row r, low half k, high half k+1 |
//! | `Q8_0x32` | 128 x 4352 | 4 tiles of 8 vectors; then 2 vectors of scales |
//! | `Q4_0x32` | 128 x 2304 | 4 tiles of 4 vectors; then 2 vectors of scales |
//! | `Q6_Kx32` | 256 x 6784 | 8 tiles of 4 vectors (low nibbles); 8 of 2 (high bits); 4 vectors of block scales; d |
//!
//! * `Q8_0`: byte 4r+b of vector v holds q + 128 of row r at k = 4v + b, unsigned, as `vrmpy` with a scalar
//!   wants.
//! * `Q4_0`: byte 4r+b of vector v holds row r: low nibble k = 4v + b, high nibble k = 16 + 4v + b, both q +
//!   8.
//! * scales: f16, word r of scale vector s: low half tile 2s, high half tile 2s+1, row r.
//! * `Q6_K`: q + 32 in 6 bits; nibbles as in `Q4_0`; bits 2i..2i+1 of byte 4r+b of high vector h (0 or 1)
//!   belong to k = 16h + 4i + b. Block scales: byte 4r+i of vector s is the int8 scale of row r for the 16 k
//!   from 16(4s+i). The last vector: f16 d of row r in the low half of word r.

use crate::wire::Fingerprint;

/// Version of the tile layouts; part of the key of the repack cache.
pub const TILE_LAYOUT_VERSION: u32 = 1;

/// Output rows of a tile: the f32 lanes of a vector.
pub const TILE_ROWS: usize = 32;

/// k of a tile, and of one activation scale.
pub const TILE_K: usize = 32;

wire_enum! {
    /// Type and layout of a tensor's elements.
    pub enum DType: u16 {
        /// Single precision.
        F32 = 1 "F32",
        /// Half precision.
        F16 = 2 "F16",
        /// 32-bit integer: token ids, row ids, positions.
        I32 = 3 "I32",
        /// A row of int8 activations with a scale per 32; see [`ActivationRow`].
        Q8Act = 4 "Q8_ACT",
        /// Tiled F32 weights.
        F32x32 = 16 "F32x32",
        /// Tiled F16 weights, and the K cache.
        F16x32 = 17 "F16x32",
        /// Tiled Q8_0 weights.
        Q8_0x32 = 18 "Q8_0x32",
        /// Tiled Q4_0 weights.
        Q4_0x32 = 19 "Q4_0x32",
        /// Tiled Q6_K weights.
        Q6Kx32 = 20 "Q6_Kx32",
    }
}

/// Group of a tiled type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileGroup {
    /// k covered by a group.
    pub k: usize,
    /// Bytes of a group: a multiple of [`crate::VECTOR_BYTES`].
    pub bytes: usize,
}

impl TileGroup {
    /// Groups in a row of `k` elements.
    pub const fn count(self, k: usize) -> usize {
        k.div_ceil(self.k)
    }

    /// Bytes of a strip: 32 rows of `k` elements.
    pub const fn strip_bytes(self, k: usize) -> usize {
        self.count(k) * self.bytes
    }

    /// Bytes of a matrix of `n` rows of `k` elements.
    pub const fn matrix_bytes(self, k: usize, n: usize) -> usize {
        n.div_ceil(TILE_ROWS) * self.strip_bytes(k)
    }
}

impl DType {
    /// Bytes of an element of a row-major type; `None` for tiled types and activation rows.
    pub const fn element_bytes(self) -> Option<usize> {
        match self {
            Self::F32 | Self::I32 => Some(4),
            Self::F16 => Some(2),
            Self::Q8Act | Self::F32x32 | Self::F16x32 | Self::Q8_0x32 | Self::Q4_0x32 | Self::Q6Kx32 => None,
        }
    }

    /// Group geometry of a tiled type; `None` for the others.
    pub const fn tile_group(self) -> Option<TileGroup> {
        let (k, bytes) = match self {
            Self::F32x32 => (32, 4096),
            Self::F16x32 => (32, 2048),
            Self::Q8_0x32 => (128, 4 * 1024 + 256),
            Self::Q4_0x32 => (128, 4 * 512 + 256),
            Self::Q6Kx32 => (256, q6k::D + 128),
            Self::F32 | Self::F16 | Self::I32 | Self::Q8Act => return None,
        };
        Some(TileGroup { k, bytes })
    }

    /// Whether MUL_MAT reads int8 activations with this weight type, rather than F32 ones.
    pub const fn wants_q8_activations(self) -> bool {
        match self {
            Self::Q8_0x32 | Self::Q4_0x32 | Self::Q6Kx32 => true,
            Self::F32x32 | Self::F16x32 => false,
            // These are no weights.
            Self::F32 | Self::F16 | Self::I32 | Self::Q8Act => false,
        }
    }
}

/// A set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypes(u64);

impl DTypes {
    /// F32 alone.
    pub const F32: Self = Self::of(&[DType::F32]);
    /// I32 alone.
    pub const I32: Self = Self::of(&[DType::I32]);
    /// Every tiled type: what weights may be.
    pub const TILED: Self = Self::those(true);
    /// Every type whose elements have addresses: rows, columns and single ones can be read.
    pub const ELEMENTS: Self = Self::those(false);

    /// These types.
    pub const fn of(types: &[DType]) -> Self {
        let (mut set, mut i) = (0, 0);
        while i < types.len() {
            set |= Self::bit(types[i]);
            i += 1;
        }
        Self(set)
    }

    const fn those(tiled: bool) -> Self {
        let (mut set, mut i) = (0, 0);
        while i < DType::ALL.len() {
            let dtype = DType::ALL[i];
            if (tiled && dtype.tile_group().is_some()) || (!tiled && dtype.element_bytes().is_some()) {
                set |= Self::bit(dtype);
            }
            i += 1;
        }
        Self(set)
    }

    const fn bit(dtype: DType) -> u64 {
        assert!((dtype.wire() as u32) < u64::BITS);
        1 << dtype.wire()
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether a type is one of them.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & Self::bit(dtype) != 0
    }

    /// The types, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied().filter(move |&dtype| self.contains(dtype))
    }
}

/// Groups of the tiled types, and the layout of activation rows.
pub(crate) const FINGERPRINT: Fingerprint = {
    let mut all = Fingerprint::new("layouts").number(TILE_LAYOUT_VERSION as u64);
    let mut i = 0;
    while i < DType::ALL.len() {
        if let Some(group) = DType::ALL[i].tile_group() {
            all = all
                .value("group", DType::ALL[i].wire() as u64)
                .number(group.k as u64)
                .number(group.bytes as u64);
        }
        i += 1;
    }
    let row = ActivationRow::new(1);
    all.number(row.padded_k as u64)
        .number(row.scales() as u64)
        .number(row.sums() as u64)
        .number(row.halves() as u64)
        .number(row.bytes() as u64)
};

/// Offsets inside a `Q8_0x32` group.
pub mod q8_0 {
    /// Bytes of the quants of one tile.
    pub const TILE: usize = 1024;
    /// First byte of the scales.
    pub const SCALES: usize = 4 * TILE;
}

/// Offsets inside a `Q4_0x32` group.
pub mod q4_0 {
    /// Bytes of the quants of one tile.
    pub const TILE: usize = 512;
    /// First byte of the scales.
    pub const SCALES: usize = 4 * TILE;
}

/// Offsets inside a `Q6_Kx32` group.
pub mod q6k {
    /// Bytes of the low nibbles of one tile.
    pub const LOW_TILE: usize = 512;
    /// First byte of the high bits.
    pub const HIGH: usize = 8 * LOW_TILE;
    /// Bytes of the high bits of one tile.
    pub const HIGH_TILE: usize = 256;
    /// First byte of the block scales.
    pub const SCALES: usize = HIGH + 8 * HIGH_TILE;
    /// First byte of the vector with d.
    pub const D: usize = SCALES + 512;
}
const _: () = assert!(q6k::D + 128 == 6784);

/// Layout of one row of int8 activations (`Q8_ACT`), which QUANTIZE writes and MUL_MAT reads.
///
/// `k` values padded with zeros to a multiple of 256, then an f32 scale per 32 (rounded to f16, as ggml's
/// Q8_0 block has it, so that both compute with the same numbers), then an i32 sum of the int8 values per 16,
/// then the scales once more, as f16: HVX multiplies them with the weights' own in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationRow {
    /// Values of the row, padding included.
    pub padded_k: usize,
}

impl ActivationRow {
    /// The layout of a row of `k` values.
    pub const fn new(k: usize) -> Self {
        Self { padded_k: k.next_multiple_of(256) }
    }

    /// First byte of the scales.
    pub const fn scales(self) -> usize {
        self.padded_k
    }

    /// First byte of the sums.
    pub const fn sums(self) -> usize {
        self.padded_k + self.padded_k / 8
    }

    /// First byte of the scales as f16.
    pub const fn halves(self) -> usize {
        self.sums() + self.padded_k / 4
    }

    /// Bytes from one row to the next: a multiple of [`crate::VECTOR_BYTES`].
    pub const fn bytes(self) -> usize {
        (self.halves() + self.padded_k / 16).next_multiple_of(crate::VECTOR_BYTES)
    }
}
