//! SSM_CONV: a causal convolution per channel, over a ring of past rows.
//!
//! x{C,T,B}, w{C,K}, ring{C,R,B*S} -> y{C,T,B}; the channel is the fast index everywhere, so that lanes are
//! channels. The rings of slot s of S are entries s*B to s*B + B - 1, tapes likewise. For a span of T, with
//! X\[p\] the raw row of position p (zero where p < 0), as in ggml (`ggml_compute_forward_ssm_conv_f32`):
//!
//! y\[c,t\] = sum over j = 0..K-1, in this order, of w\[c,j\] X\[n_past + t - (K-1) + j, c\]
//!
//! Row p lives in ring row p mod R. Rows before `n_past` come from the ring, the span's own from x; then its
//! last min(T, R) rows go into the ring. Nothing is read for p < 0, so a new sequence needs no
//! clearing.
//!
//! With a tape the ring may lag behind by the `n_commit` tokens that the last deferred step kept: their rows
//! are the first of the tape, and go into the ring now. A deferred step (`defer` = 1) puts its own rows on
//! the tape instead, unless the block's `fold` is set; so rows that are taken back never get into the ring,
//! and it needs no more of them than plain decoding.
//!
//! A unit is a block of channels of one batch of a span: it has read its channels' history before it
//! overwrites any of it, and no other unit touches them. Weights and history go through VTCM, x and y are
//! streamed.

use core::array;

use hexflash_abi::op::{params, ssm_conv as abi};
use hexflash_abi::{Fault, VECTOR_BYTES};

use super::OpRun;
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::plan::OpShapes;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};
use crate::step::{Cursor, Span};
use crate::vtcm::VtcmPlan;

/// Vectors of channels in a unit: rows of two kilobytes are a decent transfer, and leave work for every
/// worker.
const BLOCK_VECTORS: usize = 16;
/// Channels of a unit.
const BLOCK: usize = BLOCK_VECTORS * LANES;
/// Bytes of a staged row.
const ROW_BYTES: usize = BLOCK_VECTORS * VECTOR_BYTES;
/// Most taps.
const MAX_TAPS: usize = abi::MAX_TAPS as usize;

struct SsmConv<'s> {
    x: View,
    w: View,
    ring: View,
    y: View,
    tape: Option<View>,
    spans: &'s [Span],
    /// Put rows on the tape, unless they fold.
    defer: bool,
    /// Whether there are units enough to claim one ahead.
    ahead: bool,
}

/// A claimed block of channels, and the transfers that bring its weights and history.
struct ChannelRange<'s> {
    span: &'s Span,
    batch: usize,
    /// First channel.
    at: usize,
    /// Channels.
    n: usize,
    /// Where its rows are staged: K rows of weights, K - 1 rows of history.
    stage: *mut u8,
    /// Weights, older part of the history in the ring, newer part (the ring wraps once at most), part on the
    /// tape.
    tickets: [Option<Ticket>; 4],
}

/// SSM_CONV.
///
/// # Errors
/// A transfer that fails; [`ErrorCode::BadRegister`](hexflash_abi::ErrorCode): more is to be committed than
/// the tape holds.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, w, ring) = (run.operand(abi::X)?, run.operand(abi::W)?, run.operand(abi::RING)?);
    let (y, tape) = (run.operand(abi::Y)?, run.optional(abi::TAPE_X));
    // The shape rule compares lengths together with their cut, so that what it says of the full shapes holds
    // for those of this step: x and y are alike, w, ring and tape have their channels, the ring has a row for
    // every tap, and with `defer` the tape has one for every token. How many rows it has to commit is a
    // register, which `check_tapes` looks at.
    let defer = run.params::<params::SsmConv>().defer != 0;
    run.step.check_tapes(tape.map_or(0, |tape| tape.ne[1]), defer)?;
    let mut only = None;
    let spans = run.step.spans_over(y.ne[1], &mut only);
    let mut kernel = SsmConv { x, w, ring, y, tape, spans, defer, ahead: false };
    kernel.ahead = kernel.units() >= 2 * run.pool.workers();
    run.pool.run(&kernel, run.plan.vtcm)
}

/// Two slots per worker of K rows of weights and K - 1 of history.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let taps = shapes.optional(abi::W).map_or(1, |(w, _)| w.ne[1] as usize);
    VtcmPlan::new(2 * slot_bytes(taps))
}

const fn slot_bytes(taps: usize) -> usize {
    (2 * taps - 1) * ROW_BYTES
}

impl Kernel for SsmConv<'_> {
    fn units(&self) -> usize {
        self.spans.len() * self.units_of_span()
    }

    fn work(&self) -> usize {
        // A row and a tap of weights per tap, the result and the ring; to claim and to stage a unit takes as
        // long as some more vectors.
        let vector = 2 * self.w.ne[1] + 4;
        let row = self.units_of_span() * BLOCK_VECTORS * vector;
        row.saturating_mul(self.y.ne[1]).saturating_add(256 * self.units())
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let slot_bytes = slot_bytes(self.w.ne[1]);
        assert!(worker.own_bytes() >= 2 * slot_bytes);
        let base = worker.own_vtcm().get();
        let slots = [base, base.wrapping_add(slot_bytes)];
        let (mut slot, mut cursor) = (0, Cursor::new(self.spans, |_| self.units_of_span()));
        // SAFETY: a slot is K + K - 1 rows of this worker's own VTCM, and no block has used it yet.
        let mut next = unsafe { self.fetch::<H>(worker, &mut cursor, slots[slot]) };
        while let Some(block) = next.take() {
            slot ^= 1;
            if self.ahead {
                // SAFETY: a slot is K + K - 1 rows of this worker's own VTCM; `block` is in the other one,
                // and the block before it, which was in this one, has been computed.
                next = unsafe { self.fetch::<H>(worker, &mut cursor, slots[slot]) };
            }
            for ticket in block.tickets.into_iter().flatten() {
                worker.dma.wait(ticket)?;
            }
            // SAFETY: the block's transfers were waited for above, its slot is in this worker's own VTCM, and
            // `claim` gave the block, and with it its channels of y, ring and tape, to this worker alone.
            unsafe { self.convolve::<H>(&block) };
            if !self.ahead {
                // SAFETY: a slot is K + K - 1 rows of this worker's own VTCM, and `block`, the last to use
                // any, has been computed.
                next = unsafe { self.fetch::<H>(worker, &mut cursor, slots[slot]) };
            }
        }
        Ok(())
    }
}

impl<'s> SsmConv<'s> {
    #[inline(always)]
    fn units_of_span(&self) -> usize {
        self.y.ne[0].div_ceil(BLOCK) * self.y.ne[2]
    }

    /// Claims a block and starts to stage it at `stage`.
    ///
    /// # Safety
    /// `stage` is a slot of the worker's own VTCM that nobody reads or writes until the block is done.
    #[inline(always)]
    unsafe fn fetch<H: Hvx>(
        &self,
        worker: &mut Worker<'_>,
        cursor: &mut Cursor<'s>,
        stage: *mut u8,
    ) -> Option<ChannelRange<'s>> {
        let (span, unit) = cursor.seek(worker.claim()?, |_| self.units_of_span());
        let (blocks, taps) = (self.y.ne[0].div_ceil(BLOCK), self.w.ne[1]);
        // Without a division, which is a function call on a DSP.
        let (batch, number) = if unit < blocks { (0, unit) } else { (unit / blocks, unit % blocks) };
        let at = number * BLOCK;
        let entry = span.entry(batch, self.y.ne[2]);
        let n = (self.y.ne[0] - at).min(BLOCK);
        let rows = |src: *const u8, to_row: usize, rows: usize, stride: usize| Transfer {
            src: src.wrapping_add(at * 4),
            dst: stage.wrapping_add(to_row * ROW_BYTES),
            row_bytes: n * 4,
            rows,
            src_stride: stride,
            dst_stride: ROW_BYTES,
        };
        // Rows of history that exist; the older ones are zero.
        let known = (taps - 1).min(span.n_past);
        let mut tickets = [None; 4];
        // SAFETY: K rows of n channels lie inside w, which nobody writes, and the slot has K rows for them,
        // which nobody uses until the tickets have been waited for (the caller's contract).
        tickets[0] = Some(unsafe { worker.dma.push(rows(self.w.at([0; 3]), 0, taps, self.w.nb[1])) });
        for row in taps..2 * taps - 1 - known {
            for v in 0..BLOCK_VECTORS {
                // SAFETY: rows K to `2 * K - 2 - known` of the slot are this worker's own (the caller's
                // contract), and no transfer writes them: the history comes to the rows after these.
                unsafe { H::store(stage.add(row * ROW_BYTES + v * VECTOR_BYTES).cast(), H::splat(0.0)) };
            }
        }
        let to = 2 * taps - 1 - known;
        // The last of them may still be on the tape.
        let (taped, kept) = (known.min(span.n_commit), known - known.min(span.n_commit));
        if kept > 0 {
            let size = self.ring.ne[1];
            let oldest = (span.n_past - known) % size;
            // `kept` < K <= R: at most one wrap, and no row twice.
            let first = kept.min(size - oldest);
            let src = self.ring.at([oldest, entry, 0]);
            // SAFETY: `first` rows from `oldest` lie inside the ring, as `first` is at most `size - oldest`;
            // this block alone writes its channels there, after it has waited. The slot has a row for each,
            // which nobody uses until then (the caller's contract) and which is in VTCM.
            tickets[1] = Some(unsafe { worker.dma.push(rows(src, to, first, self.ring.nb[1])) });
            if first < kept {
                let src = self.ring.at([0, entry, 0]);
                let transfer = rows(src, to + first, kept - first, self.ring.nb[1]);
                // SAFETY: rows 0 to `kept - first - 1` lie inside the ring, which has at least `kept` rows;
                // this block alone writes its channels there, after it has waited. The slot has a row for
                // each, which nobody uses until then (the caller's contract) and which is in VTCM.
                tickets[2] = Some(unsafe { worker.dma.push(transfer) });
            }
        }
        if let Some(tape) = self.tape.as_ref().filter(|_| taped > 0) {
            let src = tape.at([span.n_commit - taped, entry, 0]);
            // SAFETY: `check_tapes` has found that the tape has `n_commit` rows, and `taped` is at most that;
            // this block alone writes its channels there, after it has waited. The slot has a row for each,
            // which nobody uses until then (the caller's contract) and which is in VTCM.
            tickets[3] = Some(unsafe { worker.dma.push(rows(src, to + kept, taped, tape.nb[1])) });
        }
        Some(ChannelRange { span, batch, at, n, stage, tickets })
    }

    /// Computes a block's outputs, then moves the ring on. A function of its own, where that costs no
    /// instructions: registers are then its alone.
    ///
    /// # Safety
    /// 1. The block's transfers are done, and its slot is this worker's own.
    /// 2. No other worker touches the block's channels of y, of the ring and of the tape.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    unsafe fn convolve<H: Hvx>(&self, block: &ChannelRange<'_>) {
        let &ChannelRange { span, batch, at, n, stage, .. } = block;
        let entry = span.entry(batch, self.y.ne[2]);
        let Span { first: first_row, rows: tokens, n_past, n_commit, .. } = *span;
        let defer = span.defers(self.defer);
        let taps = self.w.ne[1];
        // SAFETY: row `r` of the slot is staged (the caller's contract, point 1), and of its ROW_BYTES the
        // first `n` floats are used, because `n` is BLOCK at most.
        let staged = |r: usize| unsafe { Row::new(stage.add(r * ROW_BYTES).cast(), n) };
        let x = |t: usize| self.x.row([first_row + t, batch, 0]).part(at, n);
        for t in 0..tokens {
            // Row t + j of history followed by x.
            let row = |j| if t + j < taps - 1 { staged(taps + t + j) } else { x(t + j - (taps - 1)) };
            // SAFETY: channels `at..at + n` of y are this block's, and no other worker touches them (the
            // caller's contract, point 2).
            let mut y = unsafe { self.y.part_mut([first_row + t, batch, 0], at, n) };
            // Models have three taps or four.
            match taps {
                3 => sum::<H>(&array::from_fn::<_, 3, _>(|j| (row(j), staged(j))), &mut y),
                4 => sum::<H>(&array::from_fn::<_, 4, _>(|j| (row(j), staged(j))), &mut y),
                _ => {
                    let mut terms = [(row(0), staged(0)); MAX_TAPS];
                    for (j, term) in terms.iter_mut().enumerate().take(taps) {
                        *term = (row(j), staged(j));
                    }
                    sum::<H>(&terms[..taps], &mut y);
                }
            }
        }
        let size = self.ring.ne[1];
        let into_ring = |position: usize, row: Row<'_>| {
            // SAFETY: channels `at..at + n` of the ring are this block's, and no other worker touches them
            // (the caller's contract, point 2).
            let mut ring = unsafe { self.ring.part_mut([position % size, entry, 0], at, n) };
            ring.copy::<H>(row);
        };
        // What the ring holds at the end are the rows of the last R positions before this one.
        let end = n_past + if defer { 0 } else { tokens };
        if let Some(tape) = &self.tape {
            let first = n_past - n_commit;
            for position in first.max(end.saturating_sub(size))..n_past {
                into_ring(position, tape.row([position - first, entry, 0]).part(at, n));
            }
        }
        for position in n_past.max(end.saturating_sub(size))..end {
            into_ring(position, x(position - n_past));
        }
        if let Some(tape) = self.tape.as_ref().filter(|_| defer) {
            for t in 0..tokens {
                // SAFETY: this block's channels of the tape, which no other worker touches (units have
                // channels of their own); its old rows were read above.
                unsafe { tape.part_mut([t, entry, 0], at, n) }.copy::<H>(x(t));
            }
        }
    }
}

/// y = the sum of rows times weights, in their order.
#[inline(always)]
fn sum<H: Hvx>(terms: &[(Row<'_>, Row<'_>)], y: &mut RowMut<'_>) {
    let n = y.len();
    assert!(terms.iter().all(|(x, w)| x.len() == n && w.len() == n));
    let [(x, w), others @ ..] = terms else { return };
    for v in 0..n / LANES {
        // SAFETY: all rows have the length of y (the assertion above), and so vector `v` whole.
        unsafe {
            let mut sum = H::mul_q(x.full_unchecked::<H>(v), w.full_unchecked::<H>(v));
            for (x, w) in others {
                sum = H::add_q(sum, H::mul_q(x.full_unchecked::<H>(v), w.full_unchecked::<H>(v)));
            }
            y.set_full_unchecked::<H>(v, H::float(sum));
        }
    }
    for v in n / LANES..n.div_ceil(LANES) {
        let mut sum = H::mul_q(x.vector::<H>(v), w.vector::<H>(v));
        for (x, w) in others {
            sum = H::add_q(sum, H::mul_q(x.vector::<H>(v), w.vector::<H>(v)));
        }
        y.set_vector::<H>(v, H::float(sum));
    }
}

#[cfg(test)]
mod tests;
