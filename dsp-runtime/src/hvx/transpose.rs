//! 32 rows of 32 words, transposed: rows become columns.
//!
//! Interleaving rows i and i + 16 for all i, and writing the two results to places 2 i and 2 i + 1, rotates
//! the bits of a word's place (five of its row, then five of its lane) by one. Five times that exchanges rows
//! and lanes. Registers do not hold 32 vectors, so that two passes make these five levels: the first one
//! takes rows r, r + 8, r + 16 and r + 24, and leaves vector k of them at place 8 k + r, where the second one
//! finds its eight vectors together. Both leave what they make where they found what they took.

use super::{Hvx, LANES};

/// Vectors that the first pass takes at a time, which go through two levels.
const FIRST: usize = 4;
/// Vectors that the second pass takes at a time, which go through the three levels that are left.
pub const SECOND: usize = 8;
const _: () = assert!(FIRST * SECOND == LANES);

/// Eight vectors. (An array would go through memory.)
pub type Eight<F> = (F, F, F, F, F, F, F, F);

/// The first pass, over all rows.
///
/// # Safety
/// 1. A vector each `from_stride` bytes from `from` on is valid for reading, 32 times, and one each
///    `to_stride` bytes from `to` on for writing, 32 times.
/// 2. All of them are apart, or both addresses are the same, and so are both strides.
#[inline(always)]
pub unsafe fn first_pass<H: Hvx>(from: *const u8, from_stride: usize, to: *mut u8, to_stride: usize) {
    for r in 0..SECOND {
        // SAFETY: rows `r`, `r + 8`, `r + 16` and `r + 24` are below 32, and so are the places `8 k + r` for
        // k below 4, which have the same numbers (the caller's contract, point 1). So what is written is
        // either apart from all rows, or these four rows themselves, which have been read (point 2).
        unsafe {
            let row = |k: usize| H::load(from.add((r + k * SECOND) * from_stride).cast());
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let ((a, c), (b, d)) = (H::interleave(a, c), H::interleave(b, d));
            let ((a, b), (c, d)) = (H::interleave(a, b), H::interleave(c, d));
            for (k, x) in [a, b, c, d].into_iter().enumerate() {
                H::store(to.add((k * SECOND + r) * to_stride).cast(), x);
            }
        }
    }
}

/// What the second pass makes of vectors `8 k` to `8 k + 7`: the transposed rows with these numbers.
///
/// # Safety
/// A vector each `stride` bytes from `at` on is valid for reading, 32 times; `k` is below 4.
#[inline(always)]
pub unsafe fn second_pass<H: Hvx>(at: *const u8, stride: usize, k: usize) -> Eight<H::F> {
    // SAFETY: vectors `8 k` to `8 k + 7` are below 32, because `k` is below 4 (the caller's contract).
    let (a, b, c, d, e, f, g, h) = unsafe {
        let x = |j: usize| H::load(at.add((k * SECOND + j) * stride).cast());
        (x(0), x(1), x(2), x(3), x(4), x(5), x(6), x(7))
    };
    let ((a, b), (c, d), (e, f), (g, h)) =
        (H::interleave(a, e), H::interleave(b, f), H::interleave(c, g), H::interleave(d, h));
    let ((a, b), (c, d), (e, f), (g, h)) =
        (H::interleave(a, e), H::interleave(b, f), H::interleave(c, g), H::interleave(d, h));
    let ((a, b), (c, d), (e, f), (g, h)) =
        (H::interleave(a, e), H::interleave(b, f), H::interleave(c, g), H::interleave(d, h));
    (a, b, c, d, e, f, g, h)
}

/// Writes rows `8 k` to `8 k + 7`.
///
/// # Safety
/// A vector each `stride` bytes from `at` on is valid for writing, 32 times; `k` is below 4.
#[inline(always)]
unsafe fn store<H: Hvx>(at: *mut u8, stride: usize, k: usize, (a, b, c, d, e, f, g, h): Eight<H::F>) {
    for (j, x) in [a, b, c, d, e, f, g, h].into_iter().enumerate() {
        // SAFETY: row `8 k + j` is below 32, because `k` is below 4 and `j` below 8 (the caller's contract).
        unsafe { H::store(at.add((k * SECOND + j) * stride).cast(), x) };
    }
}

/// Transposes 32 rows: word j of row i becomes word i of row j.
///
/// # Safety
/// Points 1 and 2 of [`first_pass`].
#[inline(always)]
pub unsafe fn transpose<H: Hvx>(from: *const u8, from_stride: usize, to: *mut u8, to_stride: usize) {
    // SAFETY: the contract is the caller's. What the first pass has written is valid for reading, and the
    // second one writes it again, eight vectors after it has read these eight.
    unsafe {
        first_pass::<H>(from, from_stride, to, to_stride);
        for k in 0..FIRST {
            store::<H>(to, to_stride, k, second_pass::<H>(to, to_stride, k));
        }
    }
}

/// Transposes two squares of 32 rows, each to the place of the other.
///
/// # Safety
/// A vector each `stride` bytes from `a` on, and from `b` on, is valid for reading and writing, 32 times. All
/// of them are apart.
#[inline(always)]
pub unsafe fn exchange<H: Hvx>(a: *mut u8, b: *mut u8, stride: usize) {
    // SAFETY: all vectors are valid for reading and writing (the caller's contract), and each first pass
    // leaves what it makes where it found what it took. Of these vectors, the second passes write those with
    // the numbers that both have read just before.
    unsafe {
        first_pass::<H>(a, stride, a, stride);
        first_pass::<H>(b, stride, b, stride);
        for k in 0..FIRST {
            let of_a = second_pass::<H>(a, stride, k);
            let of_b = second_pass::<H>(b, stride, k);
            store::<H>(a, stride, k, of_b);
            store::<H>(b, stride, k, of_a);
        }
    }
}
