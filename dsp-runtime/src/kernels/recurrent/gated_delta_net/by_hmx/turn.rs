//! The jobs of a pass: states are fetched; then, turn by turn, heads go through the stages of their chunks;
//! then states go home.
//!
//! A chunk has four stages, and the second and the last are the unit's. There are two groups of heads, of
//! which one is a stage ahead: in every turn the dispatcher drives the unit for one of them, while the other
//! workers take the heads of the other through a stage of their own. All that a stage reads was written in an
//! earlier turn. Jobs are compiled for one kind of vectors ([`Hvx::Everywhere`]): where there is no HVX, the
//! twin of the unit takes nearly all of the time.

use hexflash_abi::{Fault, VECTOR_BYTES};

use super::super::chunk::{CHUNK, Chunk, ChunkMemory};
use super::super::head::{Head, HeadMemory};
use super::super::kernel::{Claim, GatedDeltaNet};
use super::super::tile::{KEY_ROWS, Tile};
use super::super::transposed;
use super::layout::{Layout, Places};
use super::prepare::HeadChunk;
use super::{LOG_FIRST_UNIT, LOG_SECOND_UNIT, LOG_UNIT, SpanCut};
use crate::dma::Ticket;
use crate::hmx::scales::{store_minus_diagonal, store_table};
use crate::hmx::{Matrix, TilePtr, Unit};
use crate::hvx::Hvx;
use crate::pool::{Kernel, Worker};
use crate::step::Span;

/// Groups of heads, one of which is at the unit.
const GROUPS: usize = 2;
/// Stages of a chunk.
const STAGES: usize = 4;

/// What is done to a head in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The results of the chunk before, and what the unit multiplies first.
    Prepare,
    /// The unit multiplies keys and queries with keys and the state.
    State,
    /// u.
    Solve,
    /// The unit multiplies p and keys with u.
    Changes,
}

/// Heads of a span that go through its whole chunks together.
#[derive(Clone, Copy)]
pub(super) struct Pass<'s> {
    pub of: &'s GatedDeltaNet<'s>,
    pub span: &'s Span,
    pub cut: SpanCut,
    pub layout: Layout,
    /// The first head, counted through all batches, and how many.
    pub first: usize,
    pub heads: usize,
}

impl<'s> Pass<'s> {
    /// The layout in the region that the plan has for it.
    #[inline(always)]
    fn places(&self, worker: &Worker<'_>) -> Places {
        self.layout.at(worker.shared_vtcm_for(self.layout.plan()))
    }

    fn tile(&self) -> Tile {
        Tile::new(self.of.y.ne[0])
    }

    /// Rows `from..to` of the span.
    fn rows(&self, from: usize, to: usize) -> Span {
        let Span { first, n_past, .. } = *self.span;
        Span { first: first + from, n_past: n_past + from, rows: to - from, ..*self.span }
    }

    /// The rows of a whole chunk.
    fn chunk(&self, chunk: usize) -> Span {
        let from = self.cut.before + chunk * CHUNK;
        self.rows(from, from + CHUNK)
    }

    /// Head `i` of the pass, with these rows.
    fn claim<'a>(&self, span: &'a Span, i: usize) -> Claim<'a> {
        let heads = self.of.y.ne[1];
        let (mut h, mut b) = (self.first + i, 0);
        // Without a division, which is a function call on a DSP.
        while h >= heads {
            (h, b) = (h - heads, b + 1);
        }
        Claim { span, h, b, entry: span.entry(b, self.of.y.ne[3]), buffer: 0, ticket: None }
    }

    /// Where head `i` is worked on without the unit.
    fn memory(&self, worker: &Worker<'_>, places: Places, i: usize) -> HeadMemory {
        let (state, Tile { size, vectors }) = (places.head(i).state(), self.tile());
        HeadMemory { state, scratch: state, keys: worker.own_vtcm(), size, vectors }
    }

    /// A chunk of head `i`, whose rows are `head`.
    #[inline(always)]
    fn head_chunk<'h>(
        &self,
        worker: &Worker<'_>,
        places: Places,
        i: usize,
        head: &'h Head<'h>,
    ) -> HeadChunk<'h> {
        let (tile, places) = (self.tile(), places.head(i));
        let memory = ChunkMemory::new(worker.own_vtcm().skip(KEY_ROWS / VECTOR_BYTES), tile);
        HeadChunk { chunk: Chunk { head, tokens: CHUNK, tile, state: places.state(), memory }, places }
    }
}

/// Fetches states, and takes them through the rows before the first whole chunk.
pub(super) struct Bring<'s>(pub Pass<'s>);

impl Bring<'_> {
    /// Starts to bring the state of head `i`; none is brought before the first token.
    #[inline(always)]
    fn fetch<H: Hvx>(&self, worker: &mut Worker<'_>, places: Places, i: usize) -> Option<Ticket> {
        let Pass { of, span, .. } = &self.0;
        let (tile, place) = (self.0.tile(), places.head(i).state());
        if span.n_past == 0 {
            for v in 0..tile.size * tile.vectors {
                // SAFETY: `v` is below the vectors of a tile, for which the head has a place in VTCM. This
                // worker has claimed the head.
                unsafe { place.store::<H>(v, H::splat(0.0)) };
            }
            return None;
        }
        let claim = self.0.claim(span, i);
        let state = of.state.at([0, claim.h, claim.entry]);
        let transfer = tile.transfer(state, place.get(), tile.size * 4, tile.stride());
        // SAFETY: the head's place has a tile, which nobody else uses until this ticket is waited for. The
        // state is S x S packed floats, not in VTCM, and this worker alone has claimed the head.
        Some(unsafe { worker.dma.push(transfer) })
    }

    /// Claims heads and brings their states until there are none.
    #[inline(never)]
    fn bring<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (pass, places) = (&self.0, self.0.places(worker));
        let before = pass.rows(0, pass.cut.before);
        let mut pending = None;
        loop {
            let fetched = worker.claim().map(|i| (i, self.fetch::<H>(worker, places, i)));
            if let Some((i, ticket)) = pending {
                if let Some(ticket) = ticket {
                    worker.dma.wait(ticket)?;
                }
                // SAFETY: the state's transfer was waited for, or zeros were stored. It is a tile in VTCM,
                // which is this worker's until the next job: it has claimed the head. Its own VTCM has room
                // for keys and a chunk (`places`). Sizes are multiples of 32 (`variant`), and four vectors of
                // values at most.
                unsafe { self.first_rows::<H>(worker, places, i, &before) };
            }
            pending = fetched;
            if pending.is_none() {
                return Ok(());
            }
        }
    }

    /// Takes a state that has come to the first whole chunk, and describes it.
    ///
    /// # Safety
    /// The state is in the place of head `i`, which this worker has claimed. The layout is that of `places`.
    #[inline(always)]
    unsafe fn first_rows<H: Hvx>(&self, worker: &Worker<'_>, places: Places, i: usize, before: &Span) {
        let (pass, claim) = (&self.0, self.0.claim(before, i));
        let memory = pass.memory(worker, places, i);
        // SAFETY: the state is a tile in its place, of a multiple of 32 (`variant`). This worker has claimed
        // the head, and behind the keys in its own VTCM is room for a chunk (the caller's contract).
        unsafe {
            if pass.of.transposed {
                transposed::transpose::<H>(memory.state, pass.tile());
            }
            if before.rows > 0 {
                pass.of.tokens::<H>(&memory, &claim);
            }
            let head = pass.of.rows(&claim);
            pass.head_chunk(worker, places, i, &head).describe_state::<H>();
            if i == 0 {
                for (which, log) in [LOG_UNIT, LOG_FIRST_UNIT, LOG_SECOND_UNIT].into_iter().enumerate() {
                    store_table::<H>(places.table(which).vectors(), H::splat_i(log));
                }
                store_minus_diagonal::<H>(places.table(3), H::splat_i(-LOG_FIRST_UNIT));
            }
        }
    }
}

impl Kernel for Bring<'_> {
    fn units(&self) -> usize {
        self.0.heads
    }

    fn work(&self) -> usize {
        let tile = self.0.tile();
        (self.0.heads * tile.size * tile.vectors).saturating_mul(3 + self.0.cut.before)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.bring::<H::Everywhere>(worker)
    }
}

/// A turn: one group of heads at the unit, the other in a stage of the workers.
pub(super) struct Turn<'s> {
    pub pass: Pass<'s>,
    pub turn: usize,
}

impl<'s> Turn<'s> {
    /// The turns of a pass: after the last chunk, its results are left.
    pub(super) const fn count(pass: &Pass<'_>) -> usize {
        STAGES * pass.cut.chunks + GROUPS
    }

    /// The stage of a group, and the chunk; `None` before its first and after its last one.
    fn stage(&self, group: usize) -> Option<(Stage, usize)> {
        let done = self.turn.checked_sub(group)?;
        let (chunk, stage) = (done / STAGES, done % STAGES);
        let stage = [Stage::Prepare, Stage::State, Stage::Solve, Stage::Changes][stage];
        let last = self.pass.cut.chunks;
        (chunk < last || chunk == last && stage == Stage::Prepare).then_some((stage, chunk))
    }

    /// The group that is in a stage of the workers.
    const fn on_workers(&self) -> usize {
        self.turn % GROUPS
    }

    /// Heads of a group: every second one.
    const fn heads_of(&self, group: usize) -> usize {
        (self.pass.heads + GROUPS - 1 - group) / GROUPS
    }

    /// Takes head `i` through a stage of the workers.
    ///
    /// # Safety
    /// This worker has claimed the head; its state has come, and stages before were completed.
    #[inline(always)]
    unsafe fn advance<H: Hvx>(
        &self,
        worker: &Worker<'_>,
        places: Places,
        i: usize,
        (stage, chunk): (Stage, usize),
    ) {
        let pass = &self.pass;
        let span = pass.chunk(chunk);
        let claim = pass.claim(&span, i);
        // SAFETY: the head's state has come, and what a stage wants was made in the ones before: what was
        // noted of the state, whether the chunk is ordinary, and the products of the unit, which has
        // finished. This worker has claimed the head, and with it its rows of y. Its own VTCM has the parts
        // of a chunk (`places`). The shape rule gives all rows of the head the state's size, and the chunk
        // has all of its rows.
        unsafe {
            if stage == Stage::Solve {
                if places.head(i).is_ordinary() {
                    let head = pass.of.rows(&claim);
                    pass.head_chunk(worker, places, i, &head).solve::<H>();
                }
                return;
            }
            if let Some(before) = chunk.checked_sub(1) {
                let span = pass.chunk(before);
                let claim = pass.claim(&span, i);
                let head = pass.of.rows(&claim);
                let of_head = pass.head_chunk(worker, places, i, &head);
                if places.head(i).is_ordinary() {
                    of_head.results::<H>();
                } else {
                    pass.of.head::<H>(&pass.memory(worker, places, i), &claim);
                    of_head.describe_state::<H>();
                }
            }
            if chunk < pass.cut.chunks {
                let head = pass.of.rows(&claim);
                pass.head_chunk(worker, places, i, &head).prepare::<H>();
            }
        }
    }

    /// The unit's part: all heads of a group.
    #[inline(never)]
    fn multiply(&self, places: Places) {
        let group = 1 - self.on_workers();
        let Some((stage, _)) = self.stage(group) else { return };
        let columns = self.pass.tile().vectors;
        let mut unit = Matrix::take();
        let heads = || {
            let heads = (group..self.pass.heads).step_by(GROUPS).map(|i| places.head(i));
            // SAFETY: their chunks were prepared in earlier turns.
            heads.filter(|head| unsafe { head.is_ordinary() })
        };
        if stage == Stage::State {
            // Products of rows with keys: what fp16 has of them, then the rest.
            for part in 0..2 {
                use_table(&mut unit, places, 1 + part);
                for head in heads() {
                    for which in 0..2 {
                        let (rows, keys) = (|part| head.rows(part, which), |part| head.across(part));
                        let first = head.of_keys(0, which);
                        let pairs = [
                            (rows(0), keys(0), columns),
                            (rows(1), keys(0), columns),
                            (rows(0), keys(1), columns),
                            (first, places.table(3), 1),
                        ];
                        product(&mut unit, &pairs[..3 + part], head.of_keys(part, which));
                    }
                }
            }
        }
        use_table(&mut unit, places, 0);
        for head in heads() {
            for column in 0..columns {
                if stage == Stage::State {
                    for which in 0..2 {
                        let pair = (head.rows(0, which), head.state_column(column), columns);
                        product(&mut unit, &[pair], head.of_state(which, column));
                    }
                    continue;
                }
                let u = |part| head.u_column(part, column);
                let pairs = [(head.p(0), u(0), 1), (head.p(1), u(0), 1), (head.p(0), u(1), 1)];
                product(&mut unit, &pairs, head.sums(column));
                for tile in 0..columns {
                    let keys = |part| head.across(part).skip(tile);
                    let u = |part| head.left_column(part, column);
                    let pairs = [(keys(0), u(0), 1), (keys(1), u(0), 1), (keys(0), u(1), 1)];
                    product(&mut unit, &pairs, head.changes(tile, column));
                }
            }
        }
        unit.finish();
    }

    /// Claims heads and takes them through their stage until there are none.
    #[inline(never)]
    fn work_off<H: Hvx>(&self, worker: &Worker<'_>) {
        let places = self.pass.places(worker);
        // The dispatcher alone: it is the thread that holds the unit.
        if worker.id == 0 {
            self.multiply(places);
        }
        let group = self.on_workers();
        let Some(stage) = self.stage(group) else { return };
        while let Some(unit) = worker.claim() {
            // SAFETY: `claim` gave the head to this worker alone, of the group that is not at the unit. Its
            // state has come before the first turn, and the group was in the stages before in earlier turns.
            unsafe { self.advance::<H>(worker, places, GROUPS * unit + group, stage) };
        }
    }
}

impl Kernel for Turn<'_> {
    fn units(&self) -> usize {
        self.stage(self.on_workers()).map_or(0, |_| self.heads_of(self.on_workers()))
    }

    fn work(&self) -> usize {
        // About 16 operations for each 32 values of a state.
        let tile = self.pass.tile();
        self.units() * tile.size * tile.vectors * 16
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker);
        Ok(())
    }
}

/// Has the unit scale by a table of the pass from now on, when what it was asked for is done.
fn use_table(unit: &mut Matrix, places: Places, which: usize) {
    unit.finish();
    // SAFETY: tables were written with the first state, and lie in VTCM, as everything in the layout. This is
    // the thread that dispatches, which holds the unit where a plan says HMX.
    unsafe { unit.load_table(places.table(which)) };
}

/// Stores a sum of products, of so many pairs of adjacent tiles each.
fn product(unit: &mut Matrix, pairs: &[(TilePtr, TilePtr, usize)], to: TilePtr) {
    unit.clear();
    for &(a, w, tiles) in pairs {
        // SAFETY: (1) 1 to 4 tiles. (2) They were made in the last turn, or stored by the unit before it was
        // waited for, and nobody else touches them in this turn. (3) This is the thread that dispatches,
        // which holds the unit where a plan says HMX.
        unsafe { unit.multiply(a, w, tiles) };
    }
    // SAFETY: nobody touches the tile for what is stored in this turn: it has a place that neither this stage
    // reads nor a later one still needs (`HeadPlaces`). This thread holds the unit, as above: it dispatches.
    unsafe { unit.store(to) };
}

/// Takes states through the rows after the last whole chunk, and sends them home.
pub(super) struct Leave<'s>(pub Pass<'s>);

impl Leave<'_> {
    #[inline(never)]
    fn leave<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (pass, places, tile) = (&self.0, self.0.places(worker), self.0.tile());
        let after = pass.rows(pass.span.rows - pass.cut.after, pass.span.rows);
        while let Some(i) = worker.claim() {
            let (claim, memory) = (pass.claim(&after, i), pass.memory(worker, places, i));
            // SAFETY: the state is a tile in its place, of a multiple of 32 (`variant`), and all turns are
            // done with it. This worker has claimed the head, and behind the keys in its own VTCM is room for
            // a chunk (`places`).
            unsafe {
                if after.rows > 0 {
                    pass.of.tokens::<H>(&memory, &claim);
                }
                if pass.of.transposed {
                    transposed::transpose::<H>(memory.state, tile);
                }
            }
            let home = pass.of.state.at([0, claim.h, claim.entry]);
            let transfer = tile.transfer(memory.state.get(), home, tile.stride(), tile.size * 4);
            // SAFETY: the state is S x S packed floats (contiguous, per the op table) that this worker has
            // claimed; it is not in VTCM. The head's place is left alone until this function has waited.
            let _ = unsafe { worker.dma.push(transfer) };
        }
        worker.dma.finish()
    }
}

impl Kernel for Leave<'_> {
    fn units(&self) -> usize {
        self.0.heads
    }

    fn work(&self) -> usize {
        let tile = self.0.tile();
        (self.0.heads * tile.size * tile.vectors).saturating_mul(1 + self.0.cut.after)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.leave::<H::Everywhere>(worker)
    }
}
