//! ggml's super-blocks: 256 quants, integer scales for parts of them, and an f16 d for all. A super-block is
//! a row's part of a group.
//!
//! Where quants have a byte for several of them, the byte's place is k within a tile, and the place of the
//! bits in it says which tile: bits are transposed, words of 4 bytes at a time.

use hexflash_abi::DType;
use hexflash_abi::dtype::{QuantGroup, TILE_ROWS};

use super::bits::{cut, finite_f16, in_each_byte, nibbles, transpose_pairs};
use super::group::{Vector, quant_group};

/// Tiles of a super-block.
const TILES: usize = 8;

/// The lanes of a row in the vectors of a group.
struct Lanes<'a> {
    out: &'a mut [Vector],
    r: usize,
}

impl Lanes<'_> {
    #[inline(always)]
    fn set(&mut self, at: usize, words: impl IntoIterator<Item = u32>) {
        for (out, word) in self.out[at..].iter_mut().zip(words) {
            out[self.r] = word.to_le_bytes();
        }
    }
}

/// A super-block of `BYTES` bytes and the lanes that it goes to.
#[inline(always)]
fn start<'a, 'b, const BYTES: usize>(
    group: QuantGroup,
    row: &'a [u8],
    out: &'b mut [Vector],
    r: usize,
) -> (&'a [u8; BYTES], Lanes<'b>) {
    let (blocks, rest) = row.as_chunks::<BYTES>();
    assert!(r < TILE_ROWS && blocks.len() == 1 && rest.is_empty() && out.len() == group.vectors());
    (&blocks[0], Lanes { out, r })
}

/// The words of a part of a block.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let words = bytes.as_chunks::<4>().0;
    assert!(words.len() >= N);
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// Two bits of all quants, as a tile has quants of 2 bits. ggml has per 128 values 32 bytes: value l + 32j in
/// bits 2j of byte l.
#[inline(always)]
fn pairs(quants: [u32; 16]) -> [[u32; 2]; TILES] {
    let mut tiles = [[0; 2]; TILES];
    for (tiles, words) in tiles.as_chunks_mut::<4>().0.iter_mut().zip(quants.as_chunks::<8>().0) {
        let (first, second) = (words.as_chunks::<4>().0[0], words.as_chunks::<4>().0[1]);
        let (first, second) = (transpose_pairs(first), transpose_pairs(second));
        for (tile, (first, second)) in tiles.iter_mut().zip(first.into_iter().zip(second)) {
            *tile = [first, second];
        }
    }
    tiles
}

/// Four quants of `pairs`, those from number 4f on, in the lowest bits of bytes.
#[inline(always)]
const fn four_pairs(pairs: [u32; 2], f: usize) -> u32 {
    pairs[f / 4] >> (f % 4 * 2) & in_each_byte(3)
}

/// The 4 low bits of all quants, four quants to a word. ggml has per 64 values 32 bytes: the first 32 values
/// in the low nibbles, the others in the high ones.
#[inline(always)]
fn low_nibbles(quants: [u32; 32]) -> [[u32; 8]; TILES] {
    std::array::from_fn(|tile| std::array::from_fn(|f| nibbles(quants[tile / 2 * 8 + f] >> (tile % 2 * 4))))
}

/// Puts the quants of each tile in their place.
#[inline(always)]
fn quants<const BITS: usize>(
    group: QuantGroup,
    lanes: &mut Lanes<'_>,
    mut tile: impl FnMut(usize) -> [u32; BITS],
) {
    for t in 0..TILES {
        lanes.set(group.quants_at(t), tile(t));
    }
}

/// Eight scales and eight mins of 6 bits, in 12 bytes: bytes 0 to 3 and 4 to 7 have the first four scales and
/// mins, and in their highest bits those of the last four, whose low nibbles are in bytes 8 to 11.
#[inline(always)]
fn scales_and_mins(group: QuantGroup, packed: [u32; 3], lanes: &mut Lanes<'_>) {
    let six = |word: u32| word & 0x3f3f_3f3f;
    let high = |word: u32| (word >> 6 & 0x0303_0303) << 4;
    let scales = [six(packed[0]), nibbles(packed[2]) | high(packed[0])];
    let mins = [six(packed[1]), nibbles(packed[2] >> 4) | high(packed[1])];
    let pair = |p: usize| {
        let two = |four: [u32; 2]| four[p / 2] >> (p % 2 * 16) & 0xffff;
        two(scales) | two(mins) << 16
    };
    lanes.set(group.scales_at(), (0..TILES / 2).map(pair));
}

/// From ggml's order of a word with a byte per 16 values of a pair of tiles to a tile's: bytes 1 and 2 change
/// places.
#[inline(always)]
const fn by_half(word: u32) -> u32 {
    word & 0xff00_00ff | word >> 8 & 0xff00 | (word & 0xff00) << 8
}

/// From 6 bits with an offset of 32 to int8, four at a time.
#[inline(always)]
const fn less_32(six: u32) -> u32 {
    let value = six ^ 0x2020_2020;
    // The sixth bit is the sign: it fills the two above it.
    let sign = value & 0x2020_2020;
    value | sign << 1 | sign << 2
}

/// The vector of d, which has dmin in the high half; says whether both are finite.
#[inline(always)]
fn finish(group: QuantGroup, d: &[u8], dmin: &[u8], lanes: &mut Lanes<'_>) -> bool {
    let pair = u32::from_le_bytes([d[0], d[1], dmin[0], dmin[1]]);
    lanes.set(group.d_at(), [pair]);
    finite_f16(pair)
}

/// What stands in the place of dmin where a type has none.
const NO_MINS: &[u8] = &[0; 2];

// All functions say whether d and dmin are finite.

/// 16 bytes of a 4-bit scale and min each, 64 bytes of 2 bits, d and dmin.
pub(super) fn q2_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q2Kx32);
    let (block, mut lanes) = start::<84>(GROUP, row, out, r);
    let pairs = pairs(words(&block[16..]));
    quants(GROUP, &mut lanes, |tile| pairs[tile]);
    lanes.set(GROUP.scales_at(), words::<4>(block).map(by_half));
    finish(GROUP, &block[80..82], &block[82..], &mut lanes)
}

/// 32 bytes of third bits, 64 of 2 bits, 12 of 6-bit scales, and d.
///
/// Scale i has its low nibble in byte i % 8, and its high bits at 2 (i / 4) of byte 8 + i % 4.
pub(super) fn q3_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q3Kx32);
    let (block, mut lanes) = start::<110>(GROUP, row, out, r);
    // ggml has the third bit of value l + 32t in bit t of byte l.
    let (high, low) = (words::<8>(block), pairs(words(&block[32..])));
    quants(GROUP, &mut lanes, |tile| {
        let high = high.map(|word| (word >> tile & in_each_byte(1)) << 2);
        cut::<3>(std::array::from_fn(|f| four_pairs(low[tile], f) | high[f]))
    });
    let packed: [u32; 3] = words(&block[96..]);
    let scales = |s: usize| {
        let high = packed[2] >> (2 * s) & 0x0303_0303;
        less_32(nibbles(packed[s % 2] >> (s / 2 * 4)) | high << 4)
    };
    lanes.set(GROUP.scales_at(), (0..4).map(scales).map(by_half));
    finish(GROUP, &block[108..], NO_MINS, &mut lanes)
}

/// d and dmin, 12 bytes of 6-bit scales and mins, and 128 of 4 bits.
pub(super) fn q4_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q4Kx32);
    let (block, mut lanes) = start::<144>(GROUP, row, out, r);
    let low = low_nibbles(words(&block[16..]));
    quants(GROUP, &mut lanes, |tile| cut::<4>(low[tile]));
    scales_and_mins(GROUP, words(&block[4..]), &mut lanes);
    finish(GROUP, &block[..2], &block[2..4], &mut lanes)
}

/// d and dmin, 12 bytes of 6-bit scales and mins, 32 of fifth bits, and 128 of 4 bits.
pub(super) fn q5_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q5Kx32);
    let (block, mut lanes) = start::<176>(GROUP, row, out, r);
    // ggml has the fifth bit of value l + 32t in bit t of byte l.
    let (high, low) = (words::<8>(&block[16..]), low_nibbles(words(&block[48..])));
    quants(GROUP, &mut lanes, |tile| {
        let high = high.map(|word| (word >> tile & in_each_byte(1)) << 4);
        cut::<5>(std::array::from_fn(|f| low[tile][f] | high[f]))
    });
    scales_and_mins(GROUP, words(&block[4..]), &mut lanes);
    finish(GROUP, &block[..2], &block[2..4], &mut lanes)
}

/// 128 bytes of low nibbles, 64 of high bits, 16 int8 scales, and d.
///
/// ggml keeps, per 128 values, value l + 32j in nibble j / 2 of byte l + 32(j % 2) and in bits 2j of high
/// byte l.
pub(super) fn q6_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q6Kx32);
    let (block, mut lanes) = start::<210>(GROUP, row, out, r);
    let (low, high): ([u32; 32], _) = (words(block), pairs(words(&block[128..])));
    quants(GROUP, &mut lanes, |tile| {
        let (half, j) = (tile / 4, tile % 4);
        let low = |f: usize| nibbles(low[half * 16 + j % 2 * 8 + f] >> (j / 2 * 4));
        cut::<6>(std::array::from_fn(|f| low(f) | four_pairs(high[tile], f) << 4))
    });
    lanes.set(GROUP.scales_at(), words::<4>(&block[192..]).map(by_half));
    finish(GROUP, &block[208..], NO_MINS, &mut lanes)
}

/// d, the high bits of the scales in 2 bytes and their low nibbles in 4, and 128 bytes of 4 bits: 16 per 32
/// values, in the order of the tile.
pub(super) fn iq4_xs(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::IQ4XSx32);
    let (block, mut lanes) = start::<136>(GROUP, row, out, r);
    let words: [u32; 32] = words(&block[8..]);
    quants(GROUP, &mut lanes, |tile| words.as_chunks::<4>().0[tile]);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let scale = |tile: usize| {
        let low = block[4 + tile / 2] >> (tile % 2 * 4) & 15;
        let high = (high >> (2 * tile) & 3) as u8;
        low | high << 4
    };
    let four = |first: usize| u32::from_le_bytes(std::array::from_fn(|i| scale(first + i)));
    lanes.set(GROUP.scales_at(), [less_32(four(0)), less_32(four(4))]);
    finish(GROUP, &block[..2], NO_MINS, &mut lanes)
}
