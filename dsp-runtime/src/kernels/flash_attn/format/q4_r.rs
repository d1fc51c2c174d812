//! Rotated 4-bit caches: codes of a normal distribution, and a scale per head and position.
//!
//! A vector is [rotated](super::rotate), so that whatever it was like its coordinates are about normally
//! distributed, with the same deviation. Each becomes the nearest of sixteen levels that are best for that
//! distribution ([`Q4_R`]). The scale is the one that gives the levels the length of the vector: s = |x| /
//! |levels|. (With the deviation in its place, vectors would come out too short, by a hundredth on average,
//! and all scores with them.)
//!
//! Nothing is rotated back but the output. A product of two vectors is that of the rotated ones, so queries
//! are rotated, once per step, in place of all keys; and a sum of rotated values is the rotated sum. (Zandieh
//! et al., "TurboQuant", arXiv 2504.19874, without its second stage, which makes attention worse.)

use hexflash_abi::dtype::{Q4_R, TILE_K, TILE_ROWS};
use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::{DType, VECTOR_BYTES};

use super::codes::{self, Codes, InLanes, PerVector, Scales, spread};
use super::{CacheFormat, Place, Sums, rotate, rotate_back};
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES, Lookup, math};
use crate::row::{Row, RowMut};

pub(super) struct Q4R;

/// Vectors of a tile's codes.
const TILE_VECTORS: usize = TILE_K / 8;
const TILE_BYTES: usize = TILE_VECTORS * VECTOR_BYTES;
const _: () = assert!(codes::strip_bytes(DType::Q4RCache, TILE_K) == TILE_BYTES + VECTOR_BYTES);
/// Codes in the low nibbles of a tile; the others are in the high ones.
const LOW: usize = TILE_ROWS / 2;

/// The levels, by code.
static LEVELS: Lookup = Lookup::new({
    let (mut levels, mut i) = ([0; Q4_R.len()], 0);
    while i < levels.len() {
        levels[i] = Q4_R[i] as u8;
        i += 1;
    }
    levels
});

/// The unit of the levels: 127 stands for so many deviations.
const LARGEST: f32 = 2.7326;

/// A vector, rotated.
#[repr(C, align(128))]
struct Rotated([f32; MAX_HEAD as usize]);

impl Rotated {
    /// Of a row whose length is a multiple of 32.
    #[inline(always)]
    fn of<H: Hvx>(x: Row<'_>) -> Self {
        let mut rotated = Self([0.0; MAX_HEAD as usize]);
        assert!(x.len() <= rotated.0.len());
        for v in 0..x.whole() {
            // SAFETY: `v` is a whole vector of x, which is no longer than the array, by the line above.
            unsafe { H::store(rotated.0.as_mut_ptr().add(v * LANES), x.full::<H>(v)) };
        }
        // SAFETY: the array has at least the floats of x, by the assertion above.
        unsafe { rotate::<H>(rotated.0.as_mut_ptr(), x.len()) };
        rotated
    }

    #[inline(always)]
    fn vector<H: Hvx>(&self, v: usize) -> H::F {
        // SAFETY: a slice of 32 floats is 128 bytes.
        unsafe { H::load(self.0[v * LANES..][..LANES].as_ptr()) }
    }

    /// The sum of the squares of the first `n` vectors.
    #[inline(always)]
    fn squares<H: Hvx>(&self, n: usize) -> H::F {
        let mut sum = H::splat(0.0);
        for v in 0..n {
            let x = self.vector::<H>(v);
            sum = H::add(sum, H::mul(x, x));
        }
        H::splat(H::sum(sum))
    }
}

/// The codes of coordinates, in units of the levels; and the squares of the levels.
#[inline(always)]
fn nearest<H: Hvx>(x: H::F) -> (Codes, H::F) {
    let size = H::from_bits(H::and_i(H::bits(x), H::splat_i(i32::MAX)));
    let (mut code, mut level) = (H::splat(0.0), H::splat(f32::from(Q4_R[0])));
    for i in 1..Q4_R.len() / 2 {
        let border = H::splat((f32::from(Q4_R[i - 1]) + f32::from(Q4_R[i])) / 2.0);
        code = H::select_gt(size, border, H::splat(i as f32), code);
        level = H::select_gt(size, border, H::splat(f32::from(Q4_R[i])), level);
    }
    let sign = H::select_gt(H::splat(0.0), x, H::splat(8.0), H::splat(0.0));
    (Codes::of::<H>(H::to_int(H::add_ieee(code, sign))), H::mul(level, level))
}

/// Quantizes a row; `write` writes the codes of a tile, of which it gets the first byte.
macro_rules! store {
    ($place:ident, $x:ident, |$tile:ident, $codes:ident| $write:expr) => {{
        let (strip, vectors, d) = ($place.strip(), $x.whole(), $x.len());
        let x = Rotated::of::<H>($x);
        let squares = x.squares::<H>(vectors);
        // To a deviation of 127 / LARGEST. (By floats: what `Hvx::rsqrt` keeps in qfloat would be moved out
        // of the loop over rows, and to the stack, which from v79 on it does not survive.)
        let mean = H::mul(squares, H::splat(1.0 / d as f32));
        let unit = H::mul(math::rsqrt::<H>(mean), H::splat(127.0 / LARGEST));
        let mut levels = H::splat(0.0);
        for t in 0..vectors {
            let ($codes, squares) = nearest::<H>(H::mul(x.vector::<H>(t), unit));
            levels = H::add(levels, squares);
            let $tile = strip.wrapping_add(t * TILE_BYTES);
            $write;
        }
        // |x| / |levels|: the root of the quotient of their squares.
        let quotient = H::div(squares, H::splat(H::sum(levels)));
        let scale = H::max_lane(H::mul(quotient, math::rsqrt::<H>(quotient)));
        // A sum of squares that is infinite or NaN makes the scale NaN on any processor.
        let scale = if H::max_lane(squares) < f32::INFINITY { scale } else { f32::NAN };
        let at = vectors * TILE_BYTES + $place.lane() * 4;
        // SAFETY: behind its tiles the strip has a vector of scales, because the cache's rows are as long as
        // x (the caller's contract, point 1), of which this is the word of the lane. It is aligned, and this
        // worker alone has claimed the head (point 2).
        unsafe { strip.add(at).cast::<f32>().write(scale) };
        scale.is_finite()
    }};
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
    unsafe fn store_key<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool {
        // Four bytes are a word, in the lane of the position.
        store!(place, x, |tile, codes| for v in 0..TILE_VECTORS {
            let byte = |b: usize| codes.0[4 * v + b] | codes.0[LOW + 4 * v + b] << 4;
            let at = v * VECTOR_BYTES + place.lane() * 4;
            // SAFETY: the strip has this tile (the caller's contract, point 1), 4 vectors of which `v` is
            // one. The word is aligned, and this worker alone has claimed the head (point 2).
            unsafe { tile.add(at).cast::<[u8; 4]>().write([byte(0), byte(1), byte(2), byte(3)]) };
        })
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool {
        // Each dimension is a word, of which the position has half a byte; its neighbour's stays.
        let (byte, shift) = (place.lane() % LOW, place.lane() / LOW * 4);
        store!(place, x, |tile, codes| for (i, code) in codes.0.iter().enumerate() {
            let at = byte / 4 * VECTOR_BYTES + 4 * i + byte % 4;
            // SAFETY: the strip has this tile (the caller's contract, point 1), a vector per eight positions
            // with a word per dimension. This worker alone has claimed the head (point 2).
            unsafe {
                let at = tile.add(at);
                at.write(at.read() & !(0xf << shift) | code << shift);
            }
        })
    }

    #[inline(always)]
    fn transfer_values(place: Place<'_>, _: usize, slot: *mut u8) -> Transfer {
        codes::transfer_strip(place, Self::value_tile(place.cache.ne[0]), slot)
    }

    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: *const u8, wide: *mut f32, d: usize) {
        let tiles = d / TILE_K;
        // SAFETY: the staged strip has the tiles of all d dimensions and a vector of scales behind them, and
        // `wide` 32 vectors for each tile (the caller's contract).
        unsafe {
            let scales = InLanes::<H>(H::load(tile.add(tiles * TILE_BYTES).cast()));
            for t in 0..tiles {
                widen_tile::<H>(tile.add(t * TILE_BYTES), &scales, wide.add(t * TILE_K * LANES), LANES);
            }
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: *const u8, wide: *mut f32, dv: usize, _: usize, _: usize) {
        let tiles = dv / TILE_K;
        // SAFETY: the staged strip has the tiles of all dv dimensions and a vector of scales behind them, and
        // `wide` the vectors of 32 positions, of which `t` is one each (the caller's contract).
        unsafe {
            let scales = PerVector::<H>(H::lanes(H::load(tile.add(tiles * TILE_BYTES).cast())));
            for t in 0..tiles {
                widen_tile::<H>(tile.add(t * TILE_BYTES), &scales, wide.add(t * LANES), tiles * LANES);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<H: Hvx>(sums: Sums, factor: H::F, y: &mut RowMut<'_>) {
        // SAFETY: the sums are the worker's own and may be overwritten. They have as many floats as y, in
        // whole vectors, because rotated rows do (the caller's contract).
        unsafe {
            rotate_back::<H>(sums.first, y.len());
            codes::finish::<H>(sums, factor, y);
        }
    }
}

/// A tile of codes as 32 vectors of floats, `stride` floats apart.
///
/// # Safety
/// `tile` is valid for reading a tile, and `wide` for writing these vectors.
#[inline(always)]
unsafe fn widen_tile<H: Hvx>(tile: *const u8, scales: &impl Scales<H>, wide: *mut f32, stride: usize) {
    for v in 0..TILE_VECTORS {
        // SAFETY: `v` is one of the tile's vectors, whose low nibbles are those of vectors 4v to 4v + 3, and
        // the high ones those of 16 more, all below 32 (the caller's contract).
        unsafe {
            let (low, high) = H::nibbles(H::load_b(tile.add(v * VECTOR_BYTES)));
            spread::<H>(H::lookup(low, &LEVELS), scales, 4 * v, wide, stride);
            spread::<H>(H::lookup(high, &LEVELS), scales, LOW + 4 * v, wide, stride);
        }
    }
}
