//! The jobs of a pass: queries are packed; then, turn by turn, blocks of keys go through its stages; then
//! results are written.
//!
//! In a turn the dispatcher drives the unit, and the other workers do what else is to be done; all that a
//! stage reads was written in an earlier turn. They are compiled for one kind of vectors
//! ([`Hvx::Everywhere`]): where there is no HVX, the twin of the unit takes nearly all of the time. Stages
//! are functions of their own, so that none has to do with the registers that the others leave.

use core::ops::Range;

use hexflash_abi::Fault;

use super::fetch::{COLUMNS, KEY_SLOTS};
use super::layout::{Layout, PARTS, Places, STAGED};
use super::mask::Biases;
use crate::dma::Ticket;
use crate::hmx::{Matrix, Unit};
use crate::hvx::Hvx;
use crate::kernels::attention::flash_attn::attention::{Attention, Query};
use crate::kernels::attention::flash_attn::format::Format;
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::kernels::attention::flash_attn::split::Found;
use crate::kernels::attention::flash_attn::tuning::{KEY_TILES, MOST_ROW_TILES, PART};
use crate::kernels::shared::damage::Damage;
use crate::kernels::shared::matrix_rows::{self, PackedRow};
use crate::kernels::shared::row_scale::{Depth, RowScale, largest};
use crate::pool::{Kernel, Worker};
use crate::step::Span;

/// Pairs of rows of a matrix tile, which share its vectors.
const PAIRS: usize = TILE / 2;
/// Turns from the one in which keys are fetched to that of a stage: scores by the unit; weights, and values
/// fetched; sums of values by the unit; sums added up.
const SCORES: usize = 1;
pub(super) const WEIGHTS: usize = 2;
const SUMS: usize = 3;
const ADDED: usize = 4;
/// Turns more than blocks.
pub(super) const MORE_TURNS: usize = ADDED;

/// Key tiles that rows see: from, to. Numbers of 32 bits, of which a pass has many.
type Seen = (u32, u32);

/// Rows of a kv head that go through the blocks of their keys together.
#[derive(Clone, Copy)]
pub(super) struct Pass<'s> {
    pub of: Attention,
    pub span: &'s Span,
    pub layout: Layout,
    /// Query heads per kv head. Row r of a kv head is token r / group of its span, head r % group.
    group: usize,
    pub kv_head: usize,
    pub batch: usize,
    /// First row, and how many.
    first: usize,
    pub rows: usize,
    /// Positions that any row of the span sees.
    pub positions: (usize, usize),
    /// The first block by its number in the context, and how many there are.
    first_block: usize,
    pub blocks: usize,
    /// The key tiles that each matrix tile of rows sees.
    seen: [Seen; MOST_ROW_TILES],
    /// Kv heads whose values are not finite.
    pub damage: &'s Damage,
}

impl<'s> Pass<'s> {
    /// Rows `rows` of a kv head, at least one and no more than the layout has.
    pub(super) fn new(
        of: Attention,
        span: &'s Span,
        layout: Layout,
        [batch, kv_head]: [usize; 2],
        rows: Range<usize>,
        damage: &'s Damage,
    ) -> Self {
        let group = of.q.ne[1] / of.k_cache.ne[2];
        // Both ends of what a row sees grow with its number.
        let query = |row: usize| of.query(span, row / group, kv_head * group + row % group);
        let seen_by = |first: usize, last: usize| query(first).from..query(last).to;
        let (first, last) = (rows.start, rows.end - 1);
        let Range { start, end } = seen_by(first, last);
        let first_block = start / (KEY_TILES * TILE);
        let blocks = end.div_ceil(KEY_TILES * TILE) - first_block;
        let mut seen = [(0, 0); MOST_ROW_TILES];
        for (seen, first) in seen.iter_mut().zip(rows.clone().step_by(TILE)) {
            let Range { start, end } = seen_by(first, (first + TILE - 1).min(last));
            *seen = ((start / TILE) as u32, end.div_ceil(TILE) as u32);
        }
        let positions = (query(0).from, of.end(span));
        let rows = rows.len();
        Self {
            of,
            span,
            layout,
            group,
            kv_head,
            batch,
            first,
            rows,
            positions,
            first_block,
            blocks,
            seen,
            damage,
        }
    }

    /// Row `row` of the pass.
    #[inline(always)]
    pub(super) fn query(&self, row: usize) -> Query {
        let row = self.first + row;
        self.of.query(self.span, row / self.group, self.kv_head * self.group + row % self.group)
    }

    /// The row after another one.
    #[inline(always)]
    pub(super) fn after(&self, query: &Query) -> Query {
        self.of.after(self.span, self.kv_head, self.group, query)
    }

    /// The key tiles of a block that rows of the span see: no more of them for one pass than for another, so
    /// that values have the same scale in all.
    #[inline(always)]
    pub(super) fn block(&self, block: usize) -> Range<usize> {
        let first = (self.first_block + block) * KEY_TILES;
        let (start, end) = (self.positions.0 / TILE, self.positions.1.div_ceil(TILE));
        first.max(start)..(first + KEY_TILES).min(end)
    }

    /// Those of them that a matrix tile of rows sees.
    #[inline(always)]
    pub(super) fn seen(&self, block: usize, row_tile: usize) -> Range<usize> {
        let (start, end) = self.seen[row_tile];
        let block = self.block(block);
        let start = (start as usize).clamp(block.start, block.end);
        start..(end as usize).clamp(start, block.end)
    }

    /// Those that a part of the rows sees.
    #[inline(always)]
    pub(super) fn seen_by_part(&self, block: usize, part: usize) -> Range<usize> {
        self.seen(block, part / PARTS)
    }

    fn row_tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    fn parts(&self) -> usize {
        self.rows.div_ceil(PART)
    }

    /// Whether keys and values are codes of Q8_0, and not F16.
    pub(super) fn has_codes(&self) -> bool {
        matches!(self.of.keys, Format::Q8_0 { .. })
    }

    /// Matrix tiles of a key.
    pub(super) fn k_tiles(&self) -> usize {
        self.of.q.ne[0].div_ceil(TILE)
    }

    /// The layout in the region that the plan has for it.
    #[inline(always)]
    fn places(&self, worker: &Worker<'_>) -> Places {
        self.layout.at(worker.shared_vtcm_for(self.layout.plan()))
    }

    /// What was found for a row.
    fn found(&self, places: Places, row: usize) -> Found {
        Found { first: places.found(row), v_vectors: self.layout.columns }
    }
}

/// Packs the queries of a pass, and notes what takes their scales back. Nothing is found for them yet.
pub(super) struct Pack<'s>(pub Pass<'s>);

impl Pack<'_> {
    /// Row `row` of the pass, which is `query`, with what it is multiplied with; `None` past the last one,
    /// and for one with an infinity or a NaN, which the unit would take for numbers. What takes its scale
    /// back is infinite, so that its scores are not finite.
    #[inline(always)]
    fn row<H: Hvx>(&self, places: Places, row: usize, query: &Query) -> PackedRow {
        let pass = &self.0;
        if row >= pass.rows {
            return None;
        }
        let x: *const f32 = pass.of.q.at([query.head, query.token, pass.batch]).cast();
        let d = pass.of.q.ne[0];
        // SAFETY: `at` has checked the indices, so this is a row of q: `d` adjacent floats, which are
        // readable and aligned (validation).
        let scale = RowScale::of(unsafe { largest::<H>(x, d) }, Depth::of(d));
        // SAFETY: `row` is below the rows of the pass, for which the layout has factors and what was found,
        // in VTCM and aligned. This worker has claimed the row.
        unsafe {
            places.row_factors().add(row).write(scale.map_or(f32::INFINITY, |scale| scale.back));
            pass.found(places, row).clear::<H>();
        }
        Some((x, scale?.to))
    }

    /// Claims parts of rows and packs them until there are none.
    #[inline(never)]
    fn pack<H: Hvx>(&self, worker: &mut Worker<'_>) {
        let places = self.0.places(worker);
        while let Some(part) = worker.claim() {
            let mut query = self.0.query(part * PART);
            for pair in part * (PART / 2)..(part + 1) * (PART / 2) {
                let next = self.0.after(&query);
                let rows =
                    [self.row::<H>(places, 2 * pair, &query), self.row::<H>(places, 2 * pair + 1, &next)];
                let to = places.queries(pair / PAIRS);
                // SAFETY: (1) both are rows of q, of `d` readable floats, aligned (`row`, after validation).
                // (2) the layout has matrix tiles of `d` values for the pair's tile of rows in VTCM; this
                // worker has claimed the part, and no other job of the op runs.
                unsafe { matrix_rows::pack::<H, false>(rows, self.0.of.q.ne[0], to, pair % PAIRS) };
                query = self.0.after(&next);
            }
        }
    }
}

impl Kernel for Pack<'_> {
    fn units(&self) -> usize {
        // All of a matrix tile: rows that there are not are zeros.
        self.0.row_tiles() * PARTS
    }

    fn work(&self) -> usize {
        // About 8 operations for 32 values.
        self.units() * PART * 8 * self.0.k_tiles()
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.pack::<H::Everywhere>(worker);
        Ok(())
    }
}

/// A turn: what is done to five blocks at the same time.
pub(super) struct Turn<'s> {
    pub pass: Pass<'s>,
    pub turn: usize,
}

impl Turn<'_> {
    /// The block whose keys have come so many turns ago, and its key tiles.
    pub(super) fn block(&self, ago: usize) -> (usize, Range<usize>) {
        match self.turn.checked_sub(ago) {
            Some(block) if block < self.pass.blocks => (block, self.pass.block(block)),
            _ => (0, 0..0),
        }
    }

    /// Units of the turn: key tiles; the mask, if there is one; pairs of columns of values; parts of rows
    /// that are softened; and parts whose sums are added up.
    fn counts(&self) -> [usize; 5] {
        let if_any = |ago, n| if self.block(ago).1.is_empty() { 0 } else { n };
        let parts = self.pass.parts();
        [
            self.block(0).1.len(),
            if_any(0, usize::from(self.pass.of.mask.is_some())),
            if_any(WEIGHTS, self.pass.layout.columns / COLUMNS),
            if_any(WEIGHTS, parts),
            if_any(ADDED, parts),
        ]
    }

    /// The unit's part: scores of one block, sums of values of another.
    #[inline(never)]
    fn multiply(&self, places: Places) {
        let mut unit = Matrix::take();
        self.multiply_keys(&mut unit, places);
        self.multiply_values(&mut unit, places);
        unit.finish();
    }

    fn multiply_keys(&self, unit: &mut Matrix, places: Places) {
        let (block, tiles) = self.block(SCORES);
        let k_tiles = self.pass.k_tiles();
        for second in [false, true] {
            for (at, tile) in tiles.clone().enumerate() {
                let tables = places.key_tables(block, at);
                // SAFETY: the tables were written in the last turn, and lie in VTCM, as everything in the
                // layout. This is the thread that dispatches, which holds the unit where a plan says HMX.
                unsafe { unit.load_table(tables.skip(usize::from(second))) };
                for row_tile in 0..self.pass.row_tiles() {
                    if !self.pass.seen(block, row_tile).contains(&tile) {
                        continue;
                    }
                    let scores = places.scores(block, row_tile, at);
                    unit.clear();
                    // SAFETY: (1) `k_tiles` is 16 at most, because d is (`MAX_HEAD`). (2) The queries were
                    // packed before the first turn, and the keys have come in the last one. The first parts
                    // of scores were stored, and the unit has finished with that (below). Those of the block
                    // before that had the place were read in the last turn. (3) This is the thread that
                    // dispatches, which holds the unit where a plan says HMX.
                    unsafe {
                        unit.multiply(places.queries(row_tile), places.keys(block, at), k_tiles);
                        if second {
                            unit.multiply(scores, tables.skip(2), 1);
                        }
                        unit.store(scores.skip(usize::from(second)));
                    }
                }
            }
            unit.finish();
        }
    }

    fn multiply_values(&self, unit: &mut Matrix, places: Places) {
        let (block, tiles) = self.block(SUMS);
        if tiles.is_empty() {
            return;
        }
        for column in 0..self.pass.layout.columns {
            // SAFETY: the table was written in the last turn, and lies in VTCM, as everything in the layout.
            // This is the thread that dispatches, which holds the unit where a plan says HMX.
            unsafe { unit.load_table(places.value_table(block, column)) };
            for row_tile in 0..self.pass.row_tiles() {
                let seen = self.pass.seen(block, row_tile);
                if seen.is_empty() {
                    continue;
                }
                let first = seen.start - tiles.start;
                let (a, w) = (places.weights(block, row_tile), places.values(block, column));
                unit.clear();
                // SAFETY: (1) a block has 1 to 8 key tiles. (2) Weights and values were made in the last
                // turn, a tile of each for every one that the rows see. The layout has a tile for what is
                // stored, and what it held before was added up in the last turn. (3) This is the thread that
                // dispatches, which holds the unit where a plan says HMX.
                unsafe {
                    unit.multiply(a.skip(first), w.skip(first), seen.len());
                    unit.store(places.sums(block, row_tile, column));
                }
            }
        }
    }

    /// Claims and does units until there are none.
    #[inline(never)]
    fn work_off<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let places = self.pass.places(worker);
        // The dispatcher alone: it is the thread that holds the unit.
        if worker.id == 0 {
            self.multiply(places);
        }
        let [keys, mask, columns, softened, _] = self.counts();
        let values = keys + mask;
        let (weights, sums) = (values + columns, values + columns + softened);
        let (mut pending, mut slot): (Option<(usize, Ticket)>, _) = (None, 0);
        loop {
            let unit = worker.claim();
            let ticket = match unit {
                Some(unit) if unit < keys => Some(self.fetch_keys(worker, places, unit, slot)),
                Some(unit) if (weights..sums).contains(&unit) => {
                    self.fetch_mask(worker, unit - weights, slot)
                }
                _ => None,
            };
            let fetched = unit.zip(ticket);
            slot = (slot + 1) % KEY_SLOTS;
            if let Some((unit, ticket)) = pending {
                worker.dma.wait(ticket)?;
                // SAFETY: the transfer was waited for on the line above; it went to the place for keys of
                // the time before, which is the one after this one. This worker has claimed the unit: a key
                // tile, or a part, as `soften` wants it.
                unsafe {
                    if unit < keys {
                        self.describe::<H>(worker, places, unit, slot);
                    } else {
                        let biases = self.widen_mask::<H>(worker, unit - weights, slot);
                        self.soften::<H, true>(worker, places, unit - weights, Some(biases));
                    }
                }
            }
            pending = fetched;
            let Some(unit) = unit else { return Ok(()) };
            if pending.is_some() {
                continue;
            }
            if unit < values {
                self.find_shown::<H>(worker, places)?;
            } else if unit < weights {
                self.pack_values::<H>(worker, places, unit - values)?;
            } else if unit < sums {
                // SAFETY: this worker has claimed the part, of rows without a mask, or which see nothing.
                unsafe { self.soften::<H, false>(worker, places, unit - weights, None) };
            } else {
                // SAFETY: the unit has stored the sums of this block in the last turn, and what else it needs
                // was written in the one before. This worker has claimed the part.
                unsafe {
                    let (block, _) = self.block(ADDED);
                    self.pass.accumulate::<H>(places, block, unit - sums);
                }
            }
        }
    }

    /// Makes the weights of a part of the rows.
    ///
    /// # Safety
    /// This worker has claimed the part. If it is `MASKED`, `biases` is what the mask has for it; if not,
    /// there is none, or the part sees no key of the block.
    #[inline(always)]
    unsafe fn soften<H: Hvx, const MASKED: bool>(
        &self,
        worker: &Worker<'_>,
        places: Places,
        part: usize,
        biases: Option<Biases>,
    ) {
        let (block, _) = self.block(WEIGHTS);
        let scratch = worker.own_vtcm().skip(STAGED);
        // SAFETY: the unit has stored the scores of this block in the last turn, and their factors were
        // written in the one before. The worker's own VTCM has room for the scores of a part behind that for
        // values (`places` has compared the bytes). The rest is the caller's contract.
        unsafe { self.pass.soften::<H, MASKED>(places, scratch, block, part, biases) };
    }
}

impl Kernel for Turn<'_> {
    fn units(&self) -> usize {
        self.counts().iter().sum()
    }

    fn work(&self) -> usize {
        let [keys, mask, columns, softened, added] = self.counts();
        // About 4 operations for a vector of keys, 2 for one of the mask, 9 for one of values, 35 for one of
        // scores, 5 for one of sums.
        let prepared = keys * self.pass.k_tiles() * 64 + columns * KEY_TILES * TILE * 9;
        prepared
            + mask * self.pass.span.rows * KEY_TILES
            + softened * PART * KEY_TILES * 35
            + added * PART * self.pass.layout.columns * 5
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker)
    }
}

/// Writes the results of a pass: a unit is a part of its rows.
pub(super) struct Finish<'s>(pub Pass<'s>);

impl Finish<'_> {
    /// Claims parts and writes them until there are none.
    #[inline(never)]
    fn finish<H: Hvx>(&self, worker: &mut Worker<'_>) {
        let pass = &self.0;
        let places = pass.places(worker);
        while let Some(part) = worker.claim() {
            let first = part * PART;
            let mut query = pass.query(first);
            for row in first..(first + PART).min(pass.rows) {
                // SAFETY: what was found for a row of the pass is complete, and `claim` gave the part, and
                // with it this row of y, to this worker alone.
                unsafe {
                    pass.close::<H>(places, row);
                    let found = pass.found(places, row);
                    found.finish::<H>(&pass.of, [query.head, query.token, pass.batch], 1.0);
                }
                query = pass.after(&query);
            }
        }
    }
}

impl Kernel for Finish<'_> {
    fn units(&self) -> usize {
        self.0.parts()
    }

    fn work(&self) -> usize {
        self.units() * PART * (60 + 3 * self.0.layout.columns)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.finish::<H::Everywhere>(worker);
        Ok(())
    }
}
