//! Blocks of 32 quants with a scale, which are a tile's rows: four blocks of a row are its part of a group.

use hexflash_abi::DType;
use hexflash_abi::dtype::{QuantGroup, TILE_ROWS};

use super::bits::{cut, finite_f16, four_bits, nibbles};
use super::group::{Vector, quant_group};

/// Where a block goes: a row of a tile.
struct Place<'a> {
    group: QuantGroup,
    out: &'a mut [Vector],
    tile: usize,
    r: usize,
}

impl Place<'_> {
    /// The quants, a word to a vector.
    #[inline(always)]
    fn quants(&mut self, words: impl Iterator<Item = [u8; 4]>) {
        let at = self.group.quants_at(self.tile);
        for (out, word) in self.out[at..at + self.group.quants].iter_mut().zip(words) {
            out[self.r] = word;
        }
    }

    /// Quants of 5 bits, of nibbles in ggml's order and fifth bits, of which bit k is that of quant k.
    #[inline(always)]
    fn five_bits(&mut self, low: &[u8; 16], high: [u8; 4]) {
        let (low, high) = (low.as_chunks::<4>().0, u32::from_le_bytes(high));
        let quants = std::array::from_fn(|f| {
            let low = nibbles(u32::from_le_bytes(low[f % 4]) >> (f / 4 * 4));
            low | four_bits(high, f) << 4
        });
        self.quants(cut::<5>(quants).into_iter().map(u32::to_le_bytes));
    }

    /// The f16 scale; says whether it is finite.
    #[inline(always)]
    fn scale(&mut self, d: [u8; 2]) -> bool {
        self.half(self.group.scales_at(), d)
    }

    /// The f16 minimum; says whether it is finite.
    #[inline(always)]
    fn min(&mut self, m: [u8; 2]) -> bool {
        self.half(self.group.mins_at(), m)
    }

    /// An f16 of the tile in the vectors from `at` on: of even tiles in the low half of a word, of odd ones
    /// in the high half.
    #[inline(always)]
    fn half(&mut self, at: usize, half: [u8; 2]) -> bool {
        let word = &mut self.out[at + self.tile / 2][self.r];
        word[self.tile % 2 * 2..][..2].copy_from_slice(&half);
        finite_f16(u16::from_le_bytes(half).into())
    }
}

/// Packs up to four blocks of `BYTES` bytes.
#[inline(always)]
fn blocks<const BYTES: usize>(
    group: QuantGroup,
    row: &[u8],
    out: &mut [Vector],
    r: usize,
    pack: impl Fn(&[u8; BYTES], &mut Place<'_>) -> bool,
) -> bool {
    assert!(r < TILE_ROWS && row.len() <= group.tiles * BYTES && out.len() == group.vectors());
    let mut sound = true;
    for (tile, block) in row.as_chunks::<BYTES>().0.iter().enumerate() {
        sound &= pack(block, &mut Place { group, out: &mut *out, tile, r });
    }
    sound
}

/// The words of the quants of a block.
#[inline(always)]
fn words(quants: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    quants.as_chunks::<4>().0.iter().copied()
}

// All functions say whether the scales and minimums are finite.

/// An f16 scale and 32 int8.
pub(super) fn q8_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q8_0x32);
    blocks(GROUP, row, out, r, |&[d0, d1, ref quants @ ..]: &[u8; 34], place| {
        // q + 128 as unsigned is q with its sign bit flipped.
        place.quants(words(quants).map(|word| (u32::from_ne_bytes(word) ^ 0x8080_8080).to_ne_bytes()));
        place.scale([d0, d1])
    })
}

/// An f16 scale and 16 bytes. Here and in the others of 4 low bits, ggml's nibbles are in the order of the
/// tile already.
pub(super) fn q4_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q4_0x32);
    scaled_nibbles(GROUP, row, out, r)
}

/// As [`q4_0`]: only what the quants stand for is another.
pub(super) fn iq4_nl(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::IQ4NLx32);
    scaled_nibbles(GROUP, row, out, r)
}

#[inline(always)]
fn scaled_nibbles(group: QuantGroup, row: &[u8], out: &mut [Vector], r: usize) -> bool {
    blocks(group, row, out, r, |&[d0, d1, ref quants @ ..]: &[u8; 18], place| {
        place.quants(words(quants));
        place.scale([d0, d1])
    })
}

/// An f16 scale, an f16 minimum, and 16 bytes.
pub(super) fn q4_1(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q4_1x32);
    blocks(GROUP, row, out, r, |&[d0, d1, m0, m1, ref quants @ ..]: &[u8; 20], place| {
        place.quants(words(quants));
        place.scale([d0, d1]) & place.min([m0, m1])
    })
}

/// An f16 scale, 32 fifth bits, and 16 bytes.
pub(super) fn q5_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q5_0x32);
    blocks(GROUP, row, out, r, |&[d0, d1, h0, h1, h2, h3, ref quants @ ..]: &[u8; 22], place| {
        place.five_bits(quants, [h0, h1, h2, h3]);
        place.scale([d0, d1])
    })
}

/// An f16 scale, an f16 minimum, 32 fifth bits, and 16 bytes.
pub(super) fn q5_1(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q5_1x32);
    blocks(GROUP, row, out, r, |&[d0, d1, m0, m1, h0, h1, h2, h3, ref quants @ ..]: &[u8; 24], place| {
        place.five_bits(quants, [h0, h1, h2, h3]);
        place.scale([d0, d1]) & place.min([m0, m1])
    })
}

/// A byte that is an exponent, and 16 bytes.
pub(super) fn mxfp4(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::MXFP4x32);
    /// What stands for no number in the OCP's formats. (ggml takes it for 2^127.)
    const NAN: u8 = 255;
    blocks(GROUP, row, out, r, |&[e, ref quants @ ..]: &[u8; 17], place| {
        place.quants(words(quants));
        place.out[GROUP.scales_at()][place.r][place.tile] = e;
        e != NAN
    })
}
