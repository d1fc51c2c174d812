//! The chunked delta rule: up to 32 tokens at once, for prompts in programs of the class `fast`.
//!
//! With G_t the sum of the gates' logarithms from the first token of the chunk to token t, and S0 the state
//! before the chunk (the derivation is that of "Gated Delta Networks", Yang, Kautz and Hatamizadeh, 2024):
//!
//! ```text
//! a_ts = beta_t exp(G_t - G_s) (k_t.k_s), s < t         p_ts = exp(G_t - G_s) (q_t.k_s), s <= t
//! u_t  = beta_t (v_t - exp(G_t) S0 k_t) - sum over s < t of a_ts u_s
//! y_t  = (exp(G_t) S0 q_t + sum over s <= t of p_ts u_s) / sqrt(S)
//! S1   = exp(G_n) S0 + sum over t of k_t (exp(G_n - G_t) u_t)
//! ```
//!
//! Logarithms are subtracted before the exponential, so that no quotient of two vanishing numbers arises.
//!
//! S0 k, S0 q, k.k, q.k and the update are products of matrices. A float multiplication takes both
//! multipliers of a DSP for 32 products. An integer one takes one of them for 64 products of halves, which
//! are summed in words: four times as many in a packet. So these factors become halves, each row or column
//! with a scale of its own ([`pairs::Scale`]), and sums are exact. Rounding to halves costs an NMSE of about
//! 1e-8. State, u and y are floats, and so are the sums over u ([`solve`]).
//!
//! Chunks begin at positions that are multiples of 32. A prompt that is cut there has the same bits as one
//! that is not; elsewhere a cut changes them, which the class `fast` allows. The other sequences of a
//! step never do.
//!
//! Halves have no infinities and no NaN, and a scale must not overflow. So a chunk is looked at first, and
//! where a value is not an ordinary one, or the rule would enlarge the state, the recurrence takes the chunk,
//! with whatever that gives.

mod pairs;
pub mod solve;
mod update;

use self::pairs::{Scale, Words};
use super::head::Head;
use super::tile::Tile;
use crate::hvx::{BYTES, Hvx, LANES, VectorPtr, math};
use crate::kernels::shared::lanes::INDEX;

/// Tokens of a chunk: one per lane.
pub const CHUNK: usize = LANES;
/// Tokens from which on a chunk is worth it: making halves of a state takes as many packets as two or three
/// tokens of the recurrence.
pub const LEAST: usize = 4;
/// Vectors of values that are worked on at once.
pub const BLOCK: usize = 2;
/// Values per key: a multiple of this. (Words of keys then fill whole vectors, too.)
pub const SIZES: usize = BLOCK * LANES;
/// Tokens whose sums are made together.
pub const GROUP: usize = 4;

/// Largest number that is an ordinary one. The square of what a state grows to is then far from infinity.
const LARGEST: f32 = 1_099_511_627_776.0; // 2^40
/// Largest beta |k|^2 with which a token does not enlarge the state, and some for rounding.
pub const LARGEST_STEP: f32 = 2.01;
/// A logarithm of a gate whose exponential is zero. (Sums of smaller ones would lose digits for nothing.)
const CLOSED: f32 = -88.0;

/// Where a chunk is worked on: whole vectors of VTCM that nobody else uses.
#[derive(Clone, Copy)]
pub struct ChunkMemory {
    /// The state as pairs of keys: S/2 rows of words.
    pub state: VectorPtr,
    /// Keys as pairs: a row of words per token.
    pub keys: VectorPtr,
    /// Queries as pairs, as keys.
    pub queries: VectorPtr,
    /// Keys' pairs with tokens in the lanes: a vector per pair.
    pub across: VectorPtr,
    /// a: a vector per token, with s in the lanes.
    pub a: VectorPtr,
    /// p, as a.
    pub p: VectorPtr,
    /// u: S floats per token.
    pub u: VectorPtr,
    /// exp(G) S0 q: S floats per token.
    pub old: VectorPtr,
    /// What changes the state, as pairs of tokens: rows of S words.
    pub changes: VectorPtr,
    /// The factor of each value's halves.
    pub down: VectorPtr,
}

/// Vectors of each part of a [`ChunkMemory`].
const fn parts(tile: Tile) -> [usize; 10] {
    let Tile { size, vectors } = tile;
    let (rows, floats) = (CHUNK * (size / 2).div_ceil(LANES), CHUNK * vectors);
    [size / 2 * vectors, rows, rows, rows, CHUNK, CHUNK, floats, floats, floats / 2, vectors]
}

impl ChunkMemory {
    /// Bytes for states of this size.
    pub const fn bytes(tile: Tile) -> usize {
        let (parts, mut sum, mut i) = (parts(tile), 0, 0);
        while i < parts.len() {
            sum += parts[i];
            i += 1;
        }
        sum * BYTES
    }

    /// The parts of the [`bytes`](Self::bytes) at `at`.
    pub fn new(mut at: VectorPtr, tile: Tile) -> Self {
        let [state, keys, queries, across, a, p, u, old, changes, down] = parts(tile).map(|vectors| {
            let part = at;
            at = at.skip(vectors);
            part
        });
        Self { state, keys, queries, across, a, p, u, old, changes, down }
    }
}

/// A number per token, and room for storing a whole vector at each.
#[repr(C, align(128))]
pub struct PerToken(pub [f32; 2 * CHUNK]);

impl PerToken {
    pub const fn zeros() -> Self {
        Self([0.0; 2 * CHUNK])
    }

    /// Sets token `t`'s number, which is in all lanes, and those of the tokens after it.
    #[inline(always)]
    pub fn put<H: Hvx>(&mut self, t: usize, all: H::F) {
        assert!(t < CHUNK);
        // SAFETY: `t` is below 32, so floats `t..t + 32` are inside the array of 64.
        unsafe { H::store(self.0.as_mut_ptr().add(t), all) };
    }

    /// The numbers of all tokens, a lane each.
    #[inline(always)]
    pub fn all<H: Hvx>(&self) -> H::F {
        // SAFETY: the array begins with 32 floats, at a multiple of 128.
        unsafe { H::load_aligned(self.0.as_ptr()) }
    }

    /// The numbers of all tokens.
    #[inline(always)]
    pub fn of<H: Hvx>(all: H::F) -> Self {
        let mut numbers = Self::zeros();
        numbers.put::<H>(0, all);
        numbers
    }

    /// The first sixteen numbers of each of two.
    pub fn joined([first, second]: [Self; 2]) -> Self {
        let (mut all, half) = (first, CHUNK / 2);
        all.0[half..CHUNK].copy_from_slice(&second.0[..half]);
        all
    }
}

/// What a chunk has of each token besides rows.
pub struct Tokens {
    /// G.
    pub log: PerToken,
    /// exp(G).
    pub grown: PerToken,
    /// exp(G_n - G).
    pub left: PerToken,
    /// 0 past the last token.
    pub beta: PerToken,
    /// The factor of the halves of k, and of q.
    key: PerToken,
    query: PerToken,
}

/// A chunk of a head.
pub struct Chunk<'h> {
    /// Its first row is the chunk's.
    pub head: &'h Head<'h>,
    /// Tokens: 1 to [`CHUNK`].
    pub tokens: usize,
    pub tile: Tile,
    /// The state.
    pub state: VectorPtr,
    pub memory: ChunkMemory,
}

impl Chunk<'_> {
    /// Tokens in whole groups.
    #[inline(always)]
    fn padded(&self) -> usize {
        self.tokens.next_multiple_of(GROUP)
    }

    /// Vectors of words of a token.
    #[inline(always)]
    fn words(&self) -> usize {
        self.tile.size / SIZES
    }

    /// Takes the state through the chunk's tokens and writes their outputs; or does neither and says so, if
    /// the recurrence has to.
    ///
    /// # Safety
    /// 1. The state is a [`Tile`] of S a multiple of [`SIZES`], `memory` has the parts of that tile, and this
    ///    worker alone uses both.
    /// 2. This worker alone has claimed the head, and with it its rows of y.
    /// 3. Rows of the head are as long as the tile says, from `head.first` on as many as there are tokens.
    #[inline(always)]
    pub unsafe fn run<H: Hvx>(&self) -> bool {
        // SAFETY: what these functions ask for are points 1 to 3 of the caller's contract. Each reads of
        // `memory` only what one before it has stored: keys and queries, then keys across, then the state's
        // halves, then what is summed over them, u and y, and what changes the state.
        unsafe {
            let Some(mut tokens) = self.gates::<H>() else { return false };
            if !self.rows::<H>(&mut tokens) || !self.state_is_ordinary::<H>() {
                return false;
            }
            self.across::<H>();
            self.halves_of_state::<H>();
            self.sums::<H>(&tokens);
            self.solve::<H>();
            self.update::<H>(&tokens);
        }
        true
    }

    /// Gates and betas; `None` if they are out of range.
    #[inline(always)]
    pub fn gates<H: Hvx>(&self) -> Option<Tokens> {
        let (mut log, mut beta) = (PerToken::zeros(), PerToken::zeros());
        let (mut sum, mut ordinary) = (0.0, true);
        for t in 0..CHUNK {
            if t < self.tokens {
                let row = self.head.first + t;
                let (g, b) = (self.head.g.row(row).get(0), self.head.beta.row(row).get(0));
                ordinary &= g <= 0.0 && (0.0..=LARGEST).contains(&b);
                sum += if g < CLOSED { CLOSED } else { g };
                beta.0[t] = b;
            }
            log.0[t] = sum;
        }
        let all = log.all::<H>();
        let grown = PerToken::of::<H>(math::exp::<H>(all));
        let left = PerToken::of::<H>(math::exp::<H>(H::sub_ieee(H::splat(sum), all)));
        let (key, query) = (PerToken::zeros(), PerToken::zeros());
        ordinary.then_some(Tokens { log, grown, left, beta, key, query })
    }

    /// Keys and queries become halves; whether they and values are ordinary.
    ///
    /// # Safety
    /// Points 1 and 3 of [`run`](Self::run).
    #[inline(always)]
    unsafe fn rows<H: Hvx>(&self, tokens: &mut Tokens) -> bool {
        let (vectors, words) = (self.tile.vectors, self.words());
        let mut largest = H::splat_i(0);
        let mut squares = PerToken::zeros();
        for t in 0..CHUNK {
            let [keys, queries] = [self.memory.keys, self.memory.queries].map(|rows| rows.skip(t * words));
            if t >= self.tokens {
                for w in 0..words {
                    // SAFETY: these are rows `t` of the keys and of the queries, of which there are 32 with
                    // `words` vectors each (the caller's contract, point 1).
                    unsafe {
                        keys.store::<H>(w, H::splat(0.0));
                        queries.store::<H>(w, H::splat(0.0));
                    }
                }
                continue;
            }
            let row = self.head.first + t;
            let (k, q, v) = (self.head.k.row(row), self.head.q.row(row), self.head.v.row(row));
            assert!(k.whole() == vectors && q.whole() == vectors && v.whole() == vectors);
            let (mut key, mut query) = (H::zero_q(), H::zero_q());
            for i in 0..vectors {
                // SAFETY: all three rows have `vectors` whole vectors, by the assertion above.
                let (k, q, v) =
                    unsafe { (k.full_unchecked::<H>(i), q.full_unchecked::<H>(i), v.full_unchecked::<H>(i)) };
                key = H::add_q(key, H::mul_q(k, k));
                query = H::add_q(query, H::mul_q(q, q));
                largest = larger::<H>(larger::<H>(larger::<H>(largest, k), q), v);
            }
            let (key, query) = (H::sum_all_q(key), H::sum_all_q(query));
            squares.put::<H>(t, key);
            // Side by side: each is a chain of dependent operations.
            let (key, query) = (Scale::<H>::of(key), Scale::<H>::of(query));
            tokens.key.put::<H>(t, key.down);
            tokens.query.put::<H>(t, query.down);
            for i in 0..vectors {
                // SAFETY: the rows have `vectors` whole vectors, by the assertion above; 16 words of each
                // make `words` vectors, which are those of rows `t` (the caller's contract, point 1).
                unsafe {
                    let (k, q) = (k.full_unchecked::<H>(i), q.full_unchecked::<H>(i));
                    H::store_low_halves(keys.get().cast::<u16>().add(i * LANES), key.halves(k));
                    H::store_low_halves(queries.get().cast::<u16>().add(i * LANES), query.halves(q));
                }
            }
        }
        let step = H::max_lane(H::mul(squares.all::<H>(), tokens.beta.all::<H>()));
        is_ordinary::<H>(largest) && step <= LARGEST_STEP
    }

    /// All that is a sum over keys: a, p, the right-hand sides of u, and what the old state gives to y.
    ///
    /// # Safety
    /// Points 1 and 3 of [`run`](Self::run); keys, queries, `across` and the state's halves are in `memory`.
    #[inline(always)]
    unsafe fn sums<H: Hvx>(&self, tokens: &Tokens) {
        let ChunkMemory { state, keys, queries, across, u, old, down, .. } = self.memory;
        let (vectors, words, pairs) = (self.tile.vectors, self.words(), self.tile.size / 2);
        // Four rows of keys, four of queries.
        let mut rows = Words::zeros();
        for first in (0..self.tokens).step_by(GROUP) {
            for i in 0..GROUP {
                let t = first + i;
                for w in 0..words {
                    // SAFETY: keys and queries have 32 rows of `words` vectors (the caller's contract, point
                    // 1), and `first + i` is below 32. A row of `Words` has two vectors, and `words` is 2 at
                    // most.
                    unsafe {
                        rows.vector(i).store::<H>(w, keys.load::<H>(t * words + w));
                        rows.vector(GROUP + i).store::<H>(w, queries.load::<H>(t * words + w));
                    }
                }
            }
            // SAFETY: `across` has a vector per pair; rows of `Words` have 64 words, and pairs are 64 at
            // most.
            let sums = unsafe { pairs::sums::<H, 8, 1, 64, 1>(across, 1, rows.words(), pairs) };
            // SAFETY: `a` and `p` have a vector for each of 32 tokens (the caller's contract, point 1).
            unsafe { self.coefficients::<H>(tokens, first, &sums) };
            for block in (0..vectors).step_by(BLOCK) {
                // SAFETY: the state's halves are `pairs` rows of `vectors` vectors, of which a block takes
                // two; rows of `Words` have 64 words, and pairs are 64 at most.
                let sums = unsafe {
                    pairs::sums::<H, 8, BLOCK, 64, 1>(state.skip(block), vectors, rows.words(), pairs)
                };
                for i in 0..GROUP {
                    let t = first + i;
                    // Past the last token beta is 0, and any row will do.
                    let v = self.head.v.row(self.head.first + t.min(self.tokens - 1));
                    let grown = tokens.grown.0[t];
                    let key = H::splat(-grown * tokens.key.0[t]);
                    let query = H::splat(grown * tokens.query.0[t]);
                    let beta = H::splat(tokens.beta.0[t]);
                    for (j, (k, q)) in sums[i].into_iter().zip(sums[GROUP + i]).enumerate() {
                        let at = block + j;
                        // SAFETY: `at` is below `vectors`, and `t` below 32: vector `at` of `down`, and of
                        // row `t` of `u` and `old` (the caller's contract, point 1).
                        unsafe {
                            let down = down.load::<H>(at);
                            let k = H::mul(H::to_float(k), down);
                            let q = H::mul(H::to_float(q), down);
                            let v = H::float(H::add_qf(H::mul_q(key, k), v.full::<H>(at)));
                            u.store::<H>(t * vectors + at, H::mul(beta, v));
                            old.store::<H>(t * vectors + at, H::mul(query, q));
                        }
                    }
                }
            }
        }
    }

    /// a and p of four tokens, from the products of their halves with all keys'.
    ///
    /// # Safety
    /// `a` and `p` have a vector for each of 32 tokens, and `first + 4` is 32 at most.
    #[inline(always)]
    unsafe fn coefficients<H: Hvx>(&self, tokens: &Tokens, first: usize, sums: &[[H::I; 1]; 2 * GROUP]) {
        let (log, key) = (tokens.log.all::<H>(), tokens.key.all::<H>());
        // SAFETY: `INDEX` has 32 floats, which are 128 bytes.
        let index = unsafe { H::load(INDEX.as_ptr()) };
        let zero = H::splat(0.0);
        for i in 0..GROUP {
            let t = first + i;
            // Below the diagonal none is above zero; the others are not wanted.
            let difference = H::smaller(H::sub_ieee(H::splat(tokens.log.0[t]), log), zero);
            let decay = H::mul(math::exp::<H>(difference), key);
            let own = H::splat(tokens.beta.0[t] * tokens.key.0[t]);
            let query = H::splat(tokens.query.0[t]);
            let a = H::mul(H::mul(H::to_float(sums[i][0]), decay), own);
            let p = H::mul(H::mul(H::to_float(sums[GROUP + i][0]), decay), query);
            // SAFETY: `t` is below 32, of which `a` and `p` have a vector each (the caller's contract).
            unsafe {
                self.memory.a.store::<H>(t, H::select_gt(H::splat(t as f32), index, a, zero));
                self.memory.p.store::<H>(t, H::select_gt(H::splat((t + 1) as f32), index, p, zero));
            }
        }
    }
}

/// The larger of bits of magnitudes, lane by lane.
#[inline(always)]
pub fn larger<H: Hvx>(largest: H::I, x: H::F) -> H::I {
    H::max_i(largest, H::and_i(H::bits(x), H::splat_i(i32::MAX)))
}

/// Whether no magnitude is above [`LARGEST`]; the bits of an infinity or a NaN are.
#[inline(always)]
pub fn is_ordinary<H: Hvx>(largest: H::I) -> bool {
    let above = H::shr_i::<31>(H::sub_i(H::splat_i(LARGEST.to_bits() as i32), largest));
    H::sum(H::to_float(above)) == 0.0
}
