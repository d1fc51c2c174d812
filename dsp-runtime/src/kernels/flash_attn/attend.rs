//! Attention over the caches: online softmax, tile by tile.

use hexflash_abi::Fault;
use hexflash_abi::op::params::FlashAttn;

use super::format::{Format, Place, Sums, rotate};
use super::tile::SoftmaxRow;
use super::{AttendLayout, MAX_ROWS, TILE, cache_position};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES, math};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span, units};

/// See the module's documentation for the operands.
pub(super) struct Attend<'s> {
    pub q: View,
    /// What keys are multiplied with: q, or y where keys are rotated. There a query waits, rotated, in its
    /// own row of y, which is written when the row is done.
    pub queries: View,
    pub k_cache: View,
    pub v_cache: View,
    pub keys: Format,
    pub values: Format,
    pub mask: Option<View>,
    pub sinks: Option<View>,
    pub y: View,
    pub params: FlashAttn,
    pub causal: bool,
    pub spans: &'s [Span],
    /// Query heads per kv head.
    pub group: usize,
    /// Query rows of a unit, at most. Row r of a kv head is token r / group of its span, head r % group of
    /// the group.
    pub rows: usize,
    pub stage: AttendLayout,
}

/// A block of query rows of a kv head, and the positions that any of them may see.
#[derive(Clone, Copy)]
pub(super) struct Unit<'s> {
    span: &'s Span,
    kv_head: usize,
    pub batch: usize,
    /// Where the caches have the batch of this slot.
    entry: usize,
    /// First row.
    first: usize,
    pub rows: usize,
    pub from: usize,
    pub to: usize,
}

/// A query row: where it comes from, and the positions that it may see.
#[derive(Clone, Copy)]
pub(super) struct Query {
    pub token: usize,
    pub head: usize,
    pub from: usize,
    pub to: usize,
}

/// A worker's VTCM.
#[derive(Clone, Copy)]
pub(super) struct AttendMemory {
    pub slots: [*mut u8; 2],
    /// A tile of K, f32\[d\]\[position\], or of V, f32\[position\]\[value\].
    pub wide: *mut f32,
    /// Per row: maximum, sums, accumulators.
    rows: *mut f32,
}

impl Kernel for Attend<'_> {
    fn units(&self) -> usize {
        units(self.spans, |span| self.units_of_span(span))
    }

    fn work(&self) -> usize {
        // Saturating: a long prefill is more than 32 bits count.
        let tiles = units(self.spans, |span| span.rows.saturating_mul(span.end().div_ceil(TILE)));
        let rows = tiles.saturating_mul(self.y.ne[1] * self.y.ne[3]);
        rows.saturating_mul(2 * (self.q.ne[0] + self.y.ne[0]))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        assert!(self.rows <= MAX_ROWS && worker.own_bytes() >= self.stage.bytes(self.rows));
        let Some(first) = worker.claim() else { return Ok(()) };
        let base = worker.own_vtcm().get();
        let slot = self.stage.slot();
        let wide = base.wrapping_add(2 * slot);
        let rows = wide.wrapping_add(self.stage.wide).cast();
        let places = AttendMemory { slots: [base, base.wrapping_add(slot)], wide: wide.cast(), rows };
        let mut weights = [SoftmaxRow::NONE; MAX_ROWS];

        let mut cursor = Cursor::new(self.spans, |span| self.units_of_span(span));
        let mut unit = self.unit(&mut cursor, first);
        let mut tile = unit.from / TILE;
        let mut slot = 0;
        // SAFETY: slot 0 is in this worker's own VTCM, and nothing uses it yet.
        let mut tickets = unsafe { self.fetch(worker, places.slots[slot], &unit, tile) };
        // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for `self.rows`
        // rows (the assertion above), of which a unit has no more. `claim` gave the unit to this worker
        // alone.
        unsafe { self.clear::<H>(places, &unit) };
        loop {
            // What follows: the unit's next tile, or the first one of another unit.
            let ends = (tile + 1) * TILE >= unit.to;
            let next = if ends { worker.claim().map(|u| self.unit(&mut cursor, u)) } else { Some(unit) };
            let next = next.map(|u| (u, if ends { u.from / TILE } else { tile + 1 }));
            let other = places.slots[slot ^ 1];
            // SAFETY: the other slot is in this worker's own VTCM. If it has held a tile, that was the one
            // before the current one, which has been weighed and accumulated, and its transfers were waited
            // for.
            let coming = next.map(|(unit, tile)| unsafe { self.fetch(worker, other, &unit, tile) });
            worker.dma.wait(tickets[0])?;
            // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
            // `self.rows` rows (the assertion above), of which a unit has no more. The transfer of K to this
            // slot was waited for above.
            unsafe { self.weigh::<H>(places, slot, &unit, tile, &mut weights) };
            worker.dma.wait(tickets[1])?;
            // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
            // `self.rows` rows (the assertion above), of which a unit has no more. The transfer of V to this
            // slot was waited for above.
            unsafe { self.accumulate::<H>(places, slot, &unit, tile, &weights) };
            if ends {
                // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
                // `self.rows` rows (the assertion above), of which a unit has no more. `claim` gave this
                // unit, and with it its rows of y, to this worker alone.
                unsafe { self.finish::<H>(places, &unit) };
            }
            let (Some(after), Some(transfers)) = (next, coming) else { return Ok(()) };
            (unit, tile) = after;
            (tickets, slot) = (transfers, slot ^ 1);
            if ends {
                // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
                // `self.rows` rows (the assertion above), of which a unit has no more. `claim` gave the unit
                // to this worker alone.
                unsafe { self.clear::<H>(places, &unit) };
            }
        }
    }
}

impl<'s> Attend<'s> {
    /// Blocks of rows of a kv head.
    fn blocks(&self, span: &Span) -> usize {
        (span.rows * self.group).div_ceil(self.rows)
    }

    fn units_of_span(&self, span: &Span) -> usize {
        self.blocks(span) * self.k_cache.ne[2] * self.q.ne[3]
    }

    /// Unit number `u`: of a span, late tokens, which see most, come first.
    fn unit(&self, cursor: &mut Cursor<'s>, u: usize) -> Unit<'s> {
        let (span, u) = cursor.seek(u, |span| self.units_of_span(span));
        let (heads, batches) = (self.k_cache.ne[2], self.q.ne[3]);
        let block = self.blocks(span) - 1 - u / (heads * batches);
        let first = block * self.rows;
        let rows = (span.rows * self.group - first).min(self.rows);
        let batch = u / heads % batches;
        let entry = span.entry(batch, batches);
        let unit = Unit { span, kv_head: u % heads, batch, entry, first, rows, from: 0, to: 0 };
        // Both ends of what a token sees grow with the token; every token sees itself.
        let (from, to) = (self.query(&unit, 0).from, self.query(&unit, rows - 1).to);
        Unit { from, to, ..unit }
    }

    /// Row `i` of a unit.
    #[inline(always)]
    pub(super) fn query(&self, unit: &Unit<'_>, i: usize) -> Query {
        let (row, span) = (unit.first + i, unit.span);
        let token = row / self.group;
        let after = span.n_past + token + 1;
        Query {
            token: span.first + token,
            head: unit.kv_head * self.group + row % self.group,
            from: if self.params.window == 0 { 0 } else { after.saturating_sub(self.params.window as usize) },
            to: if self.causal { after } else { span.end() },
        }
    }

    /// Starts to bring a tile of K, and at least those rows of V in it that the unit may see.
    ///
    /// # Safety
    /// `slot` is a slot of the worker's VTCM that is left alone until the tickets have been waited for.
    #[inline(always)]
    unsafe fn fetch(
        &self,
        worker: &mut Worker<'_>,
        slot: *mut u8,
        unit: &Unit<'_>,
        tile: usize,
    ) -> [Ticket; 2] {
        let (start, n) = (tile * TILE, self.v_cache.ne[1]);
        let strip = self.k_cache.at([cache_position(start, n) / TILE, unit.kv_head, unit.entry]);
        // SAFETY: `at` has checked the indices, so `strip` is a strip of the cache, of which its format
        // stages no more than there is. It fits the slot, which is left alone until the ticket has been
        // waited for (the caller's contract) and is not in the cache. Nobody writes the caches during this
        // kernel.
        let k = unsafe { worker.dma.push(Transfer::linear(strip, slot, self.stage.k_tile)) };
        let (from, to) = (unit.from.max(start), unit.to.min(start + TILE));
        let position = cache_position(from, n);
        let place = Place { cache: &self.v_cache, position, head: unit.kv_head, entry: unit.entry };
        let transfer =
            self.values.transfer_values(place, position + (to - from), slot.wrapping_add(self.stage.k_tile));
        // SAFETY: the rows from `position` on, `to - from` of them, are readable: the place was checked when
        // its address was made. If the cache holds the whole context, `to` is at most the span's end, which
        // the registers keep within the context. A KV ring has whole tiles (the shape rule), and these rows
        // are of one tile.
        // The 32 places for values in the slot are left alone until the ticket has been waited for (the
        // caller's contract) and are not in the cache. Nobody writes the caches during this kernel.
        [k, unsafe { worker.dma.push(transfer) }]
    }

    /// State of row `i`: the maximum, then the sums, then the accumulators.
    #[inline(always)]
    pub(super) fn state(&self, places: AttendMemory, i: usize) -> *mut f32 {
        places.rows.wrapping_add(i * self.stage.row / 4)
    }

    /// Starts the unit's rows: nothing seen, and queries rotated where keys are.
    ///
    /// # Safety
    /// 1. The places are the worker's own and have room for the unit's rows.
    /// 2. This worker alone has claimed the unit.
    #[inline(always)]
    unsafe fn clear<H: Hvx>(&self, places: AttendMemory, unit: &Unit<'_>) {
        for i in 0..unit.rows {
            let state = self.state(places, i);
            // SAFETY: the state of each of the unit's rows has `2 + v_vectors` vectors in the worker's own
            // places (the caller's contract, point 1).
            unsafe {
                H::store(state, H::splat(f32::NEG_INFINITY));
                for v in 1..2 + self.stage.v_vectors {
                    H::store(state.add(v * LANES), H::splat(0.0));
                }
            }
        }
        if self.keys.rotates() {
            for i in 0..unit.rows {
                let query = self.query(unit, i);
                let at = [query.head, query.token, unit.batch];
                let q = self.q.row(at);
                // SAFETY: this worker alone has claimed the unit, and with it this row of y (the caller's
                // contract, point 2). Rotated rows are whole vectors and not longer than those of y (the
                // shape rule).
                unsafe {
                    let mut waiting = self.y.part_mut(at, 0, q.len());
                    waiting.copy::<H>(q);
                    rotate::<H>(waiting.as_mut_ptr(), q.len());
                }
            }
        }
    }

    /// Divides the unit's rows by their sums, sinks included, and writes them.
    ///
    /// # Safety
    /// 1. The places are the worker's own and have room for the unit's rows.
    /// 2. This worker alone has claimed the unit.
    #[inline(always)]
    unsafe fn finish<H: Hvx>(&self, places: AttendMemory, unit: &Unit<'_>) {
        for i in 0..unit.rows {
            let (query, state) = (self.query(unit, i), self.state(places, i));
            // SAFETY: the state of row `i` of the unit begins with two vectors, the maximum and the sums, in
            // the worker's own places (the caller's contract, point 1).
            let (highest, sums) = unsafe { (H::load(state), H::load(state.add(LANES))) };
            let sum = H::splat(H::sum(sums));
            let top = H::max_lane(highest);
            if top == f32::INFINITY {
                // A score was not finite. Where there is NaN the sum is NaN by now; where there is none it is
                // a number.
                // SAFETY: this worker alone has claimed the unit, and with it this row of y (the caller's
                // contract, point 2).
                let mut y = unsafe { self.y.row_mut([query.head, query.token, unit.batch]) };
                for j in 0..y.len() {
                    y.set(j, f32::NAN);
                }
                continue;
            }
            let factor = if top == f32::NEG_INFINITY {
                // Nothing seen: the accumulators are zero.
                H::splat(0.0)
            } else if let Some(sinks) = &self.sinks {
                let sink = H::splat(sinks.row([0; 3]).get(query.head));
                let top = H::max(sink, highest);
                let shrink = math::exp::<H>(H::sub(highest, top));
                H::div(shrink, H::add(H::mul(sum, shrink), math::exp::<H>(H::sub(sink, top))))
            } else {
                H::div(H::splat(1.0), sum)
            };
            // SAFETY: this worker alone has claimed the unit, and with it this row of y (the caller's
            // contract, point 2).
            let mut y = unsafe { self.y.row_mut([query.head, query.token, unit.batch]) };
            let sums = Sums { first: state.wrapping_add(2 * LANES), vectors: self.stage.v_vectors };
            // SAFETY: behind the maximum and the sums, the state of row `i` has `v_vectors` vectors of
            // accumulators in the worker's own places (the caller's contract, point 1), as many as a value of
            // the length of y has. They are cleared before the next unit.
            unsafe { self.values.finish::<H>(sums, factor, &mut y) };
        }
    }
}
