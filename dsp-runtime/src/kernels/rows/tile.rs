//! Rows out of tiles, as floats.
//!
//! A row is a lane of its strip's vectors: a word of each. Its bits are taken apart by scalar instructions,
//! and 32 values at a time become floats. Quantized values are, to the bit, what ggml makes of the blocks
//! that they come from. A product with an f16 scale is exact, and the sum with a minimum is rounded once, as
//! IEEE does. Scales of MXFP4 may be subnormal, which HVX float does not take for factors: there products
//! are scalar, too.

use hexflash_abi::DType;
use hexflash_abi::dtype::{IQ4_NL, MXFP4, QuantGroup, TILE_K};

use crate::hvx::{BYTES, Hvx, LANES};

/// The words of a row in a group.
#[derive(Clone, Copy)]
struct Lane {
    /// The word in the group's first vector.
    first: *const u8,
    vectors: usize,
}

impl Lane {
    /// Lane `lane` of a group of `vectors` vectors.
    ///
    /// # Safety
    /// 1. `group` is aligned to vectors, and `vectors` vectors there are readable as long as this is in use.
    /// 2. `lane` is below 32.
    #[inline(always)]
    unsafe fn new(group: *const u8, vectors: usize, lane: usize) -> Self {
        Self { first: group.wrapping_add(lane * 4), vectors }
    }

    /// The row's word of vector `v`.
    ///
    /// # Panics
    /// If the group has no such vector.
    #[inline(always)]
    fn word(self, v: usize) -> u32 {
        assert!(v < self.vectors);
        // SAFETY: the group has vector `v` by the line above, and it is aligned and readable (point 1 of the
        // contract of `new`); `first` is a word of the first one (point 2), so this is one of vector `v`.
        unsafe { self.first.add(v * BYTES).cast::<u32>().read() }
    }

    /// Byte `i` of those that the row has in the vectors from `at` on, four in each.
    #[inline(always)]
    fn byte(self, at: usize, i: usize) -> u8 {
        self.word(at + i / 4).to_le_bytes()[i % 4]
    }

    /// f16 number `i` of those that the row has in the vectors from `at` on, two in each.
    #[inline(always)]
    fn half(self, at: usize, i: usize) -> f32 {
        half::f16::from_bits((self.word(at + i / 2) >> (i % 2 * 16)) as u16).to_f32()
    }
}

/// A row of a tile in a group of quants.
#[derive(Clone, Copy)]
struct Quants {
    lane: Lane,
    group: QuantGroup,
    tile: usize,
}

impl Quants {
    /// The quants, which have LOW low bits and HIGH high ones.
    fn words<const LOW: usize, const HIGH: usize>(self) -> Words {
        let mut words = Words([0; LANES]);
        for v in 0..LOW {
            let bytes = self.lane.word(self.group.low_at(self.tile) + v).to_le_bytes();
            for field in 0..8 / LOW {
                for (b, byte) in bytes.into_iter().enumerate() {
                    let k = if LOW >= 4 { 16 * field + 4 * v + b } else { 16 * v + 4 * field + b };
                    words.0[k] = i32::from(byte) >> (LOW * field) & ((1 << LOW) - 1);
                }
            }
        }
        for v in 0..HIGH {
            let bytes = self.lane.word(self.group.high_at(self.tile) + v).to_le_bytes();
            for field in 0..8 / HIGH {
                for (b, byte) in bytes.into_iter().enumerate() {
                    let high = i32::from(byte) >> (HIGH * field) & ((1 << HIGH) - 1);
                    words.0[16 * v + 4 * field + b] |= high << LOW;
                }
            }
        }
        words
    }

    /// The scale of types with an f16 per tile.
    fn f16_scale(self) -> f32 {
        self.lane.half(self.group.scales_at(), self.tile)
    }

    /// The minimum of types with an f16 per tile.
    fn f16_min(self) -> f32 {
        self.lane.half(self.group.mins_at(), self.tile)
    }

    /// d of a super-block.
    fn d(self) -> f32 {
        self.lane.half(self.group.d_at(), 0)
    }

    /// dmin of a super-block.
    fn dmin(self) -> f32 {
        self.lane.half(self.group.d_at(), 1)
    }

    /// The scale of types with a byte per tile.
    fn scale(self) -> u8 {
        self.lane.byte(self.group.scales_at(), self.tile)
    }

    /// Byte `i` of the two that the tile has in the vector of its pair.
    fn of_pair(self, i: usize) -> u8 {
        self.lane.byte(self.group.scales_at() + self.tile / 2, 2 * i + self.tile % 2)
    }

    /// The two scales of types with a byte per 16 values.
    fn scales(self) -> [u8; 2] {
        [0, 1].map(|i| self.of_pair(i))
    }

    /// d s of types with an int8 s per 16 values.
    #[inline(always)]
    fn signed_scales<H: Hvx>(self) -> H::F {
        by_half::<H>(self.scales().map(|s| self.d() * f32::from(s as i8)))
    }

    /// d q + m of types with an f16 d and m per tile.
    #[inline(always)]
    fn plus_min<H: Hvx>(self, words: Words) -> H::F {
        // The conversions first: a product must not wait for them.
        let (scale, min) = (H::splat(self.f16_scale()), H::splat(self.f16_min()));
        settled::<H>(H::add_ieee(words.scaled::<H>(0, scale), min))
    }

    /// d s q - dmin m of types with bytes s and m per tile, in the vector of its pair.
    #[inline(always)]
    fn less_min<H: Hvx>(self, words: Words) -> H::F {
        let scale = H::splat(self.d() * f32::from(self.of_pair(0)));
        let min = H::splat(self.dmin() * f32::from(self.of_pair(1)));
        settled::<H>(H::sub_ieee(words.scaled::<H>(0, scale), min))
    }
}

/// A vector in memory.
#[repr(C, align(128))]
struct Words([i32; LANES]);

impl Words {
    #[inline(always)]
    fn load<H: Hvx>(&self) -> H::I {
        // SAFETY: `self.0` is an array of 32 words, which are 128 bytes, aligned to as many.
        H::words(unsafe { H::load_b(self.0.as_ptr().cast()) })
    }

    /// The words are bits of floats.
    #[inline(always)]
    fn floats<H: Hvx>(&self) -> H::F {
        H::from_bits(self.load::<H>())
    }

    /// The words are quants, of which `zero` stands for zero: what they stand for times `scale`.
    #[inline(always)]
    fn scaled<H: Hvx>(&self, zero: i32, scale: H::F) -> H::F {
        settled::<H>(H::mul_ieee(H::to_float(H::sub_i(self.load::<H>(), H::splat_i(zero))), scale))
    }

    /// The numbers of `table` that the words are places in.
    fn looked_up(&self, table: &[i8; 16]) -> Self {
        Self(self.0.map(|q| i32::from(table[(q & 15) as usize])))
    }
}

/// The floats, of which none may still be on its way when the ways of the types meet.
#[inline(always)]
fn settled<H: Hvx>(x: H::F) -> H::F {
    H::settle();
    x
}

/// One float for the first 16 values of a tile, another for the others.
#[inline(always)]
fn by_half<H: Hvx>(floats: [f32; 2]) -> H::F {
    Words(core::array::from_fn(|k| floats[k / 16].to_bits() as i32)).floats::<H>()
}

/// 2^(e - 128), which is subnormal for 0 and 1.
fn power_of_two(e: u8) -> f32 {
    f32::from_bits(match e {
        0 => 1 << 21,
        1 => 1 << 22,
        _ => (u32::from(e) - 1) << 23,
    })
}

/// The parts of a group of floats: none.
const FLOATS: QuantGroup = QuantGroup { tiles: 1, low: 0, high: 0, scales: 0, mins: 0, d: 0 };

/// A row of a strip: 32 values from 32 * `tile` on.
///
/// # Safety
/// 1. `strip` is a strip of the tiled type `dtype` that has this tile, readable and aligned to vectors.
/// 2. `lane` is below 32.
#[inline(always)]
pub(super) unsafe fn load<H: Hvx>(dtype: DType, strip: *const u8, lane: usize, tile: usize) -> H::F {
    let (tiles, bytes) = dtype.tile_group().map_or((1, 0), |group| (group.k / TILE_K, group.bytes));
    let group = strip.wrapping_add(tile / tiles * bytes);
    // SAFETY: the strip has the tile and so its group, of `bytes` bytes; it is readable, and aligned because
    // the strip is and groups are whole vectors (point 1). `lane` is below 32 (point 2).
    let lane = unsafe { Lane::new(group, bytes / BYTES, lane) };
    let x = Quants { lane, group: dtype.quant_group().unwrap_or(FLOATS), tile: tile % tiles };
    match dtype {
        DType::F32x32 => Words(core::array::from_fn(|k| lane.word(k) as i32)).floats::<H>(),
        DType::F16x32 => Words(core::array::from_fn(|k| lane.half(0, k).to_bits() as i32)).floats::<H>(),
        DType::BF16x32 => {
            // Each is the high half of an f32.
            let bits = |k: usize| lane.word(k / 2) >> (k % 2 * 16) << 16;
            Words(core::array::from_fn(|k| bits(k) as i32)).floats::<H>()
        }
        DType::Q8_0x32 => x.words::<8, 0>().scaled::<H>(128, H::splat(x.f16_scale())),
        DType::Q4_0x32 => x.words::<4, 0>().scaled::<H>(8, H::splat(x.f16_scale())),
        DType::Q5_0x32 => x.words::<4, 1>().scaled::<H>(16, H::splat(x.f16_scale())),
        DType::Q4_1x32 => x.plus_min::<H>(x.words::<4, 0>()),
        DType::Q5_1x32 => x.plus_min::<H>(x.words::<4, 1>()),
        DType::IQ4NLx32 => {
            let levels = x.words::<4, 0>().looked_up(&IQ4_NL);
            levels.scaled::<H>(0, H::splat(x.f16_scale()))
        }
        DType::MXFP4x32 => {
            let scale = power_of_two(x.scale());
            let levels = x.words::<4, 0>().looked_up(&MXFP4);
            Words(levels.0.map(|level| (level as f32 * scale).to_bits() as i32)).floats::<H>()
        }
        DType::Q2Kx32 => {
            // A scale and a min per 16 values, in the two nibbles of a byte.
            let both = x.scales();
            let scale = by_half::<H>(both.map(|both| x.d() * f32::from(both & 15)));
            let min = by_half::<H>(both.map(|both| x.dmin() * f32::from(both >> 4)));
            settled::<H>(H::sub_ieee(x.words::<2, 0>().scaled::<H>(0, scale), min))
        }
        DType::Q3Kx32 => x.words::<2, 1>().scaled::<H>(4, x.signed_scales::<H>()),
        DType::Q4Kx32 => x.less_min::<H>(x.words::<4, 0>()),
        DType::Q5Kx32 => x.less_min::<H>(x.words::<4, 1>()),
        DType::Q6Kx32 => x.words::<4, 2>().scaled::<H>(32, x.signed_scales::<H>()),
        DType::IQ4XSx32 => {
            let scale = x.d() * f32::from(x.scale() as i8);
            x.words::<4, 0>().looked_up(&IQ4_NL).scaled::<H>(0, H::splat(scale))
        }
        // The caller's promise excludes them.
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act => H::splat(0.0),
        DType::Q8_0Cache | DType::Q4RCache => H::splat(0.0),
    }
}
