//! GET_ROWS and SET_ROWS: rows by index.
//!
//! Ids come from memory that the host may write at any time: each is read once, checked, then used.

mod tile;

use hexflash_abi::dtype::{TILE_K, TILE_ROWS};
use hexflash_abi::op::{get_rows, set_rows};
use hexflash_abi::{DType, ErrorCode, Fault};

use self::tile::TILES;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::convert;
use crate::row_blocks;

/// Elements of a row that a unit of SET_ROWS covers: whole blocks.
const COLUMNS: usize = 1024;

/// y = rows of `table`.
struct GetRows {
    table: View,
    ids: View,
    y: View,
}

/// y = rows of `table`, which are blocks.
struct GetBlocks(GetRows);

/// Rows of y = x.
struct SetRows {
    x: View,
    ids: View,
    y: View,
}

/// GET_ROWS: table{k,n,b2,b3}, ids{m,b2,b3} -> y{k,m,b2,b3}, as F32. Quantized rows come out as ggml
/// dequantizes them, to the bit. Integers stay integers.
///
/// # Errors
/// [`ErrorCode::BadRowIndex`] with the id, if one is not a row of the table.
pub fn get_rows(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (table, ids) = (run.operand(get_rows::TABLE)?, run.operand(get_rows::IDS)?);
    let kernel = GetRows { table, ids, y: run.operand(get_rows::Y)? };
    if table.dtype == DType::Q8_0 { run.parallel(&GetBlocks(kernel)) } else { run.parallel(&kernel) }
}

/// SET_ROWS: x{k,m,b2,b3}, ids{m,c2,c3} -> y{k,n,b2,b3}, F32, F16 or Q8_0; where ids repeat, the last row
/// stays.
///
/// # Errors
/// [`ErrorCode::BadRowIndex`] with the id, if one is not a row of y.
pub fn set_rows(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, ids) = (run.operand(set_rows::X)?, run.operand(set_rows::IDS)?);
    let kernel = SetRows { x, ids, y: run.operand(set_rows::Y)? };
    run.parallel(&kernel)
}

/// The id at `i`, as a row of `of`.
#[inline(always)]
pub(super) fn row_id(ids: &View, i: [usize; 3], of: &View) -> Result<usize, Fault> {
    let id = ids.int([i[0], i[1], i[2], 0]);
    match usize::try_from(id) {
        Ok(row) if row < of.ne[1] => Ok(row),
        _ => Err(Fault::new(ErrorCode::BadRowIndex, id as u32)),
    }
}

impl Kernel for GetRows {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // A tile is taken apart by scalar instructions.
        let tiled = self.table.dtype.tile_group().is_some();
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * if tiled { 24 } else { 8 })
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (table, k) = (&self.table, self.y.ne[0]);
        let dtype = table.dtype;
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let id = row_id(&self.ids, i, table)?;
            if dtype == DType::I32 {
                for j in 0..k {
                    // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone;
                    // `set_int` checks the indices.
                    unsafe { self.y.set_int([j, i[0], i[1], i[2]], table.int([j, id, i[1], i[2]])) };
                }
                continue;
            }
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone.
            let mut y = unsafe { self.y.row_mut(i) };
            if dtype.tile_group().is_some() {
                let strip = table.at([id / TILE_ROWS, i[1], i[2]]).cast_const();
                let all = k.div_ceil(TILE_K);
                for first in (0..all).step_by(TILES) {
                    let tiles = TILES.min(all - first);
                    // SAFETY: `at` has checked that the table has the strip of `id`, whose groups cover `k`
                    // values, so it has these tiles; it is readable, and the lane is below 32. `first` is a
                    // multiple of TILES.
                    let values = unsafe { tile::load::<H>(dtype, strip, id % TILE_ROWS, first, tiles) };
                    for (v, values) in (first..first + tiles).zip(values) {
                        y.set_vector::<H>(v, values);
                    }
                }
            } else {
                let row = table.at([id, i[1], i[2]]).cast_const();
                // One of two types, so that the compiler leaves out what others take.
                let dtype = if dtype == DType::F16 { DType::F16 } else { DType::F32 };
                // SAFETY: `at` has checked that the table has row `id`, which is aligned and has `k`
                // elements, as row `i` of y has. It is no row of integers or blocks, which were treated
                // above and are another kernel's. The two do not overlap (validation), and this worker alone
                // has claimed the row of y.
                unsafe { convert::<H>(dtype, row, DType::F32, y.as_mut_ptr().cast(), k) };
            }
        }
        Ok(())
    }
}

impl Kernel for GetBlocks {
    fn units(&self) -> usize {
        self.0.units()
    }

    fn work(&self) -> usize {
        self.0.work()
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let GetRows { table, ids, y } = &self.0;
        let blocks = row_blocks::Q8_0.count(y.ne[0]);
        while let Some(r) = worker.claim() {
            let i = y.unravel(r);
            let row = table.at([row_id(ids, i, table)?, i[1], i[2]]).cast_const();
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. `at` has
            // checked that the table has the row, whose blocks are aligned to 2 bytes and have as many values
            // as the row of y (validation).
            unsafe { row_blocks::unpack_row::<H::Everywhere>(row, y.row_mut(i).as_mut_ptr(), blocks) };
        }
        Ok(())
    }
}

impl SetRows {
    /// Units that a row is cut into.
    fn cuts(&self) -> usize {
        self.y.ne[0].div_ceil(COLUMNS)
    }
}

impl Kernel for SetRows {
    /// A unit is some columns of all rows of a matrix: ids may repeat, and then the last row must win.
    fn units(&self) -> usize {
        self.cuts() * self.x.ne[2] * self.x.ne[3]
    }

    fn work(&self) -> usize {
        self.x.rows().saturating_mul(self.x.ne[0].div_ceil(LANES) * 8 + 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (x, ids, y) = (&self.x, &self.ids, &self.y);
        while let Some(unit) = worker.claim() {
            let (cut, matrix) = (unit % self.cuts(), unit / self.cuts());
            let (i2, i3) = (matrix % x.ne[2], matrix / x.ne[2]);
            let column = cut * COLUMNS;
            let columns = COLUMNS.min(y.ne[0] - column);
            let before = y.dtype.row_bytes(column);
            for i1 in 0..x.ne[1] {
                let id = row_id(ids, [i1, i2 % ids.ne[1], i3 % ids.ne[2]], y)?;
                let from = x.row([i1, i2, i3]).part(column, columns).as_ptr().cast();
                let to = y.at([id, i2, i3]).wrapping_add(before);
                // SAFETY: the columns are inside a row of x and, the id being checked, of y, which do not
                // overlap; this worker alone claimed these columns of the matrix.
                unsafe { convert::<H>(DType::F32, from, y.dtype, to, columns) };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
