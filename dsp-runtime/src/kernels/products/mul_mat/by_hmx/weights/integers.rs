//! Weights as integers: a quant, as a fraction of 2^15, times the scale of its tile or of its half, as a
//! fraction of what is above all weights of its column, less the min if there is one, rounded to 16 bits with
//! a sign and then to fp16.

use super::super::super::flat::{Flat, Halves};
use super::super::super::quants::{
    Bundle, FiveBits, Indices, Iq4Nl, Nibbles, Pair, Quants, SixBits, ThreeBits, TwoBits, only,
};
use super::super::super::super_block::{Integers, SuperBlock};
use super::{Bound, Columns, Tiles, reads_before_it_writes};
use crate::hmx::TilePtr;
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::shared::largest::Largest;
use crate::kernels::shared::row_scale::Depth;

/// Quants as fractions with a sign.
pub trait Fractions: Quants {
    /// Bits of a fraction, of which one is the sign.
    const BITS: i32;

    /// A bundle, with each quant as a number with a sign in the first bits of its byte.
    ///
    /// # Safety
    /// As [`Quants::bundle`].
    unsafe fn fractions<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H>;
}

/// Zero is in the middle of what the bits of a quant can say, or is 0 and a bit more makes room for the sign.
macro_rules! fractions {
    ($($quants:ty: $bits:literal;)+) => {$(
        impl Fractions for $quants {
            const BITS: i32 = $bits;

            #[inline(always)]
            unsafe fn fractions<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
                const { assert!(Self::ZERO == 0 || Self::ZERO == 1 << ($bits - 1)) };
                let fractions = |(k, quants): Pair<H>| (k, quants.map(|x| {
                    let x = if Self::ZERO == 0 { x } else { H::xor_b(x, H::splat_b(Self::ZERO as u8)) };
                    H::bytes(H::shl_i::<{ 8 - $bits }>(H::words(x)))
                }));
                // SAFETY: the caller's contract is that of `bundle`.
                let (first, second) = unsafe { Self::bundle::<H, I>(quants) };
                (fractions(first), second.map(fractions))
            }
        }
    )+};
}

fractions! {
    FiveBits<0>: 6;
    SixBits: 6;
    TwoBits<0>: 3;
    ThreeBits: 3;
    Indices<Iq4Nl>: 8;
}

/// The first bit is that of the sign.
impl Fractions for Nibbles<0> {
    const BITS: i32 = 5;

    #[inline(always)]
    unsafe fn fractions<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of quants, and `I` is below 2 (the caller's contract).
        let both = unsafe { [quants.load_b::<H>(2 * I), quants.load_b::<H>(2 * I + 1)] };
        let low = both.map(|x| H::bytes(H::shl_i::<3>(H::words(only::<H>(x, 0x0f)))));
        let high = both.map(|x| H::bytes(H::shr_i::<1>(H::words(only::<H>(x, 0xf0)))));
        ((8 * I, low), Some((16 + 8 * I, high)))
    }
}

impl<H: Hvx> Bound<H> {
    /// That of a scale with this exponent code, times an integer of `integer` bits, times a fraction of a
    /// quant.
    #[inline(always)]
    fn of_fractions<Q: Fractions>(code: H::I, integer: i32) -> Self {
        Self::of(code, integer + Q::BITS - 1)
    }

    /// The same, where a min with another exponent code, times such an integer, is taken away.
    #[inline(always)]
    fn with_min<Q: Fractions>(code: H::I, min: H::I, integer: i32) -> Self {
        let (fractions, mins) = (Self::of_fractions::<Q>(code, integer), Self::of(min, integer));
        Self(H::add_i(H::max_i(fractions.0, mins.0), H::splat_i(1)))
    }

    /// What makes fractions of 2^15 of mins.
    #[inline(always)]
    fn of_mins(self) -> H::F {
        self.power(15)
    }

    /// What makes fractions of 2^15 of scales. Fractions of quants are too small by 2^(BITS - 1).
    #[inline(always)]
    fn of_scales<Q: Fractions>(self) -> H::F {
        self.power(15 + Q::BITS - 1)
    }
}

/// What the quants of half a tile are multiplied with, and what is taken from that: fractions of 2^15, twice
/// in each word.
#[derive(Clone, Copy)]
struct HalfTileFactors<H: Hvx> {
    scale: H::B,
    less: H::B,
}

impl<H: Hvx> HalfTileFactors<H> {
    #[inline(always)]
    fn new(scale: H::F, less: H::F) -> Self {
        let twice = |x: H::F| {
            let x = H::to_int(x);
            H::pair_halves(x, x)
        };
        Self { scale: twice(scale), less: twice(less) }
    }
}

impl<Q: Fractions> Tiles for Flat<Q, Halves<2>> {
    const EXCHANGED: bool = true;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        const { assert!(reads_before_it_writes(&Self::GROUP)) };
        let vectors = Self::GROUP.vectors();
        let (scales_at, mins_at) = (Self::GROUP.scales_at(), Self::GROUP.mins_at());
        let (mut largest, mut largest_min) = (Largest::<H>::new(), Largest::<H>::new());
        for group in 0..groups {
            let group = packed.skip(group * vectors);
            for i in 0..2 {
                // SAFETY: this is one of `groups` groups, and each has two vectors of scales there, and two
                // of mins (the caller's contract, point 1).
                unsafe {
                    largest.add(group.load_b::<H>(scales_at + i));
                    largest_min.add(group.load_b::<H>(mins_at + i));
                }
            }
        }
        let (code, min) = (largest.exponent_code(), largest_min.exponent_code());
        let bound = Bound::with_min::<Q>(code, min, 0);
        // Mins are added.
        let (of_scales, of_mins) = (bound.of_scales::<Q>(), H::sub(H::splat(0.0), bound.of_mins()));
        let part = |scale: H::F, min: H::F| {
            [HalfTileFactors::new(H::mul_ieee(scale, of_scales), H::mul_ieee(min, of_mins)); 2]
        };
        let parts = |pair: usize| {
            let group = packed.skip(pair / 2 * vectors);
            // SAFETY: the pair has one of the `k_tiles` tiles, and so is one of the two of a group, whose
            // scales are in a vector of their own, and mins, too (the caller's contract, point 1).
            let (scales, mins) = unsafe {
                let scales = H::widen_f16(group.load_b::<H>(scales_at + pair % 2));
                (scales, H::widen_f16(group.load_b::<H>(mins_at + pair % 2)))
            };
            [part(scales.0, mins.0), part(scales.1, mins.1)]
        };
        let pairs = k_tiles.div_ceil(2);
        // Those of the next pair, which are made while this one is unpacked.
        let mut next = parts(0);
        for pair in 0..pairs {
            let these = next;
            next = parts((pair + 1).min(pairs - 1));
            let (group, first) = (packed.skip(pair / 2 * vectors), pair % 2 * 2);
            let quants = [first, first + 1].map(|t| group.skip(Self::GROUP.quants_at(t)));
            // SAFETY: the tiles are two of their group's four, so their quants are inside of the group (the
            // caller's contract, point 1), and their matrix tiles are in the room, which has tiles for whole
            // groups (point 2). Pairs are made in order, each before what is read for those after it
            // (`reads_before_it_writes`).
            unsafe { unpack_pair::<Q, H, true>(quants, these, to.skip(2 * pair)) };
        }
        bound.columns(depth, H::max_i(code, min))
    }
}

impl<Q: Fractions, N: Integers> Tiles for SuperBlock<Q, N> {
    const EXCHANGED: bool = true;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        _k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        const { assert!(reads_before_it_writes(&Self::GROUP)) };
        let vectors = Self::GROUP.vectors();
        let mut largest = Largest::<H>::new();
        for group in 0..groups {
            // SAFETY: `group` is below `groups`, and each has a vector of d there (the caller's contract,
            // point 1).
            largest.add(unsafe { packed.skip(group * vectors).load_b::<H>(Self::GROUP.d_at()) });
        }
        let [code, min] = largest.exponent_codes();
        let bound = if N::MINS {
            Bound::with_min::<Q>(code, min, N::BITS)
        } else {
            Bound::of_fractions::<Q>(code, N::BITS)
        };
        let (of_scales, of_mins) = (bound.of_scales::<Q>(), bound.of_mins());
        for number in 0..groups {
            let group = packed.skip(number * vectors);
            // SAFETY: this is one of `groups` groups, and each has a vector of d there (the caller's
            // contract, point 1).
            let (d, dmin) = H::widen_f16(unsafe { group.load_b::<H>(Self::GROUP.d_at()) });
            let (d, dmin) = (H::mul_ieee(d, of_scales), H::mul_ieee(dmin, of_mins));
            for pair in 0..Self::GROUP.tiles / 2 {
                let at = group.skip(Self::GROUP.scales_at());
                // SAFETY: the group has its integers there (the caller's contract, point 1), and `pair` is
                // below 4.
                let (scales, mins) = unsafe { (N::scales::<H>(at, pair), N::mins::<H>(at, pair)) };
                let to = to.skip(number * Self::GROUP.tiles + 2 * pair);
                let quants = [2 * pair, 2 * pair + 1].map(|t| group.skip(Self::GROUP.quants_at(t)));
                let of_tile = |i: usize| {
                    if N::MINS {
                        parts::<N, H>(scales[i], mins[i], d, dmin)
                    } else {
                        parts::<N, H>(scales[i], H::splat_i(0), d, H::splat(0.0))
                    }
                };
                // SAFETY: the tiles are two of their group's eight, so their quants are inside of the group
                // (the caller's contract, point 1), and their matrix tiles are in the room, which has tiles
                // for whole groups (point 2). Pairs are made in order, each before what is read for those
                // after it (`reads_before_it_writes`).
                unsafe {
                    if N::MINS {
                        unpack_pair::<Q, H, true>(quants, [of_tile(0), of_tile(1)], to);
                    } else {
                        unpack_pair::<Q, H, false>(quants, [of_tile(0), of_tile(1)], to);
                    }
                }
            }
        }
        bound.columns(depth, if N::MINS { H::max_i(code, min) } else { code })
    }
}

/// The parts of a tile, from its integers, and d and dmin as what makes fractions of 2^15 of them.
#[inline(always)]
fn parts<N: Integers, H: Hvx>(scales: H::I, mins: H::I, d: H::F, dmin: H::F) -> [HalfTileFactors<H>; 2] {
    let low = |x: H::I| H::to_float(H::sar_i::<16>(H::shl_i::<16>(x)));
    let high = |x: H::I| H::to_float(H::sar_i::<16>(x));
    let part = |scale: H::F, min: H::F| HalfTileFactors::new(H::mul_ieee(scale, d), H::mul_ieee(min, dmin));
    if N::PARTS == 2 {
        [part(low(scales), low(mins)), part(high(scales), high(mins))]
    } else {
        // Of a whole tile the min is in the high half, and the scale where that leaves it.
        [part(if N::MINS { low(scales) } else { high(scales) }, high(mins)); 2]
    }
}

/// Makes the matrix tiles of a pair of tiles of quants.
///
/// # Safety
/// `quants` hold those of a tile each. Two matrix tiles are valid for writing at `to`, and nobody else
/// touches them.
#[inline(always)]
unsafe fn unpack_pair<Q: Fractions, H: Hvx, const MINS: bool>(
    quants: [VectorPtr; 2],
    parts: [[HalfTileFactors<H>; 2]; 2],
    to: TilePtr,
) {
    const { assert!(Q::BUNDLES == 2) };
    let [first, second] = [to, to.skip(1)].map(TilePtr::vectors);
    let [even, odd] = quants;
    // As far as LLVM knows, what is stored first may lie where the rest is loaded from. So all of a tile is
    // loaded before; of a pair there are not enough registers for that.
    //
    // SAFETY: `quants` hold those of a tile each, and there are two bundles. The matrix tiles at `to` are
    // this call's own (the caller's contract).
    unsafe {
        let bundles = [Q::fractions::<H, 0>(even), Q::fractions::<H, 1>(even)];
        store_bundles::<H, MINS>(bundles, parts[0], first);
        let bundles = [Q::fractions::<H, 0>(odd), Q::fractions::<H, 1>(odd)];
        store_bundles::<H, MINS>(bundles, parts[1], second);
    }
}

/// Makes the halves of two bundles.
///
/// # Safety
/// A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn store_bundles<H: Hvx, const MINS: bool>(
    [a, b]: [Bundle<H>; 2],
    parts: [HalfTileFactors<H>; 2],
    to: VectorPtr,
) {
    // SAFETY: the matrix tile at `to` is this call's own (the caller's contract).
    unsafe {
        store_bundle::<H, MINS>(a, parts, to);
        store_bundle::<H, MINS>(b, parts, to);
    }
}

/// Makes the halves of a bundle.
///
/// # Safety
/// A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn store_bundle<H: Hvx, const MINS: bool>(
    ((k, fractions), second): Bundle<H>,
    parts: [HalfTileFactors<H>; 2],
    to: VectorPtr,
) {
    // SAFETY: bundles have eight k from 24 at most, and the matrix tile at `to` is this call's own (the
    // caller's contract).
    unsafe {
        store_eight::<H, MINS>(k, fractions, parts[k / 16], to);
        if let Some((k, fractions)) = second {
            store_eight::<H, MINS>(k, fractions, parts[k / 16], to);
        }
    }
}

/// Makes the halves of eight k, whose fractions have the first bits of bytes.
///
/// # Safety
/// `k` is 0, 8, 16 or 24. A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn store_eight<H: Hvx, const MINS: bool>(
    k: usize,
    fractions: [H::B; 2],
    part: HalfTileFactors<H>,
    to: VectorPtr,
) {
    let [a, b] = fractions.map(|x| {
        let odd = H::and_b(x, H::bytes(H::splat_i(0xff00_ff00_u32 as i32)));
        [H::raise_even_bytes(x), odd].map(|halves| {
            if MINS {
                H::mul_fractions_less_f16(halves, part.scale, part.less)
            } else {
                H::mul_fractions_f16(halves, part.scale)
            }
        })
    });
    // SAFETY: a vector has two k, and `k` is 24 at most, so that these are four of the 16 vectors of the tile
    // at `to` (the caller's contract).
    unsafe {
        to.store_b::<H>(k / 2, a[0]);
        to.store_b::<H>(k / 2 + 1, a[1]);
        to.store_b::<H>(k / 2 + 2, b[0]);
        to.store_b::<H>(k / 2 + 3, b[1]);
    }
}
