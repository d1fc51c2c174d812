//! Floats as halves: integers with a scale, two to a word, whose products are exact.

use super::{BLOCK, Chunk, ChunkMemory, is_ordinary, larger};
use crate::hvx::{Hvx, LANES, VectorPtr, math};

/// The length, as the root of the sum of squares, of a row or column of halves. A half fits, and by Cauchy
/// and Schwarz so does the sum of the products of two such rows in a word: 32,700 and what rounding adds, at
/// most 6, is below 2^15.
const LENGTH: f32 = 32_700.0;
/// Sums of squares below this count as this, so that a scale stays a number: 2^-120.
const SMALLEST: f32 = 7.523_164e-37;

/// How floats become halves: one scale for all that are summed, in all lanes, or one per lane.
#[derive(Clone, Copy)]
pub struct Scale<H: Hvx> {
    /// What a float is multiplied with.
    pub up: H::F,
    /// What a half is multiplied with.
    pub down: H::F,
}

impl<H: Hvx> Scale<H> {
    /// Of floats with this sum of squares.
    #[inline(always)]
    pub fn of(squares: H::F) -> Self {
        let squares = H::larger(squares, H::splat(SMALLEST));
        let root = H::rsqrt(squares);
        Self {
            up: H::mul(root, H::splat(LENGTH)),
            down: H::mul(H::mul(squares, root), H::splat(1.0 / LENGTH)),
        }
    }

    /// The halves, as words.
    #[inline(always)]
    pub fn halves(self, x: H::F) -> H::I {
        H::to_int(H::mul(x, self.up))
    }
}

/// Words that are read one by one: on the stack, which is cached, where VTCM is not.
#[repr(C, align(128))]
pub struct Words([[i32; 64]; 8]);

impl Words {
    pub const fn zeros() -> Self {
        Self([[0; 64]; 8])
    }

    /// Row `r`: two vectors.
    #[inline(always)]
    pub fn vector(&mut self, r: usize) -> VectorPtr {
        let row = self.0[r].as_mut_ptr().cast();
        // SAFETY: the rows have 256 bytes, and the first is aligned to 128.
        unsafe { VectorPtr::new_unchecked(row) }
    }

    /// The first word.
    #[inline(always)]
    pub fn words(&self) -> *const i32 {
        self.0.as_ptr().cast()
    }
}

/// Sums over pairs of R rows of words: of word `r * ROW + p * PAIR`, times vector `v` of row `p` of a table
/// whose rows are `stride` vectors apart.
///
/// # Safety
/// The table has V vectors in each of `pairs` rows, and these words are valid for reading.
#[inline(always)]
pub unsafe fn sums<H: Hvx, const R: usize, const V: usize, const ROW: usize, const PAIR: usize>(
    table: VectorPtr,
    stride: usize,
    words: *const i32,
    pairs: usize,
) -> [[H::I; V]; R] {
    let mut sums = [[H::splat_i(0); V]; R];
    let (mut table, mut words) = (table, words);
    for _ in 0..pairs {
        let mut pair = [H::bytes(sums[0][0]); V];
        for (v, pair) in pair.iter_mut().enumerate() {
            // SAFETY: this row of the table has V vectors (the caller's contract).
            *pair = unsafe { table.load_b::<H>(v) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: this pair's word of row `r` is valid for reading (the caller's contract).
            let word = unsafe { words.add(r * ROW).read() };
            for (sum, &pair) in sums.iter_mut().zip(&pair) {
                *sum = H::dot_halves(*sum, pair, word);
            }
        }
        table = table.skip(stride);
        words = words.wrapping_add(PAIR);
    }
    sums
}

impl Chunk<'_> {
    /// Brings the keys' words across: tokens into the lanes.
    ///
    /// # Safety
    /// Point 1 of [`run`](Self::run); the keys are in `memory`, and the state's halves are not yet.
    #[inline(always)]
    pub unsafe fn across<H: Hvx>(&self) {
        let words = self.words();
        for w in 0..words {
            let to = self.memory.across.skip(w * LANES);
            // Where halves of the state will be there is room for 32 vectors.
            let places = [to, self.memory.state];
            let (mut from, mut stride) = (self.memory.keys.skip(w), words);
            // Of the ten bits of a word's row and lane, each level turns all round by one.
            for level in 0..LANES.ilog2() as usize {
                let to = places[level % 2];
                for i in 0..LANES / 2 {
                    // SAFETY: `from` has 32 vectors, `stride` apart: vector `w` of the rows of keys, or one
                    // of the two places. `to` is the other place, of 32 vectors (the caller's contract).
                    unsafe {
                        let low = from.load::<H>(i * stride);
                        let (low, high) = H::interleave(low, from.load::<H>((i + LANES / 2) * stride));
                        to.store::<H>(2 * i, low);
                        to.store::<H>(2 * i + 1, high);
                    }
                }
                (from, stride) = (to, 1);
            }
        }
    }

    /// Whether all of the state is ordinary. Leaves the sums of squares of each value in `down`.
    ///
    /// # Safety
    /// Point 1 of [`run`](Self::run).
    #[inline(always)]
    pub unsafe fn state_is_ordinary<H: Hvx>(&self) -> bool {
        let vectors = self.tile.vectors;
        let mut largest = [H::splat_i(0); BLOCK];
        for block in (0..vectors).step_by(BLOCK) {
            let mut squares = [H::zero_q(); BLOCK];
            let mut at = self.state.skip(block);
            for _ in 0..self.tile.size {
                for j in 0..BLOCK {
                    // SAFETY: this is vector `block + j` of a key of the state, which has `size` keys of
                    // `vectors` vectors (the caller's contract).
                    let s = unsafe { at.load::<H>(j) };
                    squares[j] = H::add_q(squares[j], H::mul_q(s, s));
                    largest[j] = larger::<H>(largest[j], s);
                }
                at = at.skip(vectors);
            }
            for (j, square) in squares.into_iter().enumerate() {
                // SAFETY: `down` has `vectors` vectors (the caller's contract).
                unsafe { self.memory.down.store::<H>(block + j, H::float(square)) };
            }
            H::settle();
        }
        is_ordinary::<H>(H::max_i(largest[0], largest[1]))
    }

    /// The state becomes halves, and its sums of squares in `down` the factors of these.
    ///
    /// # Safety
    /// Point 1 of [`run`](Self::run); the sums of squares are in `memory`.
    #[inline(always)]
    pub unsafe fn halves_of_state<H: Hvx>(&self) {
        let vectors = self.tile.vectors;
        let ChunkMemory { state: halves, down, .. } = self.memory;
        for v in 0..vectors {
            // SAFETY: `down` has `vectors` vectors (the caller's contract).
            let scale = Scale::<H>::of(unsafe { down.load::<H>(v) });
            // SAFETY: `down` has `vectors` vectors (the caller's contract).
            unsafe { down.store::<H>(v, scale.down) };
            let (mut from, mut to) = (self.state.skip(v), halves.skip(v));
            for _ in 0..self.tile.size / 2 {
                // SAFETY: these are vector `v` of two adjacent keys of the state, and of their row of halves,
                // of which there are half as many (the caller's contract).
                unsafe {
                    let (low, high) = (from.load::<H>(0), from.load::<H>(vectors));
                    to.store_b::<H>(0, math::pair_halves::<H>(scale.halves(low), scale.halves(high)));
                }
                (from, to) = (from.skip(2 * vectors), to.skip(vectors));
            }
        }
    }
}
