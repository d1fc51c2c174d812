//! Rotated 4-bit caches: codes of a normal distribution, a scale per head and position, and what keys share.
//!
//! A vector is [rotated](super::rotate), so that whatever it was like its coordinates are about normally
//! distributed, with the same deviation. Each becomes the nearest of sixteen levels that are best for that
//! distribution ([`Q4_R`]), times a scale, which is the best of several for this vector (`Rotated::fit`).
//!
//! The keys of a head have much in common: in many models, two thirds of their squares are those of their
//! mean. What is common to all of them changes no weight, but costs all of them precision. So a key is held
//! as a share of its *reference*, which is the first key of its strip as that is held, and what is left, in
//! codes. The scores that a query has with what is left become those of the keys by adding shares of the
//! reference's score, which is in the same tile. A strip needs no other one, and its first key is there
//! before the others, so that the bits do not depend on how a text came in steps. What codes are off along
//! the [axis](super::axis) of the head is then corrected.
//!
//! Nothing is rotated back but the output. A product of two vectors is that of the rotated ones, so queries
//! are rotated, once per step, in place of all keys; and a sum of rotated values is the rotated sum. (Zandieh
//! et al., "TurboQuant", arXiv 2504.19874, without its second stage, which makes attention worse.)

use hexflash_abi::dtype::{Q4_R, Q4_R_SHARES, Q4_R_STEPS, TILE_K};
use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::{DType, VECTOR_BYTES};

use super::axis::Axis;
use super::cache_format::{CacheFormat, CachePlace, ValueSums};
use super::codes::{self, Codes};
use super::products::add_pair;
use super::products::{Halves, Pairs, Products, Turned};
use super::rotation::{rotate, rotate_back};
use crate::dma::Transfer;
use crate::hvx::{HalfSums, Hvx, LANES, Numbers, VectorPtr, math};
use crate::row::{Row, RowMut};

pub(super) struct Q4R;

/// Vectors of a tile's codes.
const TILE_VECTORS: usize = TILE_K / 8;
const TILE_BYTES: usize = TILE_VECTORS * VECTOR_BYTES;
const _: () = assert!(codes::strip_bytes(DType::Q4RCache, TILE_K) == TILE_BYTES + VECTOR_BYTES);
/// Where a tile has code j of a lane: the byte, and how far it is shifted there.
const fn place_of(j: usize) -> (usize, usize) {
    (j / 8 * VECTOR_BYTES + j % 2 * 2 + j % 4 / 2, j % 8 / 4 * 4)
}

/// The levels, by code.
static LEVELS: Numbers = Numbers::new(Q4_R);

/// The levels, by code, as floats.
static SINGLE_LEVELS: [f32; Q4_R.len()] = {
    let (mut levels, mut code) = ([0.0; Q4_R.len()], 0);
    while code < levels.len() {
        levels[code] = Q4_R[code] as f32;
        code += 1;
    }
    levels
};

/// The part of a key's word that has its scale.
const SCALE_MASK: i32 = !0xffff;

/// Sizes of levels: half of them are negative.
const SIZES: usize = Q4_R.len() / 2;

/// The unit of the levels: 127 stands for so many deviations.
const LARGEST: f32 = 2.7326;

/// Deviations that are tried, in units of the vector's own. Few coordinates are never quite like a normal
/// distribution, so that for most vectors levels somewhat closer together or farther apart are better.
const SPREADS: [f32; 6] = [0.84, 0.91, 0.98, 1.06, 1.15, 1.25];

/// How a vector's codes were chosen: see [`Rotated::fit`].
#[derive(Clone, Copy)]
struct Chosen<H: Hvx> {
    unit: H::F,
    scale: f32,
}

/// A vector, rotated.
#[repr(C, align(128))]
pub(super) struct Rotated([f32; MAX_HEAD as usize]);

impl Rotated {
    pub const NONE: Self = Self([0.0; MAX_HEAD as usize]);

    /// Of a row whose length is a multiple of 32.
    #[inline(always)]
    fn of<H: Hvx>(x: Row<'_>) -> Self {
        let mut rotated = Self::NONE;
        for v in 0..x.whole() {
            rotated.set::<H>(v, x.full::<H>(v));
        }
        rotated.rotate::<H>(x.len());
        rotated
    }

    /// Of the sum of rows of one length, which is a multiple of 32.
    #[inline(always)]
    pub fn sum_of<'q, H: Hvx>(rows: impl Iterator<Item = Row<'q>>) -> Self {
        let (mut sum, mut len) = (Self::NONE, 0);
        for x in rows {
            len = x.len();
            for v in 0..x.whole() {
                sum.set::<H>(v, H::add(sum.vector::<H>(v), x.full::<H>(v)));
            }
        }
        sum.rotate::<H>(len);
        sum
    }

    /// Rotates the first `len` floats, which are whole vectors.
    #[inline(always)]
    fn rotate<H: Hvx>(&mut self, len: usize) {
        assert!(len <= self.0.len() && len.is_multiple_of(LANES));
        // SAFETY: the array has at least so many floats, which are a multiple of 32, by the line above.
        unsafe { rotate::<H>(self.0.as_mut_ptr(), len) };
    }

    #[inline(always)]
    pub fn vector<H: Hvx>(&self, v: usize) -> H::F {
        // SAFETY: a slice of 32 floats is 128 bytes.
        unsafe { H::load(self.0[v * LANES..][..LANES].as_ptr()) }
    }

    #[inline(always)]
    fn set<H: Hvx>(&mut self, v: usize, x: H::F) {
        // SAFETY: a slice of 32 floats is 128 bytes.
        unsafe { H::store(self.0[v * LANES..][..LANES].as_mut_ptr(), x) };
    }

    /// The levels of the reference of a strip.
    ///
    /// # Safety
    /// The strip has so many tiles and is valid for reading them.
    #[inline(always)]
    unsafe fn reference(strip: *const u8, tiles: usize) -> Self {
        let mut levels = Self::NONE;
        for (t, levels) in levels.0.as_chunks_mut::<TILE_K>().0.iter_mut().enumerate().take(tiles) {
            for (i, four) in levels.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                // SAFETY: this is one of the strip's tiles (the caller's contract), 4 vectors, the first word
                // of each of which has eight codes of the first position, four in the low nibbles.
                let word = unsafe {
                    strip.add(t * TILE_BYTES + i / 2 * VECTOR_BYTES).cast::<u32>().read() >> (i % 2 * 4)
                };
                let level = |shift: u32| SINGLE_LEVELS[(word >> shift & 0xf) as usize];
                *four = [level(0), level(16), level(8), level(24)];
            }
        }
        levels
    }

    /// Takes away the share of the reference that leaves least, of the first `n` vectors; which share, in
    /// parts of [`Q4_R_SHARES`].
    ///
    /// # Safety
    /// 1. The strip has `n` tiles and a vector of scales behind them, and is valid for reading them.
    /// 2. The axis, if there is one, is that of its head, which this worker alone has claimed.
    #[inline(always)]
    unsafe fn part_from_reference<H: Hvx>(
        &mut self,
        strip: *const u8,
        n: usize,
        axis: Option<Axis<'_>>,
    ) -> i8 {
        // SAFETY: the strip has these tiles, and behind them the word of its first position, which is aligned
        // (the caller's contract, point 1).
        let (mut reference, word) =
            unsafe { (Self::reference(strip, n), strip.add(n * TILE_BYTES).cast::<i32>().read()) };
        let scale = f32::from_bits((word & SCALE_MASK) as u32);
        if let Some(axis) = axis {
            let steps = H::splat(f32::from(word as i8) * (1.0 / Q4_R_STEPS));
            for v in 0..n {
                // SAFETY: `v` is a vector of the head's rows, which have `n`, and only this worker writes to
                // the head (the caller's contract, points 1 and 2).
                let along = H::mul(steps, unsafe { axis.vector::<H>(v) });
                reference.set::<H>(v, H::add(reference.vector::<H>(v), along));
            }
        }
        let [mut product, mut power] = [H::splat(0.0); 2];
        for v in 0..n {
            let (x, level) = (self.vector::<H>(v), reference.vector::<H>(v));
            product = H::add(product, H::mul(x, level));
            power = H::add(power, H::mul(level, level));
        }
        // The reference is these levels times the scale.
        let power = H::splat(scale * H::sum(power));
        let share = H::div(H::splat(Q4_R_SHARES * H::sum(product)), power);
        // No share of a reference that is zero, or is none: it was not finite.
        let share = H::select_gt(power, H::splat(0.0), share, H::splat(0.0));
        let share = H::max(H::min(share, H::splat(127.0)), H::splat(-127.0));
        let share = H::max_lane(H::to_float(H::to_int(share)));
        if share != 0.0 {
            let factor = H::splat(share * (1.0 / Q4_R_SHARES) * scale);
            for v in 0..n {
                self.set::<H>(v, H::sub(self.vector::<H>(v), H::mul(factor, reference.vector::<H>(v))));
            }
        }
        share as i8
    }

    /// What the levels are to be divided by, and multiplied with again, for the least square error of the
    /// first `n` vectors: the best of [`SPREADS`], with the factor that is best for the levels it chooses.
    /// Where the sum of the squares is infinite or NaN, the factor is NaN on any processor.
    #[inline(always)]
    fn fit<H: Hvx>(&self, n: usize) -> (H::F, f32) {
        let mut squares = H::splat(0.0);
        for v in 0..n {
            let x = self.vector::<H>(v);
            squares = H::add(squares, H::mul(x, x));
        }
        let squares = H::sum(squares);
        // By floats: what `Hvx::rsqrt` keeps in qfloat would be moved out of the loops, and to the stack,
        // which from v79 on it does not survive.
        let mean = H::splat(squares / (n * LANES) as f32);
        let own = H::mul(math::rsqrt::<H>(mean), H::splat(127.0 / LARGEST));
        let own = H::splat(H::max_lane(own));
        let [mut unit, mut scale, mut most] = [H::splat(0.0); 3];
        for spread in SPREADS {
            let tried = H::mul(own, H::splat(1.0 / spread));
            let [mut product, mut power] = [H::splat(0.0); 2];
            for v in 0..n {
                let size = math::abs::<H>(self.vector::<H>(v));
                let level = level::<H>(H::mul(size, tried));
                product = H::add(product, H::mul(size, level));
                power = H::add(power, H::mul(level, level));
            }
            let product = H::splat(H::sum(product));
            let factor = H::div(product, H::splat(H::sum(power)));
            // What the error is smaller than the vector, in squares.
            let explained = H::mul(product, factor);
            unit = H::select_gt(explained, most, tried, unit);
            scale = H::select_gt(explained, most, factor, scale);
            most = H::select_gt(explained, most, explained, most);
        }
        (unit, if squares < f32::INFINITY { H::max_lane(scale) } else { f32::NAN })
    }

    /// How many steps along the axis bring what the codes of the first `n` vectors hold nearest to these.
    ///
    /// # Safety
    /// The axis is that of the key's head, which this worker alone has claimed and whose rows have `n`
    /// vectors.
    #[inline(always)]
    unsafe fn steps<H: Hvx>(&self, n: usize, chosen: Chosen<H>, axis: Axis<'_>) -> i8 {
        let scale = H::splat(chosen.scale);
        let [mut product, mut power] = [H::splat(0.0); 2];
        for v in 0..n {
            let x = H::mul(self.vector::<H>(v), chosen.unit);
            let size = level::<H>(math::abs::<H>(x));
            let held = H::select_gt(H::splat(0.0), x, H::sub(H::splat(0.0), size), size);
            let rest = H::sub(self.vector::<H>(v), H::mul(scale, held));
            // SAFETY: `v` is a vector of the head's rows, and only this worker writes to the head (the
            // caller's contract).
            let axis = unsafe { axis.vector::<H>(v) };
            product = H::add(product, H::mul(rest, axis));
            power = H::add(power, H::mul(axis, axis));
        }
        let step = H::splat(H::sum(power) * (chosen.scale * (1.0 / Q4_R_STEPS)));
        let steps = H::div(H::splat(H::sum(product)), step);
        // None along an axis that is zero, and none of a key that is zero or not finite.
        let steps = H::select_gt(step, H::splat(0.0), steps, H::splat(0.0));
        let steps = H::max(H::min(steps, H::splat(127.0)), H::splat(-127.0));
        H::max_lane(H::to_float(H::to_int(steps))) as i8
    }
}

/// Between the levels of the sizes `i - 1` and `i`.
#[inline(always)]
fn border<H: Hvx>(i: usize) -> H::F {
    H::splat((f32::from(Q4_R[i - 1]) + f32::from(Q4_R[i])) / 2.0)
}

/// The levels next to sizes, in units of the levels.
#[inline(always)]
fn level<H: Hvx>(size: H::F) -> H::F {
    let mut level = H::splat(f32::from(Q4_R[0]));
    for (i, &next) in Q4_R.iter().enumerate().take(SIZES).skip(1) {
        level = H::select_gt(size, border::<H>(i), H::splat(f32::from(next)), level);
    }
    level
}

/// The codes of coordinates, in units of the levels.
#[inline(always)]
fn nearest<H: Hvx>(x: H::F) -> H::I {
    let (size, mut code) = (math::abs::<H>(x), H::splat(0.0));
    for i in 1..SIZES {
        code = H::select_gt(size, border::<H>(i), H::splat(i as f32), code);
    }
    let sign = H::select_gt(H::splat(0.0), x, H::splat(8.0), H::splat(0.0));
    H::to_int(H::add_ieee(code, sign))
}

/// Quantizes a rotated vector of so many vectors of floats; `write` writes the codes of a tile, of which it
/// gets the first byte. What it comes to is how they were chosen.
macro_rules! store {
    ($place:ident, $x:ident, $vectors:ident, |$tile:ident, $codes:ident| $write:expr) => {{
        let (unit, scale) = $x.fit::<H>($vectors);
        for t in 0..$vectors {
            let $codes = nearest::<H>(H::mul($x.vector::<H>(t), unit));
            let $tile = $place.strip().wrapping_add(t * TILE_BYTES);
            $write;
        }
        Chosen::<H> { unit, scale }
    }};
}

/// A scale to the nearest number whose lower half is zero. (NaN stays NaN: it has the highest bit of its
/// mantissa.)
#[inline(always)]
fn short(scale: f32) -> f32 {
    f32::from_bits(((scale.to_bits() as i32 + (1 << 15)) & SCALE_MASK) as u32)
}

/// The word of a key behind the tiles.
#[inline(always)]
fn word_of(scale: f32, share: i8, steps: i8) -> i32 {
    scale.to_bits() as i32 | i32::from(share as u8) << 8 | i32::from(steps as u8)
}

/// The word of a position behind the tiles of a strip.
#[inline(always)]
fn tail(place: CachePlace<'_>, vectors: usize) -> *mut f32 {
    place.strip().wrapping_add(vectors * TILE_BYTES + place.lane() * 4).cast()
}

impl CacheFormat for Q4R {
    fn key_tile(d: usize) -> usize {
        codes::strip_bytes(DType::Q4RCache, d)
    }

    fn value_tile(dv: usize) -> usize {
        codes::strip_bytes(DType::Q4RCache, dv)
    }

    fn value_vectors(dv: usize) -> usize {
        codes::value_vectors(dv)
    }

    #[inline(always)]
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        let (vectors, mut x, axis) = (x.whole(), Rotated::of::<H>(x), Axis::of(place));
        let share = if place.lane() == 0 {
            0
        } else {
            // SAFETY: the strip has a tile per vector of x and a vector of scales, because the cache's rows
            // are as long as x (the caller's contract, point 1). This worker alone has claimed the head
            // (point 2).
            unsafe { x.part_from_reference::<H>(place.strip(), vectors, axis) }
        };
        // Four bytes are a word, in the lane of the position.
        let chosen = store!(place, x, vectors, |tile, codes| for (v, codes) in
            Codes::of::<H>(codes).0.as_chunks::<8>().0.iter().enumerate()
        {
            let byte = |j: usize| codes[j] | codes[4 + j] << 4;
            let at = v * VECTOR_BYTES + place.lane() * 4;
            // SAFETY: the strip has this tile (the caller's contract, point 1), 4 vectors of which `v` is
            // one. The word is aligned, and this worker alone has claimed the head (point 2).
            unsafe { tile.add(at).cast::<[u8; 4]>().write([byte(0), byte(2), byte(1), byte(3)]) };
        });
        let chosen = Chosen { scale: short(chosen.scale), ..chosen };
        // SAFETY: the axis is that of the place's head, which this worker alone has claimed, and whose rows
        // are as long as x (the caller's contract, points 1 and 2).
        let steps = axis.map_or(0, |axis| unsafe { x.steps(vectors, chosen, axis) });
        // SAFETY: behind its tiles the strip has a vector of scales, because the cache's rows are as long as
        // x (the caller's contract, point 1), of which this is the word of the lane. It is aligned, and this
        // worker alone has claimed the head (point 2).
        unsafe { tail(place, vectors).cast::<i32>().write(word_of(chosen.scale, share, steps)) };
        chosen.scale.is_finite()
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // Each dimension is a word, of which the position has half a byte; what is beside it stays.
        let (byte, shift) = place_of(place.lane());
        let (v, shift) = (byte / VECTOR_BYTES, byte % VECTOR_BYTES * 8 + shift);
        let (vectors, x) = (x.whole(), Rotated::of::<H>(x));
        let Chosen { scale, .. } = store!(place, x, vectors, |tile, codes| {
            let codes = H::mul_i(codes, H::splat_i(1 << shift));
            // SAFETY: the strip has this tile (the caller's contract, point 1), a vector per eight positions
            // with a word per dimension. This worker alone has claimed the head (point 2).
            unsafe {
                let at = tile.add(v * VECTOR_BYTES);
                let beside = H::and_i(H::words(H::load_b(at)), H::splat_i(!(0xf << shift)));
                H::store_b(at, H::bytes(H::or_i(beside, codes)));
            }
        });
        // SAFETY: behind its tiles the strip has a vector of scales, because the cache's rows are as long as
        // x (the caller's contract, point 1), of which this is the word of the lane. It is aligned, and this
        // worker alone has claimed the head (point 2).
        unsafe { tail(place, vectors).write(scale) };
        scale.is_finite()
    }

    #[inline(always)]
    fn transfer_values(place: CachePlace<'_>, _: usize, slot: *mut u8) -> Transfer {
        codes::transfer_strip(place, Self::value_tile(place.cache.ne[0]), slot)
    }

    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize) {
        for t in 0..d / TILE_K {
            // SAFETY: the staged strip has the tiles of all d dimensions, and `wide` 32 vectors for each (the
            // caller's contract).
            unsafe { widen_tile::<H>(tile.skip(t * TILE_VECTORS), wide.skip(t * TILE_K)) };
        }
    }

    #[inline(always)]
    unsafe fn complete_scores<H: Hvx, const R: usize>(
        tile: VectorPtr,
        d: usize,
        steps: [f32; R],
        scores: &mut [H::F; R],
    ) {
        // SAFETY: the staged strip has a vector of scales behind the tiles of all d dimensions (the caller's
        // contract).
        let words = H::words(unsafe { tile.load_b::<H>(d / TILE_K * TILE_VECTORS) });
        let scales = H::from_bits(H::and_i(words, H::splat_i(SCALE_MASK)));
        let shares = H::to_float(H::sar_i::<24>(H::shl_i::<16>(words)));
        let shares = H::mul(shares, H::splat(1.0 / Q4_R_SHARES));
        let along = H::to_float(H::sar_i::<24>(H::shl_i::<24>(words)));
        for (x, step) in scores.iter_mut().zip(steps) {
            *x = scaled::<H>(H::add(*x, H::mul(along, H::splat(step))), scales);
            *x = H::add(*x, H::mul(shares, H::lane(&H::lanes(*x), 0)));
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, _: usize, _: usize) {
        // SAFETY: the staged strip has the tiles of all dv dimensions, like those of keys, and `wide` the
        // vectors of 32 positions for each 32 dimensions (the caller's contract).
        unsafe { Self::widen_keys::<H>(tile, wide, dv) };
    }
}

impl Q4R {
    /// As [`Format::scales_of_rotated`](super::Format::scales_of_rotated).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn scales_of_values<H: Hvx>(tile: VectorPtr, dv: usize) -> H::F {
        // SAFETY: the staged strip has a vector of scales behind the tiles of all dv dimensions (the caller's
        // contract).
        unsafe { tile.load::<H>(dv / TILE_K * TILE_VECTORS) }
    }

    /// As [`Format::finish`](super::Format::finish).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn finish<H: Hvx>(sums: ValueSums, factor: H::F, y: &mut RowMut<'_>) {
        // SAFETY: the sums are the worker's own and may be overwritten. They have as many floats as y, in
        // whole vectors, because rotated rows do (the caller's contract).
        unsafe {
            rotate_back::<H>(sums.first.get().cast(), y.len());
            codes::finish::<H>(sums, factor, y);
        }
    }
}

/// What was made of levels, times their scales; infinity where a scale is not finite.
#[inline(always)]
fn scaled<H: Hvx>(x: H::F, scales: H::F) -> H::F {
    math::or_infinity::<H>(scales, H::mul(x, scales))
}

/// The levels of a tile of codes as 32 vectors of floats.
///
/// # Safety
/// `tile` is valid for reading a tile, and `wide` for writing these vectors.
#[inline(always)]
unsafe fn widen_tile<H: Hvx>(tile: VectorPtr, wide: VectorPtr) {
    for v in 0..TILE_VECTORS {
        // SAFETY: `v` is one of the tile's vectors (the caller's contract).
        let codes = unsafe { tile.load_b::<H>(v) };
        let low = H::lookup_floats(codes, &LEVELS);
        let high = H::lookup_floats(H::shr_b::<4>(codes), &LEVELS);
        for (first, [b0, b1, b2, b3]) in [(8 * v, low), (8 * v + 4, high)] {
            // SAFETY: these are four of the eight vectors of vector v, and all are below 32 (the caller's
            // contract).
            unsafe {
                wide.store::<H>(first, b0);
                wide.store::<H>(first + 1, b2);
                wide.store::<H>(first + 2, b1);
                wide.store::<H>(first + 3, b3);
            }
        }
    }
}

/// A strip as products read it: without its scales.
#[derive(Clone, Copy)]
pub(in super::super) struct Levels(pub VectorPtr);

impl<H: Hvx> Products<H> for Levels {
    type Sums = HalfSums<H>;
    const DIMS: usize = 2 * TILE_K;
    const WHOLE: bool = <Halves as Pairs<H>>::WHOLE;

    #[inline(always)]
    fn none() -> HalfSums<H> {
        H::no_half_sums()
    }

    #[inline(always)]
    unsafe fn add_vector<const R: usize>(self, sums: &mut [HalfSums<H>; R], v: usize, q: &[H::Lanes; R]) {
        // SAFETY: a vector of a query has the dimensions of two tiles, which the strip has (the caller's
        // contract).
        unsafe {
            self.add_tile::<H, R>(sums, 2 * v, q, 0);
            self.add_tile::<H, R>(sums, 2 * v + 1, q, TILE_K / 2);
        }
    }

    #[inline(always)]
    unsafe fn add_first<const R: usize>(
        self,
        sums: &mut [HalfSums<H>; R],
        v: usize,
        _: usize,
        q: &[H::Lanes; R],
    ) {
        // SAFETY: the strip has the first dimensions of the vector (the caller's contract). Rotated vectors
        // have whole tiles, so that these are all of one tile.
        unsafe { self.add_tile::<H, R>(sums, 2 * v, q, 0) };
    }

    #[inline(always)]
    fn end(sums: HalfSums<H>) -> (H::F, H::F) {
        H::end_half_sums(sums)
    }
}

impl<H: Hvx> Turned<H> for Levels {
    #[inline(always)]
    fn lanes(x: H::B) -> H::Lanes {
        H::lanes(H::from_bits(H::words(H::low_halves([H::words(x), H::words(x)]))))
    }

    #[inline(always)]
    unsafe fn add_positions<const R: usize>(
        self,
        sums: &mut [HalfSums<H>; R],
        t: usize,
        weights: &[H::Lanes; R],
    ) {
        // SAFETY: the strip has tile `t` of 32 dimensions (the caller's contract).
        unsafe { self.add_tile::<H, R>(sums, t, weights, 0) };
    }
}

impl Levels {
    /// The sums with the 16 pairs of a tile, times words of q from number `first` on.
    ///
    /// # Safety
    /// The strip has tile `t`.
    #[inline(always)]
    unsafe fn add_tile<H: Hvx, const R: usize>(
        self,
        sums: &mut [HalfSums<H>; R],
        t: usize,
        q: &[H::Lanes; R],
        first: usize,
    ) {
        for v in 0..TILE_VECTORS {
            // SAFETY: `v` is a vector of the tile (the caller's contract).
            let codes = unsafe { self.0.load_b::<H>(t * TILE_VECTORS + v) };
            let low = H::lookup_f16(codes, &LEVELS);
            let high = H::lookup_f16(H::shr_b::<4>(codes), &LEVELS);
            add_pair::<H, Halves, R, true>(sums, low[0], q, first + 4 * v);
            add_pair::<H, Halves, R, true>(sums, low[1], q, first + 4 * v + 1);
            add_pair::<H, Halves, R, true>(sums, high[0], q, first + 4 * v + 2);
            add_pair::<H, Halves, R, true>(sums, high[1], q, first + 4 * v + 3);
            // With more than one vector at a time, LLVM 22 spills products to the stack.
            H::settle();
        }
    }
}
