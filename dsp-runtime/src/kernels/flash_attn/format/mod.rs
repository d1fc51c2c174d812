//! How caches hold keys and values: one file per number format.
//!
//! A format says how a row is put into a cache, how much of a tile is staged in VTCM, and how a staged tile
//! becomes floats. From there on attention is the same for all of them. Keys and values may have different
//! formats: they meet in floats only. The choice is made tile by tile ([`Format`]), not in the inner loops.

mod codes;
mod f16;
mod f16_rows;
mod q4_r;
mod q8_0;
mod q8_0_rows;
mod rotation;

use hexflash_abi::dtype::TILE_K;
use hexflash_abi::{DType, ErrorCode, Fault, VECTOR_BYTES};

use self::f16::F16;
use self::f16_rows::F16Rows;
use self::q4_r::Q4R;
use self::q8_0::Q8_0;
use self::q8_0_rows::Q8_0Rows;
pub(super) use self::rotation::{rotate, rotate_back};
use super::TILE;
use crate::dma::Transfer;
use crate::hvx::{HalfSums, Hvx, LANES, VectorPtr};
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

/// What products read: the numbers of a tile, by pairs of vectors; and the sums of these products.
pub(super) trait Pairs<H: Hvx>: Copy {
    /// A pair, in registers.
    type Pair: Copy;
    /// Two sums, of products with the first and with the second vectors of pairs.
    type Sums: Copy;
    /// Dimensions of a vector of a query.
    const DIMS: usize;
    /// Whether queries are known to be whole vectors.
    const WHOLE: bool;

    /// Pair `i`.
    ///
    /// # Safety
    /// The tile has it.
    unsafe fn get(self, i: usize) -> Self::Pair;

    /// Sums of nothing.
    fn none() -> Self::Sums;

    /// Sums that begin with these, times a factor.
    fn start(before: (H::F, H::F), factor: H::F) -> Self::Sums;

    /// The sums with a pair of dimensions of keys, times those of a query: pair `i` of `q`. BOTH: there are
    /// two of them.
    fn add_keys<const BOTH: bool>(sums: Self::Sums, pair: Self::Pair, q: &H::Lanes, i: usize) -> Self::Sums;

    /// The sums with a pair of vectors of a value, times its weight, which is in all lanes.
    fn add_value(sums: Self::Sums, pair: Self::Pair, weight: H::F) -> Self::Sums;

    /// The sums.
    fn end(sums: Self::Sums) -> (H::F, H::F);
}

/// The f16 of a tile, whose low halves are one vector of a pair, and high halves the other, times f16:
/// queries are words of two dimensions, and weights words of the same number twice.
#[derive(Clone, Copy)]
pub(super) struct Halves(pub VectorPtr);

impl<H: Hvx> Pairs<H> for Halves {
    type Pair = H::B;
    type Sums = HalfSums<H>;
    const DIMS: usize = 2 * LANES;
    // In a loop over what is left, LLVM 22 copies products from one turn to the next.
    const WHOLE: bool = H::Q_STAYS;

    #[inline(always)]
    unsafe fn get(self, i: usize) -> H::B {
        // As a load of any address, with which LLVM 22 makes loops of 8 % fewer packets.
        // SAFETY: the tile has pair `i` (the caller's contract), which is a vector.
        unsafe { H::load_b(self.0.skip(i).get()) }
    }

    #[inline(always)]
    fn none() -> HalfSums<H> {
        H::no_half_sums()
    }

    #[inline(always)]
    fn start(before: (H::F, H::F), factor: H::F) -> HalfSums<H> {
        H::start_half_sums(before, factor)
    }

    /// Of one dimension the word has a zero beside it, and so have keys: the sum stays what it is.
    #[inline(always)]
    fn add_keys<const BOTH: bool>(sums: HalfSums<H>, pair: H::B, q: &H::Lanes, i: usize) -> HalfSums<H> {
        H::add_half_products(sums, pair, H::bytes(H::bits(H::lane(q, i))))
    }

    #[inline(always)]
    fn add_value(sums: HalfSums<H>, pair: H::B, weight: H::F) -> HalfSums<H> {
        H::add_half_products(sums, pair, H::bytes(H::bits(weight)))
    }

    #[inline(always)]
    fn end(sums: HalfSums<H>) -> (H::F, H::F) {
        H::end_half_sums(sums)
    }
}

/// A tile as floats, times floats.
#[derive(Clone, Copy)]
pub(super) struct Wide(pub VectorPtr);

impl<H: Hvx> Pairs<H> for Wide {
    type Pair = (H::F, H::F);
    type Sums = (H::Q, H::Q);
    const DIMS: usize = LANES;
    const WHOLE: bool = false;

    #[inline(always)]
    unsafe fn get(self, i: usize) -> (H::F, H::F) {
        // SAFETY: the tile has pair `i` (the caller's contract), which is two vectors.
        unsafe { (self.0.load::<H>(2 * i), self.0.load::<H>(2 * i + 1)) }
    }

    #[inline(always)]
    fn none() -> (H::Q, H::Q) {
        (H::zero_q(), H::zero_q())
    }

    #[inline(always)]
    fn start((even, odd): (H::F, H::F), factor: H::F) -> (H::Q, H::Q) {
        (H::mul_q(even, factor), H::mul_q(odd, factor))
    }

    #[inline(always)]
    fn add_keys<const BOTH: bool>(
        sums: (H::Q, H::Q),
        (even, odd): (H::F, H::F),
        q: &H::Lanes,
        i: usize,
    ) -> (H::Q, H::Q) {
        let first = H::add_q(sums.0, H::mul_q(even, H::lane(q, 2 * i)));
        let second = if BOTH { H::add_q(sums.1, H::mul_q(odd, H::lane(q, 2 * i + 1))) } else { sums.1 };
        (first, second)
    }

    #[inline(always)]
    fn add_value(sums: (H::Q, H::Q), (even, odd): (H::F, H::F), weight: H::F) -> (H::Q, H::Q) {
        (H::add_q(sums.0, H::mul_q(weight, even)), H::add_q(sums.1, H::mul_q(weight, odd)))
    }

    #[inline(always)]
    fn end(sums: (H::Q, H::Q)) -> (H::F, H::F) {
        (H::float(sums.0), H::float(sums.1))
    }
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
    /// [`widen_keys`](Self::widen_keys) gave.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes.
    #[inline(always)]
    unsafe fn complete_scores<H: Hvx, const R: usize>(_tile: VectorPtr, _d: usize, _scores: &mut [H::F; R]) {}

    /// What the floats that [`widen_values`](Self::widen_values) gives are multiplied with, from the weights
    /// of a tile's values.
    ///
    /// # Safety
    /// `tile` is valid for reading `value_tile(dv)` bytes.
    #[inline(always)]
    unsafe fn complete_weights<H: Hvx>(_tile: VectorPtr, _dv: usize, weights: H::F) -> H::F {
        weights
    }

    /// Makes `value_vectors(dv)` vectors of floats of each value at `from..to` of a tile.
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
/// In two parts, because LLVM makes a jump table of a choice between five, in which `cargo xtask hexagon`
/// could not see which way leads where, and would refuse the code for v79.
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

    /// Whether products read keys of width `d` as [`Halves`], on `H`.
    pub const fn has_halves_of_keys<H: Hvx>(self, d: usize) -> bool {
        let fits = !<Halves as Pairs<H>>::WHOLE || d.is_multiple_of(<Halves as Pairs<H>>::DIMS);
        fits && (self.is_read_as_staged::<H>() || (H::CHEAP_WIDENING && matches!(self, Self::Q4R)))
    }

    /// A tile of keys as f16, a vector per pair of dimensions, positions in the lanes: the staged one, or in
    /// `wide`. `None` if it is not a tile of such numbers, or if floats are better on `H`.
    ///
    /// # Safety
    /// `tile` is valid for reading `key_tile(d)` bytes, and `wide` for writing [`wide_keys`]\(d).
    #[inline(always)]
    pub unsafe fn halves_of_keys<H: Hvx>(self, tile: VectorPtr, wide: VectorPtr, d: usize) -> Option<Halves> {
        if !self.has_halves_of_keys::<H>(d) {
            return None;
        }
        if self.is_read_as_staged::<H>() {
            return Some(Halves(tile));
        }
        // SAFETY: the contract is the caller's: `wide` has room for two floats in place of each pair.
        unsafe { Q4R::halves_of_keys::<H>(tile, wide, d) };
        Some(Halves(wide))
    }

    #[inline(always)]
    pub unsafe fn complete_scores<H: Hvx, const R: usize>(
        self,
        tile: VectorPtr,
        d: usize,
        scores: &mut [H::F; R],
    ) {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, complete_scores::<H, R>(tile, d, scores)) }
    }

    #[inline(always)]
    pub unsafe fn complete_weights<H: Hvx>(self, tile: VectorPtr, dv: usize, weights: H::F) -> H::F {
        // SAFETY: the contract is that of the format's function.
        unsafe { of_format!(self, complete_weights::<H>(tile, dv, weights)) }
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
