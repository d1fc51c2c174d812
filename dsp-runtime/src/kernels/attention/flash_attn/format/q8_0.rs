//! Q8_0 caches: i8 codes, and an f16 scale per 32 dimensions of a position.
//!
//! The numbers are those of ggml's `quantize_row_q8_0` and of QUANTIZE: d = max|x| / 127 rounded to f16, code
//! = x * (127 / max|x|) to the nearest integer, ties to even.

use half::f16;
use hexflash_abi::dtype::TILE_K;
use hexflash_abi::{DType, VECTOR_BYTES};

use super::cache_format::{CacheFormat, CachePlace, ValueSums};
use super::codes::{self, Codes, InLanes, PerVector, spread};
use crate::dma::Transfer;
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::row::{Row, RowMut};

pub(super) struct Q8_0;

/// Vectors of a tile's codes, and of a group: two tiles and their scales.
pub(in crate::kernels::attention::flash_attn) const TILE_VECTORS: usize = TILE_K / 4;
pub(in crate::kernels::attention::flash_attn) const SCALES_AT: usize = 2 * TILE_VECTORS;
pub(in crate::kernels::attention::flash_attn) const GROUP_VECTORS: usize = SCALES_AT + 1;
const _: () = assert!(codes::strip_bytes(DType::Q8_0Cache, 2 * TILE_K) == GROUP_VECTORS * VECTOR_BYTES);

/// First vector of the group of a tile, and of the tile's codes.
pub(in crate::kernels::attention::flash_attn) const fn tile_at(tile: usize) -> (usize, usize) {
    let group = tile / 2 * GROUP_VECTORS;
    (group, group + tile % 2 * TILE_VECTORS)
}

/// 32 dimensions as codes, and the bits of their scale.
#[inline(always)]
fn quantize<H: Hvx>(x: H::F) -> (Codes, u16) {
    // A maximum passes over NaN, but it keeps infinity.
    let max = H::splat(H::max_lane(math::or_infinity::<H>(x, math::abs::<H>(x))));
    // Of a block so small that 127 / max overflows nothing is left: its scale is zero in f16.
    let inverse = H::div(H::splat(127.0), max);
    let inverse = H::select_gt(H::splat(f32::INFINITY), inverse, inverse, H::splat(0.0));
    let scaled = H::mul(x, inverse);
    // What is no number, because its block is not finite, becomes zero.
    let codes = H::to_int(H::select_gt(H::splat(128.0), scaled, scaled, H::splat(0.0)));
    let halves = math::f32_to_f16_bits::<H>(H::div(max, H::splat(127.0)));
    let mut scales = [0; LANES];
    // SAFETY: `scales` is an array of 32 halves.
    unsafe { H::store_low_halves(scales.as_mut_ptr(), halves) };
    let scale = if H::max_lane(max) < f32::INFINITY { scales[0] } else { f16::NAN.to_bits() };
    (Codes::of::<H>(codes), scale)
}

/// Quantizes a row; `tile_of` writes the codes of a tile, of which it gets the first byte.
macro_rules! store {
    ($place:ident, $x:ident, |$tile:ident, $codes:ident| $write:expr) => {{
        let (strip, mut finite) = ($place.strip(), true);
        for t in 0..$x.vectors() {
            let ($codes, scale) = quantize::<H>($x.vector::<H>(t));
            let (group, at) = tile_at(t);
            let $tile = strip.wrapping_add(at * VECTOR_BYTES);
            $write;
            let at = (group + SCALES_AT) * VECTOR_BYTES + $place.lane() * 4 + t % 2 * 2;
            // SAFETY: the strip has the group of every tile of the row (the caller's contract, point 1), and
            // a group ends with a vector of scales, of which this is the half of the lane and the tile. It is
            // aligned, and this worker alone has claimed the head (point 2).
            unsafe { strip.add(at).cast::<u16>().write(scale) };
            finite &= f16::from_bits(scale).is_finite();
        }
        finite
    }};
}

impl CacheFormat for Q8_0 {
    fn key_tile(d: usize) -> usize {
        codes::strip_bytes(DType::Q8_0Cache, d)
    }

    fn value_tile(dv: usize) -> usize {
        codes::strip_bytes(DType::Q8_0Cache, dv)
    }

    fn value_vectors(dv: usize) -> usize {
        codes::value_vectors(dv)
    }

    #[inline(always)]
    unsafe fn store_key<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // Four dimensions are a word, in the lane of the position.
        store!(place, x, |tile, codes| for (v, word) in codes.0.as_chunks().0.iter().enumerate() {
            let at = v * VECTOR_BYTES + place.lane() * 4;
            // SAFETY: the strip has this tile (the caller's contract, point 1), 8 vectors of which `v` is
            // one. The word is aligned, and this worker alone has claimed the head (point 2).
            unsafe { tile.add(at).cast::<[u8; 4]>().write(*word) };
        })
    }

    #[inline(always)]
    unsafe fn store_value<H: Hvx>(place: CachePlace<'_>, x: Row<'_>) -> bool {
        // Each dimension is a word, of which the position has a byte.
        store!(place, x, |tile, codes| for (i, code) in codes.0.iter().enumerate() {
            let at = place.lane() / 4 * VECTOR_BYTES + 4 * i + place.lane() % 4;
            // SAFETY: the strip has this tile (the caller's contract, point 1), a vector per four positions
            // with a word per dimension. This worker alone has claimed the head (point 2).
            unsafe { tile.add(at).write(*code) };
        })
    }

    #[inline(always)]
    fn transfer_values(place: CachePlace<'_>, _: usize, slot: *mut u8) -> Transfer {
        codes::transfer_strip(place, Self::value_tile(place.cache.ne[0]), slot)
    }

    #[inline(always)]
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize) {
        for t in 0..d.div_ceil(TILE_K) {
            let (group, at) = tile_at(t);
            // SAFETY: the staged strip has the tiles of all d dimensions and their scales, and `wide` 32
            // vectors for each tile (the caller's contract).
            unsafe {
                let scales = InLanes::<H>(scales::<H>(tile.skip(group), t));
                for v in 0..TILE_VECTORS {
                    spread::<H>(tile.load_b::<H>(at + v), &scales, 4 * v, wide.skip(t * TILE_K), 1);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize) {
        let vectors = codes::value_vectors(dv);
        for t in 0..dv.div_ceil(TILE_K) {
            let (group, at) = tile_at(t);
            // SAFETY: the staged strip has the tiles of all dv dimensions and their scales, and `wide` the
            // vectors of 32 positions, of which `t` is one each (the caller's contract).
            unsafe {
                let scales = PerVector::<H>(H::lanes(scales::<H>(tile.skip(group), t)));
                for v in from / 4..to.div_ceil(4) {
                    spread::<H>(tile.load_b::<H>(at + v), &scales, 4 * v, wide.skip(t), vectors);
                }
            }
        }
    }
}

impl Q8_0 {
    /// As [`Format::finish`](super::Format::finish).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn finish<H: Hvx>(sums: ValueSums, factor: H::F, y: &mut RowMut<'_>) {
        // SAFETY: the contract is the caller's.
        unsafe { codes::finish::<H>(sums, factor, y) }
    }
}

/// The scales of a tile, position by position.
///
/// # Safety
/// `group` is valid for reading a group.
#[inline(always)]
unsafe fn scales<H: Hvx>(group: VectorPtr, tile: usize) -> H::F {
    // SAFETY: a group ends with a vector of scales (the caller's contract).
    let (even, odd) = H::widen_f16(unsafe { group.load_b::<H>(SCALES_AT) });
    if tile.is_multiple_of(2) { even } else { odd }
}
