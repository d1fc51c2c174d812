//! Blocks of several tiles' quants with an f16 scale, two of them a row's part of a group.

use hexflash_abi::DType;
use hexflash_abi::dtype::{QuantGroup, TILE_ROWS};

use super::bits::{cut, finite_f16, four_bits, in_each_byte};
use super::group::{Vector, quant_group};

/// Packs up to two blocks of `BYTES` bytes: an f16 scale, and `TILE_BYTES` bytes of quants for each tile, of
/// which `quants` makes the words that a tile has. Says whether the scales are finite.
#[inline(always)]
fn blocks<const BYTES: usize, const TILE_BYTES: usize, const BITS: usize>(
    group: QuantGroup,
    row: &[u8],
    out: &mut [Vector],
    r: usize,
    quants: impl Fn(&[u8; TILE_BYTES]) -> [u32; BITS],
) -> bool {
    let tiles = group.tiles / 2;
    assert!(r < TILE_ROWS && row.len() <= 2 * BYTES && out.len() == group.vectors());
    let mut sound = true;
    for (i, block) in row.as_chunks::<BYTES>().0.iter().enumerate() {
        let (d, rest) = block.split_at(2);
        let d = [d[0], d[1]];
        out[group.scales_at()][r][2 * i..][..2].copy_from_slice(&d);
        sound &= finite_f16(u16::from_le_bytes(d).into());
        for (t, bytes) in rest.as_chunks::<TILE_BYTES>().0.iter().enumerate() {
            let vectors = &mut out[group.quants_at(i * tiles + t)..];
            for (vector, word) in vectors.iter_mut().zip(quants(bytes)) {
                vector[r] = word.to_le_bytes();
            }
        }
    }
    sound
}

/// 128 bits, the first one lowest: 1 for d, 0 for minus d.
pub(super) fn q1_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q1_0x32);
    blocks::<18, 4, 1>(GROUP, row, out, r, |&bits| {
        let bits = u32::from_le_bytes(bits);
        cut::<1>(std::array::from_fn(|f| four_bits(bits, f)))
    })
}

/// 64 times two bits, four to a byte, the first ones lowest.
pub(super) fn q2_0(row: &[u8], out: &mut [Vector], r: usize) -> bool {
    const GROUP: QuantGroup = quant_group(DType::Q2_0x32);
    blocks::<18, 8, 2>(GROUP, row, out, r, |bytes| {
        cut::<2>(bytes.map(|four| {
            // Two bits in each byte: those from bit 2b on are moved by 6b.
            let four = u32::from(four);
            (four | four << 6 | four << 12 | four << 18) & in_each_byte(3)
        }))
    })
}
