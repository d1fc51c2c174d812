//! Quants of a tile, from the bits in which they are stored to vectors that `vrmpy` takes.

use hexflash_abi::dtype;

use super::activations::Activations;
use crate::hvx::{Hvx, Lookup, VectorPtr};

/// Eight adjacent k of a tile: the first of them, and two vectors of four k each.
type Pair<H> = (usize, [<H as Hvx>::B; 2]);

/// The quants that come from the same bits: a pair, or two.
type Bundle<H> = (Pair<H>, Option<Pair<H>>);

/// How a type's quants are stored: see [`hexflash_abi::dtype`].
pub(in crate::kernels) trait Quants: Sync + 'static {
    /// Vectors of the low bits of a tile.
    const LOW: usize;
    /// Vectors of the high bits of a tile.
    const HIGH: usize;
    /// What a quant of value zero is, as `vrmpy` takes it.
    const ZERO: i32;

    /// Bundles of a tile: two of two pairs, or four of one.
    const BUNDLES: usize = 2;

    /// Whether quants are taken from their bits with few registers.
    const FEW_REGISTERS: bool = false;

    /// Whether the pairs of tiles of a super-block are written out one after the other for a single row, so
    /// that their instructions can share packets: 1 to 7 % fewer of them. LLVM 22 makes more of them where
    /// this is false, and of several rows.
    const WRITTEN_OUT: bool = true;

    /// A bundle of a tile's quants, unsigned.
    ///
    /// # Safety
    /// `low` and `high` hold the low and high bits of a tile, and `I` is below `BUNDLES`.
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, high: VectorPtr) -> Bundle<H>;
}

/// Per row of x, the sums of the products of a tile and a block: S of them, each of 32 / S adjacent k.
///
/// # Safety
/// `low` and `high` hold the bits of a tile; each `x` has the block.
#[inline(always)]
pub(super) unsafe fn tile<Q: Quants, H: Hvx, const R: usize, const S: usize>(
    low: VectorPtr,
    high: VectorPtr,
    x: &[Activations; R],
    block: usize,
) -> [[H::I; S]; R] {
    const { assert!(S == 1 || S == 2) };
    let mut sums = [[H::splat_i(0); S]; R];
    if Q::ZERO != 0 {
        for (sums, x) in sums.iter_mut().zip(x) {
            // SAFETY: each `x` has the block (the caller's contract).
            let halves = unsafe { x.sums::<H>(block) };
            for (i, sum) in sums.iter_mut().enumerate() {
                let of_x = if S == 1 { halves[0].wrapping_add(halves[1]) } else { halves[i] };
                *sum = H::splat_i(of_x.wrapping_mul(-Q::ZERO));
            }
        }
    }
    // Bundles are written out: which bits they have must be constants.
    //
    // SAFETY: `low` and `high` hold the bits of a tile, and each `x` has the block (the caller's contract).
    // There are two bundles, or four.
    unsafe {
        add_bundle::<Q, H, R, S, 0>(&mut sums, low, high, x, block);
        add_bundle::<Q, H, R, S, 1>(&mut sums, low, high, x, block);
        if Q::BUNDLES == 4 {
            add_bundle::<Q, H, R, S, 2>(&mut sums, low, high, x, block);
            add_bundle::<Q, H, R, S, 3>(&mut sums, low, high, x, block);
        }
    }
    sums
}

/// Adds the products of a bundle.
///
/// # Safety
/// `low` and `high` hold the bits of a tile, and `I` is below `BUNDLES`; each `x` has the block.
#[inline(always)]
unsafe fn add_bundle<Q: Quants, H: Hvx, const R: usize, const S: usize, const I: usize>(
    sums: &mut [[H::I; S]; R],
    low: VectorPtr,
    high: VectorPtr,
    x: &[Activations; R],
    block: usize,
) {
    // SAFETY: `low` and `high` hold the bits of a tile, and `I` is below `BUNDLES` (the caller's contract).
    let ((k, v), second) = unsafe { Q::bundle::<H, I>(low, high) };
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: each `x` has the block (the caller's contract). The first k of a pair is a multiple of 8
        // below 32.
        let a = unsafe { x.eight::<H>(block, k) };
        let Some((l, w)) = second else {
            sums[k * S / 32] = H::vrmpy(H::vrmpy(sums[k * S / 32], v[0], a[0]), v[1], a[1]);
            continue;
        };
        // SAFETY: each `x` has the block (the caller's contract). The first k of a pair is a multiple of 8
        // below 32.
        let b = unsafe { x.eight::<H>(block, l) };
        for i in 0..2 {
            sums[k * S / 32] = H::vrmpy(sums[k * S / 32], v[i], a[i]);
            sums[l * S / 32] = H::vrmpy(sums[l * S / 32], w[i], b[i]);
        }
    }
}

/// A bundle of both pairs.
#[inline(always)]
fn two<H: Hvx>([a, b]: [Pair<H>; 2]) -> Bundle<H> {
    (a, Some(b))
}

/// A byte each, with 128 for zero.
pub(in crate::kernels) struct Bytes;

impl Quants for Bytes {
    const LOW: usize = 8;
    const HIGH: usize = 0;
    const ZERO: i32 = 128;
    const BUNDLES: usize = 4;
    const FEW_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, _high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has eight vectors of low bits, and `I` is below 4 (the caller's contract).
        ((8 * I, unsafe { [low.load_b::<H>(2 * I), low.load_b::<H>(2 * I + 1)] }), None)
    }
}

/// Low nibbles are the first sixteen k, high nibbles the others: no shuffle.
///
/// # Safety
/// `low` holds the four vectors of a tile's low bits; `I` is 0 or 1.
#[inline(always)]
unsafe fn nibbles<H: Hvx, const I: usize>(low: VectorPtr) -> [Pair<H>; 2] {
    // SAFETY: `low` holds four vectors, and `I` is below 2 (the caller's contract).
    let (a, b) = unsafe { (low.load_b::<H>(2 * I), low.load_b::<H>(2 * I + 1)) };
    let (a, b) = (H::nibbles(a), H::nibbles(b));
    [(8 * I, [a.0, b.0]), (16 + 8 * I, [a.1, b.1])]
}

/// A nibble each, with `ZERO` for zero.
pub(in crate::kernels) struct Nibbles<const ZERO: i32>;

impl<const ZERO: i32> Quants for Nibbles<ZERO> {
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const ZERO: i32 = ZERO;
    const FEW_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, _high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of low bits, and `I` is below 2 (the caller's contract).
        two::<H>(unsafe { nibbles::<H, I>(low) })
    }
}

/// The values of a table of sixteen.
pub(in crate::kernels) trait Values: Sync + 'static {
    /// What is added to values, so that they are unsigned.
    const ZERO: i32;
    /// The values, with `ZERO` added.
    const LOOKUP: &'static Lookup;
}

/// The values of IQ4_NL and IQ4_XS.
pub(in crate::kernels) struct Iq4Nl;

impl Values for Iq4Nl {
    const ZERO: i32 = 128;
    const LOOKUP: &'static Lookup = {
        static LOOKUP: Lookup = Lookup::unsigned(dtype::IQ4_NL, Iq4Nl::ZERO);
        &LOOKUP
    };
}

/// Twice the values of MXFP4.
pub(in crate::kernels) struct E2M1;

impl Values for E2M1 {
    const ZERO: i32 = 12;
    const LOOKUP: &'static Lookup = {
        static LOOKUP: Lookup = Lookup::unsigned(dtype::MXFP4, E2M1::ZERO);
        &LOOKUP
    };
}

/// Nibbles that say which value of a table it is.
pub(in crate::kernels) struct Indices<V>(core::marker::PhantomData<V>);

impl<V: Values> Quants for Indices<V> {
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const ZERO: i32 = V::ZERO;
    const WRITTEN_OUT: bool = false;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, _high: VectorPtr) -> Bundle<H> {
        let find = |v: H::B| H::lookup(v, V::LOOKUP);
        // SAFETY: a tile has four vectors of low bits, and `I` is below 2 (the caller's contract).
        let [(k, a), (l, b)] = unsafe { nibbles::<H, I>(low) };
        ((k, [find(a[0]), find(a[1])]), Some((l, [find(b[0]), find(b[1])])))
    }
}

/// `quants` with bits `from` and up of every byte of `x` as bits `to` and up, where `mask` has ones.
///
/// What a shift brings over from the next byte, the mask takes away. A mask for all is a register less than
/// one for every place that bits come from.
#[inline(always)]
fn add_bits<H: Hvx>(quants: H::B, x: H::B, mask: u8, from: usize, to: usize) -> H::B {
    let words = H::words(x);
    let moved = match to as i32 - from as i32 {
        4 => H::shl_i::<4>(words),
        3 => H::shl_i::<3>(words),
        2 => H::shl_i::<2>(words),
        1 => H::shl_i::<1>(words),
        0 => words,
        -1 => H::shr_i::<1>(words),
        -2 => H::shr_i::<2>(words),
        -3 => H::shr_i::<3>(words),
        -4 => H::shr_i::<4>(words),
        _ => H::shr_i::<5>(words),
    };
    H::or_b(quants, H::bytes(H::and_i(moved, H::splat_i(i32::from_ne_bytes([mask; 4])))))
}

/// Adds a high bit, number `to`, to the quants of pairs.
///
/// # Safety
/// `high` holds the vector of a tile's high bits.
#[inline(always)]
unsafe fn with_bit<H: Hvx>(pairs: [Pair<H>; 2], high: VectorPtr, to: usize) -> [Pair<H>; 2] {
    // SAFETY: `high` holds a vector (the caller's contract).
    let bits = unsafe { high.load_b::<H>(0) };
    let [(k, v), (l, w)] = pairs;
    let add = |quants: H::B, k: usize| add_bits::<H>(quants, bits, 1 << to, k / 4, to);
    [(k, [add(v[0], k), add(v[1], k + 4)]), (l, [add(w[0], l), add(w[1], l + 4)])]
}

/// A nibble and a bit each, with `ZERO` for zero.
pub(in crate::kernels) struct FiveBits<const ZERO: i32>;

impl<const ZERO: i32> Quants for FiveBits<ZERO> {
    const LOW: usize = 4;
    const HIGH: usize = 1;
    const ZERO: i32 = ZERO;
    const WRITTEN_OUT: bool = false;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of low bits and one of high bits, and `I` is below 2 (the
        // caller's contract).
        two::<H>(unsafe { with_bit::<H>(nibbles::<H, I>(low), high, 4) })
    }
}

/// A nibble and two bits each, with 32 for zero.
pub(in crate::kernels) struct SixBits;

impl Quants for SixBits {
    const LOW: usize = 4;
    const HIGH: usize = 2;
    const ZERO: i32 = 32;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of low bits, and `I` is below 2 (the caller's contract).
        let [(k, v), (l, w)] = unsafe { nibbles::<H, I>(low) };
        // SAFETY: a tile has two vectors of high bits (the caller's contract): of k below 16 and of the rest.
        let high = unsafe { [high.load_b::<H>(0), high.load_b::<H>(1)] };
        let add = |quants: H::B, k: usize| add_bits::<H>(quants, high[k / 16], 3 << 4, k % 16 / 2, 4);
        ((k, [add(v[0], k), add(v[1], k + 4)]), Some((l, [add(w[0], l), add(w[1], l + 4)])))
    }
}

/// Two bits each.
///
/// # Safety
/// `low` holds the two vectors of a tile's low bits; `I` is 0 or 1.
#[inline(always)]
unsafe fn two_bits<H: Hvx, const I: usize>(low: VectorPtr) -> [Pair<H>; 2] {
    // SAFETY: `low` holds two vectors, and `I` is below 2 (the caller's contract).
    let x = unsafe { low.load_b::<H>(I) };
    let (words, low) = (H::words(x), H::splat_i(0x0303_0303));
    let quants = |x: H::I| H::bytes(H::and_i(x, low));
    let first = [quants(words), quants(H::shr_i::<2>(words))];
    let second = [quants(H::shr_i::<4>(words)), quants(H::shr_i::<6>(words))];
    [(16 * I, first), (16 * I + 8, second)]
}

/// Two bits each, with zero for zero.
pub(in crate::kernels) struct TwoBits;

impl Quants for TwoBits {
    const LOW: usize = 2;
    const HIGH: usize = 0;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, _high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has two vectors of low bits, and `I` is below 2 (the caller's contract).
        two::<H>(unsafe { two_bits::<H, I>(low) })
    }
}

/// Two bits and one each, with 4 for zero.
pub(in crate::kernels) struct ThreeBits;

impl Quants for ThreeBits {
    const LOW: usize = 2;
    const HIGH: usize = 1;
    const ZERO: i32 = 4;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(low: VectorPtr, high: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has two vectors of low bits and one of high bits, and `I` is below 2 (the
        // caller's contract).
        two::<H>(unsafe { with_bit::<H>(two_bits::<H, I>(low), high, 2) })
    }
}
