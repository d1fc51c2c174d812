//! From ggml's blocks to tiles: 32 rows of a matrix at a time.
//!
//! The layouts are those of [`hexflash_abi::dtype`]. All of them are transposes of 4-byte words: word `w` of
//! a row's group becomes lane `r` of a vector, where `r` is the row's place in its strip. Every function here
//! is pure and writes every byte of its strip, so strips can be packed in any order, in parallel. A group is
//! a few KiB: reads and the scattered writes of words stay in the first-level cache.

mod bits;
mod flat;
mod floats;
mod group;
mod super_block;
mod two_blocks;

use hexflash_abi::DType;
use hexflash_abi::dtype::TILE_ROWS;

use self::group::Vector;
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
        GgmlType::F32 => (DType::F32x32, floats::f32),
        GgmlType::F16 => (DType::F16x32, floats::f16),
        GgmlType::BF16 => (DType::BF16x32, floats::bf16),
        GgmlType::Q4_0 => (DType::Q4_0x32, flat::q4_0),
        GgmlType::Q4_1 => (DType::Q4_1x32, flat::q4_1),
        GgmlType::Q5_0 => (DType::Q5_0x32, flat::q5_0),
        GgmlType::Q5_1 => (DType::Q5_1x32, flat::q5_1),
        GgmlType::Q8_0 => (DType::Q8_0x32, flat::q8_0),
        GgmlType::IQ4_NL => (DType::IQ4NLx32, flat::iq4_nl),
        GgmlType::MXFP4 => (DType::MXFP4x32, flat::mxfp4),
        GgmlType::Q1_0 => (DType::Q1_0x32, two_blocks::q1_0),
        GgmlType::Q2_0 => (DType::Q2_0x32, two_blocks::q2_0),
        GgmlType::Q2_K => (DType::Q2Kx32, super_block::q2_k),
        GgmlType::Q3_K => (DType::Q3Kx32, super_block::q3_k),
        GgmlType::Q4_K => (DType::Q4Kx32, super_block::q4_k),
        GgmlType::Q5_K => (DType::Q5Kx32, super_block::q5_k),
        GgmlType::Q6_K => (DType::Q6Kx32, super_block::q6_k),
        GgmlType::IQ4_XS => (DType::IQ4XSx32, super_block::iq4_xs),
        // Activations of ggml's own kernels.
        GgmlType::Q8_1 | GgmlType::Q8_K => return None,
        // Below 4 bits, by codebooks or three values to a digit, and one with scales of 8-bit floats.
        GgmlType::IQ1_S
        | GgmlType::IQ1_M
        | GgmlType::IQ2_XXS
        | GgmlType::IQ2_XS
        | GgmlType::IQ2_S
        | GgmlType::IQ3_XXS
        | GgmlType::IQ3_S
        | GgmlType::TQ1_0
        | GgmlType::TQ2_0
        | GgmlType::NVFP4 => return None,
        GgmlType::I8 | GgmlType::I16 | GgmlType::I32 | GgmlType::I64 | GgmlType::F64 => return None,
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

/// Converts values to F32, exactly.
type ToF32 = fn(&[u8], &mut [[u8; 4]]);

/// The types that convert to plain F32, and how.
const CONVERSIONS: [(GgmlType, ToF32); 3] = [
    (GgmlType::F32, |data, out| out.copy_from_slice(data.as_chunks::<4>().0)),
    (GgmlType::F16, |data, out| widen(data, out, |v| half::f16::from_le_bytes(v).to_f32())),
    (GgmlType::BF16, |data, out| widen(data, out, |v| half::bf16::from_le_bytes(v).to_f32())),
];

/// The types that convert to plain F32.
pub const PLAIN: &[GgmlType] = &[CONVERSIONS[0].0, CONVERSIONS[1].0, CONVERSIONS[2].0];

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

/// The first of `values`, if any, that is infinite or NaN.
pub(super) fn first_special(values: &[[u8; 4]]) -> Option<usize> {
    values.iter().position(|&value| !bits::finite_f32(value))
}

/// Converts `source` values to F32, exactly.
///
/// # Panics
/// If `source` is not one of [`PLAIN`], or `out` is not as long.
#[expect(clippy::panic, reason = "plans refuse other types by the name of the tensor")]
pub fn to_f32(source: GgmlType, data: &[u8], out: &mut [[u8; 4]]) {
    let conversion = CONVERSIONS.iter().find(|(plain, _)| *plain == source);
    let (_, convert) = conversion.unwrap_or_else(|| panic!("{source} does not convert to F32"));
    convert(data, out);
}

fn widen(data: &[u8], out: &mut [[u8; 4]], value: impl Fn([u8; 2]) -> f32) {
    let data = data.as_chunks::<2>().0;
    assert_eq!(data.len(), out.len());
    for (&v, out) in data.iter().zip(out) {
        *out = value(v).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_type_is_in_the_list_for_users() {
        let page = include_str!("../../../../docs/usage.md");
        let (_, part) = page.split_once("### Weight types").unwrap();
        let rows =
            part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let mut named: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
        let mut known: Vec<&str> = TILED.iter().map(|t| t.name()).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
