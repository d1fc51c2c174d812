//! How caches hold keys and values: one file per number format.
//!
//! A format says how a row is put into a cache, how much of a tile is staged in VTCM, and how a staged tile
//! becomes floats. From there on attention is the same for all of them. Keys and values may have different
//! formats: they meet in floats only. The choice is made tile by tile ([`Format`]), not in the inner loops.

mod axis;
mod cache_format;
mod codes;
mod f16;
mod f16_rows;
mod products;
mod q4_r;
pub(super) mod q8_0;
mod q8_0_rows;
mod rotation;

use hexflash_abi::{DType, ErrorCode, Fault};

pub(super) use self::axis::Axis;
use self::cache_format::CacheFormat;
pub(super) use self::cache_format::{CachePlace, ValueSums, wide_keys};
use self::f16::F16;
use self::f16_rows::F16Rows;
pub(super) use self::products::{ByPairs, Halves, Pairs, Products, Turned, Wide};
pub(super) use self::q4_r::Levels;
use self::q4_r::Q4R;
use self::q8_0::Q8_0;
use self::q8_0_rows::Q8_0Rows;
pub(super) use self::rotation::rotate;
use crate::dma::Transfer;
use crate::hvx::{Hvx, VectorPtr};
use crate::row::{Row, RowMut};

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
    pub unsafe fn store_key<H: Hvx>(self, place: CachePlace<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, store_key::<H>(place, x)) }
    }

    #[inline(always)]
    pub unsafe fn store_value<H: Hvx>(self, place: CachePlace<'_>, x: Row<'_>) -> bool {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, store_value::<H>(place, x)) }
    }

    #[inline(always)]
    pub fn transfer_keys(self, place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
        of_format!(self, transfer_keys(place, to, slot))
    }

    #[inline(always)]
    pub fn transfer_values(self, place: CachePlace<'_>, to: usize, slot: *mut u8) -> Transfer {
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
    pub unsafe fn finish<H: Hvx>(self, sums: ValueSums, factor: H::F, y: &mut RowMut<'_>) {
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
