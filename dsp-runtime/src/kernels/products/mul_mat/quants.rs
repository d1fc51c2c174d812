//! Quants of a tile, from the bits in which they are stored to vectors that `vrmpy` takes.

use hexflash_abi::dtype;

use super::activations::Activations;
use crate::hvx::{Hvx, Lookup, VectorPtr};

/// Eight adjacent k of a tile: the first of them, and two vectors of four k each.
pub(super) type Pair<H> = (usize, [<H as Hvx>::B; 2]);

/// The quants that come from the same bits: a pair, or two.
pub(super) type Bundle<H> = (Pair<H>, Option<Pair<H>>);

/// How a type's quants are stored: see [`hexflash_abi::dtype`].
pub trait Quants: Sync + 'static {
    /// Vectors of a tile's quants.
    const VECTORS: usize;
    /// What a quant of value zero is, as `vrmpy` takes it: below 256.
    const ZERO: i32;

    /// No quant is larger, as `vrmpy` takes it.
    const LARGEST: i32 = 255;

    /// Bundles of a tile: two of two pairs, or four of one.
    const BUNDLES: usize = 2;

    /// Whether quants are taken from their bits with few registers.
    const FEW_REGISTERS: bool = false;

    /// The most rows for which the pairs of tiles of a super-block are written out one after the other, so
    /// that their instructions can share packets: up to 15 % fewer of them. LLVM 22 makes more packets of
    /// these quants for more rows.
    const WRITTEN_OUT: usize = 1;

    /// A bundle of a tile's quants, unsigned.
    ///
    /// # Safety
    /// `quants` holds those of a tile, and `I` is below `BUNDLES`.
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H>;

    /// The sum of the products of a tile's quants and a block of one row, whose activations are four to a
    /// word. Types for which bundles take fewer packets have none.
    ///
    /// # Safety
    /// `quants` holds those of a tile.
    #[inline(always)]
    unsafe fn of_one_row<H: Hvx>(_quants: VectorPtr, _x: [[i32; 2]; 4]) -> Option<H::I> {
        None
    }
}

/// Per row of x, the sums of the products of a tile and a block: one of 32 k, of quants less their zero; or
/// two of 16 adjacent k each, of quants as `vrmpy` takes them.
///
/// # Safety
/// `quants` holds those of a tile; each `x` has the block.
#[inline(always)]
pub(super) unsafe fn tile<Q: Quants, H: Hvx, const R: usize, const S: usize>(
    quants: VectorPtr,
    x: &[Activations; R],
    block: usize,
) -> [[H::I; S]; R] {
    const { assert!(S == 1 || S == 2) };
    let mut sums = [[H::splat_i(0); S]; R];
    // SAFETY: `quants` holds those of a tile, and each `x` has the block (the caller's contract).
    let of_one_row =
        || unsafe { Q::of_one_row::<H>(quants, [0, 8, 16, 24].map(|k| x[0].eight::<H>(block, k))) };
    if R == 1
        && S == 1
        && let Some(sum) = of_one_row()
    {
        sums[0][0] = sum;
    } else {
        // Bundles are written out: which bits they have must be constants.
        //
        // SAFETY: `quants` holds those of a tile, and each `x` has the block (the caller's contract). There
        // are two bundles, or four.
        unsafe {
            add_bundle::<Q, H, R, S, 0>(&mut sums, quants, x, block);
            add_bundle::<Q, H, R, S, 1>(&mut sums, quants, x, block);
            if Q::BUNDLES == 4 {
                add_bundle::<Q, H, R, S, 2>(&mut sums, quants, x, block);
                add_bundle::<Q, H, R, S, 3>(&mut sums, quants, x, block);
            }
        }
    }
    if S == 1 && Q::ZERO != 0 {
        let zeros = H::bytes(H::splat_i(Q::ZERO << 16 | Q::ZERO));
        for (sums, x) in sums.iter_mut().zip(x) {
            // SAFETY: each `x` has the block (the caller's contract).
            sums[0] = H::dot_halves(sums[0], zeros, unsafe { x.negative_sums(block) });
        }
    }
    sums
}

/// The sum with the products of a vector of quants: of `first` ones, if there is nothing before them.
#[inline(always)]
fn plus<H: Hvx>(sum: H::I, first: bool, quants: H::B, x: i32) -> H::I {
    if first { H::first_vrmpy(quants, x) } else { H::vrmpy(sum, quants, x) }
}

/// Adds the products of a bundle.
///
/// # Safety
/// `quants` holds those of a tile, and `I` is below `BUNDLES`; each `x` has the block.
#[inline(always)]
unsafe fn add_bundle<Q: Quants, H: Hvx, const R: usize, const S: usize, const I: usize>(
    sums: &mut [[H::I; S]; R],
    quants: VectorPtr,
    x: &[Activations; R],
    block: usize,
) {
    // SAFETY: `quants` holds those of a tile, and `I` is below `BUNDLES` (the caller's contract).
    let ((k, v), second) = unsafe { Q::bundle::<H, I>(quants) };
    // Pairs of a bundle add to one sum or to two.
    let apart = second.is_some_and(|(l, _)| k * S / 32 != l * S / 32);
    let first = I == 0 || S == 2 && !apart;
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: each `x` has the block (the caller's contract). The first k of a pair is a multiple of 8
        // below 32.
        let a = unsafe { x.eight::<H>(block, k) };
        let Some((l, w)) = second else {
            let sum = plus::<H>(sums[k * S / 32], first, v[0], a[0]);
            sums[k * S / 32] = H::vrmpy(sum, v[1], a[1]);
            continue;
        };
        // SAFETY: each `x` has the block (the caller's contract). The first k of a pair is a multiple of 8
        // below 32.
        let b = unsafe { x.eight::<H>(block, l) };
        for i in 0..2 {
            sums[k * S / 32] = plus::<H>(sums[k * S / 32], first && i == 0, v[i], a[i]);
            sums[l * S / 32] = plus::<H>(sums[l * S / 32], first && apart && i == 0, w[i], b[i]);
        }
    }
}

/// A byte each, with 128 for zero.
pub struct Bytes;

impl Quants for Bytes {
    const VECTORS: usize = 8;
    const ZERO: i32 = 128;
    const BUNDLES: usize = 4;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has eight vectors of quants, and `I` is below 4 (the caller's contract).
        ((8 * I, unsafe { [quants.load_b::<H>(2 * I), quants.load_b::<H>(2 * I + 1)] }), None)
    }
}

/// A nibble each, with `ZERO` for zero.
pub struct Nibbles<const ZERO: i32>;

impl<const ZERO: i32> Quants for Nibbles<ZERO> {
    const VECTORS: usize = 4;
    const ZERO: i32 = ZERO;
    const FEW_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of quants, and `I` is below 2 (the caller's contract).
        let (a, b) = unsafe { (quants.load_b::<H>(2 * I), quants.load_b::<H>(2 * I + 1)) };
        let (a, b) = (H::nibbles(a), H::nibbles(b));
        // Low nibbles are the first sixteen k, high nibbles the others: no shuffle.
        ((8 * I, [a.0, b.0]), Some((16 + 8 * I, [a.1, b.1])))
    }
}

/// The values of a table of sixteen.
pub trait Values: Sync + 'static {
    /// What is added to values, so that they are unsigned.
    const ZERO: i32;
    /// The values, with `ZERO` added.
    const LOOKUP: &'static Lookup;
}

/// The values of IQ4_NL and IQ4_XS.
pub struct Iq4Nl;

impl Values for Iq4Nl {
    const ZERO: i32 = 128;
    const LOOKUP: &'static Lookup = {
        static LOOKUP: Lookup = Lookup::unsigned(dtype::IQ4_NL, Iq4Nl::ZERO);
        &LOOKUP
    };
}

/// Twice the values of MXFP4.
pub struct E2M1;

impl Values for E2M1 {
    const ZERO: i32 = 12;
    const LOOKUP: &'static Lookup = {
        static LOOKUP: Lookup = Lookup::unsigned(dtype::MXFP4, E2M1::ZERO);
        &LOOKUP
    };
}

/// Nibbles that say which value of a table it is.
pub struct Indices<V>(core::marker::PhantomData<V>);

impl<V: Values> Quants for Indices<V> {
    const VECTORS: usize = 4;
    const ZERO: i32 = V::ZERO;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has four vectors of quants, and `I` is below 2 (the caller's contract).
        let both = unsafe { [quants.load_b::<H>(2 * I), quants.load_b::<H>(2 * I + 1)] };
        let first = both.map(|x| H::lookup_low(x, V::LOOKUP));
        let second = both.map(|x| H::lookup(H::shr_b::<4>(x), V::LOOKUP));
        ((8 * I, first), Some((16 + 8 * I, second)))
    }
}

/// The bits of every byte where `mask` has ones.
#[inline(always)]
pub(super) fn only<H: Hvx>(x: H::B, mask: u8) -> H::B {
    H::and_b(x, H::splat_b(mask))
}

/// a | x << N of bits that are apart and stay in their bytes.
#[inline(always)]
fn with_shl<H: Hvx, const N: i32>(a: H::B, x: H::B) -> H::B {
    H::bytes(H::add_shl::<N>(H::words(a), H::words(x)))
}

/// a | x >> N of bits that are apart and stay in their bytes. The highest bit of x is 0.
#[inline(always)]
fn with_shr<H: Hvx, const N: i32>(a: H::B, x: H::B) -> H::B {
    H::bytes(H::add_sar::<N>(H::words(a), H::words(x)))
}

/// Five bits each, with `ZERO` for zero.
pub struct FiveBits<const ZERO: i32>;

impl<const ZERO: i32> Quants for FiveBits<ZERO> {
    const WRITTEN_OUT: usize = 4;
    const VECTORS: usize = 5;
    const ZERO: i32 = ZERO;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has five vectors of quants (the caller's contract), and `i` is below 5 in all calls.
        let v = |i: usize| unsafe { quants.load_b::<H>(i) };
        let low = |i: usize| only::<H>(v(i), 31);
        let high = |i: usize| H::shr_b::<3>(v(i));
        if I == 0 {
            return ((0, [low(0), low(1)]), Some((8, [high(2), high(3)])));
        }
        // Three bits of one vector and two of another.
        let two = |a, b| H::or_b(only::<H>(v(a), 7), only::<H>(H::shr_b::<3>(v(b)), 3 << 3));
        let last = last_of_five::<H>(v);
        ((16, [high(4), two(2, 0)]), Some((24, [two(3, 1), last])))
    }

    #[inline(always)]
    unsafe fn of_one_row<H: Hvx>(quants: VectorPtr, x: [[i32; 2]; 4]) -> Option<H::I> {
        // SAFETY: a tile has five vectors of quants (the caller's contract), and `i` is below 5 in all calls.
        let v = |i: usize| unsafe { quants.load_b::<H>(i) };
        let last = last_of_five::<H>(v);
        // Bits stay where they are. So those at the high end of a byte count eight times as much, and a quant
        // that has some of them and others is multiplied twice.
        let low = H::first_vrmpy(only::<H>(v(0), 31), x[0][0]);
        let low = H::vrmpy(low, only::<H>(v(1), 31), x[0][1]);
        let high = H::first_vrmpy(only::<H>(v(2), 31 << 3), x[1][0]);
        let high = H::vrmpy(high, only::<H>(v(3), 31 << 3), x[1][1]);
        let high = H::vrmpy(high, only::<H>(v(4), 31 << 3), x[2][0]);
        let low = H::vrmpy(low, only::<H>(v(2), 7), x[2][1]);
        let high = H::vrmpy(high, only::<H>(v(0), 3 << 6), x[2][1]);
        let low = H::vrmpy(low, only::<H>(v(3), 7), x[3][0]);
        let high = H::vrmpy(high, only::<H>(v(1), 3 << 6), x[3][0]);
        let low = H::vrmpy(low, last, x[3][1]);
        Some(H::add_sar::<3>(low, high))
    }
}

/// The last quants of five bits, of a tile's vectors `v`: three bits of one, and one of two others each.
#[inline(always)]
fn last_of_five<H: Hvx>(v: impl Fn(usize) -> H::B) -> H::B {
    let four = with_shr::<H, 2>(only::<H>(v(4), 7), only::<H>(v(0), 1 << 5));
    with_shr::<H, 1>(four, only::<H>(v(1), 1 << 5))
}

/// Six bits each, with 32 for zero.
pub struct SixBits;

impl Quants for SixBits {
    const VECTORS: usize = 6;
    const ZERO: i32 = 32;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has six vectors of quants, and `I` is below 2 (the caller's contract).
        let v = unsafe { [0, 1, 2].map(|i| quants.load_b::<H>(3 * I + i)) };
        let whole = v.map(|v| only::<H>(v, 63));
        let [a, b, c] = v.map(H::shr_b::<6>);
        let last = with_shl::<H, 4>(with_shl::<H, 2>(a, b), c);
        ((16 * I, [whole[0], whole[1]]), Some((16 * I + 8, [whole[2], last])))
    }
}

/// A bit each, as 0 and 2 with 1 for zero.
pub struct OneBit;

impl Quants for OneBit {
    const LARGEST: i32 = 2;
    const VECTORS: usize = 1;
    const ZERO: i32 = 1;
    const BUNDLES: usize = 4;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has a vector of quants (the caller's contract).
        let words = H::words(unsafe { quants.load_b::<H>(0) });
        // Bits 2I and 2I + 1 of every byte, in the place of its second bit.
        let [a, b] = match I {
            0 => [H::shl_i::<1>(words), words],
            1 => [H::shr_i::<1>(words), H::shr_i::<2>(words)],
            2 => [H::shr_i::<3>(words), H::shr_i::<4>(words)],
            _ => [H::shr_i::<5>(words), H::shr_i::<6>(words)],
        };
        ((8 * I, [only::<H>(H::bytes(a), 2), only::<H>(H::bytes(b), 2)]), None)
    }

    #[inline(always)]
    unsafe fn of_one_row<H: Hvx>(quants: VectorPtr, x: [[i32; 2]; 4]) -> Option<H::I> {
        // SAFETY: a tile has a vector of quants (the caller's contract).
        let all = unsafe { quants.load_b::<H>(0) };
        let words = H::words(all);
        let pairs = [
            all,
            H::bytes(H::shr_i::<2>(words)),
            H::bytes(H::shr_i::<4>(words)),
            H::bytes(H::shr_i::<6>(words)),
        ];
        // The lower bit of a pair counts half as much as the other one, until the end.
        let mut low = H::first_vrmpy(only::<H>(pairs[0], 1), x[0][0]);
        let mut high = H::first_vrmpy(only::<H>(pairs[0], 2), x[0][1]);
        for i in 1..4 {
            low = H::vrmpy(low, only::<H>(pairs[i], 1), x[i][0]);
            high = H::vrmpy(high, only::<H>(pairs[i], 2), x[i][1]);
        }
        Some(H::add_shl::<1>(high, low))
    }
}

/// Two bits each, with `ZERO` for zero.
pub struct TwoBits<const ZERO: i32>;

impl<const ZERO: i32> Quants for TwoBits<ZERO> {
    const LARGEST: i32 = 3;
    const WRITTEN_OUT: usize = 4;
    const VECTORS: usize = 2;
    const ZERO: i32 = ZERO;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has two vectors of quants, and `I` is below 2 (the caller's contract).
        let v = unsafe { quants.load_b::<H>(I) };
        let words = H::words(v);
        let first = [only::<H>(v, 3), only::<H>(H::bytes(H::shr_i::<2>(words)), 3)];
        let second = [only::<H>(H::bytes(H::shr_i::<4>(words)), 3), H::shr_b::<6>(v)];
        ((16 * I, first), Some((16 * I + 8, second)))
    }
}

/// Three bits each, with 4 for zero.
pub struct ThreeBits;

impl Quants for ThreeBits {
    const LARGEST: i32 = 7;
    const VECTORS: usize = 3;
    const ZERO: i32 = 4;

    #[inline(always)]
    unsafe fn bundle<H: Hvx, const I: usize>(quants: VectorPtr) -> Bundle<H> {
        // SAFETY: a tile has three vectors of quants (the caller's contract).
        let [u, v, w] = unsafe { [0, 1, 2].map(|i| quants.load_b::<H>(i)) };
        let [low, high] = [|x: H::B| only::<H>(x, 7), |x: H::B| H::shr_b::<5>(x)];
        // Two bits of one vector and one of another.
        let middle = |x: H::B| H::bytes(H::shr_i::<3>(H::words(only::<H>(x, 3 << 3))));
        if I == 0 {
            let last = with_shr::<H, 1>(middle(u), only::<H>(w, 1 << 3));
            return ((0, [low(u), high(u)]), Some((8, [low(v), last])));
        }
        let last = with_shr::<H, 2>(middle(v), only::<H>(w, 1 << 4));
        ((16, [high(v), low(w)]), Some((24, [high(w), last])))
    }
}
