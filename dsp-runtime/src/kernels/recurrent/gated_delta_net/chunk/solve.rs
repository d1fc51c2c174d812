//! u by forward substitution, and the outputs.

use super::{BLOCK, Chunk, ChunkMemory, GROUP};
use crate::hvx::{Hvx, VectorPtr};

/// Four rows of coefficients.
///
/// # Safety
/// There are four vectors at `rows`.
#[inline(always)]
pub unsafe fn lanes<H: Hvx>(rows: VectorPtr) -> [H::Lanes; GROUP] {
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

/// Sums over tokens `0..count` of four rows of coefficients, times B vectors of a row per token, which are
/// `stride` vectors apart.
///
/// # Safety
/// The table has B vectors in each of `count` rows; `count` is 32 at most.
#[inline(always)]
unsafe fn weighted<H: Hvx, const B: usize>(
    coefficients: &[H::Lanes; GROUP],
    table: VectorPtr,
    stride: usize,
    count: usize,
) -> [[H::F; B]; GROUP] {
    let mut sums = [[H::zero_q(); B]; GROUP];
    let mut at = table;
    for s in 0..count {
        let mut row = [H::splat(0.0); B];
        for (j, x) in row.iter_mut().enumerate() {
            // SAFETY: row `s` of the table has B vectors (the caller's contract).
            *x = unsafe { at.load::<H>(j) };
        }
        for (sums, coefficients) in sums.iter_mut().zip(coefficients) {
            let coefficient = H::lane(coefficients, s);
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum = H::add_q(*sum, H::mul_q(coefficient, x));
            }
        }
        at = at.skip(stride);
    }
    let mut floats = [[H::splat(0.0); B]; GROUP];
    for (floats, sums) in floats.iter_mut().zip(sums) {
        for (float, sum) in floats.iter_mut().zip(sums) {
            *float = H::pin(H::float(sum));
        }
    }
    floats
}

/// u of the token `first + I`, at `row`, of its right-hand side there: less what was summed over the tokens
/// before `first`, and over those from there on, which are solved.
///
/// # Safety
/// B vectors at `row` are valid for reading and writing.
#[inline(always)]
unsafe fn one<H: Hvx, const B: usize, const I: usize>(
    below: &[H::Lanes; GROUP],
    row: VectorPtr,
    first: usize,
    before: &[[H::F; B]; GROUP],
    solved: &mut [[H::F; B]; GROUP],
) {
    for j in 0..B {
        // SAFETY: there are B vectors (the caller's contract).
        let mut x = H::sub(unsafe { row.load::<H>(j) }, before[I][j]);
        for (s, solved) in solved.iter().enumerate().take(I) {
            x = H::sub(x, H::mul(H::lane(&below[I], first + s), solved[j]));
        }
        solved[I][j] = x;
        // SAFETY: there are B vectors (the caller's contract).
        unsafe { row.store::<H>(j, x) };
    }
}

impl Chunk<'_> {
    /// Makes u of four tokens of its right-hand sides, for B vectors of values from `block` on. `below` is
    /// their a.
    ///
    /// # Safety
    /// Points 1 and 3 of [`run`](Self::run); the right-hand sides are in `memory`, and u of the tokens
    /// before. `first + 4` is 32 at most, and `block + B` is at most the tile's vectors.
    #[inline(always)]
    pub unsafe fn four<H: Hvx, const B: usize>(
        &self,
        below: &[H::Lanes; GROUP],
        first: usize,
        block: usize,
    ) -> [[H::F; B]; GROUP] {
        let (u, vectors) = (self.memory.u.skip(block), self.tile.vectors);
        // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract), B of which are in this block,
        // and `first` is below 32.
        let before = unsafe { weighted::<H, B>(below, u, vectors, first) };
        let mut solved = [[H::splat(0.0); B]; GROUP];
        // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract), B of which are in this block,
        // and these are four of the rows. Written out, so that all is in registers.
        unsafe {
            one::<H, B, 0>(below, u.skip(first * vectors), first, &before, &mut solved);
            one::<H, B, 1>(below, u.skip((first + 1) * vectors), first, &before, &mut solved);
            one::<H, B, 2>(below, u.skip((first + 2) * vectors), first, &before, &mut solved);
            one::<H, B, 3>(below, u.skip((first + 3) * vectors), first, &before, &mut solved);
        }
        solved
    }

    /// Makes u of its right-hand sides, four tokens after the other, and y of u.
    ///
    /// # Safety
    /// Points 1 to 3 of [`run`](Self::run); `a`, `p`, `old` and the right-hand sides are in `memory`.
    #[inline(always)]
    pub unsafe fn solve<H: Hvx>(&self) {
        let ChunkMemory { a, p, u, old, .. } = self.memory;
        let vectors = self.tile.vectors;
        let scale = H::splat(self.head.scale);
        for first in (0..self.tokens).step_by(GROUP) {
            // SAFETY: `a` and `p` have a vector per token, of which there are 32 (the caller's contract,
            // point 1), and `first + 4` is 32 at most.
            let (below, upto) = unsafe { (lanes::<H>(a.skip(first)), lanes::<H>(p.skip(first))) };
            for block in (0..vectors).step_by(BLOCK) {
                // SAFETY: `a` and the right-hand sides are in `memory`, and the block has two of the tile's
                // vectors (the caller's contract); `first + 4` is 32 at most.
                unsafe { self.four::<H, BLOCK>(&below, first, block) };
                // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract, point 1), two of which
                // are in this block, and `first + 4` is 32 at most.
                let new = unsafe { weighted::<H, BLOCK>(&upto, u.skip(block), vectors, first + GROUP) };
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
