//! Groups of F16, BF16 and F32 weights, on F32 activations. Even and odd k are summed apart and added at the
//! end.

use core::marker::PhantomData;

use super::sums::{Held, Sum};
use super::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, LANES, LanePairs, VectorPtr};

/// How floats lie in a group: two adjacent k of each row at a time.
pub(in crate::kernels) trait Pairs: Sync + 'static {
    /// Vectors of a pair of k.
    const VECTORS: usize;

    /// The even k and the odd k of a pair, exactly.
    ///
    /// # Safety
    /// `at` holds `VECTORS` vectors.
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F);
}

/// IEEE's half precision, both k of a pair in a word.
pub(in crate::kernels) struct Half;

impl Pairs for Half {
    const VECTORS: usize = 1;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F) {
        // SAFETY: `at` holds a vector (the caller's contract).
        H::widen_f16(unsafe { at.load_b::<H>(0) })
    }
}

/// The upper halves of f32, both k of a pair in a word.
pub(in crate::kernels) struct Brain;

impl Pairs for Brain {
    const VECTORS: usize = 1;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F) {
        // SAFETY: `at` holds a vector (the caller's contract).
        let words = H::words(unsafe { at.load_b::<H>(0) });
        let high = H::and_i(words, H::splat_i(0xffff_0000_u32 as i32));
        (H::from_bits(H::shl_i::<16>(words)), H::from_bits(high))
    }
}

/// f32, a vector for each k.
pub(in crate::kernels) struct Single;

impl Pairs for Single {
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F) {
        // SAFETY: `at` holds two vectors (the caller's contract).
        unsafe { (at.load::<H>(0), at.load::<H>(1)) }
    }
}

/// A type whose groups are a tile of floats each.
pub(in crate::kernels) struct Floats<P>(PhantomData<P>);

/// F16 weights.
pub(in crate::kernels) type F16 = Floats<Half>;
/// BF16 weights.
pub(in crate::kernels) type BF16 = Floats<Brain>;
/// F32 weights.
pub(in crate::kernels) type F32 = Floats<Single>;

/// Pairs of a group.
const PAIRS: usize = LANES / 2;
/// Pairs that are written out one after the other, so that their instructions can share packets.
const WRITTEN_OUT: usize = 4;

impl<P: Pairs> WeightFormat for Floats<P> {
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
        let x = x.map(|x| x.cast::<f32>().wrapping_add(k.0));
        let mut sums = start::<H, R>(acc);
        let left = k.1.saturating_sub(k.0);
        let whole = groups.min(left / LANES);
        for g in 0..whole {
            let mut lanes = [LanePairs::new(H::splat(0.0)); R];
            for (lanes, x) in lanes.iter_mut().zip(x) {
                // SAFETY: each `x` is a row of `k.1` floats (the caller's contract, point 2), which has the
                // 32 of group `g`, because `g` is below `left / 32`.
                *lanes = LanePairs::new(unsafe { H::load(x.wrapping_add(g * LANES)) });
            }
            let group = weights.skip(g * PAIRS * P::VECTORS);
            for first in (0..PAIRS).step_by(WRITTEN_OUT) {
                for i in first..first + WRITTEN_OUT {
                    // SAFETY: `g` is below `groups` and `i` below 16, so these are the vectors of a pair of a
                    // group, which has 16 (the caller's contract, point 1).
                    let w = unsafe { P::load::<H>(group.skip(i * P::VECTORS)) };
                    add_pair::<H, R>(&mut sums, w, &lanes, i, true);
                }
            }
        }
        let n = left % LANES;
        if whole < groups && n > 0 {
            let mut lanes = [LanePairs::new(H::splat(0.0)); R];
            for (lanes, x) in lanes.iter_mut().zip(x) {
                // SAFETY: each `x` is a row of `k.1` floats (the caller's contract, point 2), of which `n`
                // follow those of the groups before: 1 to 31. They are aligned for f32, as the row is.
                *lanes = LanePairs::new(unsafe { H::load_n(x.wrapping_add(whole * LANES), n) });
            }
            let group = weights.skip(whole * PAIRS * P::VECTORS);
            for i in 0..n.div_ceil(2) {
                // SAFETY: `whole` is below `groups` and `i` below 16, because `n` is 31 at most, so these are
                // the vectors of a pair of a group, which has 16 (the caller's contract, point 1).
                let w = unsafe { P::load::<H>(group.skip(i * P::VECTORS)) };
                add_pair::<H, R>(&mut sums, w, &lanes, i, 2 * i + 1 < n);
            }
        }
        end::<H, R>(sums, acc);
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
        *acc = [sums[0].end(), sums[1].end()];
    }
}

/// Adds the products of pair `i` of k: of both, or of the even one only.
#[inline(always)]
fn add_pair<H: Hvx, const R: usize>(
    sums: &mut [[Held<H>; PARTIAL]; R],
    (even, odd): (H::F, H::F),
    x: &[LanePairs<H>; R],
    i: usize,
    both: bool,
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        sums[0] = sums[0].add(H::mul_q(even, x.even(i)));
        if both {
            sums[1] = sums[1].add(H::mul_q(odd, x.odd(i)));
        }
    }
}
