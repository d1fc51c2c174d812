//! For tests of weights: random ggml blocks, and what blocks and tiles mean, value by value.
#![allow(dead_code)] // Each test binary uses a part.

use half::{bf16, f16};
use hexflash::gguf::GgmlType;
use hexflash_abi::DType;
use hexflash_abi::dtype::{q4_0, q6k, q8_0};

/// Types that have tiles.
pub const TYPES: [GgmlType; 6] =
    [GgmlType::F32, GgmlType::F16, GgmlType::BF16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q6_K];

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
/// occur.
pub fn random_rows(ggml_type: GgmlType, k: usize, rows: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let blocks = k / ggml_type.block_len() as usize * rows;
    let mut data = Vec::new();
    for _ in 0..blocks {
        let value = random.float();
        let d = f16::from_f32(value / 16.0).to_le_bytes();
        let mut bytes = |n| (0..n).map(|_| random.bits() as u8).collect::<Vec<_>>();
        match ggml_type {
            GgmlType::F32 => data.extend(value.to_le_bytes()),
            GgmlType::F16 => data.extend(f16::from_f32(value).to_le_bytes()),
            GgmlType::BF16 => data.extend(bf16::from_f32(value).to_le_bytes()),
            GgmlType::Q8_0 => data.extend(d.into_iter().chain(bytes(32))),
            GgmlType::Q4_0 => data.extend(d.into_iter().chain(bytes(16))),
            GgmlType::Q6_K => data.extend(bytes(208).into_iter().chain(d)),
            _ => unreachable!(),
        }
    }
    data
}

fn half_at(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// What ggml's `dequantize_row_*` makes of rows.
pub fn dequantize(ggml_type: GgmlType, data: &[u8]) -> Vec<f32> {
    let mut out = Vec::new();
    for block in data.chunks_exact(ggml_type.block_bytes() as usize) {
        match ggml_type {
            GgmlType::F32 => out.push(f32::from_le_bytes(block.try_into().unwrap())),
            GgmlType::F16 => out.push(half_at(block)),
            GgmlType::BF16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            GgmlType::Q8_0 => {
                let d = half_at(block);
                out.extend(block[2..].iter().map(|&q| f32::from(q as i8) * d));
            }
            GgmlType::Q4_0 => {
                let d = half_at(block);
                out.extend(block[2..].iter().map(|&q| f32::from((q & 15) as i8 - 8) * d));
                out.extend(block[2..].iter().map(|&q| f32::from((q >> 4) as i8 - 8) * d));
            }
            GgmlType::Q6_K => out.extend(q6_k(block)),
            _ => unreachable!(),
        }
    }
    out
}

fn q6_k(block: &[u8]) -> [f32; 256] {
    let d = half_at(&block[208..]);
    let mut y = [0.0; 256];
    for n in 0..2 {
        let (ql, qh, sc) = (&block[64 * n..], &block[128 + 32 * n..], &block[192 + 8 * n..]);
        for l in 0..32 {
            let q = [
                ql[l] & 15 | (qh[l] & 3) << 4,
                ql[l + 32] & 15 | (qh[l] >> 2 & 3) << 4,
                ql[l] >> 4 | (qh[l] >> 4 & 3) << 4,
                ql[l + 32] >> 4 | (qh[l] >> 6 & 3) << 4,
            ];
            for (j, q) in q.into_iter().enumerate() {
                let scale = f32::from(sc[l / 16 + 2 * j] as i8);
                y[128 * n + 32 * j + l] = d * scale * f32::from(q as i8 - 32);
            }
        }
    }
    y
}

/// Value (row, k) of a matrix of tiles, read off the text of `hexflash_abi::dtype`.
pub fn tile_value(dtype: DType, strips: &[u8], ne0: usize, row: usize, k: usize) -> f32 {
    let group = dtype.tile_group().unwrap();
    let strip = &strips[row / 32 * group.strip_bytes(ne0)..];
    let g = &strip[k / group.k * group.bytes..][..group.bytes];
    let (r, k) = (row % 32, k % group.k);
    // Byte b of lane r of the vector v that starts at `from`.
    let byte = |from: usize, v: usize, b: usize| g[from + 128 * v + 4 * r + b];
    let scale = |from: usize| half_at(&g[from + k / 64 * 128 + 4 * r + k / 32 % 2 * 2..]);
    let (tile, i) = (k / 32, k % 32);
    let nibble = |from: usize| byte(from, i % 16 / 4, i % 4) >> (i / 16 * 4) & 15;
    match dtype {
        DType::F32x32 => f32::from_le_bytes(g[128 * k + 4 * r..][..4].try_into().unwrap()),
        DType::F16x32 => half_at(&g[128 * (k / 2) + 4 * r + k % 2 * 2..]),
        DType::Q8_0x32 => f32::from(byte(tile * q8_0::TILE, i / 4, i % 4) as i16 - 128) * scale(q8_0::SCALES),
        DType::Q4_0x32 => f32::from(nibble(tile * q4_0::TILE) as i8 - 8) * scale(q4_0::SCALES),
        DType::Q6Kx32 => {
            let high = byte(q6k::HIGH + tile * q6k::HIGH_TILE, i / 16, i % 4) >> (i % 16 / 4 * 2) & 3;
            let q = nibble(tile * q6k::LOW_TILE) | high << 4;
            let scale = byte(q6k::SCALES, k / 64, k / 16 % 4) as i8;
            half_at(&g[q6k::D + 4 * r..]) * f32::from(scale) * f32::from(q as i8 - 32)
        }
        _ => unreachable!(),
    }
}
