//! Outputs, and the state after the chunk, from what the unit made of p, keys and u.

use super::super::chunk::{BLOCK, CHUNK, Chunk, PerToken, larger};
use super::layout::notes;
use super::prepare::{HeadChunk, tokens_of};
use crate::hmx::TILE_VECTORS;
use crate::hvx::Hvx;

impl HeadChunk<'_> {
    /// Writes the outputs of an ordinary chunk, and brings the state to its end.
    ///
    /// # Safety
    /// As [`prepare`](Self::prepare), which has found the chunk ordinary; the unit has stored its products of
    /// u. This worker alone has claimed the head, and with it its rows of y.
    #[inline(never)]
    pub(super) unsafe fn results<H: Hvx>(&self) {
        // SAFETY: what both ask for is the caller's contract.
        unsafe {
            self.outputs::<H>();
            self.update::<H>();
        }
    }

    /// y = (exp(G) S0 q + the sum of p and u) / sqrt(S).
    ///
    /// # Safety
    /// As [`results`](Self::results).
    #[inline(always)]
    unsafe fn outputs<H: Hvx>(&self) {
        let Chunk { head, tile, .. } = &self.chunk;
        // SAFETY: the head has these notes, of an ordinary chunk (the caller's contract).
        let (grown, query) = unsafe { (self.note::<H>(notes::GROWN), self.note::<H>(notes::QUERY)) };
        let query = H::mul(query, H::splat(head.scale));
        let (old_factors, new_factors) = (PerToken::of::<H>(H::mul(grown, query)), PerToken::of::<H>(query));
        for pair in 0..CHUNK / 2 {
            let tokens = tokens_of(pair);
            // SAFETY: this worker alone has claimed the head, and with it its rows of y (the caller's
            // contract), and the tokens are two.
            let mut rows = tokens.map(|t| unsafe { head.y.row(head.first + t) });
            assert!(rows.iter().all(|row| row.len() == tile.size));
            let old_factors = tokens.map(|t| H::splat(old_factors.0[t]));
            let new_factors = tokens.map(|t| H::splat(new_factors.0[t]));
            let output = |v: usize| {
                // SAFETY: the unit has stored both tiles of each column, of 16 vectors of two rows each, and
                // there are notes for each column (the caller's contract).
                let (old, new, of_old, of_new) = unsafe {
                    (
                        H::widen_f16(self.places.of_state(1, v).vectors().load_b::<H>(pair)),
                        H::widen_f16(self.places.sums(v).vectors().load_b::<H>(pair)),
                        self.note::<H>(notes::STATE + v),
                        self.note::<H>(notes::CHANGES + v),
                    )
                };
                let of_token = |i: usize, old, new| {
                    let old = H::mul_q(H::mul(old, of_old), old_factors[i]);
                    let new = H::mul_q(H::mul(new, of_new), new_factors[i]);
                    H::float(H::add_q(old, new))
                };
                [of_token(0, old.0, new.0), of_token(1, old.1, new.1)]
            };
            // Two at once, because the compiler loads nothing ahead of a store.
            for block in (0..tile.vectors).step_by(BLOCK) {
                let outputs: [_; BLOCK] = core::array::from_fn(|j| output(block + j));
                for (v, outputs) in outputs.into_iter().enumerate() {
                    for (row, output) in rows.iter_mut().zip(outputs) {
                        // SAFETY: the row has `size` values, by the assertion above, which are `vectors`
                        // whole vectors.
                        unsafe { row.set_full_unchecked::<H>(block + v, output) };
                    }
                }
            }
        }
    }

    /// S1 = exp(G_n) S0 + the products of keys and u; and a note of its largest magnitudes.
    ///
    /// # Safety
    /// As [`results`](Self::results).
    #[inline(always)]
    unsafe fn update<H: Hvx>(&self) {
        let Chunk { tile, state, .. } = self.chunk;
        // SAFETY: the head has this note, of an ordinary chunk (the caller's contract).
        let decay = H::splat(unsafe { PerToken::of::<H>(self.note::<H>(notes::GROWN)) }.0[CHUNK - 1]);
        for v in 0..tile.vectors {
            // SAFETY: there is a note for each of up to four vectors of values (the caller's contract).
            let back = unsafe { self.note::<H>(notes::CHANGES + v) };
            // The tiles of all keys follow each other.
            let changes = self.places.changes(0, v).vectors();
            let mut at = state.skip(v);
            let mut largest = [H::splat_i(0); 2];
            // Two vectors of changes at once, because the compiler loads nothing ahead of a store.
            for pair in (0..tile.vectors * TILE_VECTORS).step_by(2) {
                // SAFETY: the unit has stored a tile for each 32 keys, of 16 vectors of two keys each; and
                // these are vector `v` of four adjacent keys of the state (the caller's contract).
                let (first, second, old) = unsafe {
                    (
                        H::widen_f16(changes.load_b::<H>(pair)),
                        H::widen_f16(changes.load_b::<H>(pair + 1)),
                        [0, 1, 2, 3].map(|i| at.load::<H>(i * tile.vectors)),
                    )
                };
                let changes = [first.0, first.1, second.0, second.1];
                for (i, (old, change)) in old.into_iter().zip(changes).enumerate() {
                    let new = H::float(H::add_q(H::mul_q(decay, old), H::mul_q(change, back)));
                    // SAFETY: this is vector `v` of one of the four keys, and this worker alone has the head
                    // (the caller's contract).
                    unsafe { at.store::<H>(i * tile.vectors, new) };
                    largest[i % 2] = larger::<H>(largest[i % 2], new);
                }
                at = at.skip(4 * tile.vectors);
            }
            let largest = H::from_bits(H::max_i(largest[0], largest[1]));
            // SAFETY: there is a note for each of up to four vectors of values, and this worker alone has the
            // head (the caller's contract).
            unsafe { self.set_note::<H>(notes::STATE + v, largest) };
        }
    }
}
