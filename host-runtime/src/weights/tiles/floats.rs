//! Floats: a vector per value of a row, or per pair of values.

use hexflash_abi::dtype::TILE_ROWS;

use super::bits::{BF16, F16, SIGNS, special_f32, special_halves};
use super::group::Vector;

// All functions say whether the values are finite.

/// Up to 32 values: a vector each.
pub(super) fn f32(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let mut found = 0;
    for (word, out) in row.as_chunks::<4>().0.iter().zip(out) {
        out[r] = *word;
        found |= special_f32(u32::from_le_bytes(*word));
    }
    found >> 31 == 0
}

/// Up to 32 values, two to a vector.
pub(super) fn f16(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    halves::<F16>(row, out, r)
}

/// As [`f16`].
pub(super) fn bf16(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    halves::<BF16>(row, out, r)
}

/// Values of 16 bits, two to a vector; an odd last one is alone in the low half.
fn halves<const EXPONENT: u16>(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    assert!(r < TILE_ROWS);
    let (pairs, last) = row.as_chunks::<4>();
    let mut found = 0;
    for (word, out) in pairs.iter().zip(&mut *out) {
        out[r] = *word;
        found |= special_halves::<EXPONENT>(u32::from_le_bytes(*word));
    }
    if let &[low, high] = last {
        out[pairs.len()][r] = [low, high, 0, 0];
        found |= special_halves::<EXPONENT>(u16::from_le_bytes([low, high]).into());
    }
    found & SIGNS == 0
}
