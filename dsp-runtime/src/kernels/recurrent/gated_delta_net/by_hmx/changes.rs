//! u, from what the unit made of keys, queries and state; and what it multiplies then.

use super::super::chunk::solve::lanes;
use super::super::chunk::{BLOCK, CHUNK, Chunk, GROUP, PerToken, larger};
use super::layout::{MOST_COLUMNS, notes};
use super::prepare::{HeadChunk, scaled, tokens_of, two_parts};
use super::{FIRST_UNIT, SECOND_UNIT, UNIT};
use crate::hvx::{Hvx, math};
use crate::kernels::shared::lanes::INDEX;
use crate::kernels::shared::row_scale::powers;

/// Magnitudes of u below this count as this where scales are chosen, so that those of tokens times those of
/// columns stay numbers: 2^-60.
const SMALLEST: f32 = 8.673_617_4e-19;

impl HeadChunk<'_> {
    /// Makes u, and matrix tiles of p and u.
    ///
    /// # Safety
    /// As [`prepare`](Self::prepare), which has found the chunk ordinary; the unit has stored its products of
    /// state and keys.
    #[inline(never)]
    pub(super) unsafe fn solve<H: Hvx>(&self) {
        // SAFETY: the head has these notes, of an ordinary chunk (the caller's contract).
        let (key, left) = unsafe {
            (PerToken::of::<H>(self.note::<H>(notes::KEY)), PerToken::of::<H>(self.note::<H>(notes::LEFT)))
        };
        // SAFETY: what these functions ask for is the caller's contract. Each reads only what one before it
        // has stored: a and the right-hand sides, then u.
        unsafe {
            // Two pairs of tokens at once where registers hold what they have: exponentials are chains of
            // dependent operations, which fill few packets.
            if H::Q_STAYS {
                self.coefficients::<H, 1>();
            } else {
                self.coefficients::<H, 2>();
            }
            self.right_hand_sides::<H>();
            let largest = self.substitute::<H>(&key);
            for (v, largest) in largest.into_iter().enumerate().take(self.chunk.tile.vectors) {
                self.u_column::<H>(&key, &left, v, largest);
            }
        }
    }

    /// a, and p as a matrix tile, from the products of keys and queries with keys, for N pairs of tokens at
    /// once.
    ///
    /// # Safety
    /// As [`solve`](Self::solve); N divides the pairs.
    #[inline(always)]
    unsafe fn coefficients<H: Hvx, const N: usize>(&self) {
        // SAFETY: the head has these notes, of an ordinary chunk (the caller's contract).
        let (log, key, beta) =
            unsafe { (self.note::<H>(notes::LOG), self.note::<H>(notes::KEY), self.note::<H>(notes::BETA)) };
        // What a row of a is multiplied with.
        let own = PerToken::of::<H>(H::mul(beta, key));
        let logs = PerToken::of::<H>(log);
        // SAFETY: `INDEX` has 32 floats, which are 128 bytes.
        let index = unsafe { H::load(INDEX.as_ptr()) };
        let zero = H::splat(0.0);
        let (first, second) = (H::splat(FIRST_UNIT), H::splat(SECOND_UNIT));
        let of_pair = |pair: usize| {
            let products = |which: usize| {
                // SAFETY: the unit has stored both parts, tiles of 16 vectors of two rows each (the caller's
                // contract).
                let [a, b] = [0, 1].map(|part| unsafe {
                    H::widen_f16(self.places.of_keys(part, which).vectors().load_b::<H>(pair))
                });
                let both = |a, b| H::add_ieee(H::mul_ieee(a, first), H::mul_ieee(b, second));
                [both(a.0, b.0), both(a.1, b.1)]
            };
            let (keys, queries, tokens) = (products(0), products(1), tokens_of(pair));
            let of_token = |i: usize| {
                let t = tokens[i];
                // Below the diagonal none is above zero; the others are not wanted.
                let difference = H::smaller(H::sub_ieee(H::splat(logs.0[t]), log), zero);
                let decay = math::exp::<H>(difference);
                let a = H::mul(H::mul(keys[i], H::mul(decay, key)), H::splat(own.0[t]));
                let a = H::select_gt(H::splat(t as f32), index, a, zero);
                (a, H::select_gt(H::splat((t + 1) as f32), index, H::mul(queries[i], decay), zero))
            };
            let (low, high) = (of_token(0), of_token(1));
            ([low.0, high.0], two_parts::<H>([low.1, high.1]))
        };
        for start in (0..CHUNK / 2).step_by(N) {
            let pairs: [_; N] = core::array::from_fn(|i| of_pair(start + i));
            for (pair, (a, p)) in (start..).zip(pairs) {
                for (t, a) in tokens_of(pair).into_iter().zip(a) {
                    // SAFETY: `t` is below 32, of which `a` has a vector each (the caller's contract).
                    unsafe { self.chunk.memory.a.store::<H>(t, a) };
                }
                for (part, halves) in p.into_iter().enumerate() {
                    // SAFETY: a tile has 16 vectors of two rows each, and this worker alone has the head (the
                    // caller's contract).
                    unsafe { self.places.p(part).vectors().store_b::<H>(pair, halves) };
                }
            }
        }
    }

    /// beta (v - exp(G) S0 k), in the place of u.
    ///
    /// # Safety
    /// As [`solve`](Self::solve).
    #[inline(always)]
    unsafe fn right_hand_sides<H: Hvx>(&self) {
        let Chunk { head, memory, tile, .. } = &self.chunk;
        // SAFETY: the head has these notes, of an ordinary chunk (the caller's contract).
        let (grown, key, beta) = unsafe {
            (self.note::<H>(notes::GROWN), self.note::<H>(notes::KEY), self.note::<H>(notes::BETA))
        };
        let factors = PerToken::of::<H>(H::mul(H::mul(grown, key), H::splat(-1.0)));
        let betas = PerToken::of::<H>(beta);
        for pair in 0..CHUNK / 2 {
            let tokens = tokens_of(pair);
            let v = tokens.map(|t| head.v.row(head.first + t));
            assert!(v.iter().all(|row| row.whole() == tile.vectors));
            let (factors, betas) =
                (tokens.map(|t| H::splat(factors.0[t])), tokens.map(|t| H::splat(betas.0[t])));
            let u = tokens.map(|t| memory.u.skip(t * tile.vectors));
            let side = |i: usize| {
                // SAFETY: the unit has stored a tile for each column, of 16 vectors of two rows each, and
                // there is a note for each (the caller's contract).
                let (products, back) = unsafe {
                    let products = self.places.of_state(0, i).vectors().load_b::<H>(pair);
                    (H::widen_f16(products), self.note::<H>(notes::STATE + i))
                };
                let new = |j: usize, product| {
                    let known = H::mul_q(H::mul(product, back), factors[j]);
                    // SAFETY: both rows have whole vectors as the tile has, by the assertion above.
                    let v = unsafe { v[j].full_unchecked::<H>(i) };
                    H::mul(betas[j], H::float(H::add_qf(known, v)))
                };
                [new(0, products.0), new(1, products.1)]
            };
            // Two at once, because the compiler loads nothing ahead of a store.
            for block in (0..tile.vectors).step_by(BLOCK) {
                let sides: [_; BLOCK] = core::array::from_fn(|j| side(block + j));
                for (i, side) in sides.into_iter().enumerate() {
                    for (u, new) in u.iter().zip(side) {
                        // SAFETY: vector `block + i` of a row of u, of which there are 32 (the caller's
                        // contract).
                        unsafe { u.store::<H>(block + i, new) };
                    }
                }
            }
        }
    }

    /// u from its right-hand sides. Gives the largest magnitudes of u times what takes the keys' scales back,
    /// for each of up to four vectors of values.
    ///
    /// # Safety
    /// As [`solve`](Self::solve); a and the right-hand sides are there.
    #[inline(always)]
    unsafe fn substitute<H: Hvx>(&self, key: &PerToken) -> [H::I; MOST_COLUMNS] {
        let mut largest = [H::bits(H::splat(SMALLEST)); MOST_COLUMNS];
        let vectors = self.chunk.tile.vectors;
        // As many values at once as there are registers for: chains of dependent operations fill few packets.
        //
        // SAFETY: the contract is the caller's; a tile has two vectors or four.
        unsafe {
            if vectors == MOST_COLUMNS && !H::Q_STAYS {
                self.substitute_for::<H, MOST_COLUMNS>(key, &mut largest);
            } else {
                self.substitute_for::<H, BLOCK>(key, &mut largest);
            }
        }
        largest
    }

    /// The same, for B vectors of values at once.
    ///
    /// # Safety
    /// As there; B divides the tile's vectors.
    #[inline(always)]
    unsafe fn substitute_for<H: Hvx, const B: usize>(
        &self,
        key: &PerToken,
        largest: &mut [H::I; MOST_COLUMNS],
    ) {
        for first in (0..CHUNK).step_by(GROUP) {
            // SAFETY: `a` has a vector per token, of which there are 32, and `first + 4` is 32 at most.
            let below = unsafe { lanes::<H>(self.chunk.memory.a.skip(first)) };
            for block in (0..self.chunk.tile.vectors).step_by(B) {
                // SAFETY: `a` and the right-hand sides are in `memory`; the block has B of the tile's
                // vectors, and `first + 4` is 32 at most (the caller's contract).
                let solved = unsafe { self.chunk.four::<H, B>(&below, first, block) };
                for (i, solved) in solved.into_iter().enumerate() {
                    let key = H::splat(key.0[first + i]);
                    for (largest, x) in largest[block..].iter_mut().zip(solved) {
                        *largest = larger::<H>(*largest, H::mul(x, key));
                    }
                }
            }
        }
    }

    /// Column `v` of u as matrix tiles, times what takes the keys' scales back, and once more times what is
    /// left of each token; and a note of what takes its own scales back.
    ///
    /// # Safety
    /// As [`solve`](Self::solve); u is there. `v` is below the tile's vectors.
    #[inline(always)]
    unsafe fn u_column<H: Hvx>(&self, key: &PerToken, left: &PerToken, v: usize, largest: H::I) {
        let (u, vectors) = (self.chunk.memory.u, self.chunk.tile.vectors);
        let (up, back) = powers::<H>(largest);
        let halves_of = |pair: usize| {
            let tokens = [2 * pair, 2 * pair + 1];
            let scales = tokens.map(|t| H::mul(up, H::splat(key.0[t])));
            // SAFETY: u has 32 rows of `vectors` vectors (the caller's contract).
            let rows = tokens.map(|t| unsafe { u.load::<H>(t * vectors + v) });
            let of_left = tokens.map(|t| H::splat(left.0[t]));
            let left = [H::mul(rows[0], of_left[0]), H::mul(rows[1], of_left[1])];
            [rows, left].map(|rows| two_parts::<H>(scaled::<H>(rows, scales)))
        };
        for pair in (0..CHUNK / 2).step_by(2) {
            // Two at once, because the compiler loads nothing ahead of a store.
            for (i, [rows, left]) in [pair, pair + 1].map(halves_of).into_iter().enumerate() {
                for (part, (halves, left)) in rows.into_iter().zip(left).enumerate() {
                    // SAFETY: a tile has 16 vectors of two rows each, and this worker alone has the head (the
                    // caller's contract).
                    unsafe {
                        self.places.u_column(part, v).vectors().store_b::<H>(pair + i, halves);
                        self.places.left_column(part, v).vectors().store_b::<H>(pair + i, left);
                    }
                }
            }
        }
        // SAFETY: there is a note for each of up to four vectors of values, and this worker alone has the
        // head (the caller's contract).
        unsafe { self.set_note::<H>(notes::CHANGES + v, H::mul(back, H::splat(UNIT))) };
    }
}
