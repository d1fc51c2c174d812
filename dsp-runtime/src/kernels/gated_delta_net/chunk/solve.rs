//! u by forward substitution, and the outputs.

use super::{BLOCK, Chunk, ChunkMemory, GROUP};
use crate::hvx::{Hvx, VectorPtr};

/// Four rows of coefficients.
///
/// # Safety
/// There are four vectors at `rows`.
#[inline(always)]
unsafe fn lanes<H: Hvx>(rows: VectorPtr) -> [H::Lanes; GROUP] {
    // SAFETY: there are four vectors at `rows` (the caller's contract).
    unsafe {
        [
            H::lanes(rows.load::<H>(0)),
            H::lanes(rows.load::<H>(1)),
            H::lanes(rows.load::<H>(2)),
            H::lanes(rows.load::<H>(3)),
        ]
    }
}

/// Sums over tokens `0..count` of four rows of coefficients, times two vectors of a row per token, which are
/// `stride` vectors apart.
///
/// # Safety
/// The table has two vectors in each of `count` rows; `count` is 32 at most.
#[inline(always)]
unsafe fn weighted<H: Hvx>(
    coefficients: &[H::Lanes; GROUP],
    table: VectorPtr,
    stride: usize,
    count: usize,
) -> [[H::F; BLOCK]; GROUP] {
    let mut sums = [[H::zero_q(); BLOCK]; GROUP];
    let mut at = table;
    for s in 0..count {
        // SAFETY: row `s` of the table has two vectors (the caller's contract).
        let row = unsafe { [at.load::<H>(0), at.load::<H>(1)] };
        for (sums, coefficients) in sums.iter_mut().zip(coefficients) {
            let coefficient = H::lane(coefficients, s);
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum = H::add_q(*sum, H::mul_q(coefficient, x));
            }
        }
        at = at.skip(stride);
    }
    let mut floats = [[H::splat(0.0); BLOCK]; GROUP];
    for (floats, sums) in floats.iter_mut().zip(sums) {
        for (float, sum) in floats.iter_mut().zip(sums) {
            *float = H::float(sum);
        }
    }
    H::settle();
    floats
}

impl Chunk<'_> {
    /// Makes u of its right-hand sides, four tokens after the other, and y of u.
    ///
    /// # Safety
    /// Points 1 to 3 of [`run`](Self::run); `a`, `p`, `old` and the right-hand sides are in `memory`.
    #[inline(always)]
    pub(super) unsafe fn solve<H: Hvx>(&self) {
        let ChunkMemory { a, p, u, old, .. } = self.memory;
        let vectors = self.tile.vectors;
        let scale = H::splat(self.head.scale);
        for first in (0..self.tokens).step_by(GROUP) {
            // SAFETY: `a` and `p` have a vector per token, of which there are 32 (the caller's contract,
            // point 1), and `first + 4` is 32 at most.
            let (below, upto) = unsafe { (lanes::<H>(a.skip(first)), lanes::<H>(p.skip(first))) };
            for block in (0..vectors).step_by(BLOCK) {
                let u = u.skip(block);
                // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract, point 1), two of which
                // are in this block, and `first` is below 32.
                let before = unsafe { weighted::<H>(&below, u, vectors, first) };
                let mut solved = [[H::splat(0.0); BLOCK]; GROUP];
                for i in 0..GROUP {
                    for j in 0..BLOCK {
                        let at = (first + i) * vectors + j;
                        // SAFETY: `at` is vector `j` of this block of row `first + i` of u, which has 32 rows
                        // (the caller's contract, point 1).
                        let mut x = H::sub(unsafe { u.load::<H>(at) }, before[i][j]);
                        for (s, solved) in solved[..i].iter().enumerate() {
                            let known = H::mul(H::lane(&below[i], first + s), solved[j]);
                            x = H::sub(x, known);
                        }
                        solved[i][j] = x;
                        // SAFETY: `at` is vector `j` of this block of row `first + i` of u, which has 32 rows
                        // (the caller's contract, point 1).
                        unsafe { u.store::<H>(at, x) };
                    }
                }
                // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract, point 1), two of which
                // are in this block, and `first + 4` is 32 at most.
                let new = unsafe { weighted::<H>(&upto, u, vectors, first + GROUP) };
                for (i, new) in new.iter().enumerate().take(self.tokens - first) {
                    // SAFETY: this worker alone has claimed the head, and with it its rows of y (the caller's
                    // contract, point 2).
                    let mut y = unsafe { self.head.y.row(self.head.first + first + i) };
                    for (j, &new) in new.iter().enumerate() {
                        let at = block + j;
                        // SAFETY: `at` is below `vectors`: a vector of row `first + i` of `old`, which has 32
                        // rows (the caller's contract, point 1).
                        let old = unsafe { old.load::<H>((first + i) * vectors + at) };
                        y.set_vector::<H>(at, H::mul(scale, H::add(old, new)));
                    }
                }
            }
        }
    }
}
