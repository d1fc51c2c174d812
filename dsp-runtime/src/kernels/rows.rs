//! GET_ROWS and SET_ROWS: rows by index.
//!
//! Ids come from memory that the host may write at any time: each is read once, checked, then used.

use hexflash_abi::dtype::{TILE_K, q4_0, q6k, q8_0};
use hexflash_abi::op::{get_rows, set_rows};
use hexflash_abi::{DType, ErrorCode, Fault, VECTOR_BYTES};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::row::convert;

/// Elements of a row that a unit of SET_ROWS covers.
const COLUMNS: usize = 1024;

/// y = rows of `table`.
struct GetRows {
    table: View,
    ids: View,
    y: View,
}

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
    run.parallel(&kernel)
}

/// SET_ROWS: x{k,m,b2,b3}, ids{m,c2,c3} -> y{k,n,b2,b3}, F32 or F16; where ids repeat, the last row stays.
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
fn row_id(ids: &View, i: [usize; 3], of: &View) -> Result<usize, Fault> {
    let id = ids.int([i[0], i[1], i[2], 0]);
    match usize::try_from(id) {
        Ok(row) if row < of.ne[1] => Ok(row),
        _ => Err(Fault::new(ErrorCode::BadRowIndex, id as u32)),
    }
}

/// A row of a strip: 32 values from 32 * `tile` on.
///
/// # Safety
/// `strip` is a strip of the tiled type `dtype` that has this tile, readable and aligned to vectors; `lane`
/// is below 32.
#[inline(always)]
unsafe fn load_tile<H: Hvx>(dtype: DType, strip: *const u8, lane: usize, tile: usize) -> H::F {
    let mut values = Lanes([0; LANES]);
    let (per_group, bytes) = dtype.tile_group().map_or((1, 0), |group| (group.k / TILE_K, group.bytes));
    let (group, tile) = (strip.wrapping_add(tile / per_group * bytes), tile % per_group);
    // SAFETY: the strip has this tile (the caller's contract), and so its group. `at + vector * 128` is a
    // vector of the group, by the layouts of `dtype.rs`, and `lane` is below 32; groups are aligned to
    // vectors.
    let word =
        |at: usize, vector: usize| unsafe { group.add(at + vector * 128 + lane * 4).cast::<u32>().read() };
    // SAFETY: the strip has this tile (the caller's contract), and so its group. `at` is the place of a scale
    // or of d in the group, by the layouts of `dtype.rs`; it is even, and groups are aligned to vectors.
    let half = |at: usize| unsafe { half::f16::from_bits(group.add(at).cast::<u16>().read()).to_f32() };
    let byte = |word: u32, b: usize| i32::from(word.to_le_bytes()[b]);
    // The f16 scale of a tile in Q8_0 and Q4_0.
    let scale = |scales: usize| half(scales + tile / 2 * 128 + lane * 4 + tile % 2 * 2);
    match dtype {
        DType::F16x32 => {
            for v in 0..16 {
                let pair = word(0, v);
                values.0[2 * v] = half::f16::from_bits(pair as u16).to_f32().to_bits() as i32;
                values.0[2 * v + 1] = half::f16::from_bits((pair >> 16) as u16).to_f32().to_bits() as i32;
            }
            H::from_bits(values.load::<H>())
        }
        DType::Q8_0x32 => {
            for v in 0..8 {
                let quants = word(tile * q8_0::TILE, v);
                for b in 0..4 {
                    values.0[4 * v + b] = byte(quants, b) - 128;
                }
            }
            H::mul(H::to_float(values.load::<H>()), H::splat(scale(q8_0::SCALES)))
        }
        DType::Q4_0x32 => {
            for v in 0..4 {
                let quants = word(tile * q4_0::TILE, v);
                for b in 0..4 {
                    values.0[4 * v + b] = (byte(quants, b) & 15) - 8;
                    values.0[16 + 4 * v + b] = (byte(quants, b) >> 4) - 8;
                }
            }
            H::mul(H::to_float(values.load::<H>()), H::splat(scale(q4_0::SCALES)))
        }
        DType::Q6Kx32 => {
            for v in 0..4 {
                let low = word(tile * q6k::LOW_TILE, v);
                for b in 0..4 {
                    values.0[4 * v + b] = byte(low, b) & 15;
                    values.0[16 + 4 * v + b] = byte(low, b) >> 4;
                }
            }
            for h in 0..2 {
                let high = word(q6k::HIGH + tile * q6k::HIGH_TILE, h);
                for i in 0..4 {
                    for b in 0..4 {
                        let value = &mut values.0[16 * h + 4 * i + b];
                        *value = (*value | (byte(high, b) >> (2 * i) & 3) << 4) - 32;
                    }
                }
            }
            let d = half(q6k::D + lane * 4);
            // (d * scale) * q, the order of ggml.
            let scale = |s: usize| {
                let at = s / 4 * VECTOR_BYTES + 4 * lane + s % 4;
                // SAFETY: the strip has this tile (the caller's contract), and so its group, which has four
                // vectors of scales at `q6k::SCALES`: this is byte `4 * lane + s % 4` of vector `s / 4`.
                let scale = unsafe { group.add(q6k::SCALES + at).cast::<i8>().read() };
                d * f32::from(scale)
            };
            let (first, second) = (scale(2 * tile), scale(2 * tile + 1));
            let scales =
                Lanes(core::array::from_fn(|i| (if i < 16 { first } else { second }).to_bits() as i32));
            H::mul(H::to_float(values.load::<H>()), H::from_bits(scales.load::<H>()))
        }
        DType::F32x32 => {
            for k in 0..TILE_K {
                values.0[k] = word(0, k) as i32;
            }
            H::from_bits(values.load::<H>())
        }
        // The caller's promise excludes them.
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act => H::splat(0.0),
    }
}

/// A vector in memory.
#[repr(C, align(128))]
struct Lanes([i32; LANES]);

impl Lanes {
    #[inline(always)]
    fn load<H: Hvx>(&self) -> H::I {
        // SAFETY: `self.0` is an array of 32 words, which are 128 bytes.
        H::words(unsafe { H::load_b(self.0.as_ptr().cast()) })
    }
}

impl Kernel for GetRows {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // A tile is taken apart by scalar instructions.
        let tiled = self.table.dtype.tile_group().is_some();
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * if tiled { 100 } else { 8 })
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
                let strip = table.at([id / 32, i[1], i[2]]).cast_const();
                for tile in 0..k.div_ceil(TILE_K) {
                    // SAFETY: `at` has checked that the table has the strip of `id`, whose groups cover `k`
                    // values, so it has this tile; it is readable, and `id % 32` is below 32.
                    let values = unsafe { load_tile::<H>(dtype, strip, id % 32, tile) };
                    let at = tile * TILE_K;
                    y.part(at, TILE_K.min(k - at)).set_vector::<H>(0, values);
                }
            } else {
                let row = table.at([id, i[1], i[2]]).cast_const();
                // SAFETY: `at` has checked that the table has row `id`, which is aligned and has `k`
                // elements, as row `i` of y has. The two do not overlap (validation), and this worker alone
                // has claimed the row of y.
                unsafe { convert::<H>(dtype, row, DType::F32, y.as_mut_ptr().cast(), k) };
            }
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
        let size = y.dtype.element_bytes().unwrap_or(0);
        while let Some(unit) = worker.claim() {
            let (cut, matrix) = (unit % self.cuts(), unit / self.cuts());
            let (i2, i3) = (matrix % x.ne[2], matrix / x.ne[2]);
            let column = cut * COLUMNS;
            let columns = COLUMNS.min(y.ne[0] - column);
            for i1 in 0..x.ne[1] {
                let id = row_id(ids, [i1, i2 % ids.ne[1], i3 % ids.ne[2]], y)?;
                let from = x.row([i1, i2, i3]).part(column, columns).as_ptr().cast();
                let to = y.at([id, i2, i3]).wrapping_add(column * size);
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
