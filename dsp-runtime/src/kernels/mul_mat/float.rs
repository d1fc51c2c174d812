//! Groups of F16, BF16 and F32 weights, on F32 activations. Even and odd k are summed apart and added at the
//! end.

use core::marker::PhantomData;

use super::sums::{Held, Sum};
use super::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, LANES, VectorPtr};

/// How a vector of 16-bit floats, two k of each row, becomes two vectors of f32.
pub(in crate::kernels) trait Widen: Sync + 'static {
    /// The low halves and the high halves of every word, exactly.
    fn widen<H: Hvx>(pair: H::B) -> (H::F, H::F);
}

/// IEEE's half precision.
pub(in crate::kernels) struct Half;

impl Widen for Half {
    #[inline(always)]
    fn widen<H: Hvx>(pair: H::B) -> (H::F, H::F) {
        H::widen_f16(pair)
    }
}

/// The upper halves of f32.
pub(in crate::kernels) struct Brain;

impl Widen for Brain {
    #[inline(always)]
    fn widen<H: Hvx>(pair: H::B) -> (H::F, H::F) {
        let words = H::words(pair);
        let high = H::and_i(words, H::splat_i(0xffff_0000_u32 as i32));
        (H::from_bits(H::shl_i::<16>(words)), H::from_bits(high))
    }
}

/// Two k per vector.
pub(in crate::kernels) struct Pairs<W>(PhantomData<W>);

/// F16 weights.
pub(in crate::kernels) type F16 = Pairs<Half>;
/// BF16 weights.
pub(in crate::kernels) type BF16 = Pairs<Brain>;

impl<W: Widen> WeightFormat for Pairs<W> {
    const QUANTIZED: bool = false;

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        PARTIAL
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    ) {
        let x = x.map(|x| x.cast::<f32>());
        let mut all = *acc;
        for g in 0..groups {
            // A sum is rounded when it leaves its form: after each group, because pieces end after any.
            let mut sums = start::<H, R>(&all);
            let (at, group) = (k.0 + g * LANES, weights.skip(g * LANES / 2));
            // SAFETY: each `x` is a row of `k.1` floats (the caller's contract, point 2).
            let (x, n) = unsafe { lanes::<H, R>(x, at, k.1) };
            // A whole group apart: its loop has no conditions.
            if n == LANES {
                for i in 0..LANES / 2 {
                    // SAFETY: `g` is below `groups` and `i` below 16, so this is a vector of a group, which
                    // has 16 of two k each (the caller's contract, point 1).
                    add_pair::<H, R>(&mut sums, W::widen::<H>(unsafe { group.load_b::<H>(i) }), &x, i, true);
                }
            } else {
                for i in 0..n.div_ceil(2) {
                    // SAFETY: `g` is below `groups` and `i` below 16, because `n` is 32 at most, so this is a
                    // vector of a group, which has 16 of two k each (the caller's contract, point 1).
                    let w = W::widen::<H>(unsafe { group.load_b::<H>(i) });
                    add_pair::<H, R>(&mut sums, w, &x, i, 2 * i + 1 < n);
                }
            }
            end::<H, R>(sums, &mut all);
        }
        *acc = all;
    }
}

/// A k per vector.
pub(in crate::kernels) struct F32;

impl WeightFormat for F32 {
    const QUANTIZED: bool = false;

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        PARTIAL
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    ) {
        let x = x.map(|x| x.cast::<f32>());
        let mut all = *acc;
        for g in 0..groups {
            // A sum is rounded when it leaves its form: after each group, because pieces end after any.
            let mut sums = start::<H, R>(&all);
            let (at, group) = (k.0 + g * LANES, weights.skip(g * LANES));
            // SAFETY: each `x` is a row of `k.1` floats (the caller's contract, point 2).
            let (x, n) = unsafe { lanes::<H, R>(x, at, k.1) };
            // SAFETY: `g` is below `groups`, and callers give an `i` below 16, because `n` is 32 at most, so
            // these are vectors of a group, which has 32 of one k each (the caller's contract, point 1).
            let w = |i: usize| unsafe { (group.load::<H>(2 * i), group.load::<H>(2 * i + 1)) };
            if n == LANES {
                for i in 0..LANES / 2 {
                    add_pair::<H, R>(&mut sums, w(i), &x, i, true);
                }
            } else {
                for i in 0..n.div_ceil(2) {
                    add_pair::<H, R>(&mut sums, w(i), &x, i, 2 * i + 1 < n);
                }
            }
            end::<H, R>(sums, &mut all);
        }
        *acc = all;
    }
}

/// The sums of what came before.
#[inline(always)]
fn start<H: Hvx, const R: usize>(acc: &[[H::F; PARTIAL]; R]) -> [[Held<H>; PARTIAL]; R] {
    let mut sums = [[Held::start(acc[0][0]); PARTIAL]; R];
    for (sums, acc) in sums.iter_mut().zip(acc) {
        *sums = [Held::start(acc[0]), Held::start(acc[1])];
    }
    sums
}

/// Gives the sums back.
#[inline(always)]
fn end<H: Hvx, const R: usize>(sums: [[Held<H>; PARTIAL]; R], acc: &mut [[H::F; PARTIAL]; R]) {
    for (sums, acc) in sums.into_iter().zip(acc) {
        *acc = sums.map(Sum::end);
    }
}

/// Adds the products of pair `i` of k: of both, or of the even one only.
#[inline(always)]
fn add_pair<H: Hvx, const R: usize>(
    sums: &mut [[Held<H>; PARTIAL]; R],
    (even, odd): (H::F, H::F),
    x: &[H::Lanes; R],
    i: usize,
    both: bool,
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        sums[0] = sums[0].add(H::mul_q(even, H::lane(x, 2 * i)));
        if both {
            sums[1] = sums[1].add(H::mul_q(odd, H::lane(x, 2 * i + 1)));
        }
    }
}

/// Values of R rows from `at` on, as many of 32 as rows of `k` values have, and how many that are.
///
/// # Safety
/// Each `x` is a row of `k` floats, readable and aligned for f32.
#[inline(always)]
unsafe fn lanes<H: Hvx, const R: usize>(x: [*const f32; R], at: usize, k: usize) -> ([H::Lanes; R], usize) {
    let n = k.saturating_sub(at).min(LANES);
    let mut all = [H::lanes(H::splat(0.0)); R];
    if n > 0 {
        for (lanes, x) in all.iter_mut().zip(x) {
            // SAFETY: the row has `n` floats from `at` on, 1 to 32, because it has `k` (the caller's
            // contract); they are aligned for f32.
            *lanes =
                H::lanes(unsafe { if n == LANES { H::load(x.add(at)) } else { H::load_n(x.add(at), n) } });
        }
    }
    (all, n)
}
