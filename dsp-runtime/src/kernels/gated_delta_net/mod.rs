//! GATED_DELTA_NET: the gated delta rule, one recurrent state per head.
//!
//! q,k{S,Hk,T,B'}, v{S,H,T,B}, g{1|S,H,T,B}, beta{1,H,T,B}, state{S values j, S keys i, H, B} -> y{S,H,T,B}.
//! Head h reads q and k of head h mod Hk, sequence b those of sequence b / (B/B'), as ggml has it. Per token, with
//! e = exp(g), or e_i = exp(g_i) per key index (design.md, section 6; ggml's `ggml_compute_forward_gated_delta_net`):
//!
//! ```text
//! a_j = sum_i S_ij k_i    b_j = sum_i S_ij q_i                 (vector gate: of e_i S_ij)
//! delta_j = beta (v_j - e a_j)                                 (vector gate: beta (v_j - a_j))
//! y_j = (e b_j + delta_j (k.q)) / sqrt(S)                      (vector gate: (b_j + ..))
//! S_ij <- e S_ij + delta_j k_i
//! ```
//!
//! The value index j is in the lanes: one vector is 32 values of one key row, k_i and q_i are splats, and nothing is
//! summed across lanes. a and b are summed over i from 0 up, one product at a time; so the result does not depend on
//! how many vectors of j are worked on at once. The update for token t and the sums for token t + 1 share a pass over
//! the state (one load, one store per vector and token) and are the same operations as in two passes: tokens may be
//! grouped into steps in any way, bit for bit.
//!
//! A unit is a head of a sequence. Its state comes to VTCM and goes back by DMA; the next head's state is on its way
//! meanwhile. At position 0 the state is zeros, whatever its memory holds.
//!
//! With a factor tape (design.md, section 6) the state may lag behind `n_past` by the `n_commit` tokens that the tape
//! holds: tape_k{S,Hk,N,B'}, tape_delta{S,H,N,B}, tape_g{1|S,H,N,B}. Every step first folds them, by the very
//! operations with which plain decoding advances a state, so that the bits are the same. With `defer` the state then
//! goes home as folded, the step's tokens advance a scratch copy that is dropped, and their factors replace those on
//! the tape. Folding happens when it is known how many of the tokens count.

mod sweep;
#[cfg(test)]
mod tests;

use hexflash_abi::op::params::DeltaNet;
use hexflash_abi::registers::Register;
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use self::sweep::{Change, Sweep, Wanted, advance};
use super::{OpRun, OpShapes};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES, Lines, math};
use crate::memory::View;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker};
use crate::row::Row;
use crate::vtcm::VtcmPlan;

/// Largest S that validation lets through.
const MAX_STATE: usize = 128;

struct GatedDeltaNet {
    q: View,
    k: View,
    v: View,
    g: View,
    beta: View,
    state: View,
    y: View,
    tokens: usize,
    /// 1 / sqrt(S).
    scale: f32,
    /// No tokens in the state: it is zeros.
    fresh: bool,
    tape: Option<Tape>,
    /// Tokens on the tape to fold.
    commit: usize,
    /// Leave the state as folded, and put the step's tokens on the tape.
    defer: bool,
    /// Whether there are units enough to claim one ahead.
    ahead: bool,
}

/// GATED_DELTA_NET.
///
/// # Errors
/// A transfer that fails; shapes that the token axis has cut apart.
pub fn run<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let (q, k, v, g) = (run.src(0)?, run.src(1)?, run.src(2)?, run.src(3)?);
    let (beta, state, y) = (run.src(4)?, run.src(5)?, run.dst()?);
    let (s, h, b) = (y.ne[0], y.ne[1], y.ne[3]);
    let sound = (1..=MAX_STATE).contains(&s)
        && [q.ne[0], k.ne[0], v.ne[0], state.ne[0], state.ne[1]] == [s; 5]
        && (g.ne[0] == 1 || g.ne[0] == s)
        && [v.ne[1], g.ne[1], beta.ne[1], state.ne[2]] == [h; 4]
        && [v.ne[3], g.ne[3], beta.ne[3], state.ne[3]] == [b; 4]
        && k.ne[1] == q.ne[1]
        && k.ne[3] == q.ne[3]
        && h.is_multiple_of(q.ne[1])
        && b.is_multiple_of(q.ne[3]);
    let tokens = [q, k, v, g, beta].iter().fold(y.ne[2], |t, view| t.min(view.ne[2]));
    if !sound || tokens == 0 {
        return Err(Fault::new(ErrorCode::BadShape, 0));
    }
    let tape = Tape::of(run);
    let defer = run.params::<DeltaNet>().defer != 0;
    let commit = run.registers.get(Register::NCommit) as usize;
    // A commit of more than was taped would be a guess; so would none where the state lags behind.
    let room = tape.map_or(0, |tape| tape.delta.ne[2]);
    if commit > room || commit > run.n_past() {
        return Err(Fault::new(ErrorCode::BadRegister, Register::NCommit.wire()));
    }
    if defer && tokens > room {
        return Err(Fault::new(ErrorCode::BadShape, 0));
    }
    let ahead = h * b >= 2 * run.pool.workers();
    let (scale, fresh) = (inverse_sqrt(s), run.n_past() == commit);
    let kernel =
        GatedDeltaNet { q, k, v, g, beta, state, y, tokens, scale, fresh, tape, commit, defer, ahead };
    run.parallel(&kernel)?;
    match tape {
        // Keys and gates are shared by heads and blocks of values: they are taped when nobody reads the old ones.
        Some(tape) if defer => run.parallel(&Record { k, g, tape, tokens }),
        _ => Ok(()),
    }
}

/// One or two states per worker, as they fit, and a scratch copy of one if there is a tape.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let tile = Tile::new(shapes.src[5].map_or(1, |(state, _)| state.ne[0] as usize));
    let scratch = usize::from(shapes.dst[1].is_some());
    let two = VtcmPlan::new(0, (2 + scratch) * tile.bytes);
    let fits = two.fit(shapes.workers, shapes.vtcm_bytes).is_ok();
    if fits { two } else { VtcmPlan::new(0, (1 + scratch) * tile.bytes) }
}

/// The factor tape.
#[derive(Clone, Copy)]
struct Tape {
    k: View,
    delta: View,
    g: View,
}

impl Tape {
    fn of<P: Platform>(run: &OpRun<'_, '_, '_, P>) -> Option<Self> {
        Some(Self { k: run.dst[1]?, delta: run.dst[2]?, g: run.dst[3]? })
    }
}

/// Keys and gates of the step, onto the tape. A unit is a token of a sequence.
struct Record {
    k: View,
    g: View,
    tape: Tape,
    tokens: usize,
}

impl Kernel for Record {
    fn units(&self) -> usize {
        self.tokens * self.g.ne[3]
    }

    fn work(&self) -> usize {
        self.units() * (self.k.ne[0] * self.k.ne[1] + self.g.ne[0] * self.g.ne[1]) / 16
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (t, b) = (unit % self.tokens, unit / self.tokens);
            for (from, to) in [(&self.k, &self.tape.k), (&self.g, &self.tape.g)] {
                for h in 0..if b < from.ne[3] { from.ne[1] } else { 0 } {
                    // SAFETY: token t of sequence b was claimed by this worker alone.
                    unsafe { to.row_mut([h, t, b]) }.copy::<H>(from.row([h, t, b]));
                }
            }
        }
        Ok(())
    }
}

/// A state in VTCM: a row of whole vectors per key. Lanes past S hold anything: no lane ever meets another.
#[derive(Clone, Copy)]
struct Tile {
    /// Keys, and values.
    size: usize,
    /// Vectors of values of a key.
    vectors: usize,
    bytes: usize,
}

impl Tile {
    const fn new(size: usize) -> Self {
        let vectors = size.div_ceil(LANES);
        Self { size, vectors, bytes: size * vectors * VECTOR_BYTES }
    }

    /// The transfer between a tile and a packed state, each `row` bytes from key to key.
    fn transfer(self, src: *const u8, dst: *mut u8, src_stride: usize, dst_stride: usize) -> Transfer {
        if src_stride == dst_stride {
            return Transfer::linear(src, dst, self.bytes);
        }
        Transfer { src, dst, row_bytes: self.size * 4, rows: self.size, src_stride, dst_stride }
    }

    const fn stride(self) -> usize {
        self.vectors * VECTOR_BYTES
    }
}

/// A claimed head, and the transfer that brings its state (none if it is zeros).
struct Head {
    h: usize,
    b: usize,
    slot: usize,
    ticket: Option<Ticket>,
}

/// A worker's places for states, and the write-backs that still read them.
struct Slots {
    base: *mut u8,
    tile: Tile,
    back: [Option<Ticket>; 2],
}

impl Slots {
    fn at(&self, slot: usize) -> *mut u8 {
        self.base.wrapping_add(slot * self.tile.bytes)
    }
}

impl Kernel for GatedDeltaNet {
    fn units(&self) -> usize {
        self.y.ne[1] * self.y.ne[3]
    }

    fn work(&self) -> usize {
        let tile = Tile::new(self.y.ne[0]);
        (self.units() * tile.size * tile.vectors).saturating_mul(2 + 8 * self.tokens)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let tile = Tile::new(self.y.ne[0]);
        let scratch = usize::from(self.tape.is_some());
        let places = worker.own_bytes() / tile.bytes;
        assert!(places > scratch);
        let count = (places - scratch).min(2);
        let mut slots = Slots { base: worker.own_vtcm().get(), tile, back: [None; 2] };
        let ahead = self.ahead && count == 2;
        let mut next = self.fetch::<H>(worker, &mut slots, 0)?;
        while let Some(head) = next.take() {
            let other = (head.slot + 1) % count;
            if ahead {
                next = self.fetch::<H>(worker, &mut slots, other)?;
            }
            if let Some(ticket) = head.ticket {
                worker.dma.wait(ticket)?;
            }
            let state = slots.at(head.slot);
            if let Some(tape) = self.tape.filter(|_| self.commit > 0) {
                // SAFETY: the state is in the slot and nothing else uses it; this worker alone has claimed the head.
                unsafe { self.fold::<H>(tile, state.cast(), &head, &tape) };
            }
            let home = self.state.at([0, head.h, head.b]);
            let transfer = tile.transfer(state, home, tile.stride(), tile.size * 4);
            if self.defer {
                if self.commit > 0 {
                    // SAFETY: as below; from here on the slot is only read.
                    slots.back[head.slot] = Some(unsafe { worker.dma.push(transfer) });
                }
                let spare = slots.at(count);
                // SAFETY: as above, and the scratch place behind the slots is this worker's own.
                unsafe { self.head::<H>(tile, state.cast(), Some(spare.cast()), &head) };
            } else {
                // SAFETY: as above.
                unsafe { self.head::<H>(tile, state.cast(), None, &head) };
                // SAFETY: the state is S x S packed floats (contiguous, per the op table) that this worker has
                // claimed; the slot is left alone until `fetch` or the end of this function has waited.
                slots.back[head.slot] = Some(unsafe { worker.dma.push(transfer) });
            }
            if !ahead {
                next = self.fetch::<H>(worker, &mut slots, other)?;
            }
        }
        worker.dma.finish()
    }
}

impl GatedDeltaNet {
    /// Claims a head and starts to bring its state to a slot, after the slot's last state has left.
    #[inline(always)]
    fn fetch<H: Hvx>(
        &self,
        worker: &mut Worker<'_>,
        slots: &mut Slots,
        slot: usize,
    ) -> Result<Option<Head>, Fault> {
        let Some(unit) = worker.claim() else { return Ok(None) };
        let (h, b) = (unit % self.y.ne[1], unit / self.y.ne[1]);
        if let Some(ticket) = slots.back[slot].take() {
            worker.dma.wait(ticket)?;
        }
        let (tile, place) = (slots.tile, slots.at(slot));
        if self.fresh {
            for v in 0..tile.size * tile.vectors {
                // SAFETY: a vector of the slot, which is free: its write-back was waited for.
                unsafe { H::store(place.add(v * VECTOR_BYTES).cast(), H::splat(0.0)) };
            }
            return Ok(Some(Head { h, b, slot, ticket: None }));
        }
        let transfer = tile.transfer(self.state.at([0, h, b]), place, tile.size * 4, tile.stride());
        // SAFETY: the slot is free and stays alone until the ticket is waited for; the state is packed, and nobody
        // but this worker writes it.
        let ticket = Some(unsafe { worker.dma.push(transfer) });
        Ok(Some(Head { h, b, slot, ticket }))
    }

    /// Advances a head's state by the committed tokens on the tape.
    ///
    /// # Safety
    /// As [`head`](Self::head), without `scratch`.
    #[inline(always)]
    unsafe fn fold<H: Hvx>(&self, tile: Tile, state: *mut f32, head: &Head, tape: &Tape) {
        let (key_head, from) = (head.h % self.q.ne[1], head.b / (self.y.ne[3] / self.q.ne[3]));
        for c in 0..self.commit {
            let (k, g) = (tape.k.row([key_head, c, from]), tape.g.row([head.h, c, head.b]));
            let delta = tape.delta.row([head.h, c, head.b]);
            let mut decays = [0.0f32; MAX_STATE];
            let each = g.len() > 1;
            let decay = if each { exp_each::<H>(g, &mut decays) } else { math::exp::<H>(H::splat(g.get(0))) };
            let k = k.part(0, tile.size);
            let decays = &decays[..tile.size];
            for v in 0..tile.vectors {
                let delta = delta.vector::<H>(v);
                for (i, &own) in decays.iter().enumerate() {
                    let decay = if each { H::splat(own) } else { decay };
                    let p = state.wrapping_add((i * tile.vectors + v) * LANES);
                    // SAFETY: vector v of key i of the tile, which is this worker's.
                    unsafe { H::store(p, advance::<H>(H::load(p), decay, delta, H::splat(k.get(i)))) };
                }
            }
        }
    }

    /// Runs a head's tokens over its state, as many vectors of values at once as registers allow: a, b and delta of
    /// each live in registers, next to the splats. With `scratch` the state is only read, and what the tokens make of
    /// it goes there.
    ///
    /// # Safety
    /// 1. `state` is a tile in VTCM that nobody else writes, and nobody else reads unless there is a `scratch`.
    /// 2. `scratch` is another tile, which nobody else uses.
    /// 3. This worker alone has claimed the head.
    #[inline(always)]
    unsafe fn head<H: Hvx>(&self, tile: Tile, state: *mut f32, scratch: Option<*mut f32>, head: &Head) {
        // SAFETY: for all of them, the caller's promises; the widths divide the tile's vectors.
        unsafe {
            if H::REGISTERS >= 24 && tile.vectors.is_multiple_of(4) {
                self.gated::<H, 4>(tile, state, scratch, head);
            } else if H::REGISTERS >= 8 && tile.vectors.is_multiple_of(2) {
                self.gated::<H, 2>(tile, state, scratch, head);
            } else {
                self.gated::<H, 1>(tile, state, scratch, head);
            }
        }
    }

    /// Picks the gate's shape, then goes through the blocks of J vectors of values.
    ///
    /// # Safety
    /// As [`head`](Self::head); J divides the tile's vectors.
    #[inline(always)]
    unsafe fn gated<H: Hvx, const J: usize>(
        &self,
        tile: Tile,
        state: *mut f32,
        scratch: Option<*mut f32>,
        head: &Head,
    ) {
        for first in (0..tile.vectors).step_by(J) {
            // J vectors from `first` are inside the tile's rows.
            let (state, scratch) = (state.wrapping_add(first * LANES), scratch.unwrap_or(state));
            let block = Block::<J> { state, scratch: scratch.wrapping_add(first * LANES), tile, first };
            // S = 1 has one gate either way.
            if self.g.ne[0] == 1 {
                // SAFETY: the caller's promises.
                unsafe { self.block::<H, J, false>(block, head) };
            } else {
                // SAFETY: the caller's promises.
                unsafe { self.block::<H, J, true>(block, head) };
            }
        }
    }

    /// All tokens of the step over one block of values. EACH: a gate per key index.
    ///
    /// # Safety
    /// As [`head`](Self::head), for the block's part of the tile.
    #[inline(always)]
    unsafe fn block<H: Hvx, const J: usize, const EACH: bool>(&self, block: Block<J>, head: &Head) {
        // The decays per key of a token, and of the one before it; unused with one gate.
        let mut decays = [[0.0f32; MAX_STATE]; 2];
        let mut token = self.token::<H, EACH>(0, head, &mut decays[0]);
        // SAFETY: (here and below) the caller's promise.
        let mut sums = unsafe { block.pass::<H, EACH>(None, Some((token, &decays[0]))) };
        let mut block = block;
        for t in 0..self.tokens {
            let update = self.outputs::<H, J, EACH>(t, head, &token, block.first, &sums);
            let [even, odd] = &mut decays;
            let (old, new) = if t % 2 == 0 { (even, odd) } else { (odd, even) };
            if t + 1 == self.tokens {
                // What would be dropped need not be computed.
                if !self.defer {
                    // SAFETY: as above.
                    unsafe { block.pass::<H, EACH>(Some((update, old)), None) };
                }
                break;
            }
            token = self.token::<H, EACH>(t + 1, head, new);
            // SAFETY: as above.
            sums = unsafe { block.pass::<H, EACH>(Some((update, old)), Some((token, new))) };
            block.state = block.scratch;
        }
    }

    /// Token t of a head: its key and query, its decay. With EACH, the decays per key go to `decays`.
    #[inline(always)]
    fn token<H: Hvx, const EACH: bool>(
        &self,
        t: usize,
        head: &Head,
        decays: &mut [f32; MAX_STATE],
    ) -> Token<'_, H> {
        let from = [head.h % self.q.ne[1], t, head.b / (self.y.ne[3] / self.q.ne[3])];
        let (q, k) = (self.q.row(from), self.k.row(from));
        let g = self.g.row([head.h, t, head.b]);
        let decay = if EACH { exp_each::<H>(g, decays) } else { math::exp::<H>(H::splat(g.get(0))) };
        let mut kq = H::splat(0.0);
        for v in 0..k.len().div_ceil(LANES) {
            kq = H::add(kq, H::mul(k.vector::<H>(v), q.vector::<H>(v)));
        }
        Token { q, k, decay, kq: H::sum_all(kq) }
    }

    /// From a token's sums over the old state: its outputs, and what it changes.
    #[inline(always)]
    fn outputs<'t, H: Hvx, const J: usize, const EACH: bool>(
        &self,
        t: usize,
        head: &Head,
        token: &Token<'t, H>,
        first: usize,
        sums: &Sums<H, J>,
    ) -> Update<'t, H, J> {
        let at = [head.h, t, head.b];
        let v = self.v.row(at);
        let (beta, scale) = (H::splat(self.beta.row(at).get(0)), H::splat(self.scale));
        // SAFETY: the rows of a head belong to the worker that claimed it.
        let mut y = unsafe { self.y.row_mut(at) };
        let mut delta = [H::splat(0.0); J];
        if !EACH && first + J <= v.whole().min(y.len() / LANES) {
            // Whole vectors, without a branch for each: as below.
            let mut out = [H::splat(0.0); J];
            for (j, (delta, out)) in delta.iter_mut().zip(&mut out).enumerate() {
                let (a, b) = (H::mul(token.decay, sums.a[j]), H::mul(token.decay, sums.b[j]));
                *delta = H::mul(beta, H::sub(v.full::<H>(first + j), a));
                *out = H::mul(scale, H::add(b, H::mul(*delta, token.kq)));
            }
            for (j, &out) in out.iter().enumerate() {
                y.set_full::<H>(first + j, out);
            }
            self.record::<H, J>(at, first, &delta);
            return Update { k: token.k, decay: token.decay, delta };
        }
        for (j, delta) in delta.iter_mut().enumerate() {
            let (mut a, mut b) = (sums.a[j], sums.b[j]);
            if !EACH {
                (a, b) = (H::mul(token.decay, a), H::mul(token.decay, b));
            }
            *delta = H::mul(beta, H::sub(v.vector::<H>(first + j), a));
            y.set_vector::<H>(first + j, H::mul(scale, H::add(b, H::mul(*delta, token.kq))));
        }
        self.record::<H, J>(at, first, &delta);
        Update { k: token.k, decay: token.decay, delta }
    }

    /// Puts J vectors of a token's delta onto the tape, if tokens go there.
    #[inline(always)]
    fn record<H: Hvx, const J: usize>(&self, at: [usize; 3], first: usize, delta: &[H::F; J]) {
        if let Some(tape) = self.tape.filter(|_| self.defer) {
            // SAFETY: the rows of a head belong to the worker that claimed it, which has folded what was there.
            let mut row = unsafe { tape.delta.row_mut(at) };
            for (j, &delta) in delta.iter().enumerate() {
                row.set_vector::<H>(first + j, delta);
            }
        }
    }
}

/// A token as one head sees it.
#[derive(Clone, Copy)]
struct Token<'t, H: Hvx> {
    q: Row<'t>,
    k: Row<'t>,
    /// exp(g) in every lane; 1 with a gate per key.
    decay: H::F,
    /// k.q in every lane.
    kq: H::F,
}

/// What a token changes in a block of the state: an entry of the factor tape, in registers.
#[derive(Clone, Copy)]
struct Update<'t, H: Hvx, const J: usize> {
    k: Row<'t>,
    decay: H::F,
    delta: [H::F; J],
}

/// a and b of a token, before the gate if there is only one.
struct Sums<H: Hvx, const J: usize> {
    a: [H::F; J],
    b: [H::F; J],
}

/// J vectors of values of every key.
#[derive(Clone, Copy)]
struct Block<const J: usize> {
    /// The block's first vector of key 0.
    state: *mut f32,
    /// Likewise where updates go; the same, unless the state is to stay.
    scratch: *mut f32,
    tile: Tile,
    /// The block's first vector in rows of values.
    first: usize,
}

impl<const J: usize> Block<J> {
    /// One pass over the block: applies the update of one token, then sums for the next one; each if there is one.
    /// Decays per key come with them.
    ///
    /// # Safety
    /// The block lies inside a tile that nobody else writes, and its scratch in one that nobody else uses.
    #[inline(always)]
    unsafe fn pass<'t, H: Hvx, const EACH: bool>(
        self,
        update: Option<(Update<'t, H, J>, &[f32; MAX_STATE])>,
        sums: Option<(Token<'t, H>, &[f32; MAX_STATE])>,
    ) -> Sums<H, J> {
        let (size, stride) = (self.tile.size, self.tile.vectors * LANES);
        let zero = [H::splat(0.0); J];
        let places = Lines::new(self.state.cast()).zip(Lines::new(self.scratch.cast()));
        if let (Some((from, to)), false, true) = (places, EACH, size.is_multiple_of(LANES)) {
            let sweep = Sweep::<J> { from, to, stride: self.tile.vectors };
            let change = |u: Update<'t, H, J>| Change { k: u.k, decay: u.decay, delta: u.delta };
            let wanted = |t: Token<'t, H>| Wanted { k: t.k, q: t.q };
            // SAFETY: for all of them, the caller's promise. What a sweep is not asked for it does not look at.
            let [a, b] = unsafe {
                match (update, sums) {
                    (Some((u, _)), Some((t, _))) => sweep.run::<H, true, true>(change(u), wanted(t)),
                    (Some((u, _)), None) => sweep.run::<H, true, false>(change(u), Wanted { k: u.k, q: u.k }),
                    (None, Some((t, _))) => {
                        let none = Change { k: t.k, decay: zero[0], delta: zero };
                        sweep.run::<H, false, true>(none, wanted(t))
                    }
                    (None, None) => [zero; 2],
                }
            };
            return Sums { a, b };
        }
        let (mut a, mut b) = (zero, zero);
        // Rows of exactly `size`, so that the loop needs no bounds checks.
        let update = update.map(|(u, decays)| (u, u.k.part(0, size), &decays[..size]));
        let sums = sums.map(|(t, decays)| (t, t.k.part(0, size), t.q.part(0, size), &decays[..size]));
        for i in 0..size {
            let (p, to) = (self.state.wrapping_add(i * stride), self.scratch.wrapping_add(i * stride));
            let mut s = zero;
            for (j, s) in s.iter_mut().enumerate() {
                // SAFETY: vector j of key i of the block.
                *s = unsafe { H::load(p.wrapping_add(j * LANES)) };
            }
            if let Some((u, k, decays)) = update {
                let decay = if EACH { H::splat(decays[i]) } else { u.decay };
                let k = H::splat(k.get(i));
                for (j, s) in s.iter_mut().enumerate() {
                    *s = advance::<H>(*s, decay, u.delta[j], k);
                    // SAFETY: as above.
                    unsafe { H::store(to.wrapping_add(j * LANES), *s) };
                }
            }
            if let Some((_, k, q, decays)) = sums {
                let (k, q) = (H::splat(k.get(i)), H::splat(q.get(i)));
                for j in 0..J {
                    let x = if EACH { H::mul(H::splat(decays[i]), s[j]) } else { s[j] };
                    a[j] = H::add(a[j], H::mul(x, k));
                    b[j] = H::add(b[j], H::mul(x, q));
                }
            }
        }
        Sums { a, b }
    }
}

/// exp(g) per key, into `decays`; gives 1, the decay that all keys share.
#[inline(always)]
fn exp_each<H: Hvx>(g: Row<'_>, decays: &mut [f32; MAX_STATE]) -> H::F {
    for (v, part) in decays.chunks_exact_mut(LANES).enumerate().take(g.len().div_ceil(LANES)) {
        // SAFETY: a part is a vector's worth of floats.
        unsafe { H::store(part.as_mut_ptr(), math::exp::<H>(g.vector::<H>(v))) };
    }
    H::splat(1.0)
}

/// 1 / sqrt(n) for n >= 1, by Heron's method: `core` has no square root. Ten steps reach f64 precision for any head.
fn inverse_sqrt(n: usize) -> f32 {
    let n = n as f64;
    let root = (0..10).fold(n, |r, _| (r + n / r) / 2.0);
    (1.0 / root) as f32
}
