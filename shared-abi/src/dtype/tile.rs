//! The tiled layouts of weights. (`cache_tile.rs` has those of caches.)
//!
//! A *tile* is 32 output rows by 32 k: the 32 lanes of a vector are 32 output rows, so a matrix-vector
//! product needs no horizontal reduction. Tiles of one 32-row *strip* follow each other along k in *groups*,
//! each a whole number of vectors, so that a strip is one linear DMA. Rows past the matrix and k past the row
//! are zero bytes, which stand for zeros.
//!
//! # Floats
//!
//! | type | group (k x bytes) | bytes of a group, in order |
//! |---|---|---|
//! | `F32x32` | 32 x 4096 | per k one vector: 32 rows |
//! | `F16x32`, `BF16x32` | 32 x 2048 | per pair of k one vector: word r = row r, low half k, high half k+1 |
//!
//! # Quants
//!
//! The group of a quantized type has, in this order: the quants, tile by tile, as many vectors to a tile as a
//! quant has bits; scales; mins; and the vector of `d`. [`QuantGroup`] has the sizes of these parts. Word r
//! of each of their vectors belongs to row r.
//!
//! Quants are unsigned. The four bytes b of a word have those of k = 4f + b, for the same f (0 to 7) each.
//! Which bits are which is the same for all types with as many, and [`bit_fields`] has it as a table:
//!
//! * 8 bits: vector f.
//! * 4 bits: vector f % 4, in the low nibble for f below 4, in the high one for the others.
//! * 2 bits: vector f / 4, bits 2 (f % 4) and up.
//! * 1 bit: bit f of the only vector.
//! * Of 3, 5 and 6 bits, most quants are whole, at either end of a byte. Of the bits that are left others are
//!   made:
//!
//! | bits | f | from the lowest bits on: vector, its bits |
//! |---|---|---|
//! | 3 | 0, 2, 5 | 0, 1, 2: bits 0-2 |
//! | 3 | 1, 4, 6 | 0, 1, 2: bits 5-7 |
//! | 3 | 3 | 0: bits 3-4; 2: bit 3 |
//! | 3 | 7 | 1: bits 3-4; 2: bit 4 |
//! | 5 | 0, 1 | f: bits 0-4 |
//! | 5 | 2, 3, 4 | f: bits 3-7 |
//! | 5 | 5 | 2: bits 0-2; 0: bits 6-7 |
//! | 5 | 6 | 3: bits 0-2; 1: bits 6-7 |
//! | 5 | 7 | 4: bits 0-2; 0: bit 5; 1: bit 5 |
//! | 6 | 0, 1, 2, 4, 5, 6 | 0 to 5: bits 0-5 |
//! | 6 | 3 | 0, 1, 2: bits 6-7 of each |
//! | 6 | 7 | 3, 4, 5: bits 6-7 of each |
//!
//! A value is `scale * (quant - zero)`, or `scale * quant + min`:
//!
//! | type | bits | value | scales, mins, d |
//! |---|---|---|---|
//! | `Q8_0x32` | 8 | d (q - 128) | d: f16 per tile |
//! | `Q4_0x32` | 4 | d (q - 8) | d: f16 per tile |
//! | `Q4_1x32` | 4 | d q + m | d and m: f16 per tile |
//! | `Q5_0x32` | 5 | d (q - 16) | d: f16 per tile |
//! | `Q5_1x32` | 5 | d q + m | d and m: f16 per tile |
//! | `IQ4_NLx32` | 4 | d [`IQ4_NL`]\[q\] | d: f16 per tile |
//! | `MXFP4x32` | 4 | 2^(e - 128) [`MXFP4`]\[q\] | e: a byte per tile, below 255 |
//! | `Q1_0x32` | 1 | d (2 q - 1) | d: f16 per 4 tiles |
//! | `Q2_0x32` | 2 | d (q - 1) | d: f16 per 2 tiles |
//! | `Q2_Kx32` | 2 | d s q - dmin m | s, m: 4 bits per 16 k |
//! | `Q3_Kx32` | 3 | d s (q - 4) | s: i8 per 16 k |
//! | `Q4_Kx32` | 4 | d s q - dmin m | s, m: a byte per tile |
//! | `Q5_Kx32` | 5 | d s q - dmin m | s, m: a byte per tile |
//! | `Q6_Kx32` | 6 | d s (q - 32) | s: i8 per 16 k |
//! | `IQ4_XSx32` | 4 | d s [`IQ4_NL`]\[q\] | s: i8 per tile |
//!
//! * f16 per tile: the low half of vector t / 2 for even tiles t, the high half for odd ones.
//! * f16 per 4 or 2 tiles, which are half of the group's: of the first half of them the low half of the only
//!   vector, of the others the high half.
//! * A byte per tile in `MXFP4x32`: byte t. In `IQ4_XSx32`: byte t % 4 of vector t / 4. In `Q4_Kx32` and
//!   `Q5_Kx32` vector t / 2 has, for the even tile and the odd one: s, s, m, m.
//! * A byte per 16 k: vector t / 2 has, for the even tile and the odd one, those of their first halves and
//!   then those of their second halves: even, odd, even, odd. In `Q2_Kx32` the low nibble is s and the high
//!   one m.
//! * The last vector, where there is one: f16 d in the low half, f16 dmin in the high one.

use super::DType;
use crate::VECTOR_BYTES;

/// Output rows of a tile: the f32 lanes of a vector.
pub const TILE_ROWS: usize = 32;

/// k of a tile, and of one activation scale.
pub const TILE_K: usize = 32;

/// The values that the quants of IQ4_NL and IQ4_XS stand for (ggml's `kvalues_iq4nl`).
pub const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values that the quants of MXFP4 stand for: E2M1 of the OCP Microscaling Formats, version 1.0.
pub const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Group of a tiled type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileGroup {
    /// k covered by a group.
    pub k: usize,
    /// Bytes of a group: a multiple of [`crate::VECTOR_BYTES`].
    pub bytes: usize,
    /// Bytes of a strip behind its groups, whole vectors as well: what is there once per row. Weights have
    /// none.
    pub tail: usize,
}

impl TileGroup {
    /// Groups in a row of `k` elements.
    pub const fn count(self, k: usize) -> usize {
        k.div_ceil(self.k)
    }

    /// Bytes of a strip: 32 rows of `k` elements.
    pub const fn strip_bytes(self, k: usize) -> usize {
        self.count(k) * self.bytes + self.tail
    }

    /// Bytes of a matrix of `n` rows of `k` elements.
    pub const fn matrix_bytes(self, k: usize, n: usize) -> usize {
        n.div_ceil(TILE_ROWS) * self.strip_bytes(k)
    }
}

/// The parts of a quantized type's group, in vectors. Offsets are in vectors from the group's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantGroup {
    /// Tiles of the group.
    pub tiles: usize,
    /// Vectors of a tile's quants, which is the bits of a quant.
    pub quants: usize,
    /// Vectors of the scales.
    pub scales: usize,
    /// Vectors of the mins, where they are f16; small integers are among the scales.
    pub mins: usize,
    /// Vectors of d: one or none.
    pub d: usize,
}

impl QuantGroup {
    /// Scales as f16, for four tiles.
    const fn flat(quants: usize, scales: usize, mins: usize) -> Tiling {
        Tiling::Quants(Self { tiles: 4, quants, scales, mins, d: 0 })
    }

    /// Two blocks of ggml, side by side, with an f16 scale each: half of the tiles belong to either.
    const fn two_blocks(tiles: usize, quants: usize) -> Tiling {
        Tiling::Quants(Self { tiles, quants, scales: 1, mins: 0, d: 0 })
    }

    /// A super-block of ggml: 256 k, integer scales, and a d for all of them.
    const fn super_block(quants: usize, scales: usize) -> Tiling {
        Tiling::Quants(Self { tiles: 8, quants, scales, mins: 0, d: 1 })
    }

    /// The quants of a tile.
    pub const fn quants_at(self, tile: usize) -> usize {
        tile * self.quants
    }

    /// The scales.
    pub const fn scales_at(self) -> usize {
        self.tiles * self.quants
    }

    /// The mins.
    pub const fn mins_at(self) -> usize {
        self.scales_at() + self.scales
    }

    /// The vector of d.
    pub const fn d_at(self) -> usize {
        self.mins_at() + self.mins
    }

    /// All of the group.
    pub const fn vectors(self) -> usize {
        self.d_at() + self.d
    }
}

/// Some adjacent bits of a quant in a byte of a tile's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// The vector, from the first of the tile's quants on.
    pub vector: usize,
    /// The first of them in the byte.
    pub at: usize,
    /// How many they are.
    pub bits: usize,
    /// The first of them in the quant.
    pub to: usize,
}

/// Where the bits of quants of `bits` bits lie: the fields of quants k = 4f to 4f + 3, each in a byte, for f
/// from 0 to 7. Those of no bits are none.
///
/// # Panics
/// If no type has quants of so many bits.
pub const fn bit_fields(bits: usize) -> [[BitField; 3]; TILE_K / 4] {
    // Fields from the lowest bits on, each as vector, first bit and bits.
    const NONE: [usize; 3] = [0; 3];
    let mut all = [[NONE; 3]; TILE_K / 4];
    let mut f = 0;
    while f < all.len() {
        all[f] = match (bits, f) {
            (8, _) => [[f, 0, 8], NONE, NONE],
            (4, _) => [[f % 4, f / 4 * 4, 4], NONE, NONE],
            (2, _) => [[f / 4, f % 4 * 2, 2], NONE, NONE],
            (1, _) => [[0, f, 1], NONE, NONE],
            (3, 3) => [[0, 3, 2], [2, 3, 1], NONE],
            (3, 7) => [[1, 3, 2], [2, 4, 1], NONE],
            // Two to a vector, without f = 3.
            (3, _) => {
                let n = if f > 3 { f - 1 } else { f };
                [[n / 2, n % 2 * 5, 3], NONE, NONE]
            }
            (5, 0 | 1) => [[f, 0, 5], NONE, NONE],
            (5, 5) => [[2, 0, 3], [0, 6, 2], NONE],
            (5, 6) => [[3, 0, 3], [1, 6, 2], NONE],
            (5, 7) => [[4, 0, 3], [0, 5, 1], [1, 5, 1]],
            (5, _) => [[f, 3, 5], NONE, NONE],
            (6, 3) => [[0, 6, 2], [1, 6, 2], [2, 6, 2]],
            (6, 7) => [[3, 6, 2], [4, 6, 2], [5, 6, 2]],
            (6, _) => [[if f > 3 { f - 1 } else { f }, 0, 6], NONE, NONE],
            _ => panic!("no type has quants of so many bits"),
        };
        f += 1;
    }
    let mut fields = [[BitField { vector: 0, at: 0, bits: 0, to: 0 }; 3]; TILE_K / 4];
    f = 0;
    while f < all.len() {
        let (mut i, mut to) = (0, 0);
        while i < 3 {
            let [vector, at, bits] = all[f][i];
            fields[f][i] = BitField { vector, at, bits, to };
            to += bits;
            i += 1;
        }
        f += 1;
    }
    fields
}

/// How a type is tiled.
enum Tiling {
    /// As floats of so many bytes.
    Floats { bytes: usize },
    /// As quants with scales.
    Quants(QuantGroup),
    /// As keys or values of a cache.
    Cache(TileGroup),
    /// Not at all.
    None,
}

impl DType {
    /// The parts of a quantized tiled type's group; `None` for the others.
    pub const fn quant_group(self) -> Option<QuantGroup> {
        match self.tiling() {
            Tiling::Quants(group) => Some(group),
            Tiling::Floats { .. } | Tiling::Cache(_) | Tiling::None => None,
        }
    }

    /// How the type is tiled. Every tiled type is one line of it.
    const fn tiling(self) -> Tiling {
        match self {
            Self::F32x32 => Tiling::Floats { bytes: 4 },
            Self::F16x32 | Self::BF16x32 => Tiling::Floats { bytes: 2 },
            Self::Q8_0x32 => QuantGroup::flat(8, 2, 0),
            Self::Q4_0x32 | Self::IQ4NLx32 => QuantGroup::flat(4, 2, 0),
            Self::Q4_1x32 => QuantGroup::flat(4, 2, 2),
            Self::Q5_0x32 => QuantGroup::flat(5, 2, 0),
            Self::Q5_1x32 => QuantGroup::flat(5, 2, 2),
            Self::MXFP4x32 => QuantGroup::flat(4, 1, 0),
            Self::Q1_0x32 => QuantGroup::two_blocks(8, 1),
            Self::Q2_0x32 => QuantGroup::two_blocks(4, 2),
            Self::Q2Kx32 => QuantGroup::super_block(2, 4),
            Self::Q3Kx32 => QuantGroup::super_block(3, 4),
            Self::Q4Kx32 => QuantGroup::super_block(4, 4),
            Self::Q5Kx32 => QuantGroup::super_block(5, 4),
            Self::Q6Kx32 => QuantGroup::super_block(6, 4),
            Self::IQ4XSx32 => QuantGroup::super_block(4, 2),
            Self::Q8_0Cache => Tiling::Cache(super::cache_tile::Q8_0_GROUP),
            Self::Q4RCache => Tiling::Cache(super::cache_tile::Q4_R_GROUP),
            Self::F32 | Self::F16 | Self::I32 | Self::Q8Act | Self::Q8_0 => Tiling::None,
        }
    }

    /// Group geometry of a tiled type; `None` for the others.
    pub const fn tile_group(self) -> Option<TileGroup> {
        match self.tiling() {
            Tiling::Floats { bytes } => {
                Some(TileGroup { k: TILE_K, bytes: TILE_ROWS * TILE_K * bytes, tail: 0 })
            }
            Tiling::Quants(group) => {
                Some(TileGroup { k: group.tiles * TILE_K, bytes: group.vectors() * VECTOR_BYTES, tail: 0 })
            }
            Tiling::Cache(group) => Some(group),
            Tiling::None => None,
        }
    }

    /// Whether it is a tiled type that weights may be.
    pub const fn is_weight(self) -> bool {
        matches!(self.tiling(), Tiling::Floats { .. } | Tiling::Quants(_))
    }

    /// Whether MUL_MAT reads int8 activations with this weight type, rather than F32 ones.
    pub const fn wants_q8_activations(self) -> bool {
        self.quant_group().is_some()
    }
}
