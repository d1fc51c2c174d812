//! Weights as products of two fp16: a quant, and the scale of its tile, brought below 2^15 together with the
//! others of its column.

use hexflash_abi::dtype;

use super::super::super::flat::{Exponents, Flat, Halves, Scales};
use super::super::super::quants::{Bytes, E2M1, FiveBits, Indices, Iq4Nl, Nibbles, Quants};
use super::{Bound, Columns, Tiles, beyond_code, reads_before_it_writes};
use crate::hmx::TilePtr;
use crate::hmx::scales::powers_f16;
use crate::hvx::{Hvx, Numbers, VectorPtr};
use crate::kernels::shared::largest::Largest;
use crate::kernels::shared::row_scale::Depth;

/// Quants as fp16.
pub trait HalfQuants: Quants {
    /// Magnitudes are 2^`BITS` at most, as they are here.
    const BITS: i32;
    /// The logarithm of how many times as large as they should be they are here.
    const SHIFT: i32 = 0;
    /// As [`Tiles::EXCHANGED`].
    const EXCHANGED: bool;
    /// The first k of both fours of each quarter.
    const K: [[usize; 2]; 4] = [[0, 4], [8, 12], [16, 20], [24, 28]];

    /// The bytes that both fours of quarter `I` are made of.
    ///
    /// # Safety
    /// `quants` holds those of a tile, and `I` is below 4.
    unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2];

    /// Two vectors of the matrix tile for each four of quarter `I`.
    fn halves<H: Hvx, const I: usize>(x: [H::B; 2]) -> [[H::B; 2]; 2];
}

impl HalfQuants for Bytes {
    const BITS: i32 = 7;
    const EXCHANGED: bool = false;

    #[inline(always)]
    unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2] {
        // SAFETY: a tile has four bundles of a pair (the caller's contract).
        unsafe { Self::bundle::<H, I>(quants) }.0.1
    }

    #[inline(always)]
    fn halves<H: Hvx, const I: usize>(x: [H::B; 2]) -> [[H::B; 2]; 2] {
        x.map(|x| H::bytes_to_f16(H::xor_b(x, H::splat_b(128))))
    }
}

/// They become the first bits of bytes.
impl HalfQuants for FiveBits<16> {
    const BITS: i32 = 7;
    const SHIFT: i32 = 3;
    const EXCHANGED: bool = false;

    #[inline(always)]
    unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2] {
        // SAFETY: a tile has two bundles of two pairs (the caller's contract).
        let ((_, first), second) =
            unsafe { if I < 2 { Self::bundle::<H, 0>(quants) } else { Self::bundle::<H, 1>(quants) } };
        match second {
            Some((_, second)) if I % 2 == 1 => second,
            _ => first,
        }
    }

    #[inline(always)]
    fn halves<H: Hvx, const I: usize>(x: [H::B; 2]) -> [[H::B; 2]; 2] {
        x.map(|x| H::bytes_to_f16(H::xor_b(H::bytes(H::shl_i::<3>(H::words(x))), H::splat_b(128))))
    }
}

/// Nibbles that say which number of a table it is.
macro_rules! looked_up {
    ($($quants:ty: $numbers:expr, $bits:literal;)+) => {$(
        impl HalfQuants for $quants {
            const BITS: i32 = $bits;
            const EXCHANGED: bool = true;
            // Low nibbles are the first sixteen k, high nibbles the others.
            const K: [[usize; 2]; 4] = [[0, 16], [4, 20], [8, 24], [12, 28]];

            #[inline(always)]
            unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2] {
                // SAFETY: a tile has four vectors of quants, and `I` is below 4 (the caller's contract).
                [unsafe { quants.load_b::<H>(I) }; 2]
            }

            #[inline(always)]
            fn halves<H: Hvx, const I: usize>([low, high]: [H::B; 2]) -> [[H::B; 2]; 2] {
                static NUMBERS: Numbers = Numbers::new($numbers);
                [low, H::shr_b::<4>(high)].map(|x| H::lookup_f16(x, &NUMBERS))
            }
        }
    )+};
}

looked_up! {
    Nibbles<8>: [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7], 3;
    Indices<Iq4Nl>: dtype::IQ4_NL, 7;
    Indices<E2M1>: dtype::MXFP4, 4;
}

/// Scales of tiles that become fp16, each column's by a power of two of its own.
pub trait HalfScales: Scales {
    /// As [`Tiles::ORDINARY`].
    const ORDINARY: bool = true;
    /// What makes fp16 of them.
    type To<H: Hvx>: Copy;

    /// The bound of columns whose quants have magnitudes of 2^`bits` at most, and a code that is 31 where
    /// their largest scale is infinite or NaN, and only there. The scales of the first group lie at `at`,
    /// those of the others `apart` vectors from each other.
    ///
    /// # Safety
    /// So many groups have their scales there.
    unsafe fn bound<H: Hvx>(at: VectorPtr, apart: usize, groups: usize, bits: i32) -> (Bound<H>, H::I);

    /// What brings weights below 2^15 if quants are 2^`shift` times as large as they should be.
    fn to<H: Hvx>(bound: Bound<H>, shift: i32) -> Self::To<H>;

    /// The scales of the tiles of a pair, twice in each word.
    ///
    /// # Safety
    /// As [`Scales::load`].
    unsafe fn halves<H: Hvx>(at: VectorPtr, pair: usize, to: Self::To<H>) -> [H::B; 2];
}

impl HalfScales for Halves<0> {
    /// Two powers of two, because one may be larger than an f16.
    type To<H: Hvx> = [H::B; 2];

    #[inline(always)]
    unsafe fn bound<H: Hvx>(at: VectorPtr, apart: usize, groups: usize, bits: i32) -> (Bound<H>, H::I) {
        let mut largest = Largest::<H>::new();
        for group in 0..groups {
            for i in 0..Self::SCALES {
                // SAFETY: the group has so many vectors of scales there (the caller's contract).
                largest.add(unsafe { at.skip(group * apart).load_b::<H>(i) });
            }
        }
        let code = largest.exponent_code();
        (Bound::of(code, bits), code)
    }

    #[inline(always)]
    fn to<H: Hvx>(bound: Bound<H>, shift: i32) -> [H::B; 2] {
        powers_f16::<H>(H::sub_i(H::splat_i(15 - shift), bound.0))
    }

    #[inline(always)]
    unsafe fn halves<H: Hvx>(at: VectorPtr, pair: usize, to: [H::B; 2]) -> [H::B; 2] {
        // SAFETY: the caller's contract is the same.
        let scales = unsafe { Self::load::<H>(at, pair) };
        let even = H::words(H::mul_f16(H::mul_f16(scales, to[0]), to[1]));
        let odd = H::shr_i::<16>(even);
        [H::pair_halves(even, even), H::pair_halves(odd, odd)]
    }
}

/// The exponent code of a float that is not negative.
#[inline(always)]
fn code_of<H: Hvx>(x: H::F) -> H::I {
    H::shr_i::<23>(H::bits(x))
}

/// The smallest exponent of a column's largest scale: with smaller ones, what a result is multiplied with
/// would not be a normal number. Scales that are 2^26 times smaller than the largest one become zero.
const LEAST_EXPONENT: i32 = 30;

impl HalfScales for Exponents {
    // An exponent is that of a float.
    const ORDINARY: bool = false;
    /// What is taken from an exponent to make that of an f16.
    type To<H: Hvx> = H::I;

    #[inline(always)]
    unsafe fn bound<H: Hvx>(at: VectorPtr, apart: usize, groups: usize, bits: i32) -> (Bound<H>, H::I) {
        let mut largest = H::splat_i(LEAST_EXPONENT);
        for group in 0..groups {
            for pair in 0..2 {
                // SAFETY: the group has a vector of scales there (the caller's contract), of two pairs.
                let (even, odd) = unsafe { Self::load::<H>(at.skip(group * apart), pair) };
                largest = H::max_i(largest, H::max_i(code_of::<H>(even), code_of::<H>(odd)));
            }
        }
        // Quants are twice as large as they should be.
        (Bound(H::add_i(largest, H::splat_i(bits - 128))), beyond_code::<H>(largest))
    }

    #[inline(always)]
    fn to<H: Hvx>(bound: Bound<H>, shift: i32) -> H::I {
        H::add_i(bound.0, H::splat_i(128 - 30 + shift))
    }

    #[inline(always)]
    unsafe fn halves<H: Hvx>(at: VectorPtr, pair: usize, to: H::I) -> [H::B; 2] {
        // SAFETY: the caller's contract is the same.
        let (even, odd) = unsafe { Self::load::<H>(at, pair) };
        [even, odd].map(|scale| {
            let exponent = H::sub_i(code_of::<H>(scale), to);
            let half = H::shl_i::<10>(H::max_i(exponent, H::splat_i(0)));
            H::pair_halves(half, half)
        })
    }
}

impl<Q: HalfQuants, S: HalfScales> Tiles for Flat<Q, S> {
    const EXCHANGED: bool = Q::EXCHANGED;
    const ORDINARY: bool = S::ORDINARY;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        const { assert!(reads_before_it_writes(&Self::GROUP)) };
        let (vectors, scales) = (Self::GROUP.vectors(), packed.skip(Self::GROUP.scales_at()));
        // SAFETY: each of so many groups has its scales there (the caller's contract, point 1).
        let (bound, code) = unsafe { S::bound::<H>(scales, vectors, groups, Q::BITS) };
        let power = S::to(bound, Q::SHIFT);
        // SAFETY: the callers give pairs that have one of the `k_tiles` tiles, so that their groups are there
        // (the caller's contract, point 1), and a group has two.
        let halves =
            |pair: usize| unsafe { S::halves::<H>(scales.skip(pair / 2 * vectors), pair % 2, power) };
        let pairs = k_tiles.div_ceil(2);
        let quants = |pair: usize, t: usize| {
            let group = packed.skip(pair / 2 * vectors);
            group.skip(Self::GROUP.quants_at(pair % 2 * 2 + t))
        };
        // The scales of the next pair are made, and the quants of the next tile loaded, while one is
        // unpacked: LLVM moves no load before a store that may be to the same memory.
        //
        // SAFETY: the tile is the first of the strip (the caller's contract, point 1).
        let (mut next, mut even) = (halves(0), unsafe { load::<Q, H>(quants(0, 0)) });
        for pair in 0..pairs {
            let these = next;
            let after = (pair + 1).min(pairs - 1);
            next = halves(after);
            let to = to.skip(2 * pair);
            // SAFETY: the tiles are two of their group's four, and the next one is one of a group that has a
            // tile of the strip, so their quants are inside of groups (the caller's contract, point 1), and
            // their matrix tiles are in the room, which has tiles for whole groups (point 2). Tiles are made
            // in order, each before what is read for those after it (`reads_before_it_writes`).
            unsafe {
                let odd = unpack_and_load::<Q, H>(even, these[0], to, quants(pair, 1));
                even = unpack_and_load::<Q, H>(odd, these[1], to.skip(1), quants(after, 0));
            }
        }
        bound.columns(depth, code)
    }
}

/// What a tile is made of, by quarters.
pub(super) type Loaded<H> = [[<H as Hvx>::B; 2]; 4];

/// Loads the quants of a tile.
///
/// # Safety
/// `quants` holds them.
#[inline(always)]
pub(super) unsafe fn load<Q: HalfQuants, H: Hvx>(quants: VectorPtr) -> Loaded<H> {
    // SAFETY: `quants` holds those of a tile (the caller's contract), which has four quarters.
    unsafe {
        [Q::load::<H, 0>(quants), Q::load::<H, 1>(quants), Q::load::<H, 2>(quants), Q::load::<H, 3>(quants)]
    }
}

/// Makes the matrix tile of a tile of quants, and loads those of the next one.
///
/// # Safety
/// 1. A matrix tile is valid for writing at `to`, and nobody else touches it.
/// 2. `next` holds the quants of a tile.
#[inline(always)]
pub(super) unsafe fn unpack_and_load<Q: HalfQuants, H: Hvx>(
    [a, b, c, d]: Loaded<H>,
    scale: H::B,
    to: TilePtr,
    next: VectorPtr,
) -> Loaded<H> {
    let to = to.vectors();
    // SAFETY: `next` holds the quants of a tile (the caller's contract, point 2), and the matrix tile is this
    // call's own (point 1); both have four quarters.
    unsafe {
        let next_a = Q::load::<H, 0>(next);
        store::<Q, H, 0>(a, scale, to);
        let next_b = Q::load::<H, 1>(next);
        store::<Q, H, 1>(b, scale, to);
        let next_c = Q::load::<H, 2>(next);
        store::<Q, H, 2>(c, scale, to);
        let next_d = Q::load::<H, 3>(next);
        store::<Q, H, 3>(d, scale, to);
        [next_a, next_b, next_c, next_d]
    }
}

/// Multiplies quarter `I` of a tile with a scale and stores it.
///
/// # Safety
/// `I` is below 4. A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn store<Q: HalfQuants, H: Hvx, const I: usize>(x: [H::B; 2], scale: H::B, to: VectorPtr) {
    let ([a, b], [first, second]) = (Q::halves::<H, I>(x), Q::K[I]);
    // SAFETY: a vector has two k, and fours begin at 28 at most, so that these are four of the 16 vectors of
    // the tile at `to` (the caller's contract).
    unsafe {
        to.store_b::<H>(first / 2, H::mul_f16(a[0], scale));
        to.store_b::<H>(first / 2 + 1, H::mul_f16(a[1], scale));
        to.store_b::<H>(second / 2, H::mul_f16(b[0], scale));
        to.store_b::<H>(second / 2 + 1, H::mul_f16(b[1], scale));
    }
}
