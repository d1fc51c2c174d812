//! How caches hold keys and values: one file per number format.
//!
//! A format says how a row is put into a cache, how much of a tile is staged in VTCM, and how a staged tile
//! becomes floats. From there on attention is the same for all of them. Keys and values may have different
//! formats: they meet in floats only. The choice is made tile by tile ([`Format`]), not in the inner loops.

mod axis;
mod codes;
mod f16;
mod f16_rows;
mod products;
mod q4_r;
pub(super) mod q8_0;
mod q8_0_rows;
mod rotation;

use hexflash_abi::dtype::TILE_K;
use hexflash_abi::{DType, ErrorCode, Fault, VECTOR_BYTES};

pub(super) use self::axis::Axis;
use self::f16::F16;
use self::f16_rows::F16Rows;
pub(super) use self::products::{ByPairs, Halves, Pairs, Products, Turned, Wide};
pub(super) use self::q4_r::Levels;
use self::q4_r::Q4R;
use self::q8_0::Q8_0;
use self::q8_0_rows::Q8_0Rows;
pub(super) use self::rotation::{rotate, rotate_back};
use super::TILE;
use crate::dma::Transfer;
use crate::hvx::{Hvx, VectorPtr};
use crate::memory::View;
use crate::row::{Row, RowMut};

/// Where a cache has a key or a value.
#[derive(Clone, Copy)]
pub(super) struct Place<'c> {
    pub cache: &'c View,
    pub position: usize,
    pub head: usize,
    /// The batch of the slot.
    pub entry: usize,
}

impl Place<'_> {
    /// The strip of the position, for tiled types.
    #[inline(always)]
    fn strip(&self) -> *mut u8 {
        self.cache.at([self.position / TILE, self.head, self.entry])
    }

    /// What brings `bytes` of each row up to position `to` to a tile at `slot` whose rows are `stride` apart:
    /// these rows and no others.
    #[inline(always)]
    fn rows(&self, to: usize, slot: *mut u8, bytes: usize, stride: usize) -> Transfer {
        Transfer {
            src: self.cache.at([self.position, self.head, self.entry]),
            dst: slot.wrapping_add(self.lane() * stride),
            row_bytes: bytes,
            rows: to - self.position,
            src_stride: self.cache.nb[1],
            dst_stride: stride,
        }
    }

    /// The position within its strip.
    #[inline(always)]
    fn lane(&self) -> usize {
        self.position % TILE
    }
}

/// The accumulators of a row of attention: sums of values, in the order of a format's floats.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub first: VectorPtr,
    pub vectors: usize,
}

/// A number format of caches.
pub(super) trait CacheFormat {
    /// Bytes of a tile of keys of width `d` in VTCM.
    fn key_tile(d: usize) -> usize;

    /// Bytes of a tile of values of width `dv` in VTCM.
    fn value_tile(dv: usize) -> usize;

    /// Vectors of floats of a value, an even number. What they have beyond the value's own means nothing.
    fn value_vectors(dv: usize) -> usize;

    /// Writes a key, rounded; whether what is written is finite.
    ///
    /// # Safety
    /// 1. The cache is of this format and has the place's head; `x` is as long as its rows.
    /// 2. This worker alone has claimed the head of the entry.
    unsafe fn store_key<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool;

    /// Writes a value, as [`store_key`](Self::store_key) writes a key.
    ///
    /// # Safety
    /// As there.
    unsafe fn store_value<H: Hvx>(place: Place<'_>, x: Row<'_>) -> bool;

    /// What brings at least the keys at `place.position..to`, which are in one tile, to a tile at `slot`: the
    /// whole strip, where there are strips.
    #[inline(always)]
    fn transfer_keys(place: Place<'_>, _to: usize, slot: *mut u8) -> Transfer {
        Transfer::linear(place.strip(), slot, Self::key_tile(place.cache.ne[0]))
    }

    /// What brings at least the values at `place.position..to`, which are in one tile, to a tile at `slot`.
    fn transfer_values(place: Place<'_>, to: usize, slot: *mut u8) -> Transfer;

    /// Makes a vector of floats of each dimension of a tile of keys, positions in the lanes.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes, and `wide` for writing [`wide_keys`]\(d).
    unsafe fn widen_keys<H: Hvx>(tile: VectorPtr, wide: VectorPtr, d: usize);

    /// Makes the scores of a tile's keys from the products of R queries with what
    /// [`widen_keys`](Self::widen_keys) gave, and from what a step along the [axis](Axis) adds to each.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes.
    #[inline(always)]
    unsafe fn complete_scores<H: Hvx, const R: usize>(
        _tile: VectorPtr,
        _d: usize,
        _steps: [f32; R],
        _scores: &mut [H::F; R],
    ) {
    }

    /// Makes `value_vectors(dv)` vectors of floats of each value at `from..to` of a tile. Of rotated values
    /// it makes a vector of each position for 32 dimensions, then for the next 32, without their scales.
    ///
    /// # Safety
    /// `tile` is valid for reading `value_tile(dv)` bytes, of which the transfer has brought those of
    /// `from..to`, and `wide` for writing the floats of 32 values.
    unsafe fn widen_values<H: Hvx>(tile: VectorPtr, wide: VectorPtr, dv: usize, from: usize, to: usize);
}

/// Bytes of a tile of keys of width `d` as floats: those of whole pairs of tiles of dimensions, which rows
/// need on their way into the lanes ([`F16Rows`]).
pub(super) const fn wide_keys(d: usize) -> usize {
    d.next_multiple_of(2 * TILE_K) * VECTOR_BYTES
}

/// The formats: of numbers, and of some whether they are rows rather than what our own caches have.
///
/// In two parts, because LLVM makes a jump table of a choice between five, in which
/// `cargo xtask hexagon --check` could not see which way leads where, and would refuse the code for v79.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F16 { rows: bool },
    Q8_0 { rows: bool },
    Q4R,
}

/// The function of a format.
macro_rules! of_format {
    ($format:expr, $function:ident $(::<$($h:ident),+>)? ($($argument:expr),*)) => {
        match $format {
            Format::F16 { rows: false } => F16::$function$(::<$($h),+>)?($($argument),*),
            Format::F16 { rows: true } => F16Rows::$function$(::<$($h),+>)?($($argument),*),
            Format::Q8_0 { rows: false } => Q8_0::$function$(::<$($h),+>)?($($argument),*),
            Format::Q8_0 { rows: true } => Q8_0Rows::$function$(::<$($h),+>)?($($argument),*),
            Format::Q4R => Q4R::$function$(::<$($h),+>)?($($argument),*),
        }
    };
}

impl Format {
    /// The format of a cache of keys or of values.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] for types that validation excludes.
    pub fn of(cache: DType) -> Result<Self, Fault> {
        let formats = [
            (DType::F16x32, Self::F16 { rows: false }),
            (DType::F16, Self::F16 { rows: false }),
            (DType::Q8_0Cache, Self::Q8_0 { rows: false }),
            (DType::Q8_0, Self::Q8_0 { rows: true }),
            (DType::Q4RCache, Self::Q4R),
        ];
        let format = formats.iter().find(|(dtype, _)| *dtype == cache);
        format.map(|&(_, format)| format).ok_or(Fault::new(ErrorCode::Internal, line!()))
    }

    /// The format of keys, which may be rows where no cache is kept. (A cache of F16 has its keys in tiles.)
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_keys(keys: DType) -> Result<Self, Fault> {
        if keys == DType::F16 { Ok(Self::F16 { rows: true }) } else { Self::of(keys) }
    }

    /// Whether caches hold rotated vectors, so that queries must be rotated, too.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Q4R)
    }

    /// Whether products read a staged tile as it is ([`Halves`]), on `H`.
    pub const fn is_read_as_staged<H: Hvx>(self) -> bool {
        H::CHEAP_WIDENING && matches!(self, Self::F16 { rows: false })
    }

    pub fn key_tile(self, d: usize) -> usize {
        of_format!(self, key_tile(d))
    }

    pub fn value_tile(self, dv: usize) -> usize {
        of_format!(self, value_tile(dv))
    }

    pub fn value_vectors(self, dv: usize) -> usize {
        of_format!(self, value_vectors(dv))
    }

    #[inline(always)]
    pub unsafe fn store_key<H: Hvx>(self, place: Place<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, store_key::<H>(place, x)) }
    }

    #[inline(always)]
    pub unsafe fn store_value<H: Hvx>(self, place: Place<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, store_value::<H>(place, x)) }
    }

    #[inline(always)]
    pub fn transfer_keys(self, place: Place<'_>, to: usize, slot: *mut u8) -> Transfer {
        of_format!(self, transfer_keys(place, to, slot))
    }

    #[inline(always)]
    pub fn transfer_values(self, place: Place<'_>, to: usize, slot: *mut u8) -> Transfer {
        of_format!(self, transfer_values(place, to, slot))
    }

    #[inline(always)]
    pub unsafe fn widen_keys<H: Hvx>(self, tile: VectorPtr, wide: VectorPtr, d: usize) {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, widen_keys::<H>(tile, wide, d)) }
    }

    /// Whether products read keys of width `d` as f16, on `H`: [`Halves`] or [`Levels`].
    pub const fn has_halves_of_keys<H: Hvx>(self, d: usize) -> bool {
        let fits = !<Halves as Pairs<H>>::WHOLE || d.is_multiple_of(<Halves as Pairs<H>>::DIMS);
        let has_pairs = match self {
            // Beside the last one of an odd number there is anything.
            Self::F16 { rows } => !rows || d.is_multiple_of(2),
            Self::Q8_0 { .. } => false,
            Self::Q4R => true,
        };
        H::CHEAP_WIDENING && fits && has_pairs
    }

    /// A tile of keys that products read as f16, a vector of each pair of dimensions: where it is staged, or
    /// of rows at `to`.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes, and `to` for writing [`wide_keys`]\(d); they are
    /// apart. The format [has halves of keys](Self::has_halves_of_keys) of width `d`, and does not rotate.
    #[inline(always)]
    pub unsafe fn halves_of_keys<H: Hvx>(self, tile: VectorPtr, to: VectorPtr, d: usize) -> Halves {
        if let Self::F16 { rows: true } = self {
            // SAFETY: the tile may be read, `to` be written, and they are apart (the caller's contract); the
            // width is even, because the format has halves of keys.
            unsafe { F16Rows::turn_keys::<H>(tile, to, d) };
            return Halves(to);
        }
        Halves(tile)
    }

    #[inline(always)]
    pub unsafe fn complete_scores<H: Hvx, const R: usize>(
        self,
        tile: VectorPtr,
        d: usize,
        steps: [f32; R],
        scores: &mut [H::F; R],
    ) {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, complete_scores::<H, R>(tile, d, steps, scores)) }
    }

    /// What the values of a rotated tile are multiplied with, position by position.
    ///
    /// # Safety
    /// `tile` is valid for reading `value_tile(dv)` bytes.
    #[inline(always)]
    pub unsafe fn scales_of_rotated<H: Hvx>(tile: VectorPtr, dv: usize) -> H::F {
        // SAFETY: `tile` is valid for reading a tile of such values (the caller's contract).
        unsafe { Q4R::scales_of_values::<H>(tile, dv) }
    }

    #[inline(always)]
    pub unsafe fn widen_values<H: Hvx>(
        self,
        tile: VectorPtr,
        wide: VectorPtr,
        dv: usize,
        from: usize,
        to: usize,
    ) {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, widen_values::<H>(tile, wide, dv, from, to)) }
    }

    /// Writes sums of values, times a factor, in the order of the values.
    ///
    /// # Safety
    /// The sums are the worker's own, `value_vectors` of the length of `y`, and may be overwritten.
    #[inline(always)]
    pub unsafe fn finish<H: Hvx>(self, sums: Sums, factor: H::F, y: &mut RowMut<'_>) {
        // Rows of a format have their floats in the order in which its caches have them.
        // SAFETY: the contract is that of the format's function.
        unsafe {
            match self {
                Self::F16 { .. } => F16::finish::<H>(sums, factor, y),
                Self::Q8_0 { .. } => Q8_0::finish::<H>(sums, factor, y),
                Self::Q4R => Q4R::finish::<H>(sums, factor, y),
            }
        }
    }
}
