//! The tiled layouts of quantized caches.
//!
//! A strip has 32 positions of one head. Its tiles are 32 positions by 32 dimensions, so that a vector of a
//! tile becomes whole vectors of floats: of keys with *positions* in the lanes, because scores are summed
//! over dimensions, and of values with *dimensions* in the lanes, because values are summed over positions.
//! So a tile of values is a tile of keys transposed. With i for the axis in the lanes and j for the other
//! one, both counted within the tile:
//!
//! | type | a tile | place of a code | a value is |
//! |---|---|---|---|
//! | `Q8_0_CACHE` | 8 vectors | byte j % 4 of word i of vector j / 4 | s code |
//! | `Q4_R_CACHE` | 4 vectors | nibble j % 8 / 4 of byte b(j % 4) of word i of vector j / 8 | s [`Q4_R`]\[code\] |
//!
//! * `Q8_0_CACHE`: codes are i8. A group is two tiles and a vector of scales s, f16 as in ggml's Q8_0: word r
//!   belongs to position r, its low half to the even tile and its high half to the odd one.
//! * `Q4_R_CACHE`: b is 0, 2, 1, 3, so that a lookup of 16-bit numbers gives those of adjacent j as the
//!   halves of a word. A group is one tile. Behind the last one is a vector whose word r belongs to position
//!   r, for all of the head. Of a value it is the scale s, f32. Of a key, bits 0 to 7 are an integer h, bits
//!   8 to 15 an integer g, both signed, and the upper half is that of an f32 s whose lower half is zero. The
//!   key is s ([`Q4_R`]\[code\] + h a / [`Q4_R_STEPS`]) plus g / [`Q4_R_SHARES`] of the strip's first key,
//!   whose own g is 0. Here a is the *axis* of the head, integers from -8 to 7. The head's first strips have
//!   it in the place of h, which is 0 for their keys: bits 0 to 3 of word r of strip i are those of dimension
//!   64 i + r, bits 4 to 7 those of dimension 64 i + 32 + r ([`q4_r_axis_strips`]). What the cache holds is
//!   not the vectors of the head themselves but their rotations; see `flash_attn/format/q4_r.rs` of
//!   the DSP side.
//!
//! A scale per head would need only half a vector as f16. A strip is made of whole vectors, though, so that
//! f32 costs nothing, holds any norm and has bits to spare.

use super::{TILE_K, TILE_ROWS, TileGroup};
use crate::VECTOR_BYTES;

/// The levels of `Q4_R_CACHE`, by code: bit 3 is the sign, the others the size.
///
/// The codes of least mean square error for numbers of a normal distribution (S. Lloyd, "Least squares
/// quantization in PCM", 1982; J. Max, "Quantizing for minimum distortion", 1960) are, in units of its
/// deviation, ±0.1284, 0.3880, 0.6568, 0.9423, 1.2562, 1.6180, 2.0690 and 2.7326. Rounded to multiples of
/// 2.7326 / 127 they fit a byte, which makes the error larger by less than a hundredth.
pub const Q4_R: [i8; 16] = [6, 18, 31, 44, 58, 75, 96, 127, -6, -18, -31, -44, -58, -75, -96, -127];

/// Parts of a strip's first key in `Q4_R_CACHE`: a key that has so many of them has all of it.
pub const Q4_R_SHARES: f32 = 64.0;

/// Steps along the axis in `Q4_R_CACHE`: so many are the axis, times the scale of the key, once.
///
/// The error of a key's codes along any direction has a deviation of about 4.4 scales: 0.095 of the key's own
/// deviation, which is 46 scales. The axis is about 2.7 times the root of the dimensions long, so that a step
/// is 0.17 scales for heads of 64 and 0.34 for heads of 256. So 127 steps are about five deviations or more.
pub const Q4_R_STEPS: f32 = 128.0;

/// Strips of a head of `d` dimensions whose words have its axis.
pub const fn q4_r_axis_strips(d: usize) -> usize {
    d.div_ceil(2 * TILE_ROWS)
}

/// Two tiles of bytes and a vector of scales.
pub(super) const Q8_0_GROUP: TileGroup =
    TileGroup { k: 2 * TILE_K, bytes: 2 * TILE_ROWS * TILE_K + VECTOR_BYTES, tail: 0 };

/// A tile of nibbles. A vector of scales ends the strip.
pub(super) const Q4_R_GROUP: TileGroup =
    TileGroup { k: TILE_K, bytes: TILE_ROWS * TILE_K / 2, tail: VECTOR_BYTES };
