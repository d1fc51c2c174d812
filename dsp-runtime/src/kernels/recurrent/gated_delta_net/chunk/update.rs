//! The state after the chunk: one pass over it.

use super::pairs::{self, Scale};
use super::{BLOCK, CHUNK, Chunk, ChunkMemory, Tokens};
use crate::hvx::{Hvx, LANES, math};

/// Keys whose sums are made together.
const KEYS: usize = 8;

/// 32 keys of all pairs of tokens. They are read one by one: see [`pairs::Words`].
#[repr(C, align(128))]
struct KeyPairs([[i32; LANES]; CHUNK / 2]);

impl KeyPairs {
    /// The words from key `first` on.
    #[inline(always)]
    fn from(&self, first: usize) -> *const i32 {
        self.0.as_ptr().cast::<i32>().wrapping_add(first)
    }
}

impl Chunk<'_> {
    /// Decays the state and adds what the tokens change.
    ///
    /// # Safety
    /// Points 1 and 3 of [`run`](Self::run); u is in `memory`.
    #[inline(always)]
    pub unsafe fn update<H: Hvx>(&self, tokens: &Tokens) {
        let ChunkMemory { changes, down, .. } = self.memory;
        let (vectors, pairs) = (self.tile.vectors, self.padded() / 2);
        for block in (0..vectors).step_by(BLOCK) {
            // SAFETY: u is in `memory`, which has the parts of the tile (the caller's contract), and a block
            // has two of the vectors.
            unsafe { self.changes::<H>(tokens, block) };
        }
        let decay = H::splat(tokens.grown.0[self.tokens - 1]);
        let mut words = KeyPairs([[0; LANES]; CHUNK / 2]);
        for v in 0..vectors {
            let keys = self.key_pairs::<H>(v, &mut words);
            let keys = H::lanes(keys);
            for block in (0..vectors).step_by(BLOCK) {
                // SAFETY: `down` has `vectors` vectors (the caller's contract, point 1), two of which are in
                // this block.
                let down = unsafe { [down.load::<H>(block), down.load::<H>(block + 1)] };
                for first in (0..LANES).step_by(KEYS) {
                    let (from, table) = (words.from(first), changes.skip(block));
                    // SAFETY: `changes` has `pairs` rows of `vectors` vectors, two of which are in this block
                    // (the caller's contract, point 1); there are 32 words for each of 16 pairs, and `first`
                    // is 24 at most.
                    let sums =
                        unsafe { pairs::sums::<H, KEYS, BLOCK, 1, LANES>(table, vectors, from, pairs) };
                    let state = self.state.skip((v * LANES + first) * vectors + block);
                    for (i, sums) in sums.into_iter().enumerate() {
                        let key = H::lane(&keys, first + i);
                        for (j, sum) in sums.into_iter().enumerate() {
                            let change = H::mul(H::to_float(sum), down[j]);
                            // SAFETY: this is a vector of key `32 v + first + i`, which is below S, as `v` is
                            // below the vectors of S (the caller's contract, point 1).
                            unsafe {
                                let s = state.load::<H>(i * vectors + j);
                                let new = H::add_q(H::mul_q(decay, s), H::mul_q(change, key));
                                state.store::<H>(i * vectors + j, H::float(new));
                            }
                        }
                    }
                }
            }
        }
    }

    /// exp(G_n - G_t) u_t of two vectors of values, as halves; and their factors.
    ///
    /// # Safety
    /// Points 1 and 3 of [`run`](Self::run); u is in `memory`, and `block + 2` is at most its vectors.
    #[inline(always)]
    unsafe fn changes<H: Hvx>(&self, tokens: &Tokens, block: usize) {
        let ChunkMemory { u, changes, down, .. } = self.memory;
        let (vectors, padded) = (self.tile.vectors, self.padded());
        let mut squares = [H::zero_q(); BLOCK];
        for t in 0..padded {
            let left = H::splat(tokens.left.0[t]);
            for (j, square) in squares.iter_mut().enumerate() {
                let at = t * vectors + block + j;
                // SAFETY: `padded` is 32 at most, and u has 32 rows of `vectors` vectors (the caller's
                // contract).
                let change = unsafe {
                    let change = H::mul(left, u.load::<H>(at));
                    u.store::<H>(at, change);
                    change
                };
                *square = H::add_q(*square, H::mul_q(change, change));
            }
        }
        let squares = squares.map(|square| H::pin(H::float(square)));
        for (j, square) in squares.into_iter().enumerate() {
            let (scale, v) = (Scale::<H>::of(square), block + j);
            // SAFETY: `down` has `vectors` vectors (the caller's contract).
            unsafe { down.store::<H>(v, scale.down) };
            for pair in 0..padded / 2 {
                // SAFETY: u has 32 rows of `vectors` vectors, `changes` has 16 (the caller's contract).
                unsafe {
                    let low = u.load::<H>(2 * pair * vectors + v);
                    let high = u.load::<H>((2 * pair + 1) * vectors + v);
                    let halves = math::pair_halves::<H>(scale.halves(low), scale.halves(high));
                    changes.store_b::<H>(pair * vectors + v, halves);
                }
            }
        }
    }

    /// Keys `32 v` to `32 v + 31` of the tokens as halves, and their factors.
    #[inline(always)]
    fn key_pairs<H: Hvx>(&self, v: usize, words: &mut KeyPairs) -> H::F {
        let mut squares = H::zero_q();
        for t in 0..self.tokens {
            let k = self.head.k.row(self.head.first + t).full::<H>(v);
            squares = H::add_q(squares, H::mul_q(k, k));
        }
        let squares = H::pin(H::float(squares));
        let scale = Scale::<H>::of(squares);
        for pair in 0..self.padded() / 2 {
            let low = self.key_halves::<H>(2 * pair, v, scale);
            let halves = math::pair_halves::<H>(low, self.key_halves::<H>(2 * pair + 1, v, scale));
            // SAFETY: a row of words is 128 bytes, at a multiple of 128.
            unsafe { H::store_aligned(words.0[pair].as_mut_ptr().cast(), H::from_bits(H::words(halves))) };
        }
        scale.down
    }

    /// Vector `v` of token `t`'s key as halves; zeros past the last token.
    #[inline(always)]
    fn key_halves<H: Hvx>(&self, t: usize, v: usize, scale: Scale<H>) -> H::I {
        if t < self.tokens {
            scale.halves(self.head.k.row(self.head.first + t).full::<H>(v))
        } else {
            H::splat_i(0)
        }
    }
}
