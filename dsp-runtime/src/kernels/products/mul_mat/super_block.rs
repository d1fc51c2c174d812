//! Groups of ggml's super-blocks: 256 k with a float d per row, and small integers that scale its parts: Q2_K
//! to Q6_K and IQ4_XS.

use core::marker::PhantomData;

use hexflash_abi::dtype::QuantGroup;

use super::activations::Activations;
use super::groups::{Group, start};
use super::quants::{Quants, tile};
use super::sums::Sum;
use crate::hvx::{Hvx, VectorPtr, math};

/// Tiles of a group.
const TILES: usize = 8;

/// The small integers of a super-block: see [`hexflash_abi::dtype`].
pub trait Integers: Sync + 'static {
    /// Parts of a tile, each with a scale: one or two.
    const PARTS: usize;
    /// Vectors in a group.
    const VECTORS: usize;
    /// Whether there are mins, which are subtracted.
    const MINS: bool;
    /// The logarithm of the largest magnitude of a scale or a min, rounded up.
    const BITS: i32;

    /// The scales of a pair of tiles, as halves of words, signed: of the even tile and of the odd one. The
    /// low half is that of its first part, the high one that of its second part. That of a whole tile is in
    /// the low half if there are mins, and then has no sign, and in the high half if there are none.
    ///
    /// # Safety
    /// `at` holds the group's vectors of integers, and `pair` is below 4.
    unsafe fn scales<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2];

    /// The mins of a pair of tiles, as halves of words: as the scales, but that of a whole tile is in the
    /// high half.
    ///
    /// # Safety
    /// `at` holds the group's vectors of integers, and `pair` is below 4.
    unsafe fn mins<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::scales::<H>(at, pair) }
    }
}

/// Every byte as a half, of a vector for a pair of tiles.
#[inline(always)]
fn halves<H: Hvx>(bytes: H::B) -> [H::I; 2] {
    let (even, odd) = H::widen_bytes(bytes);
    [even, odd]
}

/// A signed scale for each half of a tile.
pub struct PerHalf;

impl Integers for PerHalf {
    const PARTS: usize = 2;
    const VECTORS: usize = 4;
    const MINS: bool = false;
    const BITS: i32 = 7;

    #[inline(always)]
    unsafe fn scales<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: `at` holds four vectors, and `pair` is below 4 (the caller's contract).
        halves::<H>(unsafe { at.load_b::<H>(pair) })
    }
}

/// A scale and a min for each half of a tile, in a nibble each.
pub struct PerHalfWithMins;

impl Integers for PerHalfWithMins {
    const PARTS: usize = 2;
    const VECTORS: usize = 4;
    const MINS: bool = true;
    const BITS: i32 = 4;

    #[inline(always)]
    unsafe fn scales<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: `at` holds four vectors, and `pair` is below 4 (the caller's contract).
        halves::<H>(H::nibbles(unsafe { at.load_b::<H>(pair) }).0)
    }

    #[inline(always)]
    unsafe fn mins<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: `at` holds four vectors, and `pair` is below 4 (the caller's contract).
        halves::<H>(H::nibbles(unsafe { at.load_b::<H>(pair) }).1)
    }
}

/// A signed scale for each tile.
pub struct PerTile;

impl Integers for PerTile {
    const PARTS: usize = 1;
    const VECTORS: usize = 2;
    const MINS: bool = false;
    const BITS: i32 = 5;

    #[inline(always)]
    unsafe fn scales<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: `at` holds two vectors, and `pair` is below 4 (the caller's contract).
        let words = H::words(unsafe { at.load_b::<H>(pair / 2) });
        halves::<H>(H::bytes(if pair.is_multiple_of(2) { H::shl_i::<16>(words) } else { words }))
    }
}

/// A scale and a min for each tile.
pub struct PerTileWithMins;

impl Integers for PerTileWithMins {
    const PARTS: usize = 1;
    const VECTORS: usize = 4;
    const MINS: bool = true;
    const BITS: i32 = 6;

    #[inline(always)]
    unsafe fn scales<H: Hvx>(at: VectorPtr, pair: usize) -> [H::I; 2] {
        // SAFETY: `at` holds four vectors, and `pair` is below 4 (the caller's contract).
        halves::<H>(unsafe { at.load_b::<H>(pair) })
    }
}

/// A type with these quants and integers.
pub struct SuperBlock<Q, N>(PhantomData<(Q, N)>);

impl<Q: Quants, N: Integers> SuperBlock<Q, N> {
    /// The group, which [`super::types`] compares with the type's.
    pub const GROUP: QuantGroup =
        QuantGroup { tiles: TILES, quants: Q::VECTORS, scales: N::VECTORS, mins: 0, d: 1 };
}

/// A tile's sums are integers: the sum of each part times the part's scale, which is exact in 32 bits (at
/// most 32 * 31 * 127 * 63 < 2^24, and 32 * 255 * 127 * 128 < 2^27), then times d and the activations' scale.
impl<Q: Quants, N: Integers> Group for SuperBlock<Q, N> {
    const VECTORS: usize = Self::GROUP.vectors();
    const BLOCKS: usize = TILES;

    #[inline(always)]
    unsafe fn add<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        x: &[Activations; R],
        block: usize,
        acc: &mut [H::F; R],
    ) {
        let mut added = start::<H, A, R>(acc);
        // SAFETY: `group` holds a group (the caller's contract), which has a vector of d.
        let both = unsafe { group.load_b::<H>(Self::GROUP.d_at()) };
        // Without mins: d in both halves, for a pair of tiles.
        let d = H::and_i(H::words(both), H::splat_i(0xffff));
        let d = H::bytes(H::or_i(d, H::shl_i::<16>(d)));
        let mut mins = [A::start(H::splat(0.0)); R];
        let mut scaled = mins;
        // SAFETY: `group` holds a group, pairs are below 4, which is half of TILES, and each `x` starts with
        // a group and has the eight blocks from `block` on, which is the first of a group and so even (the
        // caller's contract).
        unsafe {
            let sums = if N::MINS { &mut scaled } else { &mut added };
            if Self::written_out::<H>(R) {
                Self::with_mins::<H, A, R>(group, 0, d, x, block, sums, &mut mins);
                Self::with_mins::<H, A, R>(group, 1, d, x, block, sums, &mut mins);
                Self::with_mins::<H, A, R>(group, 2, d, x, block, sums, &mut mins);
                Self::with_mins::<H, A, R>(group, 3, d, x, block, sums, &mut mins);
            } else if N::VECTORS == 2 {
                // Two pairs share a vector of scales: which half is whose is known when this is compiled.
                for two in 0..TILES / 4 {
                    Self::with_mins::<H, A, R>(group, 2 * two, d, x, block, sums, &mut mins);
                    Self::with_mins::<H, A, R>(group, 2 * two + 1, d, x, block, sums, &mut mins);
                }
            } else {
                for pair in 0..TILES / 2 {
                    Self::with_mins::<H, A, R>(group, pair, d, x, block, sums, &mut mins);
                }
            }
        }
        if N::MINS {
            let (d, dmin) = H::widen_f16(both);
            let dmin = if N::PARTS == 1 { math::negate::<H>(dmin) } else { dmin };
            for (acc, (scaled, mins)) in acc.iter_mut().zip(scaled.into_iter().zip(mins)) {
                let sum = A::first(*acc, H::mul_q(d, scaled.end()));
                *acc = sum.add(H::mul_q(dmin, mins.end())).end();
            }
        } else {
            for (acc, sum) in acc.iter_mut().zip(added) {
                *acc = sum.end();
            }
        }
    }
}

impl<Q: Quants, N: Integers> SuperBlock<Q, N> {
    /// Whether the pairs of tiles are written out one after the other, for so many rows.
    #[inline(always)]
    fn written_out<H: Hvx>(rows: usize) -> bool {
        // Sums and mins of four pairs side by side do not fit the registers where floats may not leave them.
        let most = match (H::Q_STAYS, H::COSTLY_FLOATS) {
            (false, false) => 4,
            (true, _) if N::MINS => 0,
            _ => 1,
        };
        H::WRITES_OUT && rows <= Q::WRITTEN_OUT.min(most)
    }

    /// [`pair`](Self::pair), and [`mins`](Self::mins) if there are any.
    ///
    /// # Safety
    /// `group` holds a group, and `pair` is below 4; each `x` starts with a group, and has the eight blocks
    /// from `first` on, which is even.
    #[inline(always)]
    unsafe fn with_mins<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        pair: usize,
        d: H::B,
        x: &[Activations; R],
        first: usize,
        sums: &mut [A; R],
        mins: &mut [A; R],
    ) {
        // SAFETY: `group` holds a group, `pair` is below 4, and each `x` starts with a group and has the
        // eight blocks from `first` on, which is even (the caller's contract). `mins` asks for no more.
        unsafe {
            Self::pair::<H, A, R>(group, pair, d, x, first, sums);
            if N::MINS {
                Self::mins::<H, A, R>(group, pair, x, first, mins);
            }
        }
    }

    /// sums += scales, quants and activations multiplied, for a pair of tiles, and times d, if there are no
    /// mins. (With mins, products with d are few enough to wait for the end of the group.) The group's first
    /// block of activations is `first`.
    ///
    /// # Safety
    /// `group` holds a group, and `pair` is below 4; each `x` starts with a group, and has the eight blocks
    /// from `first` on, which is even.
    #[inline(always)]
    unsafe fn pair<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        pair: usize,
        d: H::B,
        x: &[Activations; R],
        first: usize,
        sums: &mut [A; R],
    ) {
        let block = first + 2 * pair;
        // SAFETY: the group has its integers there, `pair` is below 4, so that its tiles are two of the
        // group's eight, and each `x` has their blocks (the caller's contract).
        let (even, odd) = unsafe {
            let scales = N::scales::<H>(group.skip(Self::GROUP.scales_at()), pair);
            let negative = x.map(|x| x.negative_sums_of_pair::<H>(block));
            (
                Self::tile::<H, R>(group, 2 * pair, x, block, scales[0], negative.map(|n| n[0])),
                Self::tile::<H, R>(group, 2 * pair + 1, x, block + 1, scales[1], negative.map(|n| n[1])),
            )
        };
        for r in 0..R {
            // SAFETY: each `x` has both blocks (the caller's contract). `first` is even, and rows start with
            // a group, which is at an even block.
            let (halves, floats) = unsafe { x[r].scales::<H>(block) };
            let scales = if N::MINS {
                (H::splat(floats[0]), H::splat(floats[1]))
            } else {
                H::widen_f16_scaled(d, halves, floats)
            };
            sums[r] = sums[r].add(H::mul_q(H::to_float(even[r]), scales.0));
            sums[r] = sums[r].add(H::mul_q(H::to_float(odd[r]), scales.1));
        }
    }

    /// Per row of x, the integer sum of a tile, times its scales. `negative` has minus the sums of each row's
    /// block, as activations have them.
    ///
    /// # Safety
    /// `group` holds a group, and `t` is below 8; each `x` has the block.
    #[inline(always)]
    unsafe fn tile<H: Hvx, const R: usize>(
        group: VectorPtr,
        t: usize,
        x: &[Activations; R],
        block: usize,
        scales: H::I,
        negative: [i32; R],
    ) -> [H::I; R] {
        let quants = group.skip(Self::GROUP.quants_at(t));
        let mut all = [H::splat_i(0); R];
        // SAFETY: `group` holds a group and `t` is below 8, so that `quants` holds those of a tile, and
        // each `x` has the block (the caller's contract).
        unsafe {
            if N::PARTS == 2 {
                let sums = tile::<Q, H, R, 2>(quants, x, block);
                // Zero times the scale of each part fits a half.
                const { assert!(N::PARTS == 1 || Q::ZERO < 128) };
                let zeros = H::mul_halves(H::bytes(scales), Q::ZERO as i8);
                for ((all, [a, b]), negative) in all.iter_mut().zip(sums).zip(negative) {
                    // Sums of 16 k may be halves.
                    *all = if Q::LARGEST * 128 * 16 <= 0x7fff {
                        H::dot_pairs(H::pair_halves(a, b), H::bytes(scales))
                    } else {
                        H::mul_add_low_halves(H::mul_high_halves(b, scales), a, scales)
                    };
                    if Q::ZERO != 0 {
                        *all = H::dot_halves(*all, zeros, negative);
                    }
                }
            } else {
                let sums = tile::<Q, H, R, 1>(quants, x, block);
                for (all, [sum]) in all.iter_mut().zip(sums) {
                    // With mins, scales have no sign. Without, both ways give the same: LLVM 22 needs fewer
                    // packets for the first in code that is written out, and for the second in loops.
                    *all = if N::MINS {
                        H::mul_low_halves(sum, scales)
                    } else if R == 1 {
                        H::mul_high_halves(sum, scales)
                    } else {
                        H::mul_add_low_halves(*all, sum, H::shr_i::<16>(scales))
                    };
                }
            }
        }
        all
    }

    /// sums += the mins of a pair of tiles, each times the scaled sum of its part of the activations; or
    /// minus that sum, if tiles have two parts. The group's first block of activations is `first`.
    ///
    /// # Safety
    /// `group` holds a group, and `pair` is below 4; each `x` starts with a group, and has the eight blocks
    /// from `first` on, which is even.
    #[inline(always)]
    unsafe fn mins<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        pair: usize,
        x: &[Activations; R],
        first: usize,
        sums: &mut [A; R],
    ) {
        // SAFETY: the group has its integers there, and `pair` is below 4 (the caller's contract).
        let mins = unsafe { N::mins::<H>(group.skip(Self::GROUP.scales_at()), pair) };
        let block = first + 2 * pair;
        if N::PARTS == 1 {
            let mins = mins.map(|mins| H::to_float(H::shr_i::<16>(mins)));
            for (sum, x) in sums.iter_mut().zip(x) {
                // SAFETY: each `x` has both blocks, of which the first is even, and starts with a group (the
                // caller's contract).
                let of_x = unsafe { x.scaled_sums::<H>(block) };
                *sum = sum.add(H::mul_q(mins[0], H::splat(of_x[0])));
                *sum = sum.add(H::mul_q(mins[1], H::splat(of_x[1])));
            }
            return;
        }
        for (sum, x) in sums.iter_mut().zip(x) {
            // SAFETY: each `x` has both blocks, of which the first is even, and starts with a group (the
            // caller's contract).
            let (scales, of_x) = unsafe { (x.scales::<H>(block).1, x.negative_sums_of_pair::<H>(block)) };
            for i in 0..2 {
                let products = H::first_dot_halves(H::bytes(mins[i]), of_x[i]);
                *sum = sum.add(H::mul_q(H::to_float(products), H::splat(scales[i])));
            }
        }
    }
}
