//! States of whole vectors with one gate: what models have, and the fast way.

use super::head::{Head, HeadMemory, HeadPath};
use super::sweep::{Change, KEYS, KeyAndQuery, Sweep};
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::row::Row;

/// J vectors of values, from vector `first` on.
pub(super) struct VectorPath<'h, const J: usize> {
    pub head: &'h Head<'h>,
    pub place: HeadMemory,
    pub first: usize,
}

/// A token as a block sees it.
#[derive(Clone, Copy)]
pub(super) struct Token<H: Hvx> {
    wanted: KeyAndQuery,
    /// exp(g) in every lane.
    decay: H::F,
}

impl<const J: usize> VectorPath<'_, J> {
    /// Row `i` of the place for keys.
    #[inline(always)]
    fn keys(&self, i: usize) -> VectorPtr {
        self.place.keys.skip(i * (KEYS / LANES))
    }

    /// Vectors of a row of keys: J, where blocks are that wide.
    #[inline(always)]
    fn vectors<H: Hvx>(&self) -> usize {
        if H::REGISTERS > 16 { J } else { self.place.vectors }
    }

    /// Copies a row of keys to its place in VTCM.
    #[inline(always)]
    fn keep<H: Hvx>(&self, row: Row<'_>, to: VectorPtr) {
        assert!(row.len() == self.place.size && row.whole() == self.vectors::<H>());
        for v in 0..self.vectors::<H>() {
            // SAFETY: the row has `self.vectors` whole vectors (the assertion above), and `to` is a row of
            // the place for keys, which has room for more: KEYS floats.
            unsafe { to.store::<H>(v, row.full_unchecked::<H>(v)) };
        }
    }

    /// k.q in every lane.
    #[inline(always)]
    fn dot<H: Hvx>(&self, wanted: KeyAndQuery) -> H::F {
        let mut sum = H::zero_q();
        for v in 0..self.vectors::<H>() {
            // SAFETY: `keep` has put `self.vectors` vectors in both rows, when the token was made.
            sum = H::add_q(sum, unsafe { H::mul_q(wanted.k.load::<H>(v), wanted.q.load::<H>(v)) });
        }
        H::sum_all_q(sum)
    }

    /// The sweep over this block of a state.
    #[inline(always)]
    fn sweep<H: Hvx>(&self, from: VectorPtr, to: VectorPtr) -> Sweep<J> {
        // Where all vectors of a key are worked on at once, addresses are constants.
        let (size, stride) = (self.place.size, self.vectors::<H>());
        Sweep { from: from.skip(self.first), to: to.skip(self.first), size, stride }
    }
}

impl<H: Hvx, const J: usize> HeadPath<H> for VectorPath<'_, J> {
    type Token = Token<H>;
    type Update = Change<H, J>;
    type StateSums = [[H::F; J]; 2];

    #[inline(always)]
    fn token(&mut self, n: usize, t: usize) -> Token<H> {
        let row = self.head.first + t;
        let (k, q) = (self.head.k.row(row), self.head.q.row(row));
        // The keys of the token before are still wanted.
        let wanted = KeyAndQuery { k: self.keys(n % 2), q: self.keys(2) };
        self.keep::<H>(k, wanted.k);
        self.keep::<H>(q, wanted.q);
        let decay = math::exp::<H>(H::splat(self.head.g.row(row).get(0)));
        Token { wanted, decay }
    }

    #[inline(always)]
    fn taped(&mut self, c: usize) -> Change<H, J> {
        // Unreachable without a tape: nothing would be committed.
        let Some(tape) = &self.head.tape else { unreachable!() };
        let k = self.keys(c % 2);
        self.keep::<H>(tape.k.row(c), k);
        // SAFETY: `claim` gave this head, and with it its rows of the tape, to this worker alone.
        let row = unsafe { tape.delta.row(c) };
        let mut delta = [H::splat(0.0); J];
        for (j, delta) in delta.iter_mut().enumerate() {
            *delta = row.as_row().full::<H>(self.first + j);
        }
        Change { k, decay: math::exp::<H>(H::splat(tape.g.row(c).get(0))), delta }
    }

    #[inline(always)]
    fn outputs(&mut self, t: usize, token: &Token<H>, sums: &Self::StateSums) -> Change<H, J> {
        let row = self.head.first + t;
        let v = self.head.v.row(row);
        // SAFETY: `claim` gave this head, and with it its rows of y, to this worker alone.
        let mut y = unsafe { self.head.y.row(row) };
        assert!(self.first + J <= v.whole() && y.len() == v.len());
        let kq = self.dot::<H>(token.wanted);
        let (beta, scale) = (H::splat(self.head.beta.row(row).get(0)), H::splat(self.head.scale));
        // a - b is a + (-b) to the bit, and takes one conversion less.
        let negative = math::negate::<H>(token.decay);
        let (mut delta, mut out) = ([beta; J], [scale; J]);
        for j in 0..J {
            // SAFETY: `self.first + j` is below `v.whole()`, by the assertion above.
            let v = unsafe { v.full_unchecked::<H>(self.first + j) };
            let [a, b] = [sums[0][j], sums[1][j]];
            delta[j] = H::mul(beta, H::float(H::add_qf(H::mul_q(negative, a), v)));
            let b = H::add_q(H::mul_q(token.decay, b), H::mul_q(delta[j], kq));
            out[j] = H::mul(scale, H::float(b));
        }
        for (j, &out) in out.iter().enumerate() {
            // SAFETY: `self.first + j` is below `v.whole()`, by the assertion above, and y has the length of
            // v.
            unsafe { y.set_full_unchecked::<H>(self.first + j, out) };
        }
        self.head.record::<H, J>(t, self.first, &delta);
        Change { k: token.wanted.k, decay: token.decay, delta }
    }

    #[inline(always)]
    unsafe fn change(&mut self, from: VectorPtr, to: VectorPtr, update: &Change<H, J>) {
        // What a sweep is not asked for it does not look at.
        let unused = KeyAndQuery { k: update.k, q: update.k };
        // SAFETY: `from` and `to` are places of a state: `size` keys and SPARE more, of `stride` vectors
        // each, of which this block takes J from `first` on (the caller's contract, point 1). The rows of
        // keys are in the place for keys, which has three of KEYS floats. This worker alone uses all of them
        // (point 2).
        unsafe { self.sweep::<H>(from, to).run::<H, true, false>(*update, unused) };
    }

    #[inline(always)]
    unsafe fn sum(&mut self, from: VectorPtr, token: &Token<H>) -> Self::StateSums {
        let unused = Change { k: token.wanted.k, decay: token.decay, delta: [token.decay; J] };
        // SAFETY: `from` is a place of a state: `size` keys and SPARE more, of `stride` vectors each, of
        // which this block takes J from `first` on (the caller's contract, point 1). The rows of keys are in
        // the place for keys, which has three of KEYS floats. This worker alone uses all of them (point 2).
        unsafe { self.sweep::<H>(from, from).run::<H, false, true>(unused, token.wanted) }
    }

    #[inline(always)]
    unsafe fn change_and_sum(
        &mut self,
        from: VectorPtr,
        to: VectorPtr,
        update: &Change<H, J>,
        token: &Token<H>,
    ) -> Self::StateSums {
        // SAFETY: `from` and `to` are places of a state: `size` keys and SPARE more, of `stride` vectors
        // each, of which this block takes J from `first` on (the caller's contract, point 1). The rows of
        // keys are in the place for keys, which has three of KEYS floats. This worker alone uses all of them
        // (point 2).
        unsafe { self.sweep::<H>(from, to).change_and_sum::<H>(*update, token.wanted) }
    }
}
