//! Groups of BF16 and F32 weights, on F32 activations. Even and odd k are summed apart and added at the
//! end.

use core::marker::PhantomData;

use super::row_scales::Unscaled;
use super::sums::{Held, Sum};
use super::weight_format::{PARTIAL, WeightFormat};
use crate::hvx::{Hvx, LANES, VectorPtr};

/// How a pair of k lies in a group: 32 weights of the even one, 32 of the odd one.
pub trait Pair: Sync + 'static {
    /// Vectors of a pair.
    const VECTORS: usize;

    /// The weights of the pair at `at`, exactly.
    ///
    /// # Safety
    /// `at` holds a pair.
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F);
}

/// The upper halves of f32, the halves of a word for each row.
pub struct Brain;

impl Pair for Brain {
    const VECTORS: usize = 1;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F) {
        // SAFETY: a pair is a vector (the caller's contract).
        let words = H::words(unsafe { at.load_b::<H>(0) });
        let high = H::and_i(words, H::splat_i(0xffff_0000_u32 as i32));
        (H::from_bits(H::shl_i::<16>(words)), H::from_bits(high))
    }
}

/// A vector for each k.
pub struct Single;

impl Pair for Single {
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr) -> (H::F, H::F) {
        // SAFETY: a pair is two vectors (the caller's contract).
        unsafe { (at.load::<H>(0), at.load::<H>(1)) }
    }
}

/// Weights whose groups are 16 pairs of k.
pub struct Floats<P>(PhantomData<P>);

/// F32 weights.
pub type F32 = Floats<Single>;
/// BF16 weights.
pub type BF16 = Floats<Brain>;

impl<P: Pair> WeightFormat for Floats<P> {
    const QUANTIZED: bool = false;
    type Scaling = Unscaled;

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        PARTIAL
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        _scales: [f32; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    ) {
        let mut all = *acc;
        let x = x.map(|x| x.cast::<f32>().wrapping_add(k.0));
        let left = k.1.saturating_sub(k.0);
        let whole = groups.min(left / LANES);
        // SAFETY: `weights` holds at least `whole` groups (the caller's contract, point 1), and each row has
        // 32 floats for each of these (point 2).
        unsafe {
            if R == 1 && H::WRITES_OUT && !H::COSTLY_FLOATS {
                add_to_one::<P, H>(weights, whole, x[0], &mut all[0]);
            } else {
                add_to_all::<P, H, R>(weights, whole, x, &mut all);
            }
        }
        if whole < groups {
            // SAFETY: this is one of the groups (the caller's contract, point 1), and the rows have fewer
            // than 32 floats for it, those that `left` counts beyond the whole groups (point 2).
            unsafe {
                add_part::<P, H, R>(
                    group_at::<P>(weights, whole),
                    x.map(|x| x.wrapping_add(whole * LANES)),
                    left % LANES,
                    &mut all,
                );
            }
        }
        *acc = all;
    }
}

/// The address of group `g`.
#[inline(always)]
fn group_at<P: Pair>(weights: VectorPtr, g: usize) -> VectorPtr {
    pair_at::<P>(weights, g * LANES / 2)
}

/// The address of pair `i`.
#[inline(always)]
fn pair_at<P: Pair>(group: VectorPtr, i: usize) -> VectorPtr {
    group.skip(i * P::VECTORS)
}

/// Adds the products of whole groups with one row, all pairs written out. While those of a pair are added,
/// the weights of the next become floats, also those of the next group.
///
/// # Safety
/// `weights` holds the groups, and `x` has 32 floats for each.
#[inline(always)]
unsafe fn add_to_one<P: Pair, H: Hvx>(
    weights: VectorPtr,
    groups: usize,
    x: *const f32,
    acc: &mut [H::F; PARTIAL],
) {
    if groups == 0 {
        return;
    }
    // SAFETY: there is a group, which `weights` holds, and `x` has 32 floats for it (the caller's contract).
    let (mut w, mut lanes) = unsafe { (P::load::<H>(weights), H::lane_pairs(H::load(x))) };
    for g in 0..groups {
        // After the last group its own first pair is loaded again, and not used.
        let next = (g + 1).min(groups - 1);
        let (group, after) = (group_at::<P>(weights, g), group_at::<P>(weights, next));
        let [mut sums] = start::<H, 1>(&[*acc]);
        // SAFETY: `g` and `next` are below `groups`, so that both are groups of 16 pairs, and `x` has 32
        // floats for each (the caller's contract).
        unsafe {
            w = add_four::<P, H>(&mut sums, w, group, pair_at::<P>(group, 4), &lanes, 0);
            w = add_four::<P, H>(&mut sums, w, group, pair_at::<P>(group, 8), &lanes, 4);
            // Else more is begun at once than the registers hold.
            H::settle();
            w = add_four::<P, H>(&mut sums, w, group, pair_at::<P>(group, 12), &lanes, 8);
            let row = H::load(x.add(next * LANES));
            w = add_four::<P, H>(&mut sums, w, group, after, &lanes, 12);
            lanes = H::lane_pairs(row);
        }
        *acc = sums.map(Sum::end);
    }
}

/// Adds the products of four pairs from number `first` on, of which the first has the weights `w`, and gives
/// the weights of the pair at `after`.
///
/// # Safety
/// `group` holds the four pairs, and `after` one.
#[inline(always)]
unsafe fn add_four<P: Pair, H: Hvx>(
    sums: &mut [Held<H>; PARTIAL],
    w: (H::F, H::F),
    group: VectorPtr,
    after: VectorPtr,
    lanes: &[H::Lanes; 2],
    first: usize,
) -> (H::F, H::F) {
    // SAFETY: `group` holds the pairs up to `first + 3`, and `after` one (the caller's contract).
    unsafe {
        let w1 = P::load::<H>(pair_at::<P>(group, first + 1));
        add_pair::<H>(sums, w, H::lane_pair(lanes, first));
        let w2 = P::load::<H>(pair_at::<P>(group, first + 2));
        add_pair::<H>(sums, w1, H::lane_pair(lanes, first + 1));
        let w3 = P::load::<H>(pair_at::<P>(group, first + 3));
        add_pair::<H>(sums, w2, H::lane_pair(lanes, first + 2));
        let next = P::load::<H>(after);
        add_pair::<H>(sums, w3, H::lane_pair(lanes, first + 3));
        next
    }
}

/// Adds the products of a pair.
#[inline(always)]
fn add_pair<H: Hvx>(sums: &mut [Held<H>; PARTIAL], (even, odd): (H::F, H::F), x: (H::F, H::F)) {
    sums[0] = sums[0].add(H::mul_q(even, x.0));
    sums[1] = sums[1].add(H::mul_q(odd, x.1));
}

/// Adds the products of whole groups with all rows.
///
/// # Safety
/// `weights` holds the groups, and each `x` has 32 floats for each.
#[inline(always)]
unsafe fn add_to_all<P: Pair, H: Hvx, const R: usize>(
    weights: VectorPtr,
    groups: usize,
    x: [*const f32; R],
    acc: &mut [[H::F; PARTIAL]; R],
) {
    for g in 0..groups {
        let group = group_at::<P>(weights, g);
        let mut sums = start::<H, R>(acc);
        let mut all = [H::lanes(H::splat(0.0)); R];
        for (lanes, x) in all.iter_mut().zip(x) {
            // SAFETY: `g` is below `groups`, and `x` has 32 floats for each group (the caller's contract).
            *lanes = H::lanes(unsafe { H::load(x.add(g * LANES)) });
        }
        for i in 0..LANES / 2 {
            // SAFETY: `i` is below 16, and `weights` holds the group (the caller's contract), which has as
            // many pairs.
            let w = unsafe { P::load::<H>(pair_at::<P>(group, i)) };
            for (sums, lanes) in sums.iter_mut().zip(&all) {
                add_pair::<H>(sums, w, (H::lane(lanes, 2 * i), H::lane(lanes, 2 * i + 1)));
            }
        }
        end::<H, R>(sums, acc);
    }
}

/// Adds the products of the first `n` k of a group with all rows.
///
/// # Safety
/// `group` holds a group, `n` is below 32, and each `x` has `n` floats, aligned.
#[inline(always)]
unsafe fn add_part<P: Pair, H: Hvx, const R: usize>(
    group: VectorPtr,
    x: [*const f32; R],
    n: usize,
    acc: &mut [[H::F; PARTIAL]; R],
) {
    let mut sums = start::<H, R>(acc);
    for i in 0..n.div_ceil(2) {
        // SAFETY: `i` is below 16, because `n` is below 32, and a group has as many pairs (the caller's
        // contract).
        let w = unsafe { P::load::<H>(pair_at::<P>(group, i)) };
        for (sums, x) in sums.iter_mut().zip(x) {
            // SAFETY: `k` is below `n` where this is called, and `x` has as many floats, aligned (the
            // caller's contract).
            let x = |k: usize| H::splat(unsafe { x.add(k).read() });
            if 2 * i + 1 < n {
                add_pair::<H>(sums, w, (x(2 * i), x(2 * i + 1)));
            } else {
                sums[0] = sums[0].add(H::mul_q(w.0, x(2 * i)));
            }
        }
    }
    end::<H, R>(sums, acc);
}

/// The sums of what came before. A sum is rounded when it leaves its form: after each group, because pieces
/// end after any.
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
