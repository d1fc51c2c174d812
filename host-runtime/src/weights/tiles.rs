//! From ggml's blocks to tiles: 32 rows of a matrix at a time.
//!
//! The layouts are those of [`hexflash_abi::dtype`]. All of them are transposes of 4-byte words: word `w` of
//! a row's group becomes lane `r` of a vector, where `r` is the row's place in its strip. Every function here
//! is pure and writes every byte of its strip, so strips can be packed in any order, in parallel. A group is
//! a few KiB: reads and the scattered writes of words stay in the first-level cache.

use hexflash_abi::DType;
use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{TILE_ROWS, q4_0, q6k, q8_0};

use crate::gguf::GgmlType;

/// Packs a row's part of a group into its lanes; says whether its values, or their scales, are finite.
type Pack = fn(&[u8], &mut [Vector], usize) -> bool;

/// How a type of GGUF files is packed.
struct Packing {
    dtype: DType,
    pack: Pack,
}

/// The tiled form that holds `source` without loss; `None` if there is none.
const fn packing(source: GgmlType) -> Option<Packing> {
    let (dtype, pack): (_, Pack) = match source {
        GgmlType::F32 => (DType::F32x32, f32),
        GgmlType::F16 => (DType::F16x32, f16),
        // It widens: the device has no bf16 arithmetic.
        GgmlType::BF16 => (DType::F32x32, bf16),
        GgmlType::Q8_0 => (DType::Q8_0x32, q8_0),
        GgmlType::Q4_0 => (DType::Q4_0x32, q4_0),
        GgmlType::Q6_K => (DType::Q6Kx32, q6_k),
        GgmlType::Q4_1
        | GgmlType::Q5_0
        | GgmlType::Q5_1
        | GgmlType::Q8_1
        | GgmlType::Q2_K
        | GgmlType::Q3_K
        | GgmlType::Q4_K
        | GgmlType::Q5_K
        | GgmlType::Q8_K
        | GgmlType::IQ1_S
        | GgmlType::IQ1_M
        | GgmlType::IQ2_XXS
        | GgmlType::IQ2_XS
        | GgmlType::IQ2_S
        | GgmlType::IQ3_XXS
        | GgmlType::IQ3_S
        | GgmlType::IQ4_NL
        | GgmlType::IQ4_XS
        | GgmlType::TQ1_0
        | GgmlType::TQ2_0
        | GgmlType::MXFP4
        | GgmlType::NVFP4
        | GgmlType::Q1_0
        | GgmlType::Q2_0
        | GgmlType::I8
        | GgmlType::I16
        | GgmlType::I32
        | GgmlType::I64
        | GgmlType::F64 => return None,
    };
    Some(Packing { dtype, pack })
}

/// The tiled type that holds `source` without loss; `None` if there is none.
pub const fn tile_dtype(source: GgmlType) -> Option<DType> {
    match packing(source) {
        Some(packing) => Some(packing.dtype),
        None => None,
    }
}

/// The types that have a tiled form, by rising id.
pub const TILED: &[GgmlType] = &{
    let mut list = [GgmlType::F32; count_tiled()];
    let (mut i, mut n) = (0, 0);
    while i < GgmlType::ALL.len() {
        if tile_dtype(GgmlType::ALL[i]).is_some() {
            list[n] = GgmlType::ALL[i];
            n += 1;
        }
        i += 1;
    }
    list
};

const fn count_tiled() -> usize {
    let (mut i, mut n) = (0, 0);
    while i < GgmlType::ALL.len() {
        n += tile_dtype(GgmlType::ALL[i]).is_some() as usize;
        i += 1;
    }
    n
}

/// The types that convert to plain F32.
pub const PLAIN: &[GgmlType] = &[GgmlType::F32, GgmlType::F16, GgmlType::BF16];

/// One vector: a word per row.
type Vector = [[u8; 4]; TILE_ROWS];
const _: () = assert!(size_of::<Vector>() == VECTOR_BYTES);

/// Packs up to 32 rows of `k` values into one strip of `tile_dtype(source)`; missing rows and k become zero
/// bytes. Gives the first row, if any, with a value or a scale that is infinite or NaN, which no model has
/// that is not damaged.
///
/// # Panics
/// If `source` has no tiled form, there are more than 32 rows, a row is not `k` values long, or the strip
/// does not have the `strip_bytes(k)` of its type.
#[expect(clippy::panic, reason = "plans refuse types without a tiled form by the name of the tensor")]
pub fn pack_strip(source: GgmlType, k: usize, rows: &[&[u8]], strip: &mut [u8]) -> Option<usize> {
    let packing = packing(source).and_then(|packing| Some((packing.dtype.tile_group()?, packing.pack)));
    let (group, pack) = packing.unwrap_or_else(|| panic!("{source} has no tiled form"));
    let (len, bytes) = (source.block_len() as usize, source.block_bytes() as usize);
    assert!(rows.len() <= TILE_ROWS && k.is_multiple_of(len) && strip.len() == group.strip_bytes(k));
    assert!(rows.iter().all(|row| row.len() == k / len * bytes));

    // Bytes of a row in a group.
    let part = group.k / len * bytes;
    let mut damaged = None;
    for (g, out) in strip.chunks_exact_mut(group.bytes).enumerate() {
        if rows.len() < TILE_ROWS || (g + 1) * group.k > k {
            out.fill(0);
        }
        let out = out.as_chunks_mut::<4>().0.as_chunks_mut::<TILE_ROWS>().0;
        for (r, row) in rows.iter().enumerate() {
            let row = &row[g * part..];
            if !pack(&row[..part.min(row.len())], out, r) {
                damaged = damaged.min(Some(r)).or(Some(r));
            }
        }
    }
    damaged
}

/// Has the sign bit set where the exponent of an f32 is all ones, which infinity and NaN have: only that
/// carries into it.
const fn special(bits: u32) -> u32 {
    (bits & 0x7f80_0000) + 0x0080_0000
}

/// As [`special`], of two f16: the sign bits of both.
const fn special_f16(pair: u32) -> u32 {
    (pair & 0x7c00_7c00) + 0x0400_0400
}

/// The sign bits of two f16.
const SIGNS_F16: u32 = 0x8000_8000;

/// Whether the f16 scale of a block is finite.
fn sound(scale: [u8; 2]) -> bool {
    special_f16(u16::from_le_bytes(scale).into()) & SIGNS_F16 == 0
}

/// The first of `values`, if any, that is infinite or NaN.
pub(super) fn first_special(values: &[[u8; 4]]) -> Option<usize> {
    values.iter().position(|&value| special(u32::from_le_bytes(value)) >> 31 == 1)
}

// All functions that pack a row's part say whether its values, or their scales, are finite.

/// Up to 32 values: a vector each.
fn f32(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let mut found = 0;
    for (word, out) in row.as_chunks::<4>().0.iter().zip(out) {
        out[r] = *word;
        found |= special(u32::from_le_bytes(*word));
    }
    found >> 31 == 0
}

/// Up to 32 values, two to a vector; an odd last one is alone in the low half.
fn f16(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let (pairs, last) = row.as_chunks::<4>();
    let mut found = 0;
    for (word, out) in pairs.iter().zip(&mut *out) {
        out[r] = *word;
        found |= special_f16(u32::from_le_bytes(*word));
    }
    if let &[low, high] = last {
        out[pairs.len()][r] = [low, high, 0, 0];
        found |= special_f16(u16::from_le_bytes([low, high]).into());
    }
    found & SIGNS_F16 == 0
}

/// Up to 32 values, each the high half of an f32.
fn bf16(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let mut found = 0;
    for (&[low, high], out) in row.as_chunks::<2>().0.iter().zip(out) {
        out[r] = [0, 0, low, high];
        found |= special(u32::from_le_bytes(out[r]));
    }
    found >> 31 == 0
}

/// First vector of a part of a group.
const fn vector(bytes: usize) -> usize {
    bytes / VECTOR_BYTES
}

/// Stores the scale of tile `tile`: even tiles in the low half of the word, odd ones in the high half.
fn scale(scales: &mut [Vector], tile: usize, r: usize, d: [u8; 2]) {
    let word = &mut scales[tile / 2][r];
    word[tile % 2 * 2..][..2].copy_from_slice(&d);
}

/// Up to 4 blocks of an f16 scale and 32 int8.
fn q8_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let mut sound_all = true;
    let (quants, scales) = out.split_at_mut(vector(q8_0::SCALES));
    let tiles = quants.chunks_exact_mut(vector(q8_0::TILE));
    for ((tile, quants), block) in tiles.enumerate().zip(row.as_chunks::<34>().0) {
        let [d0, d1, words @ ..] = block;
        for (word, out) in words.as_chunks::<4>().0.iter().zip(quants) {
            // q + 128 as unsigned is q with its sign bit flipped.
            out[r] = (u32::from_ne_bytes(*word) ^ 0x8080_8080).to_ne_bytes();
        }
        scale(scales, tile, r, [*d0, *d1]);
        sound_all &= sound([*d0, *d1]);
    }
    sound_all
}

/// Up to 4 blocks of an f16 scale and 16 bytes; ggml's nibbles are in the order of the tile already.
fn q4_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let mut sound_all = true;
    let (quants, scales) = out.split_at_mut(vector(q4_0::SCALES));
    let tiles = quants.chunks_exact_mut(vector(q4_0::TILE));
    for ((tile, quants), block) in tiles.enumerate().zip(row.as_chunks::<18>().0) {
        let [d0, d1, words @ ..] = block;
        for (word, out) in words.as_chunks::<4>().0.iter().zip(quants) {
            out[r] = *word;
        }
        scale(scales, tile, r, [*d0, *d1]);
        sound_all &= sound([*d0, *d1]);
    }
    sound_all
}

/// One super-block: 128 bytes of low nibbles, 64 of high bits, 16 int8 scales, an f16 d.
///
/// ggml keeps, per 128 values, value l + 32j in nibble j / 2 of byte l + 32(j % 2) and in bits 2j of high
/// byte l.
fn q6_k(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    // Words of the block: where the high bits start, and the scales.
    const HIGH: usize = 128 / 4;
    const SCALES: usize = HIGH + 64 / 4;
    assert!(r < TILE_ROWS && row.len() == 210 && out.len() == vector(q6k::D) + 1);
    let (words, d) = row.as_chunks::<4>();
    let word = |i: usize| u32::from_le_bytes(words[i]);
    for tile in 0..8 {
        let (half, j) = (tile / 4, tile % 4);
        let low = |i: usize| word(half * 16 + j % 2 * 8 + i) >> (j / 2 * 4) & 0x0f0f_0f0f;
        for v in 0..4 {
            let both = low(v) | low(4 + v) << 4;
            out[tile * vector(q6k::LOW_TILE) + v][r] = both.to_le_bytes();
        }
        let high = |i: usize| word(HIGH + half * 8 + i) >> (2 * j) & 0x0303_0303;
        for h in 0..2 {
            let bits = (0..4).fold(0, |bits, i| bits | high(4 * h + i) << (2 * i));
            out[vector(q6k::HIGH) + tile * vector(q6k::HIGH_TILE) + h][r] = bits.to_le_bytes();
        }
    }
    for s in 0..4 {
        out[vector(q6k::SCALES) + s][r] = words[SCALES + s];
    }
    out[vector(q6k::D)][r] = [d[0], d[1], 0, 0];
    sound([d[0], d[1]])
}

/// Converts `source` values to F32, exactly.
///
/// # Panics
/// If `source` is not one of [`PLAIN`], or `out` is not as long.
#[expect(clippy::panic, reason = "plans refuse other types by the name of the tensor")]
pub fn to_f32(source: GgmlType, data: &[u8], out: &mut [[u8; 4]]) {
    match source {
        GgmlType::F32 => out.copy_from_slice(data.as_chunks::<4>().0),
        GgmlType::F16 => widen(data, out, |v| half::f16::from_le_bytes(v).to_f32()),
        GgmlType::BF16 => widen(data, out, |v| half::bf16::from_le_bytes(v).to_f32()),
        _ => panic!("{source} does not convert to F32"),
    }
}

fn widen(data: &[u8], out: &mut [[u8; 4]], value: impl Fn([u8; 2]) -> f32) {
    let data = data.as_chunks::<2>().0;
    assert_eq!(data.len(), out.len());
    for (&v, out) in data.iter().zip(out) {
        *out = value(v).to_le_bytes();
    }
}
