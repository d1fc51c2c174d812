//! Element types.

mod activation_row;
mod cache_tile;
mod tile;

pub use activation_row::ActivationRow;
pub use cache_tile::{Q4_R, Q4_R_SHARES, Q4_R_STEPS, q4_r_axis_strips};
pub use tile::{BitField, IQ4_NL, MXFP4, QuantGroup, TILE_K, TILE_ROWS, TileGroup, bit_fields};

use crate::wire::Fingerprint;

/// Version of the tile layouts, of weights and of caches. It is part of the key of the repack cache, and
/// saved sequences of another one are refused.
pub const TILE_LAYOUT_VERSION: u32 = 6;

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
        /// Rows of ggml's Q8_0: blocks of 32 values, each an f16 d and 32 int8 q. A value is d q.
        Q8_0 = 5 "Q8_0",
        /// Tiled F32 weights.
        F32x32 = 16 "F32x32",
        /// Tiled F16 weights, and keys of an F16 cache.
        F16x32 = 17 "F16x32",
        /// Tiled Q8_0 weights.
        Q8_0x32 = 18 "Q8_0x32",
        /// Tiled Q4_0 weights.
        Q4_0x32 = 19 "Q4_0x32",
        /// Tiled Q6_K weights.
        Q6Kx32 = 20 "Q6_Kx32",
        /// Tiled BF16 weights.
        BF16x32 = 21 "BF16x32",
        /// Tiled Q4_1 weights.
        Q4_1x32 = 22 "Q4_1x32",
        /// Tiled Q5_0 weights.
        Q5_0x32 = 23 "Q5_0x32",
        /// Tiled Q5_1 weights.
        Q5_1x32 = 24 "Q5_1x32",
        /// Tiled Q2_K weights.
        Q2Kx32 = 25 "Q2_Kx32",
        /// Tiled Q3_K weights.
        Q3Kx32 = 26 "Q3_Kx32",
        /// Tiled Q4_K weights.
        Q4Kx32 = 27 "Q4_Kx32",
        /// Tiled Q5_K weights.
        Q5Kx32 = 28 "Q5_Kx32",
        /// Tiled IQ4_NL weights.
        IQ4NLx32 = 29 "IQ4_NLx32",
        /// Tiled IQ4_XS weights.
        IQ4XSx32 = 30 "IQ4_XSx32",
        /// Tiled MXFP4 weights.
        MXFP4x32 = 31 "MXFP4x32",
        /// Keys or values of a Q8_0 cache.
        Q8_0Cache = 32 "Q8_0_CACHE",
        /// Keys or values of a rotated 4-bit cache.
        Q4RCache = 33 "Q4_R_CACHE",
        /// Tiled Q1_0 weights.
        Q1_0x32 = 34 "Q1_0x32",
        /// Tiled Q2_0 weights.
        Q2_0x32 = 35 "Q2_0x32",
    }
}

impl DType {
    /// Bytes of an element of a row-major type; `None` for those without addresses of their own: in blocks,
    /// tiled types and activation rows.
    pub const fn element_bytes(self) -> Option<usize> {
        match self {
            Self::F32 | Self::I32 => Some(4),
            Self::F16 => Some(2),
            Self::Q8Act | Self::Q8_0 => None,
            Self::F32x32 | Self::F16x32 | Self::BF16x32 => None,
            Self::Q8_0x32 | Self::Q4_0x32 | Self::Q4_1x32 | Self::Q5_0x32 | Self::Q5_1x32 => None,
            Self::IQ4NLx32 | Self::IQ4XSx32 | Self::MXFP4x32 => None,
            Self::Q1_0x32 | Self::Q2_0x32 => None,
            Self::Q2Kx32 | Self::Q3Kx32 | Self::Q4Kx32 | Self::Q5Kx32 | Self::Q6Kx32 => None,
            Self::Q8_0Cache | Self::Q4RCache => None,
        }
    }

    /// The elements or blocks that rows of a row-major type are made of; `None` for tiled types and
    /// activation rows.
    pub const fn row_block(self) -> Option<RowBlock> {
        match (self, self.element_bytes()) {
            (Self::Q8_0, _) => Some(RowBlock { values: 32, bytes: 2 + 32, align: 2 }),
            (_, Some(bytes)) => Some(RowBlock { values: 1, bytes, align: bytes }),
            (_, None) => None,
        }
    }

    /// Bytes of a row of `n` values of a row-major type, `n` being whole blocks; none of the others.
    pub const fn row_bytes(self, n: usize) -> usize {
        match (self.element_bytes(), self.row_block()) {
            (Some(bytes), _) => n * bytes,
            (None, Some(block)) => block.count(n) * block.bytes,
            (None, None) => 0,
        }
    }
}

/// A part of a row: an element, or a block of values that share a scale. Blocks of a row are adjacent, and
/// rows are whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBlock {
    /// Values of a block.
    pub values: usize,
    /// Bytes of a block, which is the stride of axis 0.
    pub bytes: usize,
    /// Alignment of blocks in bytes.
    pub align: usize,
}

impl RowBlock {
    /// Blocks in a row of `n` values.
    pub const fn count(self, n: usize) -> usize {
        n.div_ceil(self.values)
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
    /// Every tiled type that weights may be.
    pub const TILED: Self = Self::those(true);
    /// Rows of ggml's Q8_0.
    pub const Q8_0: Self = Self::of(&[DType::Q8_0]);
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
            if (tiled && dtype.is_weight()) || (!tiled && dtype.element_bytes().is_some()) {
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

/// Groups of the tiled types, blocks of the row-major ones, and the layout of activation rows.
pub(crate) const FINGERPRINT: Fingerprint = {
    let mut all = Fingerprint::new("layouts").number(TILE_LAYOUT_VERSION as u64);
    let mut i = 0;
    while i < DType::ALL.len() {
        if let Some(group) = DType::ALL[i].tile_group() {
            all = all
                .value("group", DType::ALL[i].wire() as u64)
                .number(group.k as u64)
                .number(group.bytes as u64)
                .number(group.tail as u64);
        }
        if let Some(block) = DType::ALL[i].row_block() {
            all = all
                .value("block", DType::ALL[i].wire() as u64)
                .number(block.values as u64)
                .number(block.bytes as u64)
                .number(block.align as u64);
        }
        i += 1;
    }
    let row = ActivationRow::new(1);
    all.number(row.padded_k as u64)
        .number(row.scales() as u64)
        .number(row.negative_sums() as u64)
        .number(row.halves() as u64)
        .number(row.scaled_sums() as u64)
        .number(row.bytes() as u64)
};
