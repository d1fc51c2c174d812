//! A product of tiled weights and rows of x: its units of work, and pieces of weights on their way to them.

use hexflash_abi::dtype::{ActivationRow, TILE_ROWS, TileGroup};
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use super::activations;
use super::routes::Routes;
use super::tuning::ROWS;
use crate::dma::{Ticket, Transfer};
use crate::hvx::VectorPtr;
use crate::memory::View;
use crate::pool::Worker;
use crate::stream::{Staged, Stream, StreamedMatrix};

/// The operands of a product, and how the weights are cut.
#[derive(Clone, Copy)]
pub struct Product<'r> {
    pub w: View,
    pub x: View,
    pub y: View,
    /// Matrices of x, per axis, that read the same matrix of w.
    pub repeat: [usize; 2],
    pub group: TileGroup,
    /// Groups of a strip, and of a piece.
    pub groups: usize,
    pub piece_groups: usize,
    /// Strips of a unit: one, or as many as a piece has.
    pub strips: usize,
    /// Which rows each expert multiplies, if this is MUL_MAT_ID; else all rows are every matrix's.
    pub routes: Option<&'r Routes>,
    /// The weight stream, and w as a part of it, if that is where pieces come from.
    pub stream: Option<(&'r Stream<'r>, StreamedMatrix)>,
}

/// A claimed unit: which strips, which rows of x.
#[derive(Clone, Copy)]
pub struct ProductUnit {
    /// First strip, and how many.
    pub strip: usize,
    pub strips: usize,
    /// Indices of axes 2 and 3 of w.
    pub matrix: [usize; 2],
    /// Indices of axes 2 and 3 of x.
    pub batch: [usize; 2],
    /// First row of x, or of the routes, and how many.
    pub row: usize,
    pub rows: usize,
}

/// A piece of a unit's weights on its way to VTCM.
#[derive(Clone, Copy)]
pub struct StagedGroups {
    pub unit: ProductUnit,
    /// First group of the strip in this piece, and how many of each strip.
    pub first: usize,
    pub groups: usize,
    pub ticket: Ticket,
    /// Which of the worker's two places it has, or where it lies in the worker's weight ring.
    pub slot: usize,
}

impl Product<'_> {
    /// That all scales of activations are finite.
    pub fn check_activations(&self) -> Result<(), Fault> {
        let layout = ActivationRow::new(self.x.ne[0]);
        for r in 0..self.x.rows() {
            let row = self.x.at(self.x.unravel(r)).cast_const();
            // SAFETY: `row` is a row of the validated view x, of `layout.bytes()` bytes inside the buffer,
            // aligned to vectors (validation).
            if !unsafe { activations::finite(row, layout) } {
                return Err(Fault::new(ErrorCode::NotFinite, r as u32));
            }
        }
        Ok(())
    }

    /// Units of one pass over the weights.
    pub fn turns(&self) -> usize {
        self.w.ne[1].div_ceil(TILE_ROWS).div_ceil(self.strips)
    }

    #[inline(always)]
    pub fn unit(&self, number: usize) -> ProductUnit {
        let all = self.w.ne[1].div_ceil(TILE_ROWS);
        let strip = number * self.strips;
        if self.routes.is_none() && strip < all && self.x.ne[1] <= ROWS {
            // The usual case, without divisions, which are function calls on a DSP.
            let strips = self.strips.min(all - strip);
            return ProductUnit { strip, strips, matrix: [0; 2], batch: [0; 2], row: 0, rows: self.x.ne[1] };
        }
        let (turn, rest) = (number % self.turns(), number / self.turns());
        let strip = turn * self.strips;
        let strips = self.strips.min(all - strip);
        if let Some(routes) = self.routes {
            let (expert, row, rows) = routes.share(rest);
            return ProductUnit { strip, strips, matrix: [expert, 0], batch: [0; 2], row, rows };
        }
        let chunks = self.x.ne[1].div_ceil(ROWS);
        let (chunk, batch) = (rest % chunks, rest / chunks);
        let row = chunk * ROWS;
        let rows = ROWS.min(self.x.ne[1] - row);
        let batch = [batch % self.x.ne[2], batch / self.x.ne[2]];
        let matrix = [batch[0] / self.repeat[0], batch[1] / self.repeat[1]];
        ProductUnit { strip, strips, matrix, batch, row, rows }
    }

    /// Addresses of row `i` of a unit in x and in y.
    #[inline(always)]
    pub fn row(&self, unit: &ProductUnit, i: usize) -> (*const u8, *mut f32) {
        let at = [unit.row + i, unit.batch[0], unit.batch[1]];
        let (x, y) = match self.routes {
            None => (at, at),
            Some(routes) => routes.row(at[0], self.x.ne[1]),
        };
        (self.x.at(x).cast_const(), self.y.at(y).cast())
    }

    /// Starts the transfer of the piece after `previous`: of the same unit, or of a newly claimed one.
    #[inline(always)]
    pub fn fetch(&self, worker: &mut Worker<'_>, previous: Option<&StagedGroups>) -> Option<StagedGroups> {
        let (unit, first, slot) = match previous {
            Some(p) if p.first + p.groups < self.groups => (p.unit, p.first + p.groups, 1 - p.slot),
            _ => (self.unit(worker.claim()?), 0, previous.map_or(0, |p| 1 - p.slot)),
        };
        let groups = self.piece_groups.min(self.groups - first);
        let strip = self.w.at([unit.strip, unit.matrix[0], unit.matrix[1]]);
        let src = strip.wrapping_add(first * self.group.bytes);
        let bytes = unit.strips * groups * self.group.bytes;
        let transfer = Transfer::linear(src, self.slot(worker, slot).get(), bytes);
        // SAFETY: the source is part of a validated strip that nothing writes during the op, or several
        // strips, which have no gaps; the slot is this worker's own, and the piece that it held was
        // multiplied before this call (two slots, used in turn).
        let ticket = unsafe { worker.dma.push(transfer) };
        Some(StagedGroups { unit, first, groups, ticket, slot })
    }

    /// The next piece of the weight stream that is of this matrix. `multiplied`: the one before it is done
    /// with.
    #[inline(always)]
    pub fn streamed(&self, worker: &mut Worker<'_>, multiplied: bool) -> Option<StagedGroups> {
        let (stream, matrix) = self.stream?;
        let Staged { piece, offset, ticket, .. } = worker.next_piece(stream, multiplied, matrix.end)?;
        let unit = self.unit((piece.unit - matrix.first) as usize);
        Some(StagedGroups { unit, first: piece.first, groups: piece.groups, ticket, slot: offset })
    }

    #[inline(always)]
    pub fn slot(&self, worker: &Worker<'_>, slot: usize) -> VectorPtr {
        if let Some((stream, _)) = self.stream {
            return worker.weight_ring(stream, slot);
        }
        let bytes = self.piece_groups * self.group.bytes;
        // Groups are whole vectors, and so is a worker's region.
        worker.own_vtcm().skip((worker.own_bytes() - (2 - slot) * bytes) / VECTOR_BYTES)
    }
}
