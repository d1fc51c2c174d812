//! GATED_DELTA_NET: the gated delta rule, one recurrent state per head.
//!
//! q,k{S,Hk,T,B'}, v{S,H,T,B}, g{1|S,H,T,B}, beta{1,H,T,B}, state{S values j, S keys i, H, B*slots} ->
//! y{S,H,T,B}. Head h reads q and k of head h mod Hk, batch b those of batch b / (B/B'), as ggml has it. The
//! states of a slot s are entries s*B to s*B + B - 1, and rows of T belong to the slots of their spans. Per
//! token, with e = exp(g), or e_i = exp(g_i) per key index (as in ggml's
//! `ggml_compute_forward_gated_delta_net`):
//!
//! ```text
//! a_j = sum_i S_ij k_i    b_j = sum_i S_ij q_i                 (vector gate: of e_i S_ij)
//! delta_j = beta (v_j - e a_j)                                 (vector gate: beta (v_j - a_j))
//! y_j = (e b_j + delta_j (k.q)) / sqrt(S)                      (vector gate: (b_j + ..))
//! S_ij <- e S_ij + delta_j k_i
//! ```
//!
//! The value index j is in the lanes: one vector is 32 values of one key row, k_i and q_i are splats, and
//! nothing is summed across lanes. a and b are summed over i from 0 up, one product at a time; so the result
//! does not depend on how many vectors of j are worked on at once. The update for token t and the sums for
//! token t + 1 share a pass over the state (one load, one store per vector and token) and are the same
//! operations as in two passes: tokens may be grouped into steps in any way, bit for bit.
//!
//! A unit is a head of a batch of a span. Its state comes to VTCM and goes back by DMA; the next head's state
//! is on its way meanwhile. At position 0 the state is zeros, whatever its memory holds.
//!
//! A state may be transposed in memory, with the key index as the fast one: then its axes are exchanged in
//! VTCM, when it has come and before it goes.
//!
//! With a factor tape the state may lag behind `n_past` by the `n_commit` tokens that the tape holds:
//! tape_k{S,Hk,N,B'*slots}, tape_delta{S,H,N,B*slots}, tape_g{1|S,H,N,B*slots}. Every step first folds them,
//! by the very operations with which plain decoding advances a state, so that the bits are the same. With
//! `defer` the state then goes home as folded, the step's tokens advance a scratch copy that is dropped, and
//! their factors replace those on the tape. Folding happens when it is known how many of the tokens count.
//! Spans with `fold` advance the state at once, as without `defer`.

mod chunk;
mod general;
mod head;
mod sweep;
mod tape;
#[cfg(test)]
mod tests;
mod transposed;
mod whole;

use hexflash_abi::op::gated_delta_net as abi;
use hexflash_abi::op::params::DeltaNet;
use hexflash_abi::program::Numerics;
use hexflash_abi::{Fault, VECTOR_BYTES};

use self::chunk::{CHUNK, Chunk, ChunkMemory};
use self::general::GenericPath;
use self::head::{Head, HeadMemory, HeadSchedule};
use self::sweep::{KEYS, SPARE};
use self::tape::{Record, Tape};
use self::whole::VectorPath;
use super::{INDEX, OpRun, Variant};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::memory::{Floats, View};
use crate::plan::OpShapes;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};
use crate::vtcm::VtcmPlan;

/// Largest S.
const MAX_STATE: usize = abi::MAX_STATE as usize;

/// How the state of a head is walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One gate per head, and states of whole vectors: several vectors of values at once.
    Whole,
    /// The same with many tokens at once, of rows that need not have the bits of one token after the other.
    Chunked,
    /// The same with the matrix unit, where there are whole chunks.
    ByUnit,
    /// Any gates, any states: a vector of values at a time.
    General,
}

#[derive(Clone, Copy)]
struct GatedDeltaNet<'s> {
    q: Floats,
    k: Floats,
    v: Floats,
    g: Floats,
    beta: Floats,
    state: View,
    y: Floats,
    spans: &'s [Span],
    kind: Kind,
    /// Batches of v per batch of q and k.
    shared: usize,
    /// 1 / sqrt(S).
    scale: f32,
    tape: Option<Tape>,
    /// Leave the state as folded, and put tokens on the tape, unless their span folds them.
    defer: bool,
    /// Whether the key index of states in memory is the fast one.
    transposed: bool,
    /// Whether there are units enough to claim one ahead.
    ahead: bool,
}

/// GATED_DELTA_NET.
///
/// # Errors
/// A transfer that fails; [`ErrorCode::BadRegister`](hexflash_abi::ErrorCode): more is to be committed than
/// the tape holds.
pub fn run(kind: Kind, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (q, k, v) = (run.operand(abi::Q)?, run.operand(abi::K)?, run.operand(abi::V)?);
    let (g, beta, state) = (run.operand(abi::G)?, run.operand(abi::BETA)?, run.operand(abi::STATE)?);
    let y = run.operand(abi::Y)?;
    // The shape rule compares lengths together with their cut, so that what it says of the full shapes holds
    // for those of this step: one size, one number of heads, tokens and sequences, and with `defer` a tape
    // with room for all tokens. How many tokens the tape has to fold is a register, which `check_tapes`
    // looks at.
    let [s, h, tokens, b] = y.ne;
    let tape = Tape::of(run);
    let params = run.params::<DeltaNet>();
    let (defer, transposed) = (params.defer != 0, params.transposed != 0);
    run.step.check_tapes(tape.map_or(0, |tape| tape.delta.ne[2]), defer)?;
    let mut only = None;
    let spans = run.step.spans_over(tokens, &mut only);
    let ahead = h * b * spans.len() >= 2 * run.pool.workers();
    let (shared, scale) = (b / q.ne[3], inverse_sqrt(s));
    let [q, k, v, g, beta, y] = [q, k, v, g, beta, y].map(Floats::new);
    let kernel = GatedDeltaNet {
        q,
        k,
        v,
        g,
        beta,
        state,
        y,
        spans,
        // Which of the tokens are the unit's is decided below.
        kind: if kind == Kind::ByUnit { Kind::Chunked } else { kind },
        shared,
        scale,
        tape,
        defer,
        transposed,
        ahead,
    };
    if kind == Kind::ByUnit {
        chunk::by_hmx::run(&kernel, run.pool, run.plan.vtcm.shared)?;
    } else {
        run.pool.run(&kernel, run.plan.vtcm)?;
    }
    match tape {
        // Keys and gates are shared by heads and blocks of values: they are taped when nobody reads the old
        // ones.
        Some(tape) if defer => run.pool.run(&Record { k: *k, g: *g, tape, spans }, run.plan.vtcm),
        _ => Ok(()),
    }
}

/// The kernel for these gates and states.
pub fn variant(shapes: &OpShapes<'_>) -> Variant {
    let width = |operand| shapes.optional(operand).map_or(0, |(t, _)| t.ne[0] as usize);
    let size = width(abi::STATE);
    if width(abi::G) != 1 || !size.is_multiple_of(LANES) {
        return Variant::GatedDeltaNetGeneral;
    }
    if shapes.numerics != Numerics::Fast || !has_chunks(width(abi::G), size) {
        return Variant::GatedDeltaNetWhole;
    }
    if chunk::by_hmx::is_chosen(shapes) { Variant::GatedDeltaNetHmx } else { Variant::GatedDeltaNetChunked }
}

/// Whether programs of the class `fast` take many tokens at once, with so many gates per head and so many
/// values per key.
pub const fn has_chunks(gates: usize, size: usize) -> bool {
    gates == 1 && size.is_multiple_of(chunk::SIZES)
}

/// Bytes of VTCM that a worker has beside its states.
const fn bytes_beside_states(tile: Tile, chunked: bool) -> usize {
    KEY_ROWS + if chunked { ChunkMemory::bytes(tile) } else { 0 }
}

/// What states need without the matrix unit; with it, room for many of them, too.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let tile = Tile::new(shapes.optional(abi::STATE).map_or(1, |(state, _)| state.ne[0] as usize));
    let (taped, variant) = (shapes.optional(abi::TAPE_K).is_some(), variant(shapes));
    let chunked = matches!(variant, Variant::GatedDeltaNetChunked | Variant::GatedDeltaNetHmx);
    let hvx = states_plan(tile, taped, chunked, shapes.resources.workers, shapes.resources.vtcm_bytes);
    if variant == Variant::GatedDeltaNetHmx { chunk::by_hmx::plan(shapes, hvx) } else { hvx }
}

/// One or two states per worker, as they fit, a scratch copy of one if there is a tape, three rows of keys,
/// and the parts of a chunk where there are chunks.
fn states_plan(tile: Tile, taped: bool, chunked: bool, workers: usize, vtcm_bytes: usize) -> VtcmPlan {
    let (scratch, other) = (usize::from(taped), bytes_beside_states(tile, chunked));
    let states = |n: usize| VtcmPlan::new((n + scratch) * tile.bytes() + other);
    let fits = states(2).fit(workers, vtcm_bytes).is_ok();
    states(if fits { 2 } else { 1 })
}

/// Bytes of three rows of keys.
const KEY_ROWS: usize = 3 * KEYS * size_of::<f32>();

/// A state in VTCM: a row of whole vectors per key, and some to spare, which a sweep may read. Lanes past S
/// hold anything: no lane ever meets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Keys, and values.
    size: usize,
    /// Vectors of values of a key.
    vectors: usize,
}

impl Tile {
    const fn new(size: usize) -> Self {
        Self { size, vectors: size.div_ceil(LANES) }
    }

    /// Bytes from key to key.
    const fn stride(self) -> usize {
        self.vectors * VECTOR_BYTES
    }

    /// Bytes that the tile takes.
    const fn bytes(self) -> usize {
        (self.size + SPARE) * self.stride()
    }

    /// The transfer between a tile and a packed state, each `row` bytes from key to key.
    fn transfer(self, src: *const u8, dst: *mut u8, src_stride: usize, dst_stride: usize) -> Transfer {
        if src_stride == dst_stride {
            return Transfer::linear(src, dst, self.size * src_stride);
        }
        Transfer { src, dst, row_bytes: self.size * 4, rows: self.size, src_stride, dst_stride }
    }
}

/// A claimed head, and the transfer that brings its state (none if it is zeros).
struct Claim<'s> {
    span: &'s Span,
    h: usize,
    b: usize,
    /// Where state and tape have the batch of this slot.
    entry: usize,
    /// The place for states that it uses.
    buffer: usize,
    ticket: Option<Ticket>,
}

/// A worker's places for states, and the write-backs that still read them.
struct StateBuffers {
    base: VectorPtr,
    tile: Tile,
    back: [Option<Ticket>; 2],
}

impl StateBuffers {
    fn at(&self, buffer: usize) -> VectorPtr {
        self.base.skip(buffer * (self.tile.size + SPARE) * self.tile.vectors)
    }
}

impl Kernel for GatedDeltaNet<'_> {
    fn units(&self) -> usize {
        self.spans.len() * self.units_of_span()
    }

    fn work(&self) -> usize {
        let tile = Tile::new(self.y.ne[0]);
        let per_token = if self.kind == Kind::Chunked { 3 } else { 8 };
        let passes = 2 * self.spans.len() + per_token * self.y.ne[2];
        (self.units_of_span() * tile.size * tile.vectors).saturating_mul(passes)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let tile = Tile::new(self.y.ne[0]);
        let scratch = usize::from(self.tape.is_some());
        // Two states if they fit: see `plan`.
        let other = bytes_beside_states(tile, self.kind == Kind::Chunked);
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
    unsafe fn tokens<H: Hvx>(&self, place: &HeadMemory, claim: &Claim<'_>) {
        let all = claim.span;
        let chunked = self.kind == Kind::Chunked && !all.defers(self.defer) && all.n_commit == 0;
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
                if !(chunked && rows >= chunk::LEAST && self.chunk::<H::Everywhere>(part, place)) {
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
    unsafe fn head<H: Hvx>(&self, place: &HeadMemory, claim: &Claim<'_>) {
        let span = claim.span;
        let course =
            HeadSchedule { commit: span.n_commit, tokens: span.rows, last: !span.defers(self.defer) };
        // SAFETY: the place is this worker's, with the state in it, and this worker alone has claimed the
        // head (points 1 and 2 of the caller's contract, which these functions have too). J divides the
        // vectors: there are 4 at most, and without enough registers J is 1.
        unsafe {
            // a, b and delta of each vector live in registers, next to the splats.
            match place.vectors {
                _ if self.kind == Kind::General => self.general::<H>(course, claim, place),
                4 if H::REGISTERS > 16 => self.blocks::<H, 4>(course, claim, place),
                3 if H::REGISTERS > 16 => self.blocks::<H, 3>(course, claim, place),
                2 | 4 if H::REGISTERS > 4 => self.blocks::<H, 2>(course, claim, place),
                _ => self.blocks::<H, 1>(course, claim, place),
            }
        }
    }

    /// The rows that a head reads and writes.
    #[inline(always)]
    fn rows(&self, claim: &Claim<'_>) -> Head<'_> {
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

/// 1 / sqrt(n) for n >= 1, by Heron's method: `core` has no square root. Ten steps reach f64 precision for
/// any head.
fn inverse_sqrt(n: usize) -> f32 {
    let n = n as f64;
    let root = (0..10).fold(n, |r, _| (r + n / r) / 2.0);
    (1.0 / root) as f32
}
