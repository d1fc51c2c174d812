//! Groups of F16 weights, on F32 activations that are rounded to f16, each row times a power of two: as in
//! ggml, but for the power, with which no row leaves f16's range. So one instruction multiplies 64 weights,
//! or two. Even and odd k are summed apart and added at the end.

use super::row_scales::RowScales;
use super::weight_format::{PARTIAL, WeightFormat};
use crate::hvx::{HalfSums, Hvx, LANES, VectorPtr};
use crate::kernels::shared::row_scale::load;

/// F16 weights: a group is 16 pairs of k, each a vector of which the halves of a word belong to a row.
pub struct F16;

/// Vectors of a group.
const VECTORS: usize = LANES / 2;

impl WeightFormat for F16 {
    const QUANTIZED: bool = false;
    type Scaling = RowScales;

    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        // The sums of more do not fit the registers together with products, and must not leave them.
        if H::Q_STAYS { 2 } else { 4 }
    }

    #[inline(always)]
    fn parts(_rows: usize) -> usize {
        PARTIAL
    }

    #[inline(always)]
    unsafe fn multiply<H: Hvx, const R: usize>(
        weights: VectorPtr,
        groups: usize,
        x: [*const u8; R],
        scales: [f32; R],
        k: (usize, usize),
        acc: &mut [[H::F; PARTIAL]; R],
    ) {
        let mut all = *acc;
        let x = x.map(|x| x.cast::<f32>().wrapping_add(k.0));
        let scales = scales.map(H::splat);
        let left = k.1.saturating_sub(k.0);
        let whole = groups.min(left / LANES);
        for g in 0..whole {
            // SAFETY: `g` is below `whole`: `weights` holds as many groups, and each row has 32 floats for
            // each (points 1 and 2 of the caller's contract).
            unsafe {
                let lanes = lanes::<H, R>(x, g * LANES, LANES, &scales);
                add_group::<H, R>(weights.skip(g * VECTORS), &lanes, &mut all);
            }
        }
        if whole < groups {
            // The weights past the end of rows are zeros, and so are the lanes.
            // SAFETY: this is one of the groups that `weights` holds (point 1 of the caller's contract), and
            // the rows have fewer than 32 floats for it, those that `left` counts beyond the whole groups
            // (point 2).
            unsafe {
                let lanes = lanes::<H, R>(x, whole * LANES, left % LANES, &scales);
                add_group::<H, R>(weights.skip(whole * VECTORS), &lanes, &mut all);
            }
        }
        *acc = all;
    }
}

/// `n` values of each row from value `at` on, 32 at most, as f16 in pairs; zeros behind them.
///
/// # Safety
/// Each `x` is aligned for f32 and valid for reading these floats; `n` is at least 1.
#[inline(always)]
unsafe fn lanes<H: Hvx, const R: usize>(
    x: [*const f32; R],
    at: usize,
    n: usize,
    scales: &[H::F; R],
) -> [H::Lanes; R] {
    let mut lanes = [H::lanes(H::splat(0.0)); R];
    for ((lanes, x), &scale) in lanes.iter_mut().zip(x).zip(scales) {
        // SAFETY: `n` floats from there on are readable and aligned, and `n` is at least 1 (the caller's
        // contract).
        *lanes = H::half_lanes(unsafe { load::<H>(x.add(at), n) }, scale);
    }
    lanes
}

/// Adds the products of a group. A sum is rounded when it leaves its form: after each group, because pieces
/// end after any.
///
/// # Safety
/// `group` holds a group.
#[inline(always)]
unsafe fn add_group<H: Hvx, const R: usize>(
    group: VectorPtr,
    lanes: &[H::Lanes; R],
    acc: &mut [[H::F; PARTIAL]; R],
) {
    let mut sums = [HalfSums(acc[0][0], acc[0][1]); R];
    for (sums, acc) in sums.iter_mut().zip(acc.iter()) {
        *sums = H::half_sums(acc[0], acc[1]);
    }
    // SAFETY: `group` holds a group (the caller's contract). The first pairs are at most 12, and `i` is below
    // 16.
    unsafe {
        if H::WRITES_OUT && !H::COSTLY_FLOATS {
            add_four::<H, R>(&mut sums, group, lanes, 0);
            add_four::<H, R>(&mut sums, group, lanes, 4);
            if R > 1 {
                // Else more is begun at once than the registers hold.
                H::settle();
            }
            add_four::<H, R>(&mut sums, group, lanes, 8);
            add_four::<H, R>(&mut sums, group, lanes, 12);
        } else {
            for i in 0..VECTORS {
                add_pair::<H, R>(&mut sums, group, lanes, i);
            }
        }
    }
    for (sums, acc) in sums.into_iter().zip(acc) {
        (acc[0], acc[1]) = H::end_half_sums(sums);
    }
}

/// Adds the products of four pairs from number `first` on.
///
/// # Safety
/// `group` holds a group, and `first` is at most 12.
#[inline(always)]
unsafe fn add_four<H: Hvx, const R: usize>(
    sums: &mut [HalfSums<H>; R],
    group: VectorPtr,
    lanes: &[H::Lanes; R],
    first: usize,
) {
    // SAFETY: `group` holds a group, and `first + 3` is below 16 (the caller's contract).
    unsafe {
        add_pair::<H, R>(sums, group, lanes, first);
        add_pair::<H, R>(sums, group, lanes, first + 1);
        add_pair::<H, R>(sums, group, lanes, first + 2);
        add_pair::<H, R>(sums, group, lanes, first + 3);
    }
}

/// Adds the products of pair `i`.
///
/// # Safety
/// `group` holds a group, and `i` is below 16.
#[inline(always)]
unsafe fn add_pair<H: Hvx, const R: usize>(
    sums: &mut [HalfSums<H>; R],
    group: VectorPtr,
    lanes: &[H::Lanes; R],
    i: usize,
) {
    // SAFETY: `i` is below 16, and the group has as many vectors (the caller's contract).
    let w = unsafe { group.load_b::<H>(i) };
    for (sums, lanes) in sums.iter_mut().zip(lanes) {
        *sums = H::add_half_lanes(*sums, w, lanes, i);
    }
}
