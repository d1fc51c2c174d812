//! SSM_CONV: a causal convolution per channel, over a ring of past rows, and SILU of it if wanted.
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
//! With `silu` = 1, y is SILU of that, to the bit as the op of that name has it: the sums are in registers,
//! and need not be written and read again.
//!
//! A unit is a block of channels of one batch of a span: it has read its channels' history before it
//! overwrites any of it, and no other unit touches them. Weights and history go through VTCM, x and y are
//! streamed.

use core::array;

use hexflash_abi::op::{params, ssm_conv as abi};
use hexflash_abi::{Fault, VECTOR_BYTES};

use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES, math};
use crate::kernels::shared::pieces::{SIDE, side_by_side};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::plan::OpShapes;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};
use crate::step::{Cursor, Span};
use crate::vtcm::VtcmPlan;

/// Fewest vectors of channels in a unit: rows of two kilobytes are a decent transfer.
const LEAST_VECTORS: usize = 16;
/// Most of them: what it takes to claim and to stage a unit is then little.
const MOST_VECTORS: usize = 48;
/// Bytes of a slot for weights and history, unless the fewest vectors take more.
const SLOT: usize = 48 << 10;
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
    /// SILU of the sums.
    silu: bool,
    /// Channels of a unit but the last.
    block: usize,
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
    /// The row of the ring that position `n_past` belongs in.
    now: usize,
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
    let params::SsmConv { defer, silu } = run.params();
    let (defer, silu) = (defer != 0, silu != 0);
    run.step.check_tapes(tape.map_or(0, |tape| tape.ne[1]), defer)?;
    let mut only = None;
    let spans = run.step.spans_over(y.ne[1], &mut only);
    let wanted = 2 * run.pool.workers();
    let block = block_vectors(w.ne[1], y.ne[0], run.pool.workers()) * LANES;
    let mut kernel = SsmConv { x, w, ring, y, tape, spans, defer, silu, block, ahead: false };
    kernel.ahead = kernel.units() >= wanted;
    run.pool.run(&kernel, run.plan.vtcm)
}

/// Two slots per worker of K rows of weights and K - 1 of history.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let [channels, taps] =
        shapes.optional(abi::W).map_or([1; 2], |(w, _)| [w.ne[0], w.ne[1]]).map(|n| n as usize);
    let vectors = block_vectors(taps, channels, shapes.resources.workers);
    VtcmPlan::new(2 * staged_rows(taps) * vectors * VECTOR_BYTES)
}

/// Rows that a slot holds.
const fn staged_rows(taps: usize) -> usize {
    2 * taps - 1
}

/// Vectors of channels in a unit. Of a row there are two units for each worker, if they are no smaller than
/// is worth it: while it computes one, the rows of the other come.
fn block_vectors(taps: usize, channels: usize, workers: usize) -> usize {
    let wanted = channels.div_ceil(LANES).div_ceil(2 * workers).next_multiple_of(SIDE);
    let fit = (SLOT / (staged_rows(taps) * VECTOR_BYTES)).min(MOST_VECTORS);
    wanted.min(fit).max(LEAST_VECTORS)
}

impl Kernel for SsmConv<'_> {
    fn units(&self) -> usize {
        self.spans.len() * self.units_of_span()
    }

    fn work(&self) -> usize {
        // A row and a tap of weights per tap, the result and the ring, an exponential and a division; to
        // claim and to stage a unit takes as long as some more vectors.
        let vector = 2 * self.w.ne[1] + 4 + if self.silu { 22 } else { 0 };
        let row = self.y.ne[2] * self.y.ne[0].div_ceil(LANES) * vector;
        row.saturating_mul(self.y.ne[1]).saturating_add(256 * self.units())
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let slot_bytes = staged_rows(self.w.ne[1]) * self.row_bytes();
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
    /// Bytes of a staged row.
    #[inline(always)]
    fn row_bytes(&self) -> usize {
        self.block * size_of::<f32>()
    }

    /// Blocks of a row.
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.y.ne[0].div_ceil(self.block)
    }

    #[inline(always)]
    fn units_of_span(&self) -> usize {
        self.blocks() * self.y.ne[2]
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
        let (blocks, taps) = (self.blocks(), self.w.ne[1]);
        // Without a division, which is a function call on a DSP.
        let (batch, number) = if unit < blocks { (0, unit) } else { (unit / blocks, unit % blocks) };
        let at = number * self.block;
        let entry = span.entry(batch, self.y.ne[2]);
        let n = (self.y.ne[0] - at).min(self.block);
        let rows = |src: *const u8, to_row: usize, rows: usize, stride: usize| Transfer {
            src: src.wrapping_add(at * 4),
            dst: stage.wrapping_add(to_row * self.row_bytes()),
            row_bytes: n * 4,
            rows,
            src_stride: stride,
            dst_stride: self.row_bytes(),
        };
        // Rows of history that exist; the older ones are zero.
        let known = (taps - 1).min(span.n_past);
        let mut tickets = [None; 4];
        // SAFETY: K rows of n channels lie inside w, which nobody writes, and the slot has K rows for them,
        // which nobody uses until the tickets have been waited for (the caller's contract).
        tickets[0] = Some(unsafe { worker.dma.push(rows(self.w.at([0; 3]), 0, taps, self.w.nb[1])) });
        for row in taps..staged_rows(taps) - known {
            for v in 0..self.block / LANES {
                // SAFETY: rows K to `2 * K - 2 - known` of the slot are this worker's own (the caller's
                // contract), and no transfer writes them: the history comes to the rows after these.
                unsafe {
                    H::store(stage.add(row * self.row_bytes() + v * VECTOR_BYTES).cast(), H::splat(0.0))
                };
            }
        }
        let to = staged_rows(taps) - known;
        // Rows are counted on from here: a division is a function call.
        let (now, size) = (span.n_past % self.ring.ne[1], self.ring.ne[1]);
        // The last of them may still be on the tape.
        let (taped, kept) = (known.min(span.n_commit), known - known.min(span.n_commit));
        if kept > 0 {
            // `known` < K <= R.
            let oldest = if now >= known { now - known } else { now + size - known };
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
        Some(ChannelRange { span, batch, at, n, now, stage, tickets })
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
        let &ChannelRange { span, batch, at, n, now, stage, .. } = block;
        let entry = span.entry(batch, self.y.ne[2]);
        let Span { first: first_row, rows: tokens, n_past, n_commit, .. } = *span;
        let defer = span.defers(self.defer);
        let taps = self.w.ne[1];
        // SAFETY: row `r` of the slot is staged (the caller's contract, point 1), and of its floats the first
        // `n` are used, because `n` is at most `self.block`.
        let staged = |r: usize| unsafe { Row::new(stage.add(r * self.row_bytes()).cast(), n) };
        let x = |t: usize| self.x.row([first_row + t, batch, 0]).part(at, n);
        // Row `r` of the history followed by x.
        let row = |r: usize| if r < taps - 1 { staged(taps + r) } else { x(r - (taps - 1)) };
        // SAFETY: channels `at..at + n` of y are this block's, and no other worker touches them (the caller's
        // contract, point 2). Each token has a row of its own.
        let y = |t: usize| unsafe { self.y.part_mut([first_row + t, batch, 0], at, n) };
        // Models have three taps or four.
        let four = |t: usize| {
            let to = array::from_fn(|i| y(t + i));
            match taps {
                3 => four_tokens::<H, 3, 6>(
                    array::from_fn(|r| row(t + r)),
                    array::from_fn(staged),
                    self.silu,
                    to,
                ),
                4 => four_tokens::<H, 4, 7>(
                    array::from_fn(|r| row(t + r)),
                    array::from_fn(staged),
                    self.silu,
                    to,
                ),
                _ => false,
            }
        };
        let mut done = 0;
        while !H::COSTLY_FLOATS && tokens - done >= SIDE && four(done) {
            done += SIDE;
        }
        for t in done..tokens {
            let (row, mut y) = (|j| row(t + j), y(t));
            let done = match taps {
                3 => aligned::<H, 3>(array::from_fn(row), array::from_fn(staged), self.silu, &mut y),
                4 => aligned::<H, 4>(array::from_fn(row), array::from_fn(staged), self.silu, &mut y),
                _ => false,
            };
            if !done {
                let (mut x, mut w) = ([row(0); MAX_TAPS], [staged(0); MAX_TAPS]);
                for j in 1..taps {
                    (x[j], w[j]) = (row(j), staged(j));
                }
                any::<H>(&x[..taps], &w[..taps], self.silu, &mut y);
            }
        }
        let size = self.ring.ne[1];
        let into_ring = |row: usize, from: Row<'_>| {
            // SAFETY: channels `at..at + n` of the ring are this block's, and no other worker touches them
            // (the caller's contract, point 2).
            let mut ring = unsafe { self.ring.part_mut([row, entry, 0], at, n) };
            ring.copy::<H>(from);
        };
        let after = |row: usize| if row + 1 < size { row + 1 } else { 0 };
        // What the ring holds at the end are the rows of the last R positions before this one.
        let end = n_past + if defer { 0 } else { tokens };
        if let Some(tape) = &self.tape {
            let first = n_past - n_commit;
            let oldest = first.max(end.saturating_sub(size)).min(n_past);
            // `n_past - oldest` is at most R, where `oldest` was not cut to `n_past`.
            let back = n_past - oldest;
            let mut row = if now >= back { now - back } else { now + size - back };
            for position in oldest..n_past {
                into_ring(row, tape.row([position - first, entry, 0]).part(at, n));
                row = after(row);
            }
        }
        // Of more tokens than the ring has rows the last ones.
        let skipped = (end - n_past).saturating_sub(size);
        let mut row = if skipped == 0 { now } else { (now + skipped) % size };
        for t in skipped..end - n_past {
            into_ring(row, x(t));
            row = after(row);
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

/// The sums of four tokens, of rows that are whole vectors; otherwise nothing is done, and it gives false.
/// `x` are the rows of all four: each is loaded once, and what it takes to begin with rows is taken once.
#[inline(always)]
fn four_tokens<H: Hvx, const K: usize, const R: usize>(
    x: [Row<'_>; R],
    w: [Row<'_>; K],
    silu: bool,
    mut y: [RowMut<'_>; SIDE],
) -> bool {
    const { assert!(R == K + SIDE - 1) };
    if !x[0].len().is_multiple_of(LANES) {
        return false;
    }
    let (Some(x), Some(w)) = (Row::all_aligned(x), Row::all_aligned(w)) else { return false };
    let [Some(y0), Some(y1), Some(y2), Some(y3)] = y.each_mut().map(RowMut::aligned) else { return false };
    let mut y = [y0, y1, y2, y3];
    if silu {
        sums_of_four::<H, K, R, true>(&x, &w, &mut y);
    } else {
        sums_of_four::<H, K, R, false>(&x, &w, &mut y);
    }
    true
}

/// [`sums`] of four tokens, of whole vectors.
#[inline(always)]
fn sums_of_four<H: Hvx, const K: usize, const R: usize, const SILU: bool>(
    x: &[Row<'_, true>; R],
    w: &[Row<'_, true>; K],
    y: &mut [RowMut<'_, true>; SIDE],
) {
    let n = x[0].len();
    assert!(x.iter().chain(w).all(|row| row.len() == n) && y.iter().all(|row| row.len() == n));
    // Loops, because `map` of an array would be a function of its own.
    for v in 0..n / LANES {
        let (mut rows, mut weights) = ([H::splat(0.0); R], [H::splat(0.0); K]);
        for (to, row) in rows.iter_mut().zip(x) {
            // SAFETY: the row has vector `v` whole, which is below the whole vectors of its length, by the
            // assertion above.
            *to = unsafe { row.full_unchecked::<H>(v) };
        }
        for (to, row) in weights.iter_mut().zip(w) {
            // SAFETY: the row has vector `v` whole, which is below the whole vectors of its length, by the
            // assertion above.
            *to = unsafe { row.full_unchecked::<H>(v) };
        }
        let mut results = [H::splat(0.0); SIDE];
        for (i, to) in results.iter_mut().enumerate() {
            let mut sum = H::mul_q(rows[i], weights[0]);
            for j in 1..K {
                sum = H::add_q(sum, H::mul_q(rows[i + j], weights[j]));
            }
            *to = H::float(sum);
        }
        for result in &mut results {
            *result = self::result::<H, SILU>(*result);
        }
        for (y, result) in y.iter_mut().zip(results) {
            // SAFETY: the row has vector `v` whole, which is below the whole vectors of its length, by the
            // assertion above.
            unsafe { y.set_full_unchecked::<H>(v, result) };
        }
    }
}

/// [`sums`] of rows that start at whole vectors; otherwise nothing is done, and it gives false.
#[inline(always)]
fn aligned<H: Hvx, const K: usize>(x: [Row<'_>; K], w: [Row<'_>; K], silu: bool, y: &mut RowMut<'_>) -> bool {
    let (Some(x), Some(w), Some(mut y)) = (Row::all_aligned(x), Row::all_aligned(w), y.aligned()) else {
        return false;
    };
    either::<H, true>(&x, &w, silu, &mut y);
    true
}

/// [`sums`] of any number of rows, anywhere. A function of its own, as its loops are others.
#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
fn any<H: Hvx>(x: &[Row<'_>], w: &[Row<'_>], silu: bool, y: &mut RowMut<'_>) {
    either::<H, false>(x, w, silu, y);
}

/// [`sums`] with what is known when the op runs.
#[inline(always)]
fn either<H: Hvx, const A: bool>(x: &[Row<'_, A>], w: &[Row<'_, A>], silu: bool, y: &mut RowMut<'_, A>) {
    if silu {
        sums::<H, A, true>(x, w, y);
    } else {
        sums::<H, A, false>(x, w, y);
    }
}

/// y = the sum of rows times weights, in their order, or SILU of it.
#[inline(always)]
fn sums<H: Hvx, const A: bool, const SILU: bool>(x: &[Row<'_, A>], w: &[Row<'_, A>], y: &mut RowMut<'_, A>) {
    let n = y.len();
    assert!(x.len() == w.len() && x.iter().chain(w).all(|row| row.len() == n));
    // What is costly is written once, at the end.
    let whole = if H::COSTLY_FLOATS { 0 } else { n / LANES };
    let mut done = 0;
    if A && side_by_side::<H>() {
        done = whole / SIDE * SIDE;
        for v in (0..done).step_by(SIDE) {
            // SAFETY: `v` is a multiple of SIDE below `whole` rounded down to one, so y has the SIDE vectors
            // from `v` on whole, and so have the others, which have its length (the assertion above).
            unsafe {
                let mut four = sums_at::<H, A, SIDE>(x, w, v);
                for sum in &mut four {
                    *sum = result::<H, SILU>(*sum);
                }
                for (i, result) in four.into_iter().enumerate() {
                    y.set_full_unchecked::<H>(v + i, result);
                }
            }
        }
    }
    for v in done..whole {
        // SAFETY: y has vector `v`, which is below `whole`, and so have the others, which have its length
        // (the assertion above).
        unsafe {
            let [sum] = sums_at::<H, A, 1>(x, w, v);
            y.set_full_unchecked::<H>(v, result::<H, SILU>(sum));
        }
    }
    for v in whole..n.div_ceil(LANES) {
        let mut sum = H::zero_q();
        for (j, (x, w)) in x.iter().zip(w).enumerate() {
            let product = H::mul_q(x.vector::<H>(v), w.vector::<H>(v));
            sum = if j == 0 { product } else { H::add_q(sum, product) };
        }
        y.set_vector::<H>(v, result::<H, SILU>(H::float(sum)));
    }
}

/// The sums of vectors `v` to `v + N - 1`.
///
/// # Safety
/// All rows have these vectors whole.
#[inline(always)]
unsafe fn sums_at<H: Hvx, const A: bool, const N: usize>(
    x: &[Row<'_, A>],
    w: &[Row<'_, A>],
    v: usize,
) -> [H::F; N] {
    let mut sums = [H::splat(0.0); N];
    for (i, to) in sums.iter_mut().enumerate() {
        let mut sum = H::zero_q();
        for (j, (x, w)) in x.iter().zip(w).enumerate() {
            // SAFETY: `i` is below N, so the rows have vector `v + i` whole (the caller's contract).
            let (x, w) = unsafe { (x.full_unchecked::<H>(v + i), w.full_unchecked::<H>(v + i)) };
            let product = H::mul_q(x, w);
            sum = if j == 0 { product } else { H::add_q(sum, product) };
        }
        *to = H::float(sum);
    }
    sums
}

/// A sum, or SILU of it.
#[inline(always)]
fn result<H: Hvx, const SILU: bool>(sum: H::F) -> H::F {
    if SILU { math::silu::<H>(sum) } else { sum }
}

#[cfg(test)]
mod tests;
