//! Outputs, and the state after the chunk, from what the unit made of p, keys and u.

use super::super::{CHUNK, Chunk, PerToken, larger};
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
            for v in 0..tile.vectors {
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
                for (i, (old, new)) in [(old.0, new.0), (old.1, new.1)].into_iter().enumerate() {
                    let old = H::mul_q(H::mul(old, of_old), old_factors[i]);
                    let new = H::mul_q(H::mul(new, of_new), new_factors[i]);
                    // SAFETY: the row has `size` values, by the assertion above, which are `vectors` whole
                    // vectors.
                    unsafe { rows[i].set_full_unchecked::<H>(v, H::float(H::add_q(old, new))) };
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
            for pair in 0..tile.vectors * TILE_VECTORS {
                // SAFETY: the unit has stored a tile for each 32 keys, of 16 vectors of two keys each; and
                // these are vector `v` of two adjacent keys of the state (the caller's contract).
                unsafe {
                    let (low, high) = H::widen_f16(changes.load_b::<H>(pair));
                    for (i, change) in [low, high].into_iter().enumerate() {
                        let old = H::mul_q(decay, at.load::<H>(i * tile.vectors));
                        let new = H::float(H::add_q(old, H::mul_q(change, back)));
                        at.store::<H>(i * tile.vectors, new);
                        largest[i] = larger::<H>(largest[i], new);
                    }
                }
                at = at.skip(2 * tile.vectors);
            }
            let largest = H::from_bits(H::max_i(largest[0], largest[1]));
            // SAFETY: there is a note for each of up to four vectors of values, and this worker alone has the
            // head (the caller's contract).
            unsafe { self.set_note::<H>(notes::STATE + v, largest) };
        }
    }
}
