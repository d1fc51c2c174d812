//! Strips of weights as matrix tiles of fp16.
//!
//! Quants become integers: a quant, as a fraction of 2^15, times the scale of its tile or of its half, as a
//! fraction of what is above all weights of its column, less the min if there is one, rounded to 16 bits with
//! a sign and then to fp16. Columns are rows of the matrix w, and their factors are powers of two, so that
//! nothing is rounded when they are taken back.
//!
//! How results stay in range: a result of fp16 is the sum times 2^t. Sums of k products are below 2^(a + log
//! - down), where weights are below 2^a ([`Depth`]), and t is chosen so that they come out below 2^15.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::QuantGroup;

use super::super::flat::{Flat, Halves};
use super::super::float::F16;
use super::super::quants::{
    Bundle, Bytes, FiveBits, Indices, Iq4Nl, Nibbles, Pair, Quants, SixBits, ThreeBits, TwoBits, only,
};
use super::super::super_block::{Integers, SuperBlock};
use super::activations::Depth;
use super::layout::SPARE;
use crate::hmx::{TILE_BYTES, TilePtr};
use crate::hvx::{Hvx, VectorPtr};

/// Weights that become matrix tiles.
pub(in crate::kernels) trait Tiles: Sync + 'static {
    /// Whether values 1 and 2 of every four k change places, here and in the activations: sums do not mind,
    /// and bytes become halves without a shuffle.
    const EXCHANGED: bool;

    /// Makes the `k_tiles` matrix tiles of a strip at `to`.
    ///
    /// # Safety
    /// 1. `packed` holds `groups` groups of weights, with as many tiles as `k_tiles` or more.
    /// 2. Room for a strip ([`super::layout::place`]) is valid for writing at `to`, and nobody else touches
    ///    it. `packed` are the last bytes of the room for `groups` groups.
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H>;
}

/// What is done to the results of a strip's columns, a lane each.
pub(in crate::kernels) struct Columns<H: Hvx> {
    /// The logarithm of what the unit multiplies sums with, -14 to 15.
    scale: H::I,
    /// The logarithm of what a result is multiplied with to become the product; 128 if it is none.
    factor: H::I,
}

impl<H: Hvx> Columns<H> {
    /// Those of columns whose weights, or scales of weights, have largest magnitudes with these exponent
    /// codes of f16. Results that an infinity or a NaN is part of become infinite or NaN again.
    #[inline(always)]
    fn new(scale: H::I, factor: H::I, code: H::I) -> Self {
        // 128 for code 31, and -128, which is below all factors, for the others.
        let beyond = H::shl_i::<8>(H::shr_i::<5>(H::add_i(code, H::splat_i(1))));
        let beyond = H::sub_i(beyond, H::splat_i(128));
        Self { scale, factor: H::max_i(factor, beyond) }
    }

    /// Writes the table of the unit, and the factors behind it.
    ///
    /// # Safety
    /// Three vectors at `table` are valid for writing, and nobody else touches them.
    #[inline(always)]
    pub(super) unsafe fn store(self, table: TilePtr) {
        let (table, zero) = (table.vectors(), H::bytes(H::splat_i(0)));
        let scale = H::shl_i::<10>(H::add_i(self.scale, H::splat_i(15)));
        let factor = H::shl_i::<23>(H::add_i(self.factor, H::splat_i(127)));
        // SAFETY: these are three vectors, which are valid for writing (the caller's contract).
        unsafe {
            table.store_b::<H>(0, H::bytes(scale));
            table.store_b::<H>(1, zero);
            table.store::<H>(2, H::from_bits(factor));
        }
    }
}

/// The largest magnitudes of low halves and of high halves so far, as bits of f16 in the upper half of a
/// word.
pub(in crate::kernels) struct Largest<H: Hvx>([H::I; 2]);

impl<H: Hvx> Largest<H> {
    #[inline(always)]
    pub(in crate::kernels) fn new() -> Self {
        Self([H::splat_i(0); 2])
    }

    /// Takes in both halves of every word.
    #[inline(always)]
    pub(in crate::kernels) fn add(&mut self, halves: H::B) {
        // What is in the lower half does not change which upper half is larger.
        let magnitudes = H::and_i(H::words(halves), H::splat_i(0x7fff_7fff));
        self.0[0] = H::max_i(self.0[0], H::shl_i::<16>(magnitudes));
        self.0[1] = H::max_i(self.0[1], magnitudes);
    }

    /// The exponent codes of the largest low half and of the largest high half, with that of the smallest
    /// normal number for all below.
    #[inline(always)]
    fn exponent_codes(self) -> [H::I; 2] {
        self.0.map(|largest| H::max_i(H::shr_i::<26>(largest), H::splat_i(1)))
    }

    /// The larger one of them.
    #[inline(always)]
    pub(in crate::kernels) fn exponent_code(self) -> H::I {
        let [low, high] = self.exponent_codes();
        H::max_i(low, high)
    }
}

/// They are matrix tiles already.
impl Tiles for F16 {
    const EXCHANGED: bool = false;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        _groups: usize,
        _to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        let mut largest = Largest::<H>::new();
        for i in 0..k_tiles * (TILE_BYTES / VECTOR_BYTES) {
            // SAFETY: `packed` has so many tiles of 16 vectors (the caller's contract, point 1).
            largest.add(unsafe { packed.load_b::<H>(i) });
        }
        let code = largest.exponent_code();
        // Weights are below 2^(code - 14). A scale is 2^15 at most.
        let scale = H::sub_i(H::splat_i(29 - depth.log + depth.down), code);
        let factor = H::max_i(H::sub_i(H::splat_i(0), scale), H::splat_i(-15));
        Columns::new(H::sub_i(H::splat_i(0), factor), factor, code)
    }
}

/// Quants as fractions with a sign.
pub(in crate::kernels) trait Fractions: Quants {
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
    Bytes: 8;
    FiveBits<16>: 5;
    FiveBits<0>: 6;
    SixBits: 6;
    TwoBits: 3;
    ThreeBits: 3;
    Indices<Iq4Nl>: 8;
}

/// The two vectors of nibbles of a bundle.
///
/// # Safety
/// As [`Quants::bundle`] of [`Nibbles`].
#[inline(always)]
unsafe fn nibbles<H: Hvx>(quants: VectorPtr, bundle: usize) -> [H::B; 2] {
    // SAFETY: a tile has four vectors of quants, and `bundle` is below 2 (the caller's contract).
    unsafe { [quants.load_b::<H>(2 * bundle), quants.load_b::<H>(2 * bundle + 1)] }
}

/// High nibbles are in the first bits already.
impl Fractions for Nibbles<8> {
    const BITS: i32 = 4;

    #[inline(always)]
    unsafe fn fractions<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: the caller's contract is the same.
        let both = unsafe { nibbles::<H>(quants, I) }.map(|x| H::xor_b(x, H::splat_b(0x88)));
        let low = both.map(|x| only::<H>(H::bytes(H::shl_i::<4>(H::words(x))), 0xf0));
        ((8 * I, low), Some((16 + 8 * I, both.map(|x| only::<H>(x, 0xf0)))))
    }
}

/// The first bit is that of the sign.
impl Fractions for Nibbles<0> {
    const BITS: i32 = 5;

    #[inline(always)]
    unsafe fn fractions<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: the caller's contract is the same.
        let both = unsafe { nibbles::<H>(quants, I) };
        let low = both.map(|x| H::bytes(H::shl_i::<3>(H::words(only::<H>(x, 0x0f)))));
        let high = both.map(|x| H::bytes(H::shr_i::<1>(H::words(only::<H>(x, 0xf0)))));
        ((8 * I, low), Some((16 + 8 * I, high)))
    }
}

/// What is above the magnitudes of all weights of a column: a power of two, by its logarithm. Weights become
/// integers, as fractions of it times 2^15.
#[derive(Clone, Copy)]
struct Bound<H: Hvx>(H::I);

impl<H: Hvx> Bound<H> {
    /// That of a scale with this exponent code, times an integer of `integer` bits, times a fraction of a
    /// quant.
    #[inline(always)]
    fn of<Q: Fractions>(code: H::I, integer: i32) -> Self {
        // Scales are below 2^(code - 14).
        Self(H::add_i(code, H::splat_i(integer + Q::BITS - 1 - 14)))
    }

    /// The same, where a min with another exponent code, times such an integer, is taken away.
    #[inline(always)]
    fn with_min<Q: Fractions>(code: H::I, min: H::I, integer: i32) -> Self {
        let of_min = H::add_i(min, H::splat_i(integer - 14));
        Self(H::add_i(H::max_i(Self::of::<Q>(code, integer).0, of_min), H::splat_i(1)))
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

    /// 2^`up` over the bound.
    #[inline(always)]
    fn power(self, up: i32) -> H::F {
        H::from_bits(H::shl_i::<23>(H::sub_i(H::splat_i(127 + up), self.0)))
    }

    /// What is done to the results of its columns, whose largest scale has this exponent code.
    #[inline(always)]
    fn columns(self, depth: Depth, code: H::I) -> Columns<H> {
        let down = depth.down - depth.log;
        Columns::new(H::splat_i(down), H::add_i(self.0, H::splat_i(-15 - down)), code)
    }
}

/// What the quants of half a tile are multiplied with, and what is taken from that: fractions of 2^15, twice
/// in each word.
#[derive(Clone, Copy)]
struct Part<H: Hvx> {
    scale: H::B,
    less: H::B,
}

impl<H: Hvx> Part<H> {
    #[inline(always)]
    fn new(scale: H::F, less: H::F) -> Self {
        let twice = |x: H::F| {
            let x = H::to_int(x);
            H::pair_halves(x, x)
        };
        Self { scale: twice(scale), less: twice(less) }
    }
}

impl<Q: Fractions, const MINS: usize> Tiles for Flat<Q, Halves<MINS>> {
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
        let (vectors, scales_at) = (Self::GROUP.vectors(), Self::GROUP.scales_at());
        let (mut largest, mut largest_min) = (Largest::<H>::new(), Largest::<H>::new());
        for group in 0..groups {
            let group = packed.skip(group * vectors);
            for i in 0..2 {
                // SAFETY: this is one of `groups` groups, and each has two vectors of scales there, and two
                // of mins if there are any (the caller's contract, point 1).
                unsafe {
                    largest.add(group.load_b::<H>(scales_at + i));
                    if MINS > 0 {
                        largest_min.add(group.load_b::<H>(Self::GROUP.mins_at() + i));
                    }
                }
            }
        }
        let (code, min) = (largest.exponent_code(), largest_min.exponent_code());
        let bound = if MINS > 0 { Bound::with_min::<Q>(code, min, 0) } else { Bound::of::<Q>(code, 0) };
        let zero = H::splat(0.0);
        let (of_scales, of_mins) = (bound.of_scales::<Q>(), H::sub(zero, bound.of_mins()));
        let part = |scale: H::F, min: H::F| {
            // Mins are added.
            let less = if MINS > 0 { H::mul_ieee(min, of_mins) } else { zero };
            [Part::new(H::mul_ieee(scale, of_scales), less); 2]
        };
        let parts = |pair: usize| {
            let group = packed.skip(pair / 2 * vectors);
            // SAFETY: the pair has one of the `k_tiles` tiles, and so is one of the two of a group, whose
            // scales are in a vector of their own, and mins, too (the caller's contract, point 1).
            let (scales, mins) = unsafe {
                let scales = H::widen_f16(group.load_b::<H>(scales_at + pair % 2));
                let mins = || H::widen_f16(group.load_b::<H>(Self::GROUP.mins_at() + pair % 2));
                (scales, if MINS > 0 { mins() } else { (zero, zero) })
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
            unsafe {
                if MINS > 0 {
                    unpack_pair::<Q, H, true>(quants, these, to.skip(2 * pair));
                } else {
                    unpack_pair::<Q, H, false>(quants, these, to.skip(2 * pair));
                }
            }
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
        let bound =
            if N::MINS { Bound::with_min::<Q>(code, min, N::BITS) } else { Bound::of::<Q>(code, N::BITS) };
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
fn parts<N: Integers, H: Hvx>(scales: H::I, mins: H::I, d: H::F, dmin: H::F) -> [Part<H>; 2] {
    let low = |x: H::I| H::to_float(H::sar_i::<16>(H::shl_i::<16>(x)));
    let high = |x: H::I| H::to_float(H::sar_i::<16>(x));
    let part = |scale: H::F, min: H::F| Part::new(H::mul_ieee(scale, d), H::mul_ieee(min, dmin));
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
    parts: [[Part<H>; 2]; 2],
    to: TilePtr,
) {
    let [first, second] = [to, to.skip(1)].map(TilePtr::vectors);
    let [even, odd] = quants;
    // As far as LLVM knows, what is stored first may lie where the rest is loaded from. So all of a tile is
    // loaded before; all of a pair only where quants are whole, and the others leave too few registers.
    //
    // SAFETY: `quants` hold those of a tile each, and there are two bundles, or four. The matrix tiles at
    // `to` are this call's own (the caller's contract).
    unsafe {
        if Q::BUNDLES == 4 {
            let (a, b) = (Q::fractions::<H, 0>(even), Q::fractions::<H, 1>(even));
            let (c, d) = (Q::fractions::<H, 2>(even), Q::fractions::<H, 3>(even));
            let (e, f) = (Q::fractions::<H, 0>(odd), Q::fractions::<H, 1>(odd));
            let (g, h) = (Q::fractions::<H, 2>(odd), Q::fractions::<H, 3>(odd));
            store_bundles::<H, MINS>([a, b], parts[0], first);
            store_bundles::<H, MINS>([c, d], parts[0], first);
            store_bundles::<H, MINS>([e, f], parts[1], second);
            store_bundles::<H, MINS>([g, h], parts[1], second);
        } else {
            let bundles = [Q::fractions::<H, 0>(even), Q::fractions::<H, 1>(even)];
            store_bundles::<H, MINS>(bundles, parts[0], first);
            let bundles = [Q::fractions::<H, 0>(odd), Q::fractions::<H, 1>(odd)];
            store_bundles::<H, MINS>(bundles, parts[1], second);
        }
    }
}

/// Makes the halves of two bundles.
///
/// # Safety
/// A matrix tile is valid for writing at `to`, and nobody else touches it.
#[inline(always)]
unsafe fn store_bundles<H: Hvx, const MINS: bool>(
    [a, b]: [Bundle<H>; 2],
    parts: [Part<H>; 2],
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
    parts: [Part<H>; 2],
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
    part: Part<H>,
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

/// Whether every matrix tile of a group ends before the quants of its tile begin, and so before all that is
/// read after them. The last group is the one where they are closest: its end is [`SPARE`] matrix tiles
/// behind that of its own.
const fn reads_before_it_writes(group: &QuantGroup) -> bool {
    let tile = TILE_BYTES / VECTOR_BYTES;
    let begins = (group.tiles + SPARE) * tile - group.vectors();
    let (mut t, mut all) = (0, true);
    while t < group.tiles {
        all &= (t + 1) * tile <= begins + group.quants_at(t);
        t += 1;
    }
    // What else is read for a tile lies behind the quants of all of them.
    all
}
