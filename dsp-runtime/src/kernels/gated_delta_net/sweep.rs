//! The sweep over a state: all the time that the kernel takes.
//!
//! Four multiplications per vector of the state, of which a DSP starts one per packet; everything else has to fit beside
//! them. So the next key's vectors and splats are loaded before this key's are used, and four keys are written out:
//! what is waited for at the end of one is filled by the next.

use crate::hvx::{Hvx, LANES, Lines};
use crate::row::Row;

/// What a sweep does to each vector of J per key: the old state, and where the new one goes (perhaps the same place).
#[derive(Clone, Copy)]
pub(super) struct Sweep<const J: usize> {
    pub from: Lines,
    pub to: Lines,
    /// Vectors from key to key. Where that is J, addresses are constants.
    pub stride: usize,
}

/// How a token changes the state.
#[derive(Clone, Copy)]
pub(super) struct Change<'t, H: Hvx, const J: usize> {
    pub k: Row<'t>,
    pub decay: H::F,
    pub delta: [H::F; J],
}

/// A token whose sums are wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'t> {
    pub k: Row<'t>,
    pub q: Row<'t>,
}

/// 32 keys of a sweep.
#[derive(Clone, Copy)]
struct Chunk<H: Hvx, const J: usize, const PACKED: bool> {
    place: Sweep<J>,
    decay: H::F,
    delta: [H::F; J],
    /// Keys of the change; keys and queries of the sums.
    change: H::Lanes,
    k: H::Lanes,
    q: H::Lanes,
}

/// A key's vectors and splats, loaded ahead.
#[derive(Clone, Copy)]
struct Key<H: Hvx, const J: usize> {
    s: [H::F; J],
    change: H::F,
    k: H::F,
    q: H::F,
}

impl<const J: usize> Sweep<J> {
    /// Changes the state, then sums the new one; each if asked for. The rows have whole chunks of keys.
    ///
    /// # Safety
    /// J vectors per key are valid for reading at `from` and, with a change, for writing at `to`; the two are the same
    /// place or apart.
    #[inline(always)]
    pub unsafe fn run<H: Hvx, const CHANGE: bool, const SUMS: bool>(
        self,
        change: Change<'_, H, J>,
        wanted: Wanted<'_>,
    ) -> [[H::F; J]; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            if self.stride == J {
                self.chunks::<H, CHANGE, SUMS, true>(change, wanted)
            } else {
                self.chunks::<H, CHANGE, SUMS, false>(change, wanted)
            }
        }
    }

    /// As [`run`](Self::run). PACKED: the stride is J.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn chunks<H: Hvx, const CHANGE: bool, const SUMS: bool, const PACKED: bool>(
        self,
        change: Change<'_, H, J>,
        wanted: Wanted<'_>,
    ) -> [[H::F; J]; 2] {
        let mut sums = [[H::zero_q(); J]; 2];
        for c in 0..wanted.k.whole() {
            let (from, to) = (self.from.skip(c * LANES * self.stride), self.to.skip(c * LANES * self.stride));
            let chunk = Chunk::<H, J, PACKED> {
                place: Self { from, to, ..self },
                decay: change.decay,
                delta: change.delta,
                change: H::lanes(change.k.full::<H>(c)),
                k: H::lanes(wanted.k.full::<H>(c)),
                q: H::lanes(wanted.q.full::<H>(c)),
            };
            // SAFETY: for all of them, the caller's promise; keys below 32.
            unsafe {
                let mut key = chunk.load(0);
                for i in (0..LANES - 4).step_by(4) {
                    key = chunk.step::<CHANGE, SUMS>(i, i + 1, key, &mut sums);
                    key = chunk.step::<CHANGE, SUMS>(i + 1, i + 2, key, &mut sums);
                    key = chunk.step::<CHANGE, SUMS>(i + 2, i + 3, key, &mut sums);
                    key = chunk.step::<CHANGE, SUMS>(i + 3, i + 4, key, &mut sums);
                }
                key = chunk.step::<CHANGE, SUMS>(LANES - 4, LANES - 3, key, &mut sums);
                key = chunk.step::<CHANGE, SUMS>(LANES - 3, LANES - 2, key, &mut sums);
                key = chunk.step::<CHANGE, SUMS>(LANES - 2, LANES - 1, key, &mut sums);
                // There is none after the last one.
                let _ = chunk.step::<CHANGE, SUMS>(LANES - 1, LANES - 1, key, &mut sums);
            }
        }
        sums.map(|sums| sums.map(|sum| H::float(sum)))
    }
}

impl<H: Hvx, const J: usize, const PACKED: bool> Chunk<H, J, PACKED> {
    /// Number of vector `j` of key `i`.
    #[inline(always)]
    fn vector(&self, i: usize, j: usize) -> usize {
        i * if PACKED { J } else { self.place.stride } + j
    }

    /// # Safety
    /// As [`Sweep::run`], for key `i` of the chunk.
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> Key<H, J> {
        let mut s = [H::splat(0.0); J];
        for (j, s) in s.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *s = unsafe { self.place.from.load::<H>(self.vector(i, j)) };
        }
        Key { s, change: H::lane(self.change, i), k: H::lane(self.k, i), q: H::lane(self.q, i) }
    }

    /// Key `i`, which was loaded; loads key `next`.
    ///
    /// # Safety
    /// As [`Sweep::run`], for these keys of the chunk.
    #[inline(always)]
    unsafe fn step<const CHANGE: bool, const SUMS: bool>(
        &self,
        i: usize,
        next: usize,
        mut key: Key<H, J>,
        sums: &mut [[H::Q; J]; 2],
    ) -> Key<H, J> {
        // SAFETY: the caller's promise.
        let next = unsafe { self.load(next) };
        if CHANGE {
            for (j, s) in key.s.iter_mut().enumerate() {
                *s = advance::<H>(*s, self.decay, self.delta[j], key.change);
                // SAFETY: the caller's promise.
                unsafe { self.place.to.store::<H>(self.vector(i, j), *s) };
            }
        }
        if SUMS {
            for j in 0..J {
                sums[0][j] = H::add_q(sums[0][j], H::mul_q(key.s[j], key.k));
                sums[1][j] = H::add_q(sums[1][j], H::mul_q(key.s[j], key.q));
            }
        }
        next
    }
}

/// S <- e S + delta k, for one vector of values of one key: every way to advance a state goes through here.
#[inline(always)]
pub(super) fn advance<H: Hvx>(s: H::F, decay: H::F, delta: H::F, k: H::F) -> H::F {
    H::float(H::add_q(H::mul_q(decay, s), H::mul_q(delta, k)))
}
