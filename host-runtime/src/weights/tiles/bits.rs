//! What the packing of several types has in common: bits within words, and which floats are finite.

use hexflash_abi::dtype::bit_fields;

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

/// The quants of a tile as it has them, of words that have 4 quants each, in their bytes.
pub(super) fn cut<const BITS: usize>(quants: [u32; 8]) -> [u32; BITS] {
    let mut words = [0; BITS];
    for (quants, fields) in quants.into_iter().zip(const { bit_fields(BITS) }) {
        for field in fields {
            let bits = quants >> field.to & in_each_byte(((1_u32 << field.bits) - 1) as u8);
            words[field.vector] |= bits << field.at;
        }
    }
    words
}

/// The same byte four times.
pub(super) const fn in_each_byte(byte: u8) -> u32 {
    u32::from_ne_bytes([byte; 4])
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

/// The four bits from number 4f on of the word, each as the lowest of a byte.
pub(super) const fn four_bits(word: u32, f: usize) -> u32 {
    let four = word >> (4 * f) & 15;
    // Bit b to bit 8b: it is moved by 7b.
    (four | four << 7 | four << 14 | four << 21) & in_each_byte(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bits_are_one_to_a_byte() {
        for k in 0..32 {
            for f in 0..8 {
                let expected = if f == k / 4 { 1 << (8 * (k % 4)) } else { 0 };
                assert_eq!(four_bits(1 << k, f), expected, "bit {k}");
                assert_eq!(four_bits(!(1 << k), f), in_each_byte(1) - expected, "all but bit {k}");
            }
        }
    }

    /// Every bit of every quant has a place of its own.
    #[test]
    fn cutting_loses_nothing() {
        fn all<const BITS: usize>() {
            let mut taken = [0; BITS];
            for bit in 0..32 * BITS {
                let mut quants = [0; 8];
                quants[bit / BITS / 4] = 1 << (bit / BITS % 4 * 8 + bit % BITS);
                let words = cut::<BITS>(quants);
                assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), 1, "bit {bit} of {BITS}");
                for (taken, word) in taken.iter_mut().zip(words) {
                    assert_eq!(*taken & word, 0, "bit {bit} of {BITS}");
                    *taken |= word;
                }
            }
        }
        all::<1>();
        all::<2>();
        all::<3>();
        all::<4>();
        all::<5>();
        all::<6>();
        all::<8>();
    }

    #[test]
    fn a_transpose_exchanges_fields_of_words_and_of_bytes() {
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
