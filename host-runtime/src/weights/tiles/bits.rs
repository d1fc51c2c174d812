//! What the packing of several types has in common: bits within words, and which floats are finite.

/// Has the sign bit set where the exponent of an f32 is all ones, which infinity and NaN have: only that
/// carries into it.
pub(super) const fn special_f32(bits: u32) -> u32 {
    (bits & 0x7f80_0000) + 0x0080_0000
}

/// Whether an f32 is neither infinite nor NaN.
pub(super) const fn finite_f32(value: [u8; 4]) -> bool {
    special_f32(u32::from_le_bytes(value)) >> 31 == 0
}

/// As [`special_f32`], of the two 16-bit floats of a word with these bits of exponent: the sign bits of both.
pub(super) const fn special_halves<const EXPONENT: u16>(pair: u32) -> u32 {
    let lowest = EXPONENT & EXPONENT.wrapping_neg();
    (pair & both(EXPONENT)) + both(lowest)
}

/// The same 16 bits twice.
const fn both(half: u16) -> u32 {
    half as u32 | (half as u32) << 16
}

/// The sign bits of two 16-bit floats.
pub(super) const SIGNS: u32 = both(0x8000);

/// The exponent of an f16.
pub(super) const F16: u16 = 0x7c00;

/// The exponent of a bf16.
pub(super) const BF16: u16 = 0x7f80;

/// Whether both f16 of a word are finite. A zero in a half that is not in use is.
pub(super) const fn finite_f16(pair: u32) -> bool {
    special_halves::<F16>(pair) & SIGNS == 0
}

/// The low nibbles of the bytes.
pub(super) const fn nibbles(word: u32) -> u32 {
    word & 0x0f0f_0f0f
}

/// The 4 low bits of 32 quants as a tile has them, of words that have 4 quants each, in the low nibbles of
/// bytes.
pub(super) fn join_nibbles(quants: impl Fn(usize) -> u32) -> [u32; 4] {
    std::array::from_fn(|v| nibbles(quants(v)) | nibbles(quants(4 + v)) << 4)
}

/// Bits 2i and 2i+1 of the bytes of word `j` of the result are bits 2j and 2j+1 of word `i`.
///
/// ggml keeps four times 2 bits to a byte, each of another tile; so does a tile, each of other k.
pub(super) fn transpose_pairs(words: [u32; 4]) -> [u32; 4] {
    std::array::from_fn(|j| {
        let field = |i: usize| (words[i] >> (2 * j) & 0x0303_0303) << (2 * i);
        field(0) | field(1) | field(2) | field(3)
    })
}

/// Bit i of the bytes of word `j` of the result is bit j of the bytes of word `i`.
///
/// ggml keeps eight single bits to a byte, each of another tile; so does a tile, each of other k.
pub(super) fn transpose_bits(mut words: [u32; 8]) -> [u32; 8] {
    // Blocks of 4x4 bits change places, then of 2x2, then single ones.
    for (step, low) in [(4, 0x0f0f_0f0f), (2, 0x3333_3333), (1, 0x5555_5555)] {
        for i in (0..8).filter(|i| i & step == 0) {
            let changed = (words[i] >> step ^ words[i + step]) & low;
            words[i + step] ^= changed;
            words[i] ^= changed << step;
        }
    }
    words
}

/// Bit k = 4i + b of the word to bit i of byte b: from ggml's order of the high bits of 32 quants to a
/// tile's.
pub(super) const fn spread_bits(word: u32) -> u32 {
    // The digits of a bit's number, k = (i2 i1 i0 b1 b0), are to be (b1 b0 i2 i1 i0). Two digits change
    // places at a time: 4 and 1, 3 and 0, 2 and 1, 1 and 0.
    let word = exchange(word, 16 - 2, 0x0000_cccc);
    let word = exchange(word, 8 - 1, 0x00aa_00aa);
    let word = exchange(word, 4 - 2, 0x0c0c_0c0c);
    exchange(word, 2 - 1, 0x2222_2222)
}

/// Has the bits of `low` change places with those that are `distance` higher.
const fn exchange(word: u32, distance: u32, low: u32) -> u32 {
    let changed = (word >> distance ^ word) & low;
    word ^ changed ^ changed << distance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_bits_puts_each_bit_in_its_place() {
        for k in 0..32 {
            let (i, b) = (k / 4, k % 4);
            assert_eq!(spread_bits(1 << k), 1 << (8 * b + i), "bit {k}");
            assert_eq!(spread_bits(!(1 << k)), !(1 << (8 * b + i)), "all but bit {k}");
        }
    }

    #[test]
    fn transposes_exchange_fields_of_words_and_of_bytes() {
        for word in 0..8 {
            for bit in 0..32 {
                let (byte, field) = (bit / 8 * 8, bit % 8);
                let mut words = [0; 8];
                words[word] = 1 << bit;
                let mut expected = [0; 8];
                expected[field] = 1 << (byte + word);
                assert_eq!(transpose_bits(words), expected, "bit {bit} of word {word}");
            }
        }
        for word in 0..4 {
            for bit in 0..32 {
                let (byte, field, low) = (bit / 8 * 8, bit % 8 / 2, bit % 2);
                let mut words = [0; 4];
                words[word] = 1 << bit;
                let mut expected = [0; 4];
                expected[field] = 1 << (byte + 2 * word + low);
                assert_eq!(transpose_pairs(words), expected, "bit {bit} of word {word}");
            }
        }
    }

    #[test]
    fn infinite_values_and_nan_are_not_finite() {
        for bits in 0..=u16::MAX {
            let f16 = half::f16::from_bits(bits);
            assert_eq!(finite_f16(bits.into()), f16.is_finite(), "{bits:#x}");
            assert_eq!(finite_f16(u32::from(bits) << 16), f16.is_finite(), "{bits:#x}");
            let bf16 = half::bf16::from_bits(bits);
            let found = special_halves::<BF16>(u32::from(bits) | 0x3f80_0000) & SIGNS;
            assert_eq!(found == 0, bf16.is_finite(), "{bits:#x}");
            assert_eq!(finite_f32(bf16.to_f32().to_le_bytes()), bf16.is_finite(), "{bits:#x}");
        }
    }
}
