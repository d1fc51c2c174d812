//! For tests of weights: random ggml blocks, and what blocks and tiles mean, value by value.
#![allow(dead_code)] // Each test binary uses a part.

use half::{bf16, f16};
use hexflash::gguf::GgmlType;
use hexflash_abi::DType;
use hexflash_abi::dtype::{IQ4_NL, MXFP4};

/// Reproducible numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// In -1..1.
    pub fn float(&mut self) -> f32 {
        self.bits() as f32 / 2f32.powi(31) - 1.0
    }
}

/// `rows` rows of `k` random values as ggml stores them: every quant and every scale, sign included, may
/// occur, but exponents of MXFP4 are near zero, so that values of several blocks count in a sum.
pub fn random_rows(ggml_type: GgmlType, k: usize, rows: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let blocks = k / ggml_type.block_len() as usize * rows;
    let mut data = Vec::new();
    for _ in 0..blocks {
        let value = random.float();
        let d = f16::from_f32(value / 16.0).to_le_bytes();
        let m = f16::from_f32(random.float() / 4.0).to_le_bytes();
        let mut bytes = |n| (0..n).map(|_| random.bits() as u8).collect::<Vec<_>>();
        match ggml_type {
            GgmlType::F32 => data.extend(value.to_le_bytes()),
            GgmlType::F16 => data.extend(f16::from_f32(value).to_le_bytes()),
            GgmlType::BF16 => data.extend(bf16::from_f32(value).to_le_bytes()),
            GgmlType::Q8_0 => data.extend(d.into_iter().chain(bytes(32))),
            GgmlType::Q4_0 | GgmlType::IQ4_NL => data.extend(d.into_iter().chain(bytes(16))),
            GgmlType::Q1_0 | GgmlType::Q2_0 => data.extend(d.into_iter().chain(bytes(16))),
            GgmlType::Q4_1 => data.extend(d.into_iter().chain(m).chain(bytes(16))),
            GgmlType::Q5_0 => data.extend(d.into_iter().chain(bytes(20))),
            GgmlType::Q5_1 => data.extend(d.into_iter().chain(m).chain(bytes(20))),
            GgmlType::Q2_K => data.extend(bytes(80).into_iter().chain(d).chain(m)),
            GgmlType::Q3_K => data.extend(bytes(108).into_iter().chain(d)),
            GgmlType::Q4_K => data.extend(d.into_iter().chain(m).chain(bytes(140))),
            GgmlType::Q5_K => data.extend(d.into_iter().chain(m).chain(bytes(172))),
            GgmlType::Q6_K => data.extend(bytes(208).into_iter().chain(d)),
            GgmlType::IQ4_XS => data.extend(d.into_iter().chain(bytes(134))),
            GgmlType::MXFP4 => {
                let block = bytes(17);
                data.push(120 + block[0] % 8);
                data.extend(&block[1..]);
            }
            other => panic!("no random blocks of {other}"),
        }
    }
    data
}

fn half_at(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// What ggml's `dequantize_row_*` makes of rows.
pub fn dequantize(ggml_type: GgmlType, data: &[u8]) -> Vec<f32> {
    let blocks = data.chunks_exact(ggml_type.block_bytes() as usize);
    blocks.flat_map(|block| (0..ggml_type.block_len() as usize).map(|i| value(ggml_type, block, i))).collect()
}

/// Value `i` of a block.
fn value(ggml_type: GgmlType, block: &[u8], i: usize) -> f32 {
    let d = || half_at(block);
    // Values 0 to 15 of 32 are in low nibbles, the others in high ones.
    let nibble = |at: usize| block[at + i % 16] >> (i / 16 * 4) & 15;
    let bit = |at: usize| block[at + i / 8] >> (i % 8) & 1;
    // Place in 256 values: in tile `t` of 32, value `l`.
    let (t, l) = (i / 32, i % 32);
    // 4 bits of 64 values in 32 bytes, 2 bits of 128 in 32 bytes, a bit of 256 in 32 bytes.
    let fours = |at: usize| block[at + t / 2 * 32 + l] >> (t % 2 * 4) & 15;
    let twos = |at: usize| block[at + t / 4 * 32 + l] >> (t % 4 * 2) & 3;
    let ones = |at: usize| block[at + l] >> t & 1;
    match ggml_type {
        GgmlType::F32 => f32::from_le_bytes(block.try_into().unwrap()),
        GgmlType::F16 => d(),
        GgmlType::BF16 => bf16::from_le_bytes([block[0], block[1]]).to_f32(),
        GgmlType::Q8_0 => f32::from(block[2 + i] as i8) * d(),
        GgmlType::Q1_0 => [-d(), d()][usize::from(bit(2))],
        GgmlType::Q2_0 => f32::from((block[2 + i / 4] >> (i % 4 * 2) & 3) as i8 - 1) * d(),
        GgmlType::Q4_0 => f32::from(nibble(2) as i8 - 8) * d(),
        GgmlType::Q4_1 => f32::from(nibble(4)) * d() + half_at(&block[2..]),
        GgmlType::Q5_0 => f32::from((nibble(6) | bit(2) << 4) as i8 - 16) * d(),
        GgmlType::Q5_1 => f32::from(nibble(8) | bit(4) << 4) * d() + half_at(&block[2..]),
        GgmlType::IQ4_NL => d() * f32::from(IQ4_NL[usize::from(nibble(2))]),
        GgmlType::MXFP4 => power_of_two(i32::from(block[0]) - 128) * f32::from(MXFP4[usize::from(nibble(1))]),
        GgmlType::Q2_K => {
            let (d, dmin, both) = (half_at(&block[80..]), half_at(&block[82..]), block[i / 16]);
            d * f32::from(both & 15) * f32::from(twos(16)) - dmin * f32::from(both >> 4)
        }
        GgmlType::Q3_K => {
            let s = i / 16;
            let low = block[96 + s % 8] >> (s / 8 * 4) & 15;
            let high = block[104 + s % 4] >> (s / 4 * 2) & 3;
            let scale = f32::from((low | high << 4) as i8 - 32);
            half_at(&block[108..]) * scale * f32::from((twos(32) | ones(0) << 2) as i8 - 4)
        }
        GgmlType::Q4_K => less_min(block, t, fours(16)),
        GgmlType::Q5_K => less_min(block, t, fours(48) | ones(16) << 4),
        GgmlType::Q6_K => {
            let low = block[t / 4 * 64 + t % 2 * 32 + l] >> (t % 4 / 2 * 4) & 15;
            let q = (low | twos(128) << 4) as i8 - 32;
            half_at(&block[208..]) * f32::from(block[192 + i / 16] as i8) * f32::from(q)
        }
        GgmlType::IQ4_XS => {
            let low = block[4 + t / 2] >> (t % 2 * 4) & 15;
            let high = block[2 + t / 4] >> (t % 4 * 2) & 3;
            let q = block[8 + 16 * t + l % 16] >> (l / 16 * 4) & 15;
            d() * f32::from((low | high << 4) as i8 - 32) * f32::from(IQ4_NL[usize::from(q)])
        }
        other => panic!("no meaning of {other}"),
    }
}

/// A value of Q4_K or Q5_K, of tile `t`.
fn less_min(block: &[u8], t: usize, q: u8) -> f32 {
    let packed = &block[4..16];
    let (scale, min) = match t.checked_sub(4) {
        None => (packed[t] & 63, packed[4 + t] & 63),
        Some(i) => (packed[8 + i] & 15 | packed[i] >> 6 << 4, packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4),
    };
    half_at(block) * f32::from(scale) * f32::from(q) - half_at(&block[2..]) * f32::from(min)
}

/// Exact, down to the smallest subnormal.
pub fn power_of_two(exponent: i32) -> f32 {
    2f64.powi(exponent) as f32
}

/// Value (row, k) of a matrix of tiles, read off the text of `hexflash_abi::dtype`.
pub fn tile_value(dtype: DType, strips: &[u8], ne0: usize, row: usize, k: usize) -> f32 {
    let group = dtype.tile_group().unwrap();
    let strip = &strips[row / 32 * group.strip_bytes(ne0)..];
    let g = &strip[k / group.k * group.bytes..][..group.bytes];
    let (r, k) = (row % 32, k % group.k);
    // Byte b of word r of vector v, and the f16 in its low (0) or high (1) half.
    let byte = |v: usize, b: usize| g[128 * v + 4 * r + b];
    let half = |v: usize, h: usize| half_at(&g[128 * v + 4 * r + 2 * h..]);
    let Some(parts) = dtype.quant_group() else {
        return match dtype {
            DType::F32x32 => f32::from_le_bytes(g[128 * k + 4 * r..][..4].try_into().unwrap()),
            DType::F16x32 => half(k / 2, k % 2),
            DType::BF16x32 => bf16::from_le_bytes([0, 1].map(|b| byte(k / 2, k % 2 * 2 + b))).to_f32(),
            other => panic!("{other:?} is no tiled float"),
        };
    };
    let (tile, i) = (k / 32, k % 32);
    let scales_at = parts.tiles * parts.quants;
    let mins_at = scales_at + parts.scales;
    let d_at = mins_at + parts.mins;
    // Vectors and bits of them, from the lowest bits of the quant on.
    let f = i / 4;
    let pieces: &[(usize, usize, usize)] = match (parts.quants, f) {
        (8, _) => &[(f, 0, 8)],
        (4, _) => &[(f % 4, f / 4 * 4, 4)],
        (2, _) => &[(f / 4, f % 4 * 2, 2)],
        (1, _) => &[(0, f, 1)],
        (3, 0 | 2 | 5) => &[(f / 2, 0, 3)],
        (3, 1 | 4 | 6) => &[((f - 1) * 2 / 5, 5, 3)],
        (3, 3) => &[(0, 3, 2), (2, 3, 1)],
        (3, _) => &[(1, 3, 2), (2, 4, 1)],
        (5, 0 | 1) => &[(f, 0, 5)],
        (5, 2..=4) => &[(f, 3, 5)],
        (5, 5) => &[(2, 0, 3), (0, 6, 2)],
        (5, 6) => &[(3, 0, 3), (1, 6, 2)],
        (5, _) => &[(4, 0, 3), (0, 5, 1), (1, 5, 1)],
        (6, 3) => &[(0, 6, 2), (1, 6, 2), (2, 6, 2)],
        (6, 7) => &[(3, 6, 2), (4, 6, 2), (5, 6, 2)],
        (6, _) => &[(f - f / 4, 0, 6)],
        (bits, _) => panic!("quants of {bits} bits"),
    };
    let (mut q, mut to) = (0, 0);
    for &(vector, first, bits) in pieces {
        let byte = u16::from(byte(tile * parts.quants + vector, i % 4));
        q |= (byte >> first & ((1 << bits) - 1)) << to;
        to += bits;
    }
    let q = q as u8;
    let quant = |zero: i16| f32::from(i16::from(q) - zero);
    let of_tile = |at: usize| half(at + tile / 2, tile % 2);
    let tile_byte = |at: usize| byte(at + tile / 4, tile % 4);
    // Of a pair of tiles: first bytes of the even and the odd one, then second bytes.
    let of_pair = |which: usize| byte(scales_at + tile / 2, 2 * which + tile % 2);
    let per_16 = || of_pair(i / 16);
    let (d, dmin) = (|| half(d_at, 0), || half(d_at, 1));
    let signed = |byte: u8| f32::from(byte as i8);
    match dtype {
        DType::Q8_0x32 => of_tile(scales_at) * quant(128),
        DType::Q4_0x32 => of_tile(scales_at) * quant(8),
        DType::Q1_0x32 => half(scales_at, tile / 4) * f32::from(2 * i16::from(q) - 1),
        DType::Q2_0x32 => half(scales_at, tile / 2) * quant(1),
        DType::Q5_0x32 => of_tile(scales_at) * quant(16),
        DType::Q4_1x32 | DType::Q5_1x32 => of_tile(scales_at) * quant(0) + of_tile(mins_at),
        DType::IQ4NLx32 => of_tile(scales_at) * f32::from(IQ4_NL[usize::from(q)]),
        DType::MXFP4x32 => {
            power_of_two(i32::from(tile_byte(scales_at)) - 128) * f32::from(MXFP4[usize::from(q)])
        }
        DType::Q2Kx32 => d() * f32::from(per_16() & 15) * quant(0) - dmin() * f32::from(per_16() >> 4),
        DType::Q3Kx32 => d() * signed(per_16()) * quant(4),
        DType::Q4Kx32 | DType::Q5Kx32 => {
            d() * f32::from(of_pair(0)) * quant(0) - dmin() * f32::from(of_pair(1))
        }
        DType::Q6Kx32 => d() * signed(per_16()) * quant(32),
        DType::IQ4XSx32 => d() * signed(tile_byte(scales_at)) * f32::from(IQ4_NL[usize::from(q)]),
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act | DType::Q8_0 => panic!("{dtype:?} is not tiled"),
        DType::Q8_0Cache | DType::Q4RCache => panic!("{dtype:?} is not a type of weights"),
        DType::F32x32 | DType::F16x32 | DType::BF16x32 => panic!("{dtype:?} has no quants"),
    }
}
