//! The sweep over a state: all the time that the kernel takes.
//!
//! Four multiplications per vector of the state, of which a DSP starts one per packet; everything else has to
//! fit beside them. So the loop goes over all keys without a seam, four or eight of them written out, and
//! every key's vectors are loaded while the key before it is worked on: what is waited for at the end of one
//! is filled by the next.

use hexflash_abi::op::gated_delta_net as abi;

use crate::hvx::{Hvx, LANES, VectorPtr};

/// Largest S.
pub(super) const MAX_STATE: usize = abi::MAX_STATE as usize;

/// Keys past the last one that a sweep loads, and makes nothing of.
pub(super) const SPARE: usize = 2;

/// Floats of a row of keys in VTCM: 32 are loaded at once, and eight keys ahead.
pub(super) const KEYS: usize = MAX_STATE + 2 * LANES;
const _: () = assert!(KEYS.is_multiple_of(LANES));

/// What a sweep does to each vector of J per key: the old state, and where the new one goes (perhaps the same
/// place).
#[derive(Clone, Copy)]
pub(super) struct Sweep<const J: usize> {
    pub from: VectorPtr,
    pub to: VectorPtr,
    /// Keys: a multiple of [`LANES`].
    pub size: usize,
    /// Vectors from key to key.
    pub stride: usize,
}

/// How a token changes the state.
#[derive(Clone, Copy)]
pub(super) struct Change<H: Hvx, const J: usize> {
    /// [`KEYS`] floats.
    pub k: VectorPtr,
    pub decay: H::F,
    pub delta: [H::F; J],
}

impl<H: Hvx, const J: usize> Change<H, J> {
    /// That of N vectors from vector `first` on.
    #[inline(always)]
    fn part<const N: usize>(self, first: usize) -> Change<H, N> {
        let mut delta = [self.decay; N];
        for (n, delta) in delta.iter_mut().enumerate() {
            *delta = self.delta[first + n];
        }
        Change { k: self.k, decay: self.decay, delta }
    }
}

/// A token whose sums are wanted: [`KEYS`] floats each.
#[derive(Clone, Copy)]
pub(super) struct KeyAndQuery {
    pub k: VectorPtr,
    pub q: VectorPtr,
}

/// Some keys or queries, each of which is wanted in all lanes.
#[derive(Clone, Copy)]
struct Lookahead<H: Hvx> {
    at: *const f32,
    lanes: H::Lanes,
}

impl<H: Hvx> Lookahead<H> {
    /// # Safety
    /// `row` has [`KEYS`] floats.
    #[inline(always)]
    unsafe fn new(row: VectorPtr) -> Self {
        let at = row.get().cast_const().cast();
        // SAFETY: `row` begins with 32 of its KEYS floats (the caller's contract).
        Self { at, lanes: H::lanes(unsafe { H::load(at) }) }
    }

    /// The first keys, and those after them.
    ///
    /// # Safety
    /// `row` has [`KEYS`] floats, and `step` is 8 at most.
    #[inline(always)]
    unsafe fn two(row: VectorPtr, step: usize) -> [Self; 2] {
        // SAFETY: the row has KEYS floats (the caller's contract), and KEYS is at least `step + 32`, because
        // `step` is 8 at most.
        unsafe {
            let first = Self::new(row);
            [first, first.next(step)]
        }
    }

    /// Those from number `step` on.
    ///
    /// # Safety
    /// Floats `step..step + 32` from here are in the row.
    #[inline(always)]
    unsafe fn next(self, step: usize) -> Self {
        let at = self.at.wrapping_add(step);
        // SAFETY: floats `step..step + 32` from here are in the row (the caller's contract).
        Self { at, lanes: H::lanes(unsafe { H::load(at) }) }
    }

    #[inline(always)]
    fn get(&self, i: usize) -> H::F {
        H::lane(&self.lanes, i)
    }
}

/// A key's vectors and splats, loaded ahead.
#[derive(Clone, Copy)]
struct Key<H: Hvx, const J: usize> {
    s: [H::F; J],
    change: H::F,
    k: H::F,
    q: H::F,
}

/// A key between two steps: loaded, and the key before it changed, but neither stored nor summed.
#[derive(Clone, Copy)]
struct InFlight<H: Hvx, const J: usize> {
    key: Key<H, J>,
    changed: [H::Q; J],
    k: H::F,
    q: H::F,
}

/// Some keys of a sweep, with those after them.
#[derive(Clone, Copy)]
struct Cursor<H: Hvx, const J: usize> {
    sweep: Sweep<J>,
    /// Keys from one to the next.
    step: usize,
    change: [Lookahead<H>; 2],
    k: [Lookahead<H>; 2],
    q: [Lookahead<H>; 2],
}

impl<const J: usize> Sweep<J> {
    /// The part of N vectors per key from vector `first` on.
    #[inline(always)]
    fn part<const N: usize>(self, first: usize) -> Sweep<N> {
        let Self { from, to, size, stride } = self;
        Sweep { from: from.skip(first), to: to.skip(first), size, stride }
    }

    /// Both at once: the state is changed, and the new one summed.
    ///
    /// # Safety
    /// Points 1 to 3 of [`run`](Self::run), with a change.
    #[inline(always)]
    pub unsafe fn change_and_sum<H: Hvx>(self, change: Change<H, J>, wanted: KeyAndQuery) -> [[H::F; J]; 2] {
        // What three or four vectors per key have between operations is more than registers hold.
        if !H::Q_STAYS || J < 3 {
            // SAFETY: points 1 to 3 of the caller's contract are those of `run`.
            return unsafe { self.run::<H, true, true>(change, wanted) };
        }
        let mut sums = [change.delta; 2];
        let mut first = 0;
        while first + 2 <= J {
            // SAFETY: `run` finds 2 of the J vectors of each key from vector `first` on, as `first + 2 <= J`,
            // and the rows of keys are the same (the caller's contract, points 1 to 3).
            let two = unsafe { self.part::<2>(first).run::<H, true, true>(change.part(first), wanted) };
            for (sums, two) in sums.iter_mut().zip(two) {
                (sums[first], sums[first + 1]) = (two[0], two[1]);
            }
            first += 2;
        }
        if first < J {
            // SAFETY: `run` finds 1 of the J vectors of each key from vector `first` on, as `first < J`, and
            // the rows of keys are the same (the caller's contract, points 1 to 3).
            let one = unsafe { self.part::<1>(first).run::<H, true, true>(change.part(first), wanted) };
            for (sums, one) in sums.iter_mut().zip(one) {
                sums[first] = one[0];
            }
        }
        sums
    }

    /// Keys that the loop's body has: 8 or 16 vectors, which is what registers allow, or fewer where sums
    /// must stay in them.
    const fn step<H: Hvx, const CHANGE: bool, const SUMS: bool>() -> usize {
        if J < 3 && !(H::Q_STAYS && CHANGE && SUMS) { 8 } else { 4 }
    }

    /// Changes the state, then sums the new one; each if asked for.
    ///
    /// # Safety
    /// 1. J vectors per key, and per [`SPARE`] keys more, are valid for reading at `from`, and, with a
    ///    change, those of the keys for writing at `to`; the two are the same place or apart.
    /// 2. All three rows of keys have [`KEYS`] floats, also those of what is not asked for. `size` is a
    ///    multiple of [`LANES`], and at most [`MAX_STATE`].
    /// 3. Nobody else uses these places meanwhile.
    #[inline(always)]
    pub unsafe fn run<H: Hvx, const CHANGE: bool, const SUMS: bool>(
        self,
        change: Change<H, J>,
        wanted: KeyAndQuery,
    ) -> [[H::F; J]; 2] {
        let mut sums = [[H::zero_q(); J]; 2];
        // SAFETY: `step` divides `size`, which is a multiple of 32, so the loop stores and sums exactly the
        // keys, and loads no more than SPARE keys after the last (point 1). The cursor's keys begin at float
        // `size + step` at last, and a row has KEYS floats, at least 32 more (point 2). Nobody else uses all
        // these places (point 3).
        unsafe {
            let step = const { Self::step::<H, CHANGE, SUMS>() };
            let mut at = Cursor::new(self, step, change.k, wanted);
            let mut flow = at.start::<CHANGE>(change);
            for _ in 0..self.size / step {
                flow = at.four::<CHANGE, SUMS>(0, change, flow, &mut sums);
                if step > 4 {
                    flow = at.four::<CHANGE, SUMS>(4, change, flow, &mut sums);
                }
                at = at.next();
            }
        }
        let mut floats = [[change.decay; J]; 2];
        for j in 0..J {
            floats[0][j] = H::float(sums[0][j]);
            floats[1][j] = H::float(sums[1][j]);
        }
        H::settle();
        floats
    }
}

impl<H: Hvx, const J: usize> Cursor<H, J> {
    /// # Safety
    /// The three rows have [`KEYS`] floats, and `step` is 8 at most.
    #[inline(always)]
    unsafe fn new(sweep: Sweep<J>, step: usize, change: VectorPtr, wanted: KeyAndQuery) -> Self {
        // SAFETY: each row has KEYS floats, and `step` is 8 at most (the caller's contract).
        unsafe {
            let (change, k, q) = (
                Lookahead::two(change, step),
                Lookahead::two(wanted.k, step),
                Lookahead::two(wanted.q, step),
            );
            Self { sweep, step, change, k, q }
        }
    }

    /// # Safety
    /// Floats `step..step + 32` from the second place in each of the three rows are in the row.
    #[inline(always)]
    unsafe fn next(self) -> Self {
        let step = self.step;
        let skip = step * self.sweep.stride;
        let sweep = Sweep { from: self.sweep.from.skip(skip), to: self.sweep.to.skip(skip), ..self.sweep };
        let [change, k, q] = [self.change[1], self.k[1], self.q[1]];
        // SAFETY: each of the three rows has floats `step..step + 32` from its second place (the caller's
        // contract).
        unsafe {
            Self {
                sweep,
                step,
                change: [change, change.next(step)],
                k: [k, k.next(step)],
                q: [q, q.next(step)],
            }
        }
    }

    /// Key `i` from here.
    ///
    /// # Safety
    /// The J vectors of key `i` from here are valid for reading.
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> Key<H, J> {
        let mut s = [H::splat(0.0); J];
        for (j, s) in s.iter_mut().enumerate() {
            // SAFETY: the J vectors of key `i` from here are valid for reading (the caller's contract).
            *s = unsafe { self.sweep.from.load::<H>(i * self.sweep.stride + j) };
        }
        let (part, lane) = (i / self.step, i % self.step);
        Key { s, change: self.change[part].get(lane), k: self.k[part].get(lane), q: self.q[part].get(lane) }
    }

    /// What the first step goes on from. A change is a key ahead.
    ///
    /// # Safety
    /// The cursor is at the start of a sweep, for which point 1 of [`Sweep::run`] holds.
    #[inline(always)]
    unsafe fn start<const CHANGE: bool>(&self, change: Change<H, J>) -> InFlight<H, J> {
        // SAFETY: key 0 is valid for reading at the start of a sweep (the caller's contract, point 1 of
        // `run`).
        let key = unsafe { self.load(0) };
        let flow = InFlight { key, changed: [H::zero_q(); J], k: key.k, q: key.q };
        // SAFETY: key 1 is valid for reading at the start of a sweep, at the latest as one of the SPARE keys
        // (the caller's contract, point 1 of `run`).
        if CHANGE { flow.change(change, unsafe { self.load(1) }) } else { flow }
    }

    /// Steps `i` to `i + 3`.
    ///
    /// # Safety
    /// The J vectors of these four keys and of the one after them, or with a change of the two after them,
    /// are valid for reading; with a change, those of the four keys are valid for writing at `to`.
    #[inline(always)]
    unsafe fn four<const CHANGE: bool, const SUMS: bool>(
        &self,
        i: usize,
        change: Change<H, J>,
        flow: InFlight<H, J>,
        sums: &mut [[H::Q; J]; 2],
    ) -> InFlight<H, J> {
        // SAFETY: the four keys and the one or two after them are valid for reading, and with a change the
        // four for writing (the caller's contract). Each step takes one of the four, and one of those after
        // it.
        unsafe {
            let flow = self.step::<CHANGE, SUMS>(i, change, flow, sums);
            let flow = self.step::<CHANGE, SUMS>(i + 1, change, flow, sums);
            let flow = self.step::<CHANGE, SUMS>(i + 2, change, flow, sums);
            self.step::<CHANGE, SUMS>(i + 3, change, flow, sums)
        }
    }

    /// Stores and sums key `i`, changes the one after it, loads the one after that; with nothing to change,
    /// sums key `i` and loads the one after it.
    ///
    /// # Safety
    /// The J vectors of key `i + 1`, or with a change of key `i + 2`, are valid for reading; with a change,
    /// those of key `i` are valid for writing at `to`.
    #[inline(always)]
    unsafe fn step<const CHANGE: bool, const SUMS: bool>(
        &self,
        i: usize,
        change: Change<H, J>,
        flow: InFlight<H, J>,
        sums: &mut [[H::Q; J]; 2],
    ) -> InFlight<H, J> {
        // SAFETY: key `i + 1`, or with a change key `i + 2`, is valid for reading (the caller's contract).
        let next = unsafe { self.load(i + 1 + usize::from(CHANGE)) };
        let mut s = flow.key.s;
        if CHANGE {
            for (j, s) in s.iter_mut().enumerate() {
                *s = H::float(flow.changed[j]);
                // SAFETY: with a change, the J vectors of key `i` are valid for writing at `to` (the caller's
                // contract).
                unsafe { self.sweep.to.store::<H>(i * self.sweep.stride + j, *s) };
            }
        }
        let flow = if CHANGE { flow } else { InFlight { k: flow.key.k, q: flow.key.q, ..flow } };
        if SUMS {
            for j in 0..J {
                sums[0][j] = H::add_q(sums[0][j], H::mul_q(s[j], flow.k));
                sums[1][j] = H::add_q(sums[1][j], H::mul_q(s[j], flow.q));
            }
        }
        if CHANGE { flow.change(change, next) } else { InFlight { key: next, ..flow } }
    }
}

impl<H: Hvx, const J: usize> InFlight<H, J> {
    /// The key changed, and the next one loaded.
    #[inline(always)]
    fn change(self, change: Change<H, J>, next: Key<H, J>) -> Self {
        let mut changed = self.changed;
        for (j, changed) in changed.iter_mut().enumerate() {
            *changed = advance_q::<H>(self.key.s[j], change.decay, change.delta[j], self.key.change);
        }
        Self { key: next, changed, k: self.key.k, q: self.key.q }
    }
}

/// S <- e S + delta k, for one vector of values of one key: every way to advance a state goes through here.
#[inline(always)]
pub(super) fn advance<H: Hvx>(s: H::F, decay: H::F, delta: H::F, k: H::F) -> H::F {
    H::float(advance_q::<H>(s, decay, delta, k))
}

#[inline(always)]
fn advance_q<H: Hvx>(s: H::F, decay: H::F, delta: H::F, k: H::F) -> H::Q {
    H::add_q(H::mul_q(decay, s), H::mul_q(delta, k))
}
