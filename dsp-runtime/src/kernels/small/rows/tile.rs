//! Rows out of tiles, as floats.
//!
//! A row is a lane of its strip's vectors: a word of each. Scalar instructions put its quants next to each
//! other, four of them in a word at once, and four tiles at a time become floats in vectors. Quantized values
//! are, to the bit, what ggml makes of the blocks that they come from. A product with an f16 scale is exact,
//! and the sum with a minimum is rounded once, as IEEE does. Scales of MXFP4 may be subnormal, which HVX
//! float does not take for factors: there products are scalar, too.

use core::array;

use hexflash_abi::DType;
use hexflash_abi::dtype::{IQ4_NL, MXFP4, QuantGroup, TILE_K, bit_fields};

use crate::hvx::{BYTES, Hvx, LANES, Lookup};

/// Tiles that are taken apart together: their quants, a byte each, fill a vector. A group of quants has a
/// multiple of them.
pub(super) const TILES: usize = BYTES / TILE_K;

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

    /// f16 numbers `i` to `i + 3`, of which the first is even, each in all lanes of a vector.
    #[inline(always)]
    fn four_halves<H: Hvx>(self, at: usize, i: usize) -> [H::F; TILES] {
        let mut halves = [H::splat(0.0); TILES];
        for t in (0..TILES).step_by(2) {
            if H::COSTLY_FLOATS {
                halves[t] = H::splat(self.half(at, i + t));
                halves[t + 1] = H::splat(self.half(at, i + t + 1));
            } else {
                let both = H::splat_i(self.word(at + (i + t) / 2) as i32);
                (halves[t], halves[t + 1]) = H::widen_f16(H::bytes(both));
            }
        }
        halves
    }
}

/// A row of four tiles in a group of quants.
#[derive(Clone, Copy)]
struct FourTiles {
    lane: Lane,
    group: QuantGroup,
    /// The first of them in the group.
    tile: usize,
}

impl FourTiles {
    /// The quants, which have so many bits.
    #[inline(always)]
    fn quants<const BITS: usize>(self) -> Quants {
        let mut quants = Quants([[0; 8]; TILES]);
        for (tile, quants) in (self.tile..).zip(&mut quants.0) {
            // Four quants are as far apart in their word as here: only their place in the byte is another.
            if 8 % BITS == 0 {
                // As below, for quants that are whole: LLVM 22 makes less of it that way.
                for v in 0..BITS {
                    let word = self.lane.word(self.group.quants_at(tile) + v);
                    for field in 0..8 / BITS {
                        let four = if BITS >= 4 { 4 * field + v } else { 4 * v + field };
                        quants[four] = word >> (BITS * field) & in_each_byte(BITS);
                    }
                }
                continue;
            }
            for (f, four) in quants.iter_mut().enumerate() {
                for part in const { bit_fields(BITS) }[f] {
                    if part.bits > 0 {
                        let word = self.lane.word(self.group.quants_at(tile) + part.vector);
                        *four |= (word >> part.at & in_each_byte(part.bits)) << part.to;
                    }
                }
            }
        }
        quants
    }

    /// The scales of types with an f16 per tile.
    #[inline(always)]
    fn f16_scales<H: Hvx>(self) -> [H::F; TILES] {
        self.lane.four_halves::<H>(self.group.scales_at(), self.tile)
    }

    /// The scales of types with two f16 in a group, each for half of its tiles.
    #[inline(always)]
    fn block_scales<H: Hvx>(self) -> [H::F; TILES] {
        let (at, half) = (self.group.scales_at(), self.group.tiles / 2);
        let scales = [0, 1].map(|block| self.lane.half(at, block));
        let mut all = [H::splat(0.0); TILES];
        for (t, scale) in (self.tile..).zip(&mut all) {
            *scale = H::splat(scales[t / half]);
        }
        all
    }

    /// d of a super-block.
    #[inline(always)]
    fn d(self) -> f32 {
        self.lane.half(self.group.d_at(), 0)
    }

    /// dmin of a super-block.
    #[inline(always)]
    fn dmin(self) -> f32 {
        self.lane.half(self.group.d_at(), 1)
    }

    /// The scale of tile `t` of the four, of types with a byte per tile.
    #[inline(always)]
    fn scale(self, t: usize) -> u8 {
        self.lane.byte(self.group.scales_at(), self.tile + t)
    }

    /// Byte `i` of the two that tile `t` of the four has in the vector of its pair.
    #[inline(always)]
    fn of_pair(self, t: usize, i: usize) -> u8 {
        let tile = self.tile + t;
        self.lane.byte(self.group.scales_at() + tile / 2, 2 * i + tile % 2)
    }

    /// The two scales of tile `t` of the four, of types with a byte per 16 values.
    #[inline(always)]
    fn scales(self, t: usize) -> [u8; 2] {
        [0, 1].map(|i| self.of_pair(t, i))
    }

    /// d s of types with an int8 s per 16 values.
    #[inline(always)]
    fn signed_scales<H: Hvx>(self) -> [H::F; TILES] {
        let (d, mut scales) = (self.d(), [H::splat(0.0); TILES]);
        for (t, scale) in scales.iter_mut().enumerate() {
            *scale = by_half::<H>(self.scales(t).map(|s| d * f32::from(s as i8)));
        }
        scales
    }

    /// d q + m of types with an f16 d and m per tile.
    #[inline(always)]
    fn plus_min<H: Hvx>(self, quants: &Quants) -> [H::F; TILES] {
        // The conversions first: a product must not wait for them.
        let mins = self.lane.four_halves::<H>(self.group.mins_at(), self.tile);
        let mut x = quants.scaled::<H>(0, self.f16_scales::<H>());
        for (x, min) in x.iter_mut().zip(mins) {
            *x = settled::<H>(H::add_ieee(*x, min));
        }
        x
    }

    /// d s q - dmin m of types with bytes s and m per tile, in the vector of its pair.
    #[inline(always)]
    fn less_min<H: Hvx>(self, quants: &Quants) -> [H::F; TILES] {
        let (d, dmin) = (self.d(), self.dmin());
        let (mut scales, mut mins) = ([H::splat(0.0); TILES], [H::splat(0.0); TILES]);
        for (t, (scale, min)) in scales.iter_mut().zip(&mut mins).enumerate() {
            *scale = H::splat(d * f32::from(self.of_pair(t, 0)));
            *min = H::splat(dmin * f32::from(self.of_pair(t, 1)));
        }
        less::<H>(quants.scaled::<H>(0, scales), mins)
    }
}

/// So many low bits of each byte.
const fn in_each_byte(bits: usize) -> u32 {
    u32::from_ne_bytes([((1_u32 << bits) - 1) as u8; 4])
}

/// Quants of four tiles, a byte each, in the order of k.
#[repr(C, align(128))]
struct Quants([[u32; TILE_K / 4]; TILES]);

impl Quants {
    /// Quants twice as large as these, which are below 128.
    #[inline(always)]
    fn doubled(mut self) -> Self {
        for four in self.0.as_flattened_mut() {
            *four <<= 1;
        }
        self
    }

    #[inline(always)]
    fn load<H: Hvx>(&self) -> H::B {
        const { assert!(size_of::<Quants>() == BYTES) };
        // SAFETY: `self.0` is 128 bytes, by the assertion above.
        unsafe { H::load_b(self.0.as_ptr().cast()) }
    }

    /// What quants stand for, of which `zero` stands for zero, times the scales of their tiles.
    #[inline(always)]
    fn scaled<H: Hvx>(&self, zero: i32, scales: [H::F; TILES]) -> [H::F; TILES] {
        bytes_scaled::<H>(self.load::<H>(), zero, scales)
    }

    /// The numbers of IQ4_NL that the quants are places of, times the scales of their tiles.
    #[inline(always)]
    fn looked_up<H: Hvx>(&self, scales: [H::F; TILES]) -> [H::F; TILES] {
        static LOOKUP: Lookup = Lookup::unsigned(IQ4_NL, IQ4_NL_ZERO);
        bytes_scaled::<H>(H::lookup(self.load::<H>(), &LOOKUP), IQ4_NL_ZERO, scales)
    }
}

/// What is added to the numbers of IQ4_NL, so that they are unsigned.
const IQ4_NL_ZERO: i32 = 128;

/// Unsigned bytes of four tiles, less `zero`, times the scales of the tiles.
#[inline(always)]
fn bytes_scaled<H: Hvx>(bytes: H::B, zero: i32, scales: [H::F; TILES]) -> [H::F; TILES] {
    let mut x = scales;
    for (x, word) in x.iter_mut().zip(H::unpack_bytes(bytes)) {
        *x = settled::<H>(H::mul_ieee(H::to_float(H::sub_i(word, H::splat_i(zero))), *x));
    }
    x
}

/// a - b of four tiles.
#[inline(always)]
fn less<H: Hvx>(mut a: [H::F; TILES], b: [H::F; TILES]) -> [H::F; TILES] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = settled::<H>(H::sub_ieee(*a, b));
    }
    a
}

/// A vector in memory.
#[repr(C, align(128))]
struct Words([u32; LANES]);

impl Words {
    /// The words are bits of floats.
    #[inline(always)]
    fn floats<H: Hvx>(&self) -> H::F {
        // SAFETY: `self.0` is an array of 32 words, which are 128 bytes.
        H::from_bits(H::words(unsafe { H::load_b(self.0.as_ptr().cast()) }))
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
    Words(array::from_fn(|k| floats[k / 16].to_bits())).floats::<H>()
}

/// 2^(e - 128), which is subnormal for 0 and 1.
fn power_of_two(e: u8) -> f32 {
    f32::from_bits(match e {
        0 => 1 << 21,
        1 => 1 << 22,
        _ => (u32::from(e) - 1) << 23,
    })
}

/// The parts of the group of a quantized type.
const fn parts(dtype: DType) -> QuantGroup {
    match dtype.quant_group() {
        Some(group) => group,
        None => panic!("it has no quants"),
    }
}

/// A row of a strip: 32 values each of `tiles` tiles (1 to [`TILES`]) from `tile` on, which is a multiple of
/// TILES. What is behind them is left open.
///
/// # Safety
/// 1. `strip` is a strip of the tiled type `dtype` that has these tiles, readable and aligned to vectors.
/// 2. `lane` is below 32.
#[inline(always)]
pub(super) unsafe fn load<H: Hvx>(
    dtype: DType,
    strip: *const u8,
    lane: usize,
    tile: usize,
    tiles: usize,
) -> [H::F; TILES] {
    // A tile of floats of `bytes` bytes.
    let floats = |t: usize, bytes: usize| {
        let t = tile + t.min(tiles - 1);
        let group = TILE_K * LANES * bytes;
        // SAFETY: tile `t` is one of those that the strip has, each of which is a group of whole vectors; it
        // is readable and aligned (point 1 of the caller's contract). `lane` is below 32 (point 2).
        unsafe { Lane::new(strip.wrapping_add(t * group), group / BYTES, lane) }
    };
    let quants = |group: QuantGroup| {
        let (bytes, at) = (group.vectors() * BYTES, tile % group.tiles);
        // SAFETY: the strip has the tile and so its group, of `bytes` bytes; it is readable, and aligned
        // because the strip is and groups are whole vectors (point 1 of the caller's contract). `lane` is
        // below 32 (point 2).
        let lane =
            unsafe { Lane::new(strip.wrapping_add(tile / group.tiles * bytes), group.vectors(), lane) };
        FourTiles { lane, group, tile: at }
    };
    // The parts of a type, as a constant: then all offsets are.
    macro_rules! quants {
        ($dtype:ident) => {
            quants(const { parts(DType::$dtype) })
        };
    }
    let mut x = [H::splat(0.0); TILES];
    match dtype {
        DType::F32x32 => {
            for (t, x) in x.iter_mut().enumerate() {
                let lane = floats(t, 4);
                *x = Words(array::from_fn(|k| lane.word(k))).floats::<H>();
            }
            x
        }
        DType::F16x32 => {
            for (t, x) in x.iter_mut().enumerate() {
                let lane = floats(t, 2);
                *x = Words(array::from_fn(|k| lane.half(0, k).to_bits())).floats::<H>();
            }
            x
        }
        DType::BF16x32 => {
            for (t, x) in x.iter_mut().enumerate() {
                let lane = floats(t, 2);
                // Each is the high half of an f32.
                *x = Words(array::from_fn(|k| lane.word(k / 2) >> (k % 2 * 16) << 16)).floats::<H>();
            }
            x
        }
        DType::Q8_0x32 => {
            let row = quants!(Q8_0x32);
            row.quants::<8>().scaled::<H>(128, row.f16_scales::<H>())
        }
        DType::Q4_0x32 => {
            let row = quants!(Q4_0x32);
            row.quants::<4>().scaled::<H>(8, row.f16_scales::<H>())
        }
        DType::Q5_0x32 => {
            let row = quants!(Q5_0x32);
            row.quants::<5>().scaled::<H>(16, row.f16_scales::<H>())
        }
        DType::Q4_1x32 => {
            let row = quants!(Q4_1x32);
            row.plus_min::<H>(&row.quants::<4>())
        }
        DType::Q5_1x32 => {
            let row = quants!(Q5_1x32);
            row.plus_min::<H>(&row.quants::<5>())
        }
        DType::IQ4NLx32 => {
            let row = quants!(IQ4NLx32);
            row.quants::<4>().looked_up::<H>(row.f16_scales::<H>())
        }
        DType::MXFP4x32 => {
            let row = quants!(MXFP4x32);
            let levels = row.quants::<4>();
            for (t, x) in x.iter_mut().enumerate() {
                let scale = power_of_two(row.scale(t));
                let level = |k: usize| MXFP4[usize::from(levels.0[t][k / 4].to_le_bytes()[k % 4] & 15)];
                *x = Words(array::from_fn(|k| (f32::from(level(k)) * scale).to_bits())).floats::<H>();
            }
            x
        }
        DType::Q1_0x32 => {
            let row = quants!(Q1_0x32);
            // 0 and 2, of which 1 is taken away.
            row.quants::<1>().doubled().scaled::<H>(1, row.block_scales::<H>())
        }
        DType::Q2_0x32 => {
            let row = quants!(Q2_0x32);
            row.quants::<2>().scaled::<H>(1, row.block_scales::<H>())
        }
        DType::Q2Kx32 => {
            let row = quants!(Q2Kx32);
            let (d, dmin, mut mins) = (row.d(), row.dmin(), x);
            // A scale and a min per 16 values, in the two nibbles of a byte.
            for (t, (scale, min)) in x.iter_mut().zip(&mut mins).enumerate() {
                *scale = by_half::<H>(row.scales(t).map(|both| d * f32::from(both & 15)));
                *min = by_half::<H>(row.scales(t).map(|both| dmin * f32::from(both >> 4)));
            }
            less::<H>(row.quants::<2>().scaled::<H>(0, x), mins)
        }
        DType::Q3Kx32 => {
            let row = quants!(Q3Kx32);
            row.quants::<3>().scaled::<H>(4, row.signed_scales::<H>())
        }
        DType::Q4Kx32 => {
            let row = quants!(Q4Kx32);
            row.less_min::<H>(&row.quants::<4>())
        }
        DType::Q5Kx32 => {
            let row = quants!(Q5Kx32);
            row.less_min::<H>(&row.quants::<5>())
        }
        DType::Q6Kx32 => {
            let row = quants!(Q6Kx32);
            row.quants::<6>().scaled::<H>(32, row.signed_scales::<H>())
        }
        DType::IQ4XSx32 => {
            let row = quants!(IQ4XSx32);
            let d = row.d();
            for (t, scale) in x.iter_mut().enumerate() {
                *scale = H::splat(d * f32::from(row.scale(t) as i8));
            }
            row.quants::<4>().looked_up::<H>(x)
        }
        // The caller's promise excludes them.
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act | DType::Q8_0 => x,
        DType::Q8_0Cache | DType::Q4RCache => x,
    }
}
