//! Weights as products of two fp16, as in `floats.rs`, of types whose scale is that of several tiles: half of
//! a group's. Quants are shifted to the low end of a nibble and looked up in a table of sixteen numbers, in
//! which the other bits of the nibble make no difference: that saves the masks.

use super::super::super::quants::{OneBit, TwoBits};
use super::super::super::two_blocks::TwoBlocks;
use super::floats::{HalfQuants, load, unpack_and_load};
use super::{Bound, Columns, Tiles, reads_before_it_writes};
use crate::hmx::TilePtr;
use crate::hmx::scales::powers_f16;
use crate::hvx::{Hvx, Numbers, VectorPtr};
use crate::kernels::shared::largest::Largest;
use crate::kernels::shared::row_scale::Depth;

/// The bytes shifted right by `bits`, which is below 8; bits of other bytes come in from above.
#[inline(always)]
fn shifted<H: Hvx>(x: H::B, bits: usize) -> H::B {
    let words = H::words(x);
    H::bytes(match bits {
        0 => words,
        1 => H::shr_i::<1>(words),
        2 => H::shr_i::<2>(words),
        3 => H::shr_i::<3>(words),
        4 => H::shr_i::<4>(words),
        5 => H::shr_i::<5>(words),
        6 => H::shr_i::<6>(words),
        _ => H::shr_i::<7>(words),
    })
}

impl HalfQuants for OneBit {
    const BITS: i32 = 0;
    const EXCHANGED: bool = true;

    #[inline(always)]
    unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2] {
        // SAFETY: a tile has a vector of quants (the caller's contract).
        [unsafe { quants.load_b::<H>(0) }; 2]
    }

    #[inline(always)]
    fn halves<H: Hvx, const I: usize>(x: [H::B; 2]) -> [[H::B; 2]; 2] {
        static NUMBERS: Numbers = Numbers::new([-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1]);
        let [even, odd] = x;
        [
            H::lookup_f16(shifted::<H>(even, 2 * I), &NUMBERS),
            H::lookup_f16(shifted::<H>(odd, 2 * I + 1), &NUMBERS),
        ]
    }
}

impl HalfQuants for TwoBits<1> {
    // They are -1 to 2.
    const BITS: i32 = 1;
    const EXCHANGED: bool = true;

    #[inline(always)]
    unsafe fn load<H: Hvx, const I: usize>(quants: VectorPtr) -> [H::B; 2] {
        // SAFETY: a tile has two vectors of quants, and `I` is below 4 (the caller's contract).
        [unsafe { quants.load_b::<H>(I / 2) }; 2]
    }

    #[inline(always)]
    fn halves<H: Hvx, const I: usize>(x: [H::B; 2]) -> [[H::B; 2]; 2] {
        static NUMBERS: Numbers = Numbers::new([-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2]);
        let [even, odd] = x;
        [
            H::lookup_f16(shifted::<H>(even, I % 2 * 4), &NUMBERS),
            H::lookup_f16(shifted::<H>(odd, I % 2 * 4 + 2), &NUMBERS),
        ]
    }
}

impl<Q: HalfQuants, const TILES: usize> Tiles for TwoBlocks<Q, TILES> {
    const EXCHANGED: bool = Q::EXCHANGED;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        const { assert!(reads_before_it_writes(&Self::GROUP) && Q::SHIFT == 0) };
        let (vectors, scales) = (Self::GROUP.vectors(), packed.skip(Self::GROUP.scales_at()));
        let mut largest = Largest::<H>::new();
        for group in 0..groups {
            // SAFETY: `group` is below `groups`, and each has a vector of scales there (the caller's
            // contract, point 1).
            largest.add(unsafe { scales.skip(group * vectors).load_b::<H>(0) });
        }
        let code = largest.exponent_code();
        let bound = Bound::of(code, Q::BITS);
        // Two powers of two, because one may be larger than an f16.
        let power = powers_f16::<H>(H::sub_i(H::splat_i(15), bound.0));
        let quants = |tile: usize| packed.skip(tile / TILES * vectors + Self::GROUP.quants_at(tile % TILES));
        let last = k_tiles - 1;
        // The quants of the next tile are loaded while one is unpacked: LLVM moves no load before a store
        // that may be to the same memory.
        //
        // SAFETY: the tile is the first of the strip (the caller's contract, point 1).
        let mut next = unsafe { load::<Q, H>(quants(0)) };
        for block in 0..k_tiles.div_ceil(TILES / 2) {
            let first = block * (TILES / 2);
            // SAFETY: the block has one of the `k_tiles` tiles, so that its group is there, which has a
            // vector of scales (the caller's contract, point 1). Matrix tiles made so far end before it
            // (`reads_before_it_writes`).
            let both = unsafe { scales.skip(first / TILES * vectors).load_b::<H>(0) };
            let both = H::words(H::mul_f16(H::mul_f16(both, power[0]), power[1]));
            let scale = if block.is_multiple_of(2) { both } else { H::shr_i::<16>(both) };
            let scale = H::pair_halves(scale, scale);
            for tile in first..(first + TILES / 2).min(k_tiles) {
                // SAFETY: the tile, and the next one, is one of the strip's `k_tiles`, so that its quants are
                // inside of a group (the caller's contract, point 1), and its matrix tile is in the room
                // (point 2). Tiles are made in order, each before what is read for those after it
                // (`reads_before_it_writes`).
                next = unsafe {
                    unpack_and_load::<Q, H>(next, scale, to.skip(tile), quants((tile + 1).min(last)))
                };
            }
        }
        bound.columns(depth, code)
    }
}
