//! A head: its tokens over its state, in the order that folding, deferring and the tokens themselves demand.

use crate::hvx::{Hvx, VectorPtr};
use crate::memory::{Column, ColumnMut};

/// What a head of a span reads and writes: a row per token of the step.
pub(super) struct Head<'k> {
    pub q: Column<'k>,
    pub k: Column<'k>,
    pub v: Column<'k>,
    pub g: Column<'k>,
    pub beta: Column<'k>,
    pub y: ColumnMut<'k>,
    pub tape: Option<HeadTape<'k>>,
    /// The row of the span's first token. (The tape's are counted from 0.)
    pub first: usize,
    /// 1 / sqrt(S).
    pub scale: f32,
}

/// The head's part of the factor tape.
pub(super) struct HeadTape<'k> {
    pub k: Column<'k>,
    pub g: Column<'k>,
    pub delta: ColumnMut<'k>,
    /// Whether the step's tokens go onto the tape.
    pub record: bool,
}

impl Head<'_> {
    /// Where J vectors of token t's delta go from vector `first` on, if tokens go onto the tape.
    #[inline(always)]
    pub fn record<H: Hvx, const J: usize>(&self, t: usize, first: usize, delta: &[H::F; J]) {
        if let Some(tape) = self.tape.as_ref().filter(|tape| tape.record) {
            // SAFETY: `claim` gave this head, and with it its rows of the tape, to this worker alone, which
            // has folded what was there.
            let mut row = unsafe { tape.delta.row(t) };
            for (j, &delta) in delta.iter().enumerate() {
                row.set_vector::<H>(first + j, delta);
            }
        }
    }
}

/// Where a head is worked on: whole vectors of VTCM that nobody else uses.
#[derive(Clone, Copy)]
pub(super) struct HeadMemory {
    /// The state: a row of vectors per key, and room for [`SPARE`](super::sweep::SPARE) more.
    pub state: VectorPtr,
    /// Where what the step's tokens make of the state goes; the state's own place, unless it is to stay as
    /// folded.
    pub scratch: VectorPtr,
    /// Three rows of [`KEYS`](super::sweep::KEYS) floats.
    pub keys: VectorPtr,
    /// Keys, and values.
    pub size: usize,
    /// Vectors of values of a key.
    pub vectors: usize,
}

/// Which tokens a head is taken through.
#[derive(Clone, Copy)]
pub(super) struct HeadSchedule {
    /// Tokens of the tape that the state is first advanced by.
    pub commit: usize,
    /// Tokens of the step.
    pub tokens: usize,
    /// Whether the last token changes the state, too. (With a tape nobody would look at it.)
    pub last: bool,
}

/// A way to work on some of the values of a head.
pub(super) trait HeadPath<H: Hvx> {
    /// A token whose sums are wanted.
    type Token: Copy;
    /// What a token changes.
    type Update: Copy;
    /// a and b of a token.
    type StateSums: Copy;

    /// Token `t` of the step, which is number `n` of the course.
    fn token(&mut self, n: usize, t: usize) -> Self::Token;
    /// What token `c` of the tape changes; it is number `c` of the course.
    fn taped(&mut self, c: usize) -> Self::Update;
    /// Token `t`'s outputs and what it changes, from its sums over the state before it.
    fn outputs(&mut self, t: usize, token: &Self::Token, sums: &Self::StateSums) -> Self::Update;
    /// Changes the state, and leaves it in another place.
    ///
    /// # Safety
    /// 1. `from` and `to` are each a place of a state as [`HeadMemory`] describes it: the head's, or its
    ///    scratch copy.
    /// 2. This worker alone uses them and the place for keys.
    unsafe fn change(&mut self, from: VectorPtr, to: VectorPtr, update: &Self::Update);
    /// Sums over a state.
    ///
    /// # Safety
    /// Points 1 and 2 of [`change`](Self::change).
    unsafe fn sum(&mut self, from: VectorPtr, token: &Self::Token) -> Self::StateSums;
    /// Both in one pass: sums over the state as changed.
    ///
    /// # Safety
    /// Points 1 and 2 of [`change`](Self::change).
    unsafe fn change_and_sum(
        &mut self,
        from: VectorPtr,
        to: VectorPtr,
        update: &Self::Update,
        token: &Self::Token,
    ) -> Self::StateSums;
}

impl HeadSchedule {
    /// Takes `work` through the tokens: each pass applies what one token changes and sums for the next.
    ///
    /// # Safety
    /// 1. `place` is what its type says, for `work`, and the state is in it.
    /// 2. This worker alone uses it.
    #[inline(always)]
    pub unsafe fn run<H: Hvx, W: HeadPath<H>>(self, work: &mut W, place: &HeadMemory) {
        let Self { commit, tokens, last } = self;
        let (mut from, mut to) = (place.state, place.state);
        let (mut update, end) = (None, commit + tokens);
        for n in 0..=end {
            if n > commit {
                (from, to) = (to, place.scratch);
            }
            if n < commit || n == end {
                if let Some(update) = update.as_ref().filter(|_| n < end || last) {
                    // SAFETY: `from` and `to` are places of the head's state or of its scratch copy, which
                    // this worker alone uses (the caller's contract, points 1 and 2).
                    unsafe { work.change(from, to, update) };
                }
                if n == end {
                    break;
                }
                update = Some(work.taped(n));
                continue;
            }
            let token = work.token(n, n - commit);
            // SAFETY: `from` and `to` are places of the head's state or of its scratch copy, which this
            // worker alone uses (the caller's contract, points 1 and 2).
            let sums = unsafe {
                match &update {
                    Some(update) => work.change_and_sum(from, to, update, &token),
                    None => work.sum(from, &token),
                }
            };
            update = Some(work.outputs(n - commit, &token, &sums));
        }
    }
}
