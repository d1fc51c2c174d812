//! States of any size, and a gate per key: one vector of values at a time.

use super::head::{Head, HeadMemory, HeadPath};
use super::sweep::advance;
use crate::hvx::{Hvx, LANES, VectorPtr, math};
use crate::row::Row;

/// Vector `first` of the values, which may be a part of one.
pub(super) struct GenericPath<'h> {
    pub head: &'h Head<'h>,
    pub place: HeadMemory,
    pub first: usize,
}

/// A token as a block sees it.
#[derive(Clone, Copy)]
pub(super) struct Token<'h, H: Hvx> {
    q: Row<'h>,
    k: Row<'h>,
    decay: Decay<'h, H>,
    /// k.q in every lane.
    kq: H::F,
}

/// What a token changes.
#[derive(Clone, Copy)]
pub(super) struct Update<'h, H: Hvx> {
    k: Row<'h>,
    decay: Decay<'h, H>,
    delta: H::F,
}

/// e, or e_i.
#[derive(Clone, Copy)]
struct Decay<'h, H: Hvx> {
    /// Of all keys, in every lane; 1 if each has its own.
    all: H::F,
    /// The logarithms, a key each.
    each: Option<Row<'h>>,
}

impl<'h, H: Hvx> Decay<'h, H> {
    #[inline(always)]
    fn new(g: Row<'h>) -> Self {
        if g.len() == 1 {
            Self { all: math::exp::<H>(H::splat(g.get(0))), each: None }
        } else {
            Self { all: H::splat(1.0), each: Some(g) }
        }
    }

    /// Of 32 keys from `at` on (the last one's, from the end of the row on).
    #[inline(always)]
    fn chunk(self, at: usize) -> [f32; LANES] {
        let mut chunk = [0.0; LANES];
        let decays = match self.each {
            None => self.all,
            Some(g) => math::exp::<H>(g.vector::<H>(at / LANES)),
        };
        // SAFETY: `chunk` is an array of 32 floats, which are 128 bytes.
        unsafe { H::store(chunk.as_mut_ptr(), decays) };
        chunk
    }

    /// What sums over the old state are to be multiplied by: each summand already is, if keys differ.
    #[inline(always)]
    fn factor(self) -> H::F {
        self.all
    }
}

impl GenericPath<'_> {
    /// One pass, from one place to the other: what an update changes, then sums; each if there is one.
    ///
    /// # Safety
    /// Points 1 and 2 of [`HeadPath::change`].
    #[inline(always)]
    unsafe fn pass<H: Hvx>(
        &self,
        [from, to]: [VectorPtr; 2],
        update: Option<&Update<'_, H>>,
        token: Option<&Token<'_, H>>,
    ) -> [H::F; 2] {
        let HeadMemory { size, vectors, .. } = self.place;
        let mut sums = [H::splat(0.0); 2];
        let (mut old, mut new) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..size {
            if i % LANES == 0 {
                old = update.map_or(old, |u| u.decay.chunk(i));
                new = token.map_or(new, |t| t.decay.chunk(i));
            }
            let at = i * vectors + self.first;
            // SAFETY: `i` is below `size` and `self.first` below `vectors`, so this is a vector of key `i` at
            // `from`, which is a place of a state (the caller's contract, point 1).
            let mut s = unsafe { from.load::<H>(at) };
            if let Some(u) = update {
                s = advance::<H>(s, H::splat(old[i % LANES]), u.delta, H::splat(u.k.get(i)));
                // SAFETY: `i` is below `size` and `self.first` below `vectors`, so this is a vector of key
                // `i` at `to`, which is a place of a state that this worker alone uses (the caller's
                // contract, points 1 and 2).
                unsafe { to.store::<H>(at, s) };
            }
            if let Some(t) = token {
                let x = match t.decay.each {
                    None => s,
                    Some(_) => H::mul(H::splat(new[i % LANES]), s),
                };
                sums[0] = H::add(sums[0], H::mul(x, H::splat(t.k.get(i))));
                sums[1] = H::add(sums[1], H::mul(x, H::splat(t.q.get(i))));
            }
        }
        sums
    }
}

impl<'h, H: Hvx> HeadPath<H> for GenericPath<'h> {
    type Token = Token<'h, H>;
    type Update = Update<'h, H>;
    type StateSums = [H::F; 2];

    #[inline(always)]
    fn token(&mut self, _n: usize, t: usize) -> Token<'h, H> {
        let row = self.head.first + t;
        let (k, q) = (self.head.k.row(row), self.head.q.row(row));
        let mut kq = H::splat(0.0);
        for v in 0..k.vectors() {
            kq = H::add(kq, H::mul(k.vector::<H>(v), q.vector::<H>(v)));
        }
        Token { q, k, decay: Decay::new(self.head.g.row(row)), kq: H::sum_all(kq) }
    }

    #[inline(always)]
    fn taped(&mut self, c: usize) -> Update<'h, H> {
        // Unreachable without a tape: nothing would be committed.
        let Some(tape) = &self.head.tape else { unreachable!() };
        // SAFETY: `claim` gave this head, and with it its rows of the tape, to this worker alone.
        let delta = unsafe { tape.delta.row(c) }.as_row().vector::<H>(self.first);
        Update { k: tape.k.row(c), decay: Decay::new(tape.g.row(c)), delta }
    }

    #[inline(always)]
    fn outputs(&mut self, t: usize, token: &Token<'h, H>, sums: &[H::F; 2]) -> Update<'h, H> {
        let row = self.head.first + t;
        let (beta, scale) = (H::splat(self.head.beta.row(row).get(0)), H::splat(self.head.scale));
        let v = self.head.v.row(row).vector::<H>(self.first);
        let factor = token.decay.factor();
        let (a, b) = (H::mul(factor, sums[0]), H::mul(factor, sums[1]));
        let delta = H::mul(beta, H::sub(v, a));
        // SAFETY: `claim` gave this head, and with it its rows of y, to this worker alone.
        let mut y = unsafe { self.head.y.row(row) };
        y.set_vector::<H>(self.first, H::mul(scale, H::add(b, H::mul(delta, token.kq))));
        self.head.record::<H, 1>(t, self.first, &[delta]);
        Update { k: token.k, decay: token.decay, delta }
    }

    #[inline(always)]
    unsafe fn change(&mut self, from: VectorPtr, to: VectorPtr, update: &Update<'h, H>) {
        // SAFETY: `from` and `to` are places of a state that this worker alone uses (points 1 and 2 of the
        // contract of `HeadPath::change`, which `pass` has too).
        unsafe { self.pass::<H>([from, to], Some(update), None) };
    }

    #[inline(always)]
    unsafe fn sum(&mut self, from: VectorPtr, token: &Token<'h, H>) -> [H::F; 2] {
        // SAFETY: `from` is a place of a state that this worker alone uses (points 1 and 2 of the contract of
        // `HeadPath::change`, which `pass` has too).
        unsafe { self.pass::<H>([from; 2], None, Some(token)) }
    }

    #[inline(always)]
    unsafe fn change_and_sum(
        &mut self,
        from: VectorPtr,
        to: VectorPtr,
        update: &Update<'h, H>,
        token: &Token<'h, H>,
    ) -> [H::F; 2] {
        // SAFETY: `from` and `to` are places of a state that this worker alone uses (points 1 and 2 of the
        // contract of `HeadPath::change`, which `pass` has too).
        unsafe { self.pass::<H>([from, to], Some(update), Some(token)) }
    }
}
