//! Attention over the caches: online softmax, tile by tile.

use core::ops::Range;

use hexflash_abi::{Fault, VECTOR_BYTES};

use super::attention::{Attention, Query};
use super::format::{Axis, CachePlace, Format};
use super::known::{Anything, Known, PlainF16, PlainQ4R};
use super::plan::AttendLayout;
use super::positions::{TILE, cache_position};
use super::query::Prepared;
use super::split::Found;
use super::state::{self, LARGEST_WEIGHT};
use super::tile::{MaskTile, Seen};
use super::tuning::{MAX_ROWS, SPLIT};
use crate::dma::Ticket;
use crate::hvx::{Hvx, VectorPtr};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span, units};

/// Attention, shared out.
pub(super) struct Attend<'s> {
    pub of: Attention,
    pub spans: &'s [Span],
    /// Query heads per kv head.
    pub group: usize,
    /// Query rows of a unit, at most. Row r of a kv head is token r / group of its span, head r % group of
    /// the group.
    pub rows: usize,
    pub stage: AttendLayout,
    /// If a unit is one split of the keys: how many any row has, at most. What units find is left in the
    /// shared part of VTCM. (If not, a unit is all splits, and writes its rows of y.)
    pub splits: Option<usize>,
}

/// A block of query rows of a kv head, and the positions that any of them may see.
#[derive(Clone, Copy)]
pub(super) struct QueryUnit<'s> {
    span: &'s Span,
    pub kv_head: usize,
    pub batch: usize,
    /// Where the caches have the batch of this slot.
    entry: usize,
    /// The split, if it is one of those of its span.
    split: usize,
    /// First row.
    pub first: usize,
    pub rows: usize,
    pub from: usize,
    pub to: usize,
}

/// A row of a unit. All rows are copies of [`NONE`](Self::NONE) at first: a copy takes 32 packets more where
/// that does not lie at a multiple of 8.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(super) struct QueryRow {
    pub query: Query,
    pub prepared: Prepared,
    /// The part of the tile at hand that the row sees.
    pub seen: Seen,
}

impl QueryRow {
    const NONE: Self =
        Self { query: Query { token: 0, head: 0, from: 0, to: 0 }, prepared: Prepared::NONE, seen: (0, 0) };
}

/// Rows of a unit, and room for more. They are worked out once for all tiles.
pub(super) type QueryRows = [QueryRow; MAX_ROWS];

/// Additions to the scores of each row for a step along the axis of rotated keys. They are apart from the
/// rows, which are found with a shift because they take 32 bytes.
pub(super) type Steps = [f32; MAX_ROWS];

/// A worker's VTCM.
#[derive(Clone, Copy)]
pub(super) struct AttendMemory {
    pub slots: [VectorPtr; 2],
    /// A tile of K as f32\[d\]\[position\], or in f16, whose pairs of dimensions share a word; or a tile of V
    /// as f32\[position\]\[value\].
    pub wide: VectorPtr,
    /// Per row: maximum, sums, accumulators.
    states: VectorPtr,
}

impl Kernel for Attend<'_> {
    fn units(&self) -> usize {
        units(self.spans, |span| self.units_of_span(span))
    }

    fn work(&self) -> usize {
        // Saturating: a long prefill is more than 32 bits count.
        let tiles = units(self.spans, |span| span.rows.saturating_mul(self.of.end(span).div_ceil(TILE)));
        let rows = tiles.saturating_mul(self.of.y.ne[1] * self.of.y.ne[3]);
        rows.saturating_mul(2 * (self.of.q.ne[0] + self.of.y.ne[0]))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        // Back ends that widen all numbers first gain nothing from functions for single formats.
        if !H::CHEAP_WIDENING || self.of.mask.is_some() || self.of.params.softcap > 0.0 {
            return self.tiles::<H, Anything>(worker);
        }
        match (self.of.keys, self.of.values) {
            (Format::F16 { rows: false }, Format::F16 { rows: false }) => self.tiles::<H, PlainF16>(worker),
            (Format::Q4R, Format::Q4R) => self.tiles::<H, PlainQ4R>(worker),
            _ => self.tiles::<H, Anything>(worker),
        }
    }
}

impl<'s> Attend<'s> {
    /// The format of keys.
    #[inline(always)]
    pub(super) fn keys<C: Known>(&self) -> Format {
        C::FORMAT.unwrap_or(self.of.keys)
    }

    /// The format of values.
    #[inline(always)]
    pub(super) fn values<C: Known>(&self) -> Format {
        C::FORMAT.unwrap_or(self.of.values)
    }

    /// The mask, if there is one.
    #[inline(always)]
    pub(super) fn mask<C: Known>(&self) -> Option<&View> {
        if C::PLAIN { None } else { self.of.mask.as_ref() }
    }

    /// Claims units and does them, tile by tile.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn tiles<H: Hvx, C: Known>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        assert!(self.rows <= MAX_ROWS && worker.own_bytes() >= self.stage.bytes(self.rows));
        let Some(first) = worker.claim() else { return Ok(()) };
        let base = worker.own_vtcm();
        let slot = self.stage.slot() / VECTOR_BYTES;
        let wide = base.skip(2 * slot);
        let states = wide.skip(self.stage.wide / VECTOR_BYTES);
        let places = AttendMemory { slots: [base, base.skip(slot)], wide, states };
        let (mut rows, mut steps, mut mask) = ([QueryRow::NONE; MAX_ROWS], [0.0; MAX_ROWS], MaskTile::NONE);

        let mut cursor = Cursor::new(self.spans, |span| self.units_of_span(span));
        let mut unit = self.unit(&mut cursor, first);
        // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for `self.rows`
        // rows (the assertion above), of which a unit has no more.
        unsafe { self.list::<H, C>(places, &unit, &mut rows, &mut steps) };
        let mut tile = unit.from / TILE;
        let mut slot = 0;
        // SAFETY: slot 0 is in this worker's own VTCM, and nothing uses it yet.
        let mut tickets = unsafe { self.fetch::<C>(worker, places.slots[slot], &unit, tile) };
        // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for `self.rows`
        // rows (the assertion above), of which a unit has no more.
        unsafe { self.clear::<H>(places, &unit, true) };
        loop {
            // What follows: the unit's next tile, or the first one of another unit.
            let ends = (tile + 1) * TILE >= unit.to;
            let next = if ends { worker.claim().map(|u| self.unit(&mut cursor, u)) } else { Some(unit) };
            let next = next.map(|u| (u, if ends { u.from / TILE } else { tile + 1 }));
            let other = places.slots[slot ^ 1];
            // SAFETY: the other slot is in this worker's own VTCM. If it has held a tile, that was the one
            // before the current one, which has been weighed and accumulated, and its transfers were waited
            // for.
            let coming = next.map(|(unit, tile)| unsafe { self.fetch::<C>(worker, other, &unit, tile) });
            worker.dma.wait(tickets[0])?;
            // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
            // `self.rows` rows (the assertion above), of which a unit has no more. The transfer of K to this
            // slot was waited for above.
            unsafe { self.weigh::<H, C>(places, slot, &unit, tile, &mut rows, &steps, &mut mask) };
            worker.dma.wait(tickets[1])?;
            // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
            // `self.rows` rows (the assertion above), of which a unit has no more. The transfer of V to this
            // slot was waited for above.
            unsafe { self.accumulate::<H, C>(places, slot, &unit, tile, &rows, &mask) };
            let split_ends = ends || ((tile + 1) * TILE).is_multiple_of(SPLIT);
            if split_ends {
                // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
                // `self.rows` rows (the assertion above), of which a unit has no more. `claim` gave this
                // unit, and with it its rows of y or its places for what it finds, to this worker alone.
                unsafe { self.close_split::<H>(worker, places, &unit, &rows, ends) };
            }
            let (Some(after), Some(transfers)) = (next, coming) else { return Ok(()) };
            (unit, tile) = after;
            if ends {
                // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
                // `self.rows` rows (the assertion above), of which a unit has no more.
                unsafe { self.list::<H, C>(places, &unit, &mut rows, &mut steps) };
            }
            (tickets, slot) = (transfers, slot ^ 1);
            if split_ends {
                // SAFETY: the places are this worker's own VTCM, laid out by `AttendLayout` with room for
                // `self.rows` rows (the assertion above), of which a unit has no more.
                unsafe { self.clear::<H>(places, &unit, ends) };
            }
        }
    }

    /// Blocks of rows of a kv head.
    fn blocks(&self, span: &Span) -> usize {
        (span.rows * self.group).div_ceil(self.rows)
    }

    fn units_of_span(&self, span: &Span) -> usize {
        let splits = if self.splits.is_some() { self.splits_of(span).len() } else { 1 };
        self.blocks(span) * self.of.k_cache.ne[2] * self.of.q.ne[3] * splits
    }

    /// Unit number `u`: of a span, late tokens, which see most, come first.
    fn unit(&self, cursor: &mut Cursor<'s>, u: usize) -> QueryUnit<'s> {
        let (span, u) = cursor.seek(u, |span| self.units_of_span(span));
        let (heads, batches, blocks) = (self.of.k_cache.ne[2], self.of.q.ne[3], self.blocks(span));
        let (split, u) = (u / (heads * batches * blocks), u % (heads * batches * blocks));
        let block = blocks - 1 - u / (heads * batches);
        let first = block * self.rows;
        let rows = (span.rows * self.group - first).min(self.rows);
        let batch = u / heads % batches;
        let entry = span.entry(batch, batches);
        let unit = QueryUnit { span, kv_head: u % heads, batch, entry, split, first, rows, from: 0, to: 0 };
        // Both ends of what a token sees grow with the token.
        let (from, to) = (self.query(&unit, 0).from, self.query(&unit, rows - 1).to);
        // Where all sees nothing, a position is staged that nobody looks at.
        let to = to.max(1);
        let from = from.min(to - 1);
        if self.splits.is_none() {
            return QueryUnit { from, to, ..unit };
        }
        let start = (self.splits_of(span).start + split) * SPLIT;
        QueryUnit { from: from.max(start), to: to.min(start + SPLIT), ..unit }
    }

    /// Row `i` of a unit.
    fn query(&self, unit: &QueryUnit<'_>, i: usize) -> Query {
        let row = unit.first + i;
        self.of.query(unit.span, row / self.group, unit.kv_head * self.group + row % self.group)
    }

    /// Lists the rows of a unit, and prepares their queries.
    ///
    /// # Safety
    /// The places are the worker's own and have room for the unit's rows.
    #[inline(always)]
    unsafe fn list<H: Hvx, C: Known>(
        &self,
        places: AttendMemory,
        unit: &QueryUnit<'_>,
        rows: &mut QueryRows,
        steps: &mut Steps,
    ) {
        let mut query = self.query(unit, 0);
        let axis = self.axis::<C>(unit);
        for (i, row) in rows[..unit.rows].iter_mut().enumerate() {
            let q = self.of.queries.row([query.head, query.token, unit.batch]).part(0, self.of.q.ne[0]);
            // SAFETY: the row is the unit's, so its state lies in the worker's own places (the caller's
            // contract), with a vector per 32 dimensions there (`AttendLayout::row`).
            let prepared = unsafe {
                let as_halves = self.keys::<C>().has_halves_of_keys::<H>(q.len());
                Prepared::of::<H>(q, as_halves, self.place_of_query(places, i))
            };
            *row = QueryRow { query, prepared, seen: (0, 0) };
            if let Some(axis) = axis {
                // SAFETY: the axis is of keys as long as queries (the shape rule), and nobody writes the
                // caches during this kernel.
                steps[i] = prepared.up().map_or(0.0, |up| unsafe { axis.step_of::<H>(q, up) });
            }
            query = self.of.after(unit.span, unit.kv_head, self.group, &query);
        }
    }

    /// The axis of the unit's keys, if any that it sees has steps along one.
    #[inline(always)]
    fn axis<C: Known>(&self, unit: &QueryUnit<'_>) -> Option<Axis<'_>> {
        if !self.keys::<C>().rotates() || self.of.params.window > 0 {
            return None;
        }
        let (cache, position) = (&self.of.k_cache, unit.to - 1);
        Axis::of(CachePlace { cache, position, head: unit.kv_head, entry: unit.entry })
    }

    /// Where row `i` has its query as products read it.
    #[inline(always)]
    pub(super) fn place_of_query(&self, places: AttendMemory, i: usize) -> VectorPtr {
        self.state(places, i, self.stage.query)
    }

    /// Starts to bring at least those keys and values of a tile that the unit may see.
    ///
    /// # Safety
    /// `slot` is a slot of the worker's VTCM that is left alone until the tickets have been waited for.
    #[inline(always)]
    unsafe fn fetch<C: Known>(
        &self,
        worker: &mut Worker<'_>,
        slot: VectorPtr,
        unit: &QueryUnit<'_>,
        tile: usize,
    ) -> [Ticket; 2] {
        let (start, n) = (tile * TILE, self.of.v_cache.ne[1]);
        let (from, to) = (unit.from.max(start), unit.to.min(start + TILE));
        let position = cache_position(from, n);
        let end = position + (to - from);
        let place = |cache| CachePlace { cache, position, head: unit.kv_head, entry: unit.entry };
        let keys = self.keys::<C>().transfer_keys(place(&self.of.k_cache), end, slot.get());
        let values = self.stage.values(slot).get();
        let values = self.values::<C>().transfer_values(place(&self.of.v_cache), end, values);
        // SAFETY: of strips, the place was checked when its address was made, and their format stages no more
        // than there is. Of rows, those from `position` on, `to - from` of them, are readable, as explained
        // for values below: there are as many keys. They fit the slot, which is left alone until the ticket
        // has been waited for (the caller's contract) and is not in the cache. Nobody writes the caches
        // during this kernel.
        let k = unsafe { worker.dma.push(keys) };
        // SAFETY: the rows from `position` on, `to - from` of them, are readable: the place was checked when
        // its address was made. If the cache holds the whole context, `to` is at most the span's end, which
        // the registers keep within the context. A KV ring has whole tiles (the shape rule), and these rows
        // are of one tile.
        // In ATTEND `to` is at most the number of rows (`Band::of_query`).
        // The 32 places for values in the slot are left alone until the ticket has been waited for (the
        // caller's contract) and are not in the cache. Nobody writes the caches during this kernel.
        [k, unsafe { worker.dma.push(values) }]
    }

    /// Vector `part` of the state of row `i`: see [`state`].
    #[inline(always)]
    pub(super) fn state(&self, places: AttendMemory, i: usize, part: usize) -> VectorPtr {
        places.states.skip(i * (self.stage.row / VECTOR_BYTES) + part)
    }

    /// Highest score and sums of the split at hand, for row `i`.
    #[inline(always)]
    fn found(&self, places: AttendMemory, i: usize) -> Found {
        Found { first: self.state(places, i, state::FOUND), v_vectors: self.stage.v_vectors }
    }

    /// Highest score and sums of all splits so far, for row `i`.
    #[inline(always)]
    fn total(&self, places: AttendMemory, i: usize) -> Found {
        self.found(places, i).next()
    }

    /// Nothing found yet in the next split; and if the unit is new, in any.
    ///
    /// # Safety
    /// The places are the worker's own and have room for the unit's rows.
    #[inline(always)]
    unsafe fn clear<H: Hvx>(&self, places: AttendMemory, unit: &QueryUnit<'_>, new: bool) {
        for i in 0..unit.rows {
            // SAFETY: the state of each of the unit's rows lies in the worker's own places (the caller's
            // contract), with room for both (`AttendLayout::row`).
            unsafe {
                self.found(places, i).clear::<H>();
                if new {
                    self.total(places, i).clear::<H>();
                }
            }
        }
    }

    /// Adds what was found in a split to that of the unit's other splits, and writes the result if it was the
    /// last; or leaves it for [`PutTogether`](super::split::PutTogether).
    ///
    /// # Safety
    /// 1. The places are the worker's own and have room for the unit's rows.
    /// 2. This worker alone has claimed the unit.
    #[inline(always)]
    unsafe fn close_split<H: Hvx>(
        &self,
        worker: &Worker<'_>,
        places: AttendMemory,
        unit: &QueryUnit<'_>,
        rows: &QueryRows,
        ends: bool,
    ) {
        for (i, QueryRow { query, .. }) in rows[..unit.rows].iter().enumerate() {
            let found = self.found(places, i);
            if let Some(splits) = self.splits {
                let place = self.place_of(worker, query, unit.batch, splits, unit.split);
                // SAFETY: the row's state lies in the worker's own places (the caller's contract, point 1).
                // The place is this row's and this split's, which no other unit has (point 2).
                unsafe { place.copy::<H>(found) };
                continue;
            }
            let total = self.total(places, i);
            // SAFETY: the row's state lies in the worker's own places (the caller's contract, point 1).
            unsafe { total.add::<H>(found) };
            if ends {
                // SAFETY: the row's state lies in the worker's own places (the caller's contract, point 1),
                // and this worker alone has claimed the unit, and with it this row of y (point 2).
                unsafe {
                    let row = [query.head, query.token, unit.batch];
                    total.finish::<H>(&self.of, row, LARGEST_WEIGHT);
                }
            }
        }
    }

    /// The splits of the keys that rows of a span see.
    pub(super) fn splits_of(&self, span: &Span) -> Range<usize> {
        self.of.query(span, 0, 0).from / SPLIT..self.of.end(span).div_ceil(SPLIT)
    }

    /// Where what is found for a row in split number `split` of those of its span waits in shared VTCM.
    ///
    /// # Panics
    /// If there is no such place, which `run` has made sure of.
    #[inline(always)]
    pub(super) fn place_of(
        &self,
        worker: &Worker<'_>,
        query: &Query,
        batch: usize,
        splits: usize,
        split: usize,
    ) -> Found {
        let (base, bytes) = worker.shared_vtcm();
        let row = (batch * self.of.y.ne[2] + query.token) * self.of.y.ne[1] + query.head;
        let at = (row * splits + split) * self.stage.found();
        assert!(split < splits && at + self.stage.found() <= bytes);
        Found { first: base.skip(at / VECTOR_BYTES), v_vectors: self.stage.v_vectors }
    }
}
