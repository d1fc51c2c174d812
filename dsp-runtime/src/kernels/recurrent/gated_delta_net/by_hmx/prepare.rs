//! What the unit multiplies first: keys and queries, and the state.

use super::super::chunk::{BLOCK, CHUNK, Chunk, LARGEST_STEP, PerToken, is_ordinary, larger};
use super::UNIT;
use super::layout::{HeadPlaces, notes};
use crate::hmx::TILE_VECTORS;
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::kernels::shared::row_scale::powers;

/// A chunk of a head, and what the head has in VTCM.
pub(super) struct HeadChunk<'h> {
    pub chunk: Chunk<'h>,
    pub places: HeadPlaces,
}

/// The tokens of rows `2 pair` and `2 pair + 1` of matrix tiles: those that are in one word of a vector. Half
/// a chunk apart, so that few steps bring tokens into the lanes in their order ([`across`]).
pub(super) const fn tokens_of(pair: usize) -> [usize; 2] {
    [pair, pair + CHUNK / 2]
}

/// A power of two that brings a row with this sum of squares, in all lanes, to a length below 1, and the
/// inverse of it.
#[inline(always)]
fn length_scale<H: Hvx>(squares: H::F) -> (H::F, H::F) {
    // With the exponent's code e, squares are below 2^(e - 126), and the length below 2^((e - 125) / 2), also
    // where that is rounded down.
    let half = H::sar_i::<1>(H::sub_i(H::shr_i::<23>(H::bits(squares)), H::splat_i(125)));
    let power = |x: H::I| H::from_bits(H::shl_i::<23>(H::add_i(H::splat_i(127), x)));
    (power(H::sub_i(H::splat_i(0), half)), power(half))
}

/// Two rows, each times a scale of its own.
#[inline(always)]
pub(super) fn scaled<H: Hvx>(rows: [H::F; 2], scales: [H::F; 2]) -> [H::F; 2] {
    [H::mul_ieee(rows[0], scales[0]), H::mul_ieee(rows[1], scales[1])]
}

/// Two rows of floats as fp16 in the words of a vector; and what that leaves of them.
#[inline(always)]
pub(super) fn two_parts<H: Hvx>([low, high]: [H::F; 2]) -> [H::B; 2] {
    let first = H::to_f16(low, high);
    let (of_low, of_high) = H::widen_f16(first);
    [first, H::to_f16(H::sub_ieee(low, of_low), H::sub_ieee(high, of_high))]
}

/// Words of tokens p and p + 16 in vectors p, with a dimension per lane, as words of two dimensions in their
/// vectors, with a token per lane.
///
/// Of a half's place there are ten bits: four of its vector, five of its lane, one of its half. The first
/// step turns all of them round by one, to the right; each other step turns the upper nine, to the left.
#[inline(always)]
fn across<H: Hvx>(x: [H::B; TILE_VECTORS]) -> [H::B; TILE_VECTORS] {
    let halves = |i: usize| H::deal_halves(x[2 * i], x[2 * i + 1]);
    let dealt: [_; TILE_VECTORS / 2] = core::array::from_fn(halves);
    let (low, high) = (dealt.map(|it| it.0), dealt.map(|it| it.1));
    let mut x =
        core::array::from_fn(|i| if i < TILE_VECTORS / 2 { low[i] } else { high[i - TILE_VECTORS / 2] });
    for _ in 0..LANES.ilog2() {
        x = interleaved::<H>(x);
    }
    x
}

/// Vectors i and i + 8, interleaved, as vectors 2 i and 2 i + 1.
#[inline(always)]
fn interleaved<H: Hvx>(x: [H::B; TILE_VECTORS]) -> [H::B; TILE_VECTORS] {
    let x = x.map(|x| H::from_bits(H::words(x)));
    let pairs: [_; TILE_VECTORS / 2] = core::array::from_fn(|i| H::interleave(x[i], x[i + TILE_VECTORS / 2]));
    core::array::from_fn(|i| {
        let (low, high) = pairs[i / 2];
        H::bytes(H::bits(if i % 2 == 0 { low } else { high }))
    })
}

impl HeadChunk<'_> {
    /// Vector `i` of the head's notes.
    ///
    /// # Safety
    /// It was written, and is below [`notes::VECTORS`].
    #[inline(always)]
    pub(super) unsafe fn note<H: Hvx>(&self, i: usize) -> H::F {
        // SAFETY: notes have so many vectors (the caller's contract).
        unsafe { self.places.notes().load::<H>(i) }
    }

    /// Writes vector `i` of the head's notes.
    ///
    /// # Safety
    /// `i` is below [`notes::VECTORS`], and this worker alone has the head.
    #[inline(always)]
    pub(super) unsafe fn set_note<H: Hvx>(&self, i: usize, x: H::F) {
        // SAFETY: notes have so many vectors, which nobody else uses (the caller's contract).
        unsafe { self.places.notes().store::<H>(i, x) };
    }

    /// Makes matrix tiles of the chunk's keys and queries and of the state, and notes whether the unit can
    /// take the chunk at all.
    ///
    /// # Safety
    /// 1. The state is in its place, and what is known of it is noted. This worker alone has the head, and
    ///    the unit has finished with it.
    /// 2. `chunk.memory` has the parts of the state's tile, in this worker's own VTCM.
    /// 3. Rows of the chunk's head are as long as the tile says; there are [`CHUNK`] tokens.
    #[inline(never)]
    pub(super) unsafe fn prepare<H: Hvx>(&self) {
        // SAFETY: what these functions ask for are points 1 to 3 of the caller's contract. Each reads only
        // what one before it has stored: keys, then keys across.
        unsafe {
            let ordinary = self.gates::<H>() && self.rows::<H>() && self.state_is_ordinary::<H>();
            self.set_note::<H>(notes::IS_ORDINARY, H::splat(if ordinary { 1.0 } else { 0.0 }));
            if ordinary {
                self.across::<H>(0);
                self.across::<H>(1);
                for v in 0..self.chunk.tile.vectors {
                    self.state_column::<H>(v);
                }
            }
        }
    }

    /// Notes what gates and betas come to; whether they are in range.
    ///
    /// # Safety
    /// Points 1 and 3 of [`prepare`](Self::prepare).
    #[inline(always)]
    unsafe fn gates<H: Hvx>(&self) -> bool {
        let Some(tokens) = self.chunk.gates::<H>() else { return false };
        // SAFETY: the head has these notes, and this worker alone has the head (the caller's contract).
        unsafe {
            self.set_note::<H>(notes::LOG, tokens.log.all::<H>());
            self.set_note::<H>(notes::GROWN, tokens.grown.all::<H>());
            self.set_note::<H>(notes::LEFT, tokens.left.all::<H>());
            self.set_note::<H>(notes::BETA, tokens.beta.all::<H>());
        }
        true
    }

    /// Keys and queries as matrix tiles, and notes of what takes their scales back. Whether all values are
    /// ordinary, and no token would enlarge the state.
    ///
    /// # Safety
    /// Points 1 and 3 of [`prepare`](Self::prepare); beta is noted.
    #[inline(always)]
    unsafe fn rows<H: Hvx>(&self) -> bool {
        let Chunk { head, tile, .. } = &self.chunk;
        let vectors = tile.vectors;
        let mut largest = [H::splat_i(0); 2];
        // Of the first half of the tokens, and of the second.
        let [mut squares, mut keys, mut queries] = [(); 3].map(|()| [PerToken::zeros(), PerToken::zeros()]);
        // Two pairs at once: chains of dependent operations fill few packets.
        for first in (0..CHUNK / 2).step_by(2) {
            let pairs = [first, first + 1];
            let rows = pairs.map(|pair| {
                let row = tokens_of(pair).map(|t| head.first + t);
                [head.k, head.q, head.v].map(|of| row.map(|row| of.row(row)))
            });
            assert!(rows.as_flattened().as_flattened().iter().all(|row| row.whole() == vectors));
            let mut sums = [[[H::zero_q(); 2]; 2]; 2];
            for i in 0..vectors {
                for (rows, sums) in rows.iter().zip(&mut sums) {
                    for t in 0..2 {
                        // SAFETY: all rows have `vectors` whole vectors, by the assertion above.
                        let [k, q, v] = unsafe { rows.map(|rows| rows[t].full_unchecked::<H>(i)) };
                        sums[0][t] = H::add_q(sums[0][t], H::mul_q(k, k));
                        sums[1][t] = H::add_q(sums[1][t], H::mul_q(q, q));
                        largest[t] = larger::<H>(larger::<H>(larger::<H>(largest[t], k), q), v);
                    }
                }
            }
            let sums = sums.map(|sums| sums.map(|[a, b]| [H::sum_all_q(a), H::sum_all_q(b)]));
            let scales = sums.map(|sums| sums.map(|squares| squares.map(length_scale::<H>)));
            for (p, pair) in pairs.into_iter().enumerate() {
                for t in 0..2 {
                    squares[t].put::<H>(pair, sums[p][0][t]);
                    keys[t].put::<H>(pair, scales[p][0][t].1);
                    queries[t].put::<H>(pair, scales[p][1][t].1);
                }
            }
            let tiles = pairs.map(|pair| {
                [0, 1].map(|which| [0, 1].map(|part| self.places.rows(part, which).vectors().skip(pair)))
            });
            for i in 0..vectors {
                let halves = |p: usize, which: usize| {
                    // SAFETY: all rows have `vectors` whole vectors, by the assertion above.
                    let row = unsafe { rows[p][which].map(|row| row.full_unchecked::<H>(i)) };
                    two_parts::<H>(scaled::<H>(row, scales[p][which].map(|(to, _)| to)))
                };
                let halves = [[halves(0, 0), halves(0, 1)], [halves(1, 0), halves(1, 1)]];
                for (to, halves) in
                    tiles.as_flattened().as_flattened().iter().zip(halves.as_flattened().as_flattened())
                {
                    // SAFETY: a matrix tile has 16 vectors of two rows each, and there are as many of keys
                    // and of queries as there are vectors (point 1 of the caller's contract).
                    unsafe { to.store_b::<H>(TILE_VECTORS * i, *halves) };
                }
            }
        }
        let [squares, keys, queries] = [squares, keys, queries].map(PerToken::joined);
        // SAFETY: the head has these notes, of which beta is written, and this worker alone has the head (the
        // caller's contract).
        let beta = unsafe {
            self.set_note::<H>(notes::KEY, keys.all::<H>());
            self.set_note::<H>(notes::QUERY, queries.all::<H>());
            self.note::<H>(notes::BETA)
        };
        let step = H::max_lane(H::mul(squares.all::<H>(), beta));
        is_ordinary::<H>(H::max_i(largest[0], largest[1])) && step <= LARGEST_STEP
    }

    /// Part `part` of keys with tokens in the lanes, two dimensions to a word, from their matrix tiles.
    ///
    /// # Safety
    /// Point 1 of [`prepare`](Self::prepare); the keys' matrix tiles are there.
    #[inline(always)]
    unsafe fn across<H: Hvx>(&self, part: usize) {
        for tile in 0..self.chunk.tile.vectors {
            let from = self.places.rows(part, 0).skip(tile).vectors();
            let to = self.places.across(part).skip(tile).vectors();
            // SAFETY: a matrix tile has 16 vectors (the caller's contract).
            let rows = core::array::from_fn(|pair| unsafe { from.load_b::<H>(pair) });
            for (pair, x) in across::<H>(rows).into_iter().enumerate() {
                // SAFETY: a matrix tile has 16 vectors, and this worker alone has the head (the caller's
                // contract).
                unsafe { to.store_b::<H>(pair, x) };
            }
        }
    }

    /// Whether all of the state is ordinary, by the largest magnitudes that were noted.
    ///
    /// # Safety
    /// Point 1 of [`prepare`](Self::prepare).
    #[inline(always)]
    unsafe fn state_is_ordinary<H: Hvx>(&self) -> bool {
        let mut largest = H::splat_i(0);
        for v in 0..self.chunk.tile.vectors {
            // SAFETY: there is a note for each of up to four vectors of values (the caller's contract).
            largest = larger::<H>(largest, unsafe { self.note::<H>(notes::STATE + v) });
        }
        is_ordinary::<H>(largest)
    }

    /// Notes the largest magnitudes of the state.
    ///
    /// # Safety
    /// Point 1 of [`prepare`](Self::prepare), of which this makes what is to be noted.
    #[inline(never)]
    pub(super) unsafe fn describe_state<H: Hvx>(&self) {
        let Chunk { tile, state, .. } = self.chunk;
        for block in (0..tile.vectors).step_by(BLOCK) {
            let mut largest = [H::splat_i(0); BLOCK];
            let mut at = state.skip(block);
            for _ in 0..tile.size {
                for (j, largest) in largest.iter_mut().enumerate() {
                    // SAFETY: this is vector `block + j` of a key of the state, which has `size` keys of
                    // `vectors` vectors (the caller's contract).
                    *largest = larger::<H>(*largest, unsafe { at.load::<H>(j) });
                }
                at = at.skip(tile.vectors);
            }
            for (j, largest) in largest.into_iter().enumerate() {
                // SAFETY: there is a note for each of up to four vectors of values, and this worker alone has
                // the head (the caller's contract).
                unsafe { self.set_note::<H>(notes::STATE + block + j, H::from_bits(largest)) };
            }
        }
    }

    /// Column `v` of the state as matrix tiles, and a note of what takes its scales back.
    ///
    /// # Safety
    /// Point 1 of [`prepare`](Self::prepare); `v` is below the tile's vectors.
    #[inline(always)]
    unsafe fn state_column<H: Hvx>(&self, v: usize) {
        let Chunk { tile, state, .. } = self.chunk;
        // SAFETY: `v` is below the tile's vectors, of which there are four at most, and the largest
        // magnitudes are noted (the caller's contract).
        let (to, back) = powers::<H>(H::bits(unsafe { self.note::<H>(notes::STATE + v) }));
        // SAFETY: `v` is below the tile's vectors, of which there are four at most, and this worker alone has
        // the head (the caller's contract).
        unsafe { self.set_note::<H>(notes::STATE + v, H::mul(back, H::splat(UNIT))) };
        let (mut from, tiles): (VectorPtr, _) = (state.skip(v), self.places.state_column(v).vectors());
        for pair in 0..tile.size / 2 {
            // SAFETY: these are vector `v` of two adjacent keys of the state, and a vector of the column's
            // matrix tiles, 16 for 32 keys (the caller's contract).
            unsafe {
                let (low, high) = (from.load::<H>(0), from.load::<H>(tile.vectors));
                tiles.store_b::<H>(pair, H::scaled_to_f16(low, high, [to; 2]));
            }
            from = from.skip(2 * tile.vectors);
        }
    }
}
