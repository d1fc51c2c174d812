//! The jobs of a product by the matrix unit: rows of x are packed; then, turn by turn, a chunk of strips is
//! unpacked, the chunk before it is multiplied, and the results of the one before that are stored.
//!
//! They are compiled for one kind of vectors ([`Hvx::Everywhere`]): where there is no HVX, the twin of the
//! unit takes nearly all of the time.

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use hexflash_abi::dtype::{TILE_ROWS, TileGroup};
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use super::super::routes::Routes;
use super::layout::{Extent, Layout, Places};
use super::weights::Tiles;
use crate::dma::{Ticket, Transfer};
use crate::hmx::{MOST_TILES, Matrix, TILE_BYTES, TilePtr, Unit};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::kernels::shared::matrix_rows;
use crate::kernels::shared::row_scale::{
    Depth, RowScale, RowScales, ScaleKind, largest_of_eight, largest_of_two,
};
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// Pairs of rows of a matrix tile, which share its vectors.
const PAIRS: usize = TILE_ROWS / 2;
/// Pairs of rows that are packed by one unit of work.
const TOGETHER: usize = 4;
const _: () = assert!(PAIRS.is_multiple_of(TOGETHER));
/// Tiles of rows whose results are stored by one unit of work: several, for what a unit takes by itself.
const STORED: usize = 4;

/// Rows of x that share a pass over a matrix of w.
#[derive(Clone, Copy)]
pub(super) struct Pass<'r> {
    pub w: View,
    pub x: View,
    pub y: View,
    pub group: TileGroup,
    pub extent: Extent,
    pub layout: Layout,
    pub depth: Depth,
    /// Where rows lie if this is MUL_MAT_ID; else they are adjacent.
    pub routes: Option<&'r Routes>,
    /// Indices of axes 2 and 3 of x and y.
    pub batch: [usize; 2],
    /// Indices of axes 2 and 3 of w.
    pub matrix: [usize; 2],
    /// First row, of x or of the routes, and how many.
    pub first: usize,
    pub rows: usize,
    /// Whether what takes the scales of rows and columns back are all ordinary powers of two.
    pub ordinary: bool,
}

impl Pass<'_> {
    /// Indices of axes 1 to 3 of row `row` of the pass: in x and in y.
    #[inline(always)]
    fn row(&self, row: usize) -> ([usize; 3], [usize; 3]) {
        let at = [self.first + row, self.batch[0], self.batch[1]];
        self.routes.map_or((at, at), |routes| routes.row(at[0], self.x.ne[1]))
    }

    fn row_tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// The layout in the region that the plan has for it.
    #[inline(always)]
    fn places(&self, worker: &Worker<'_>) -> Places {
        let (base, bytes) = worker.shared_vtcm();
        assert!(self.layout.bytes() <= bytes);
        self.layout.at(base)
    }
}

/// Packs the rows of a pass, and notes what takes their scales back.
pub(super) struct Pack<'r, T> {
    pass: Pass<'r>,
    /// Whether a row has a scale that is not an ordinary one.
    extraordinary: AtomicBool,
    weights: PhantomData<T>,
}

impl<'r, T: Tiles> Pack<'r, T> {
    pub(super) fn new(pass: Pass<'r>) -> Self {
        Self { pass, extraordinary: AtomicBool::new(false), weights: PhantomData }
    }

    /// The pass, with what packing has found.
    pub(super) fn packed(self) -> Pass<'r> {
        Pass { ordinary: T::ORDINARY && !self.extraordinary.into_inner(), ..self.pass }
    }

    /// A pair of rows of the pass, with what they are multiplied with; `None` past the last one.
    #[inline(always)]
    fn rows<H: Hvx>(&self, places: Places, pair: usize) -> Result<[matrix_rows::PackedRow; 2], Fault> {
        let Pass { x, rows, depth, .. } = &self.pass;
        let there = rows.saturating_sub(2 * pair).min(2);
        if there == 0 {
            return Ok([None; 2]);
        }
        // A row without a second one counts twice.
        let row = [2 * pair, 2 * pair + there - 1];
        let from = row.map(|row| x.at(self.pass.row(row).0).cast_const().cast::<f32>());
        // SAFETY: `at` has checked the indices, so these are rows of x: `ne[0]` adjacent floats, which are
        // readable and aligned (validation).
        let largest = unsafe { largest_of_two::<H>(from, x.ne[0]) };
        let mut packed = [None; 2];
        for i in 0..there {
            let not_finite = Fault::new(ErrorCode::NotFinite, 0);
            let scale = RowScale::of(largest[i], *depth).ok_or(not_finite)?;
            if !scale.is_ordinary() {
                // Relaxed: the end of the job orders it.
                self.extraordinary.store(true, Ordering::Relaxed);
            }
            // SAFETY: the row is below the rows of the pass, which the layout has factors for, in VTCM and
            // aligned. This worker has claimed the pair.
            unsafe { places.row_factors().add(row[i]).write(scale.back) };
            packed[i] = Some((from[i], scale.to));
        }
        Ok(packed)
    }

    /// Packs rows 2 `pair` and 2 `pair` + 1 of the pass.
    ///
    /// # Safety
    /// This worker has claimed the pair, of a matrix tile of rows of the pass.
    #[inline(always)]
    unsafe fn pair<H: Hvx, const EXCHANGED: bool>(&self, places: Places, pair: usize) -> Result<(), Fault> {
        let rows = self.rows::<H>(places, pair)?;
        let (k, to) = (self.pass.x.ne[0], places.a(pair / PAIRS));
        // SAFETY: (1) both are rows of x, of `k` readable floats, aligned (`rows`, after validation). (2) the
        // pair's tile of rows is one of the pass, for which the layout has matrix tiles of `k` values each in
        // VTCM; this worker has claimed the pair (the caller's contract), and no other job of the op runs.
        unsafe { matrix_rows::pack::<H, EXCHANGED>(rows, k, to, pair % PAIRS) };
        Ok(())
    }

    /// Packs [`TOGETHER`] pairs of rows from `first` on, if the pass has all these rows: what is needed per
    /// row is done for all at once. Gives whether it has.
    ///
    /// # Safety
    /// This worker has claimed the pairs, of a matrix tile of rows of the pass.
    #[inline(always)]
    unsafe fn pairs<H: Hvx, const EXCHANGED: bool>(
        &self,
        places: Places,
        first: usize,
    ) -> Result<bool, Fault> {
        let Pass { x, rows, depth, .. } = &self.pass;
        let row = 2 * first;
        if row + 2 * TOGETHER > *rows {
            return Ok(false);
        }
        let at = |row: usize| x.at(self.pass.row(row).0).cast_const();
        let (start, routed) = (at(row), self.pass.routes.is_some());
        // Rows of one matrix are neighbours on axis 1, of which `at` checks the last one.
        let _ = at(row + 2 * TOGETHER - 1);
        let from: [*const f32; 2 * TOGETHER] = core::array::from_fn(|i| {
            if routed { at(row + i).cast() } else { start.wrapping_add(i * x.nb[1]).cast() }
        });
        // SAFETY: `at` has checked each row, or the first and the last of neighbours, so these are rows of x:
        // `ne[0]` adjacent floats, which are readable and aligned (validation).
        let largest = unsafe { largest_of_eight::<H>(from, x.ne[0]) };
        let scales = RowScales::<H>::of(largest, *depth);
        match scales.kind {
            ScaleKind::Ordinary => {}
            // Relaxed: the end of the job orders it.
            ScaleKind::Finite => self.extraordinary.store(true, Ordering::Relaxed),
            ScaleKind::NotFinite => return Err(Fault::new(ErrorCode::NotFinite, 0)),
        }
        // SAFETY: the rows are below the rows of the pass, which the layout has factors for, in VTCM and
        // aligned. This worker has claimed the pairs.
        unsafe { H::store_n(places.row_factors().add(row), scales.back, 2 * TOGETHER) };
        let (to, lanes) = (places.a(first / PAIRS), H::lanes(scales.to));
        for i in 0..TOGETHER {
            let scales = [H::lane(&lanes, 2 * i), H::lane(&lanes, 2 * i + 1)];
            let (from, pair) = ([from[2 * i], from[2 * i + 1]], (first + i) % PAIRS);
            // SAFETY: (1) both are rows of x, of `ne[0]` readable floats, aligned (validation). (2) the
            // pair's tile of rows is one of the pass, for which the layout has matrix tiles of `k` values
            // each in VTCM; this worker has claimed the pair, and no other job of the op runs.
            unsafe { matrix_rows::pack_both::<H, EXCHANGED>(from, scales, x.ne[0], to, pair) };
        }
        Ok(true)
    }

    /// Claims pairs of rows and packs them until there are none.
    #[inline(always)]
    fn pack<H: Hvx, const EXCHANGED: bool>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let places = self.pass.places(worker);
        while let Some(unit) = worker.claim() {
            let first = unit * TOGETHER;
            // SAFETY: this worker has claimed these pairs, which are of one matrix tile of rows, as a tile
            // has a multiple of them.
            unsafe {
                if !self.pairs::<H, EXCHANGED>(places, first)? {
                    for pair in first..first + TOGETHER {
                        self.pair::<H, EXCHANGED>(places, pair)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`pack`](Self::pack).
    #[inline(never)]
    fn work_off<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        if T::EXCHANGED { self.pack::<H, true>(worker) } else { self.pack::<H, false>(worker) }
    }
}

impl<T: Tiles> Kernel for Pack<'_, T> {
    fn units(&self) -> usize {
        self.pass.row_tiles() * (PAIRS / TOGETHER)
    }

    fn work(&self) -> usize {
        // Two rows: about 30 operations for 32 of their values.
        self.units().saturating_mul(30 * TOGETHER * self.pass.extent.k_tiles)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker)
    }
}

/// A turn: what is done to three chunks at the same time.
pub(super) struct Turn<'r, T> {
    pass: Pass<'r>,
    turn: usize,
    chunks: usize,
    weights: PhantomData<T>,
}

impl<'r, T: Tiles> Turn<'r, T> {
    pub(super) fn new(pass: Pass<'r>, turn: usize, chunks: usize) -> Self {
        Self { pass, turn, chunks, weights: PhantomData }
    }

    /// The chunk that has come so many turns ago, and its strips.
    fn chunk(&self, ago: usize) -> (usize, Range<usize>) {
        let Layout { strips, .. } = self.pass.layout;
        let Some(chunk) = self.turn.checked_sub(ago).filter(|&chunk| chunk < self.chunks) else {
            return (0, 0..0);
        };
        (chunk, chunk * strips..((chunk + 1) * strips).min(self.pass.extent.strips))
    }

    /// Where a strip of so many bytes arrives: at the end of its room.
    fn packed(&self, room: TilePtr) -> VectorPtr {
        let Extent { place, .. } = self.pass.extent;
        let bytes = self.strip_bytes();
        room.vectors().skip((place * TILE_BYTES - bytes) / VECTOR_BYTES)
    }

    fn strip_bytes(&self) -> usize {
        self.pass.group.strip_bytes(self.pass.w.ne[0])
    }

    /// Starts the transfer of strip `i` of the chunk that is to be unpacked.
    #[inline(always)]
    fn fetch(&self, worker: &mut Worker<'_>, places: Places, i: usize) -> Ticket {
        let (chunk, strips) = self.chunk(0);
        let [m2, m3] = self.pass.matrix;
        let src = self.pass.w.at([strips.start + i, m2, m3]);
        let to = self.packed(places.w(chunk, i));
        let transfer = Transfer::linear(src.cast_const(), to.get(), self.strip_bytes());
        // SAFETY: the source is a validated strip that nothing writes during the op. The destination is the
        // end of the room for a strip that this worker has claimed: what was there before was multiplied two
        // turns ago, and the bytes fit, because a strip has no more than its matrix tiles.
        unsafe { worker.dma.push(transfer) }
    }

    /// Unpacks strip `i` of its chunk, which has arrived.
    ///
    /// # Safety
    /// The transfer of the strip was waited for, and this worker has claimed it.
    #[inline(always)]
    unsafe fn unpack<H: Hvx>(&self, places: Places, i: usize) {
        let (chunk, _) = self.chunk(0);
        let Pass { w, group, extent, depth, .. } = &self.pass;
        let room = places.w(chunk, i);
        // SAFETY: the strip's groups, which have tiles for all of k, have arrived at the end of its room (the
        // caller's contract). Room and table are this worker's: it has claimed the strip, the unit multiplies
        // another chunk, and columns of the chunk that is stored are described elsewhere (`Places`).
        unsafe {
            let packed = self.packed(room);
            let columns = T::unpack::<H>(packed, group.count(w.ne[0]), room, extent.k_tiles, *depth);
            columns.store(places.table(chunk, i));
        }
    }

    /// Multiplies the chunk that was unpacked in the last turn.
    #[inline(always)]
    fn multiply(&self, places: Places) {
        let (chunk, strips) = self.chunk(1);
        if strips.is_empty() {
            return;
        }
        let mut unit = Matrix::take();
        let k_tiles = self.pass.extent.k_tiles;
        for i in 0..strips.len() {
            // SAFETY: the table was written in the last turn, and lies in VTCM, as everything in the layout.
            // This is the thread that dispatches, which holds the unit where a plan says HMX.
            unsafe { unit.load_table(places.table(chunk, i)) };
            for row_tile in 0..self.pass.row_tiles() {
                unit.clear();
                for first in (0..k_tiles).step_by(MOST_TILES) {
                    let (a, w) = (places.a(row_tile).skip(first), places.w(chunk, i).skip(first));
                    // SAFETY: (1) 1 to 32 tiles, (2) of the `k_tiles` of these rows, which were packed before
                    // the first turn, and of this strip, which were made in the last one. (3) This is the
                    // thread that dispatches, which holds the unit where a plan says HMX.
                    unsafe { unit.multiply(a, w, MOST_TILES.min(k_tiles - first)) };
                }
                // SAFETY: the layout has a tile for these rows and this strip, which the last chunk that had
                // it no longer needs. This is the thread that dispatches, which holds the unit where a plan
                // says HMX.
                unsafe { unit.store(places.c(chunk, i, row_tile)) };
            }
        }
        unit.finish();
    }

    /// Stores the results of up to [`STORED`] tiles of rows and of a strip of the chunk that was multiplied
    /// in the last turn.
    #[inline(always)]
    fn store<H: Hvx, const ROUTED: bool>(&self, places: Places, i: usize, first_tile: usize) {
        let (chunk, strips) = self.chunk(2);
        let Pass { w, y, rows, ordinary, .. } = &self.pass;
        let column = (strips.start + i) * TILE_ROWS;
        let left = w.ne[1] - column;
        // SAFETY: the factors are the third vector of the table of this strip, which was written two turns
        // ago.
        let factors = unsafe { places.table(chunk, i).vectors().load::<H>(2) };
        // Powers of two are multiplied by adding exponents. An infinite factor counts as 1 there, and then
        // all bits of infinity are set.
        let infinity = H::splat_i(f32::INFINITY.to_bits() as i32);
        let one = H::splat_i(1.0_f32.to_bits() as i32);
        let is_infinite = H::sar_i::<31>(H::add_i(H::bits(factors), H::splat_i(1 << 23)));
        let beyond = H::and_i(is_infinite, infinity);
        let exponents = H::sub_i(H::bits(factors), one);
        let exponents = H::sub_i(exponents, H::and_i(is_infinite, H::sub_i(infinity, one)));
        for row_tile in first_tile..(first_tile + STORED).min(self.pass.row_tiles()) {
            let c = places.c(chunk, i, row_tile).vectors();
            let row = row_tile * TILE_ROWS;
            let rows = (rows - row).min(TILE_ROWS);
            // Rows `r` and the next one of the tile, in order of columns, and their factors.
            let pair = |r: usize| {
                // SAFETY: a tile has 16 vectors of two rows each, and the unit has finished with this one in
                // the last turn. The factors of both rows have room, and those of rows of the pass were
                // written as they were packed; they are aligned to two of them, because `row` and `r` are
                // even.
                unsafe {
                    let both = places.row_factors().add(row + r).cast_const().cast();
                    (H::widen_f16(c.load_b::<H>(r / 2)), H::two_words(both))
                }
            };
            // `at` checks the indices.
            let at = |row: usize| -> *mut u8 { y.at(self.pass.row(row).1) };
            let first = at(row);
            let to = |r: usize| {
                let start = if ROUTED { at(row + r) } else { first.wrapping_add(r * y.nb[1]) };
                start.cast::<f32>().wrapping_add(column)
            };
            // Eight rows at a time, without a condition: the compiler loads nothing ahead of a store.
            let by_eight = if left >= LANES && *ordinary { rows / 8 * 8 } else { 0 };
            for r in (0..by_eight).step_by(8) {
                let times = |v: H::F, factor: i32| {
                    let factor = H::or_i(H::add_i(exponents, H::splat_i(factor)), beyond);
                    H::mul_ieee(v, H::from_bits(factor))
                };
                let (((a, b), (of_a, of_b)), ((c, d), (of_c, of_d))) = (pair(r), pair(r + 2));
                let (((e, f), (of_e, of_f)), ((g, h), (of_g, of_h))) = (pair(r + 4), pair(r + 6));
                // SAFETY: rows `r` to `r + 7` of the tile are rows of the pass, which are rows of y (`to`),
                // with whole strips; the columns of this one are written by this unit alone, and are aligned
                // for f32 (validation).
                unsafe {
                    H::store(to(r), times(a, of_a));
                    H::store(to(r + 1), times(b, of_b));
                    H::store(to(r + 2), times(c, of_c));
                    H::store(to(r + 3), times(d, of_d));
                    H::store(to(r + 4), times(e, of_e));
                    H::store(to(r + 5), times(f, of_f));
                    H::store(to(r + 6), times(g, of_g));
                    H::store(to(r + 7), times(h, of_h));
                }
            }
            let put = |r: usize, v: H::F, factor: i32| {
                let v = H::mul_ieee(H::mul_ieee(v, factors), H::from_bits(H::splat_i(factor)));
                // SAFETY: row `r` of the tile is one of the pass, which are rows of y (`to`), with `left`
                // columns from `column` on: at least 1, because the strip is one of w. Those of the strip are
                // written by this unit alone, and are aligned for f32 (validation).
                unsafe { if left >= LANES { H::store(to(r), v) } else { H::store_n(to(r), v, left) } }
            };
            for r in (by_eight..rows).step_by(2) {
                let ((even, odd), (of_even, of_odd)) = pair(r);
                put(r, even, of_even);
                if r + 1 < rows {
                    put(r + 1, odd, of_odd);
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
        let (unpacked, blocks) = (self.chunk(0).1.len(), self.pass.row_tiles().div_ceil(STORED));
        let mut pending: Option<(usize, Ticket)> = None;
        loop {
            let unit = worker.claim();
            let fetched = match unit {
                Some(strip) if strip < unpacked => Some((strip, self.fetch(worker, places, strip))),
                Some(unit) => {
                    let unit = unit - unpacked;
                    let (strip, row_tile) = (unit / blocks, unit % blocks * STORED);
                    if self.pass.routes.is_some() {
                        self.store::<H, true>(places, strip, row_tile);
                    } else {
                        self.store::<H, false>(places, strip, row_tile);
                    }
                    None
                }
                None => None,
            };
            if let Some((strip, ticket)) = pending {
                worker.dma.wait(ticket)?;
                // SAFETY: the transfer was waited for on the line above, and this worker has claimed the
                // strip.
                unsafe { self.unpack::<H>(places, strip) };
            }
            pending = fetched;
            if unit.is_none() {
                return Ok(());
            }
        }
    }
}

impl<T: Tiles> Kernel for Turn<'_, T> {
    fn units(&self) -> usize {
        self.chunk(0).1.len() + self.chunk(2).1.len() * self.pass.row_tiles().div_ceil(STORED)
    }

    fn work(&self) -> usize {
        let Extent { k_tiles, .. } = self.pass.extent;
        // About 90 operations for a tile of weights, and 100 for one of results; the unit takes about 10
        // packets for a pair of tiles.
        let unpacked = self.chunk(0).1.len().saturating_mul(90 * k_tiles);
        let multiplied = (self.chunk(1).1.len() * self.pass.row_tiles()).saturating_mul(10 * k_tiles);
        let stored = (self.chunk(2).1.len() * self.pass.row_tiles()).saturating_mul(100);
        unpacked.saturating_add(multiplied).saturating_add(stored)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker)
    }
}
