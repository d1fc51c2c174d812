//! The kernel without the matrix unit: heads are its units of work, whose states stream through VTCM.

use hexflash_abi::{Fault, VECTOR_BYTES};

use super::chunk::{CHUNK, Chunk, ChunkMemory, LEAST};
use super::general::GenericPath;
use super::head::{Head, HeadMemory, HeadSchedule};
use super::sweep::SPARE;
use super::tape::Tape;
use super::tile::{KEY_ROWS, Tile};
use super::transposed;
use super::whole::VectorPath;
use crate::dma::Ticket;
use crate::hvx::{Hvx, VectorPtr};
use crate::memory::{Floats, View};
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};
use crate::vtcm::VtcmPlan;

/// How the state of a head is walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateWalk {
    /// One gate per head, and states of whole vectors: several vectors of values at once.
    Whole,
    /// The same with many tokens at once, of rows that need not have the bits of one token after the other.
    Chunked,
    /// The same with the matrix unit, where there are whole chunks.
    ByUnit,
    /// Any gates, any states: a vector of values at a time.
    General,
}

/// The operands of the op, and how its heads are worked on.
#[derive(Clone, Copy)]
pub struct GatedDeltaNet<'s> {
    pub q: Floats,
    pub k: Floats,
    pub v: Floats,
    pub g: Floats,
    pub beta: Floats,
    pub state: View,
    pub y: Floats,
    pub spans: &'s [Span],
    pub kind: StateWalk,
    /// Batches of v per batch of q and k.
    pub shared: usize,
    /// 1 / sqrt(S).
    pub scale: f32,
    pub tape: Option<Tape>,
    /// Leave the state as folded, and put tokens on the tape, unless their span folds them.
    pub defer: bool,
    /// Whether the key index of states in memory is the fast one.
    pub transposed: bool,
    /// Whether there are units enough to claim one ahead.
    pub ahead: bool,
}

/// Bytes of VTCM that a worker has beside its states.
pub const fn bytes_beside_states(tile: Tile, chunked: bool) -> usize {
    KEY_ROWS + if chunked { ChunkMemory::bytes(tile) } else { 0 }
}

/// One or two states per worker, as they fit, a scratch copy of one if there is a tape, three rows of keys,
/// and the parts of a chunk where there are chunks.
pub fn states_plan(tile: Tile, taped: bool, chunked: bool, workers: usize, vtcm_bytes: usize) -> VtcmPlan {
    let (scratch, other) = (usize::from(taped), bytes_beside_states(tile, chunked));
    let states = |n: usize| VtcmPlan::new((n + scratch) * tile.bytes() + other);
    let fits = states(2).fit(workers, vtcm_bytes).is_ok();
    states(if fits { 2 } else { 1 })
}

/// A claimed head, and the transfer that brings its state (none if it is zeros).
pub struct Claim<'s> {
    pub span: &'s Span,
    pub h: usize,
    pub b: usize,
    /// Where state and tape have the batch of this slot.
    pub entry: usize,
    /// The place for states that it uses.
    pub buffer: usize,
    pub ticket: Option<Ticket>,
}

/// A worker's places for states, and the write-backs that still read them.
pub struct StateBuffers {
    pub base: VectorPtr,
    pub tile: Tile,
    pub back: [Option<Ticket>; 2],
}

impl StateBuffers {
    pub fn at(&self, buffer: usize) -> VectorPtr {
        self.base.skip(buffer * (self.tile.size + SPARE) * self.tile.vectors)
    }
}

impl Kernel for GatedDeltaNet<'_> {
    fn units(&self) -> usize {
        self.spans.len() * self.units_of_span()
    }

    fn work(&self) -> usize {
        let tile = Tile::new(self.y.ne[0]);
        let per_token = if self.kind == StateWalk::Chunked { 3 } else { 8 };
        let passes = 2 * self.spans.len() + per_token * self.y.ne[2];
        (self.units_of_span() * tile.size * tile.vectors).saturating_mul(passes)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let tile = Tile::new(self.y.ne[0]);
        let scratch = usize::from(self.tape.is_some());
        // Two states if they fit: see `plan`.
        let other = bytes_beside_states(tile, self.kind == StateWalk::Chunked);
        let count = if worker.own_bytes() >= (2 + scratch) * tile.bytes() + other { 2 } else { 1 };
        assert!(worker.own_bytes() >= (count + scratch) * tile.bytes() + other);
        let mut buffers = StateBuffers { base: worker.own_vtcm(), tile, back: [None; 2] };
        let keys = buffers.at(count + scratch);
        let ahead = self.ahead && count == 2;
        let mut cursor = Cursor::new(self.spans, |_| self.units_of_span());
        let mut next = self.fetch::<H>(worker, &mut cursor, &mut buffers, 0)?;
        while let Some(claim) = next.take() {
            let other = (claim.buffer + 1) & (count - 1);
            if ahead {
                next = self.fetch::<H>(worker, &mut cursor, &mut buffers, other)?;
            }
            if let Some(ticket) = claim.ticket {
                worker.dma.wait(ticket)?;
            }
            let state = buffers.at(claim.buffer);
            if self.transposed {
                // SAFETY: the state's transfer was waited for, or zeros were stored, and no write-back reads
                // the buffer: it is a tile in this worker's own VTCM. The shape rule has states that are
                // transposed be multiples of 32.
                unsafe { transposed::transpose::<H>(state, tile) };
            }
            let defer = claim.span.defers(self.defer);
            let place = HeadMemory {
                state,
                scratch: if defer { buffers.at(count) } else { state },
                keys,
                size: tile.size,
                vectors: tile.vectors,
            };
            // SAFETY: the state's transfer was waited for, or zeros were stored, and no write-back reads the
            // buffer. Buffer, scratch, keys and, for chunks, what lies behind keys are parts of this worker's
            // own VTCM, which has room for them (the assertion above). `claim` gave the head to this worker
            // alone.
            unsafe { self.tokens::<H>(&place, &claim) };
            if self.transposed {
                // SAFETY: the tokens are done with the state, which is a tile in this worker's own VTCM, of
                // a multiple of 32 (the shape rule).
                unsafe { transposed::transpose::<H>(state, tile) };
            }
            if !defer || claim.span.n_commit > 0 {
                let home = self.state.at([0, claim.h, claim.entry]);
                let transfer = tile.transfer(state.get(), home, tile.stride(), tile.size * 4);
                // SAFETY: the state is S x S packed floats (contiguous, per the op table) that this worker
                // has claimed; it is not in VTCM. The buffer is left alone until `fetch` or the end of this
                // function has waited.
                buffers.back[claim.buffer] = Some(unsafe { worker.dma.push(transfer) });
            }
            if !ahead {
                next = self.fetch::<H>(worker, &mut cursor, &mut buffers, other)?;
            }
        }
        worker.dma.finish()
    }
}

impl<'s> GatedDeltaNet<'s> {
    #[inline(always)]
    fn units_of_span(&self) -> usize {
        self.y.ne[1] * self.y.ne[3]
    }

    /// Claims a head and starts to bring its state to a buffer, after the buffer's last state has left.
    #[inline(always)]
    fn fetch<H: Hvx>(
        &self,
        worker: &mut Worker<'_>,
        cursor: &mut Cursor<'s>,
        buffers: &mut StateBuffers,
        buffer: usize,
    ) -> Result<Option<Claim<'s>>, Fault> {
        let Some(unit) = worker.claim() else { return Ok(None) };
        let (span, unit) = cursor.seek(unit, |_| self.units_of_span());
        let heads = self.y.ne[1];
        // Without a division, as below.
        let (h, b) = if unit < heads { (unit, 0) } else { (unit % heads, unit / heads) };
        let entry = span.entry(b, self.y.ne[3]);
        if let Some(ticket) = buffers.back[buffer].take() {
            worker.dma.wait(ticket)?;
        }
        let (tile, place) = (buffers.tile, buffers.at(buffer));
        // No tokens in the state: it is zeros.
        if span.n_past == span.n_commit {
            for v in 0..tile.size * tile.vectors {
                // SAFETY: `v` is below the vectors of a tile, and the buffer is a place for a tile in this
                // worker's own VTCM. Nothing uses it: its last write-back was waited for.
                unsafe { place.store::<H>(v, H::splat(0.0)) };
            }
            return Ok(Some(Claim { span, h, b, entry, buffer, ticket: None }));
        }
        let state = self.state.at([0, h, entry]);
        let transfer = tile.transfer(state, place.get(), tile.size * 4, tile.stride());
        // SAFETY: the buffer is a place for a tile in this worker's own VTCM. Its last write-back was waited
        // for, and it stays alone until this ticket is waited for. The state is S x S packed floats, not in
        // VTCM, and this worker alone writes it, having claimed the head.
        let ticket = Some(unsafe { worker.dma.push(transfer) });
        Ok(Some(Claim { span, h, b, entry, buffer, ticket }))
    }

    /// Runs a head's tokens over its state, chunk by chunk where that is possible.
    ///
    /// # Safety
    /// 1. The place is this worker's, and the state is in it; behind its keys is room for the parts of a
    ///    [`ChunkMemory`], if the kernel is the chunked one.
    /// 2. This worker alone has claimed the head.
    #[inline(always)]
    pub unsafe fn tokens<H: Hvx>(&self, place: &HeadMemory, claim: &Claim<'_>) {
        let all = claim.span;
        let chunked = self.kind == StateWalk::Chunked && !all.defers(self.defer) && all.n_commit == 0;
        let mut done = 0;
        loop {
            let (first, n_past, left) = (all.first + done, all.n_past + done, all.rows - done);
            // Chunks end where positions are multiples.
            let rows = if chunked { left.min(CHUNK - n_past % CHUNK) } else { left };
            let span = Span { first, rows, n_past, ..*all };
            let part = &Claim { span: &span, ticket: None, ..*claim };
            // SAFETY: the place is this worker's, with the state in it, and room behind its keys if chunks
            // are taken. This worker alone has claimed the head (points 1 and 2 of the caller's contract).
            // The part has some of the claim's rows, or all.
            unsafe {
                if !(chunked && rows >= LEAST && self.chunk::<H::Everywhere>(part, place)) {
                    self.head::<H>(place, part);
                }
            }
            done += rows;
            if done == all.rows {
                return;
            }
        }
    }

    /// Takes a state through one chunk; whether that was possible. Compiled for one kind of vectors
    /// ([`Hvx::Everywhere`]): where there is no HVX, chunks come with the twin of the matrix unit, which
    /// takes nearly all of the time.
    ///
    /// # Safety
    /// Points 1 and 2 of [`tokens`](Self::tokens), of the chunked kernel; the claim's rows are a chunk.
    #[inline(never)]
    unsafe fn chunk<E: Hvx>(&self, claim: &Claim<'_>, place: &HeadMemory) -> bool {
        let tile = Tile { size: place.size, vectors: place.vectors };
        let memory = ChunkMemory::new(place.keys.skip(KEY_ROWS / VECTOR_BYTES), tile);
        let head = &self.rows(claim);
        let chunk = Chunk { head, tokens: claim.span.rows, tile, state: place.state, memory };
        // SAFETY: the state is a tile, whose size `variant` has looked at, and `memory` the parts behind the
        // place for keys; both are this worker's alone, and so are the head's rows of y (points 1 and 2 of
        // the caller's contract). The shape rule gives all rows of the head the state's size.
        unsafe { chunk.run::<E>() }
    }

    /// Runs a head's tokens over its state, as many vectors of values at once as registers allow.
    ///
    /// # Safety
    /// 1. The place is this worker's, and the state is in it.
    /// 2. This worker alone has claimed the head.
    #[inline(always)]
    pub unsafe fn head<H: Hvx>(&self, place: &HeadMemory, claim: &Claim<'_>) {
        let span = claim.span;
        let course =
            HeadSchedule { commit: span.n_commit, tokens: span.rows, last: !span.defers(self.defer) };
        // SAFETY: the place is this worker's, with the state in it, and this worker alone has claimed the
        // head (points 1 and 2 of the caller's contract, which these functions have too). J divides the
        // vectors: there are 4 at most, and without enough registers J is 1.
        unsafe {
            // a, b and delta of each vector live in registers, next to the splats.
            match place.vectors {
                _ if self.kind == StateWalk::General => self.general::<H>(course, claim, place),
                4 if H::REGISTERS > 16 => self.blocks::<H, 4>(course, claim, place),
                3 if H::REGISTERS > 16 => self.blocks::<H, 3>(course, claim, place),
                2 | 4 if H::REGISTERS > 4 => self.blocks::<H, 2>(course, claim, place),
                _ => self.blocks::<H, 1>(course, claim, place),
            }
        }
    }

    /// The rows that a head reads and writes.
    #[inline(always)]
    pub fn rows(&self, claim: &Claim<'_>) -> Head<'_> {
        let &Claim { span, h, b, entry, .. } = claim;
        // Without a division, which is a function call on a DSP.
        let mut key_head = h;
        while key_head >= self.q.ne[1] {
            key_head -= self.q.ne[1];
        }
        let from = if self.shared == 1 { b } else { b / self.shared };
        let tape = self.tape.as_ref().map(|tape| {
            let key_entry = span.entry(from, self.q.ne[3]);
            tape.head(key_head, key_entry, h, entry, span.defers(self.defer))
        });
        Head {
            q: self.q.column(key_head, from),
            k: self.k.column(key_head, from),
            v: self.v.column(h, b),
            g: self.g.column(h, b),
            beta: self.beta.column(h, b),
            y: self.y.column_mut(h, b),
            tape,
            first: span.first,
            scale: self.scale,
        }
    }

    /// A function of its own, where that costs no instructions: registers are then its alone.
    ///
    /// # Safety
    /// Points 1 and 2 of [`head`](Self::head); J divides the vectors.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    unsafe fn blocks<H: Hvx, const J: usize>(
        &self,
        course: HeadSchedule,
        claim: &Claim<'_>,
        place: &HeadMemory,
    ) {
        let head = &self.rows(claim);
        for first in (0..place.vectors).step_by(J) {
            // SAFETY: the state is in the place, which is this worker's alone, and so is the head (the
            // caller's contract, points 1 and 2). J vectors from `first` on are inside the state, because J
            // divides its vectors.
            unsafe { course.run::<H, _>(&mut VectorPath::<J> { head, place: *place, first }, place) };
        }
    }

    /// As [`blocks`](Self::blocks).
    ///
    /// # Safety
    /// Points 1 and 2 of [`head`](Self::head).
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    unsafe fn general<H: Hvx>(&self, course: HeadSchedule, claim: &Claim<'_>, place: &HeadMemory) {
        let head = &self.rows(claim);
        for first in 0..place.vectors {
            // SAFETY: the state is in the place, which is this worker's alone, and so is the head (the
            // caller's contract, points 1 and 2). Vector `first` is inside the state.
            unsafe { course.run::<H, _>(&mut GenericPath { head, place: *place, first }, place) };
        }
    }
}
