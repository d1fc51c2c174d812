//! GET_ROWS and SET_ROWS: rows by index.
//!
//! Ids come from memory that the host may write at any time: each is read once, checked, then used.

use hexflash_abi::dtype::{TILE_K, q4_0, q6k, q8_0};
use hexflash_abi::{DType, ErrorCode, Fault, VECTOR_BYTES};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::platform::Platform;
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

/// GET_ROWS: table{k,n,b2,b3}, ids{m,b2,b3} -> y{k,m,b2,b3}, as F32. Quantized rows come out as ggml dequantizes
/// them, to the bit. Integers stay integers.
///
/// # Errors
/// [`ErrorCode::BadRowIndex`] with the id, if one is not a row of the table.
pub fn get_rows<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let kernel = GetRows { table: run.src(0)?, ids: run.src(1)?, y: run.dst()? };
    run.parallel(&kernel)
}

/// SET_ROWS: x{k,m,b2,b3}, ids{m,c2,c3} -> y{k,n,b2,b3}, F32 or F16; where ids repeat, the last row stays.
///
/// # Errors
/// [`ErrorCode::BadRowIndex`] with the id, if one is not a row of y.
pub fn set_rows<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let kernel = SetRows { x: run.src(0)?, ids: run.src(1)?, y: run.dst()? };
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
/// `strip` is a strip of the tiled type `dtype` that has this tile, readable; `lane` is below 32.
#[inline(always)]
unsafe fn load_tile<H: Hvx>(dtype: DType, strip: *const u8, lane: usize, tile: usize) -> H::F {
    let mut values = Lanes([0; LANES]);
    let (per_group, bytes) = dtype.tile_group().map_or((1, 0), |group| (group.k / TILE_K, group.bytes));
    let (group, tile) = (strip.wrapping_add(tile / per_group * bytes), tile % per_group);
    // SAFETY: offsets below are inside the group, per the table of layouts; words and halves are aligned in it.
    let word =
        |at: usize, vector: usize| unsafe { group.add(at + vector * 128 + lane * 4).cast::<u32>().read() };
    // SAFETY: as above.
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
                // SAFETY: byte 4 * lane + s % 4 of vector s / 4 of the block scales.
                let scale = unsafe { group.add(q6k::SCALES + at).cast::<i8>().read() };
                d * f32::from(scale)
            };
            let (first, second) = (scale(2 * tile), scale(2 * tile + 1));
            let scales =
                Lanes(core::array::from_fn(|i| (if i < 16 { first } else { second }).to_bits() as i32));
            H::mul(H::to_float(values.load::<H>()), H::from_bits(scales.load::<H>()))
        }
        _ => {
            for k in 0..TILE_K {
                values.0[k] = word(0, k) as i32;
            }
            H::from_bits(values.load::<H>())
        }
    }
}

/// A vector in memory.
#[repr(C, align(128))]
struct Lanes([i32; LANES]);

impl Lanes {
    #[inline(always)]
    fn load<H: Hvx>(&self) -> H::I {
        // SAFETY: 128 bytes.
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
                    // SAFETY: row r was claimed by this worker alone.
                    unsafe { self.y.set_int([j, i[0], i[1], i[2]], table.int([j, id, i[1], i[2]])) };
                }
                continue;
            }
            // SAFETY: as above.
            let mut y = unsafe { self.y.row_mut(i) };
            if dtype.tile_group().is_some() {
                let strip = table.at([id / 32, i[1], i[2]]).cast_const();
                for tile in 0..k.div_ceil(TILE_K) {
                    // SAFETY: the strip of a checked id, whose groups cover k.
                    let values = unsafe { load_tile::<H>(dtype, strip, id % 32, tile) };
                    let at = tile * TILE_K;
                    y.part(at, TILE_K.min(k - at)).set_vector::<H>(0, values);
                }
            } else {
                let row = table.at([id, i[1], i[2]]).cast_const();
                // SAFETY: the row of a checked id has the k elements of a row of y, and does not overlap it.
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
                // SAFETY: the columns are inside a row of x and, the id being checked, of y, which do not overlap;
                // this worker alone claimed these columns of the matrix.
                unsafe { convert::<H>(DType::F32, from, y.dtype, to, columns) };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;
    use hexflash_abi::{DType, ErrorCode};

    use crate::testing::{Batch, everywhere, random, setups};

    const STEP: StepRegisters = StepRegisters::step(0, 1);

    /// A matrix{k,n} of a type: its bytes, and its values as ggml dequantizes them.
    fn matrix(dtype: DType, k: usize, n: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
        let values = random(seed, k * n, -2.0, 2.0);
        let quants: Vec<u32> = random(seed + 1, k * n, 0.0, 65536.0).iter().map(|&v| v as u32).collect();
        let group_k = dtype.tile_group().map_or(1, |g| g.k);
        let bytes = match dtype.tile_group() {
            Some(group) => group.matrix_bytes(k, n),
            None => k * n * dtype.element_bytes().unwrap(),
        };
        let mut data = vec![0u8; bytes];
        let mut exact = vec![0.0; k * n];
        for row in 0..n {
            for at in 0..k {
                let e = row * k + at;
                let (lane, tile, t) = (row % 32, at / 32 % (group_k / 32).max(1), at % 32);
                let group =
                    dtype.tile_group().map_or(0, |g| row / 32 * g.strip_bytes(k) + at / group_k * g.bytes);
                // One scale per 32 values, and per 16 in Q6_K, where one d per 256 comes on top.
                let scale = f16::from_f32(values[row * k + at / 32 * 32]);
                // Adds bits to bytes that may have others already.
                let mut put = |at: usize, bytes: &[u8]| {
                    data[group + at..].iter_mut().zip(bytes).for_each(|(to, from)| *to |= from);
                };
                let scale_at = |scales: usize| scales + 128 * (tile / 2) + 4 * lane + 2 * (tile % 2);
                exact[e] = match dtype {
                    DType::F32 => {
                        put(4 * e, &values[e].to_le_bytes());
                        values[e]
                    }
                    DType::F16 => {
                        let half = f16::from_f32(values[e]);
                        put(2 * e, &half.to_bits().to_le_bytes());
                        half.to_f32()
                    }
                    DType::F32x32 => {
                        put(128 * t + 4 * lane, &values[e].to_le_bytes());
                        values[e]
                    }
                    DType::F16x32 => {
                        let half = f16::from_f32(values[e]);
                        put(128 * (t / 2) + 4 * lane + 2 * (t % 2), &half.to_bits().to_le_bytes());
                        half.to_f32()
                    }
                    DType::Q8_0x32 => {
                        let q = quants[e] as u8;
                        put(1024 * tile + 128 * (t / 4) + 4 * lane + t % 4, &[q]);
                        put(scale_at(4096), &scale.to_bits().to_le_bytes());
                        (i32::from(q) - 128) as f32 * scale.to_f32()
                    }
                    DType::Q4_0x32 => {
                        let q = quants[e] as u8 & 15;
                        put(512 * tile + 128 * (t % 16 / 4) + 4 * lane + t % 4, &[q << (t / 16 * 4)]);
                        put(scale_at(2048), &scale.to_bits().to_le_bytes());
                        (i32::from(q) - 8) as f32 * scale.to_f32()
                    }
                    _ => {
                        let q = quants[e] as u8 & 63;
                        let d = f16::from_f32(values[row * k + at / 256 * 256]);
                        let block = quants[row * k + at / 16 * 16] as i8;
                        put(512 * tile + 128 * (t % 16 / 4) + 4 * lane + t % 4, &[(q & 15) << (t / 16 * 4)]);
                        let high = 4096 + 256 * tile + 128 * (t / 16) + 4 * lane + t % 4;
                        put(high, &[(q >> 4) << (2 * (t % 16 / 4))]);
                        let number = at % 256 / 16;
                        put(6144 + 128 * (number / 4) + 4 * lane + number % 4, &[block as u8]);
                        put(6656 + 4 * lane, &d.to_bits().to_le_bytes());
                        d.to_f32() * f32::from(block) * (i32::from(q) - 32) as f32
                    }
                };
            }
        }
        (data, exact)
    }

    const TABLES: [DType; 7] =
        [DType::F32, DType::F16, DType::F32x32, DType::F16x32, DType::Q8_0x32, DType::Q4_0x32, DType::Q6Kx32];

    /// Every type, widths that do and do not fill a group, ids in any order and repeated: to the bit.
    #[test]
    fn rows_of_every_type() {
        for dtype in TABLES {
            for (k, n) in [(1, 3), (31, 33), (33, 5), (100, 70), (256, 40), (1024, 33)] {
                let (data, values) = matrix(dtype, k, n, k as u64);
                let last = n as i32 - 1;
                let mut ids = vec![0, last, last / 2, 0, last];
                // Enough for several workers.
                ids.extend((0..60).map(|i| i * 7 % n as i32));
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let table = batch.tensor(dtype, [k as u32, n as u32, 1, 1]);
                    batch.write(table, &data);
                    let m = ids.len() as u32;
                    let ids = batch.i32([m, 1, 1, 1], &ids);
                    let y = batch.f32([k as u32, m, 1, 1], &vec![7.0; k * m as usize]);
                    batch.run(setup, Op::GetRows, &[table, ids], &[y], &[0u32; 0], STEP).unwrap();
                    batch.floats(y)
                });
                for (row, &id) in actual.chunks_exact(k).zip(&ids) {
                    assert_eq!(row, &values[id as usize * k..][..k], "{dtype} k={k} id={id}");
                }
            }
        }
    }

    /// Each matrix has its own ids; ids strided; the step has fewer tokens than the program.
    #[test]
    fn several_matrices_and_the_token_axis() {
        let (k, n) = (40usize, 35usize);
        for dtype in TABLES {
            let matrices: Vec<_> = (0..6).map(|i| matrix(dtype, k, n, i)).collect();
            let all: Vec<u8> = matrices.iter().flat_map(|(data, _)| data.iter().copied()).collect();
            let ids: Vec<i32> = (0..4 * 6).map(|i| i * 11 % n as i32).collect();
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(4, 8);
                let table = batch.tensor(dtype, [k as u32, n as u32, 3, 2]);
                batch.write(table, &all);
                let ids = batch.i32([3, 2, 4, 1], &ids);
                let ids = batch.view(ids, |t| {
                    (t.ne, t.nb) = ([4, 3, 2, 1], [24, 4, 12, 96]);
                    t.token_axis = 0;
                });
                let y = batch.f32([k as u32, 4, 3, 2], &vec![7.0; k * 24]);
                let out = batch.view(y, |t| t.token_axis = 1);
                let step = StepRegisters::step(0, 3);
                batch.run(setup, Op::GetRows, &[table, ids], &[out], &[0u32; 0], step).unwrap();
                batch.floats(y)
            });
            for (r, row) in actual.chunks_exact(k).enumerate() {
                let (m, matrix) = (r % 4, r / 4);
                let id = ids[m * 6 + matrix] as usize;
                let expected = if m < 3 { matrices[matrix].1[id * k..][..k].to_vec() } else { vec![7.0; k] };
                assert_eq!(row, expected, "{dtype} row {r}");
            }
        }
    }

    #[test]
    fn bad_ids_are_refused() {
        for id in [-1, i32::MIN, 33, i32::MAX] {
            for setup in setups() {
                for dtype in TABLES {
                    let mut batch = Batch::new(1, 1);
                    let table = batch.tensor(dtype, [40, 33, 1, 1]);
                    let ids = batch.i32([3, 1, 1, 1], &[32, id, 0]);
                    let y = batch.f32([40, 3, 1, 1], &[7.0; 120]);
                    let fault =
                        batch.run(setup, Op::GetRows, &[table, ids], &[y], &[0u32; 0], STEP).unwrap_err();
                    assert_eq!((fault.code, fault.detail), (ErrorCode::BadRowIndex, id as u32));
                }
                for dtype in [DType::F32, DType::F16] {
                    let mut batch = Batch::new(1, 1);
                    let x = batch.f32([40, 3, 1, 1], &[7.0; 120]);
                    let ids = batch.i32([3, 1, 1, 1], &[32, id, 0]);
                    let y = batch.tensor(dtype, [40, 33, 1, 1]);
                    let fault = batch.run(setup, Op::SetRows, &[x, ids], &[y], &[0u32; 0], STEP).unwrap_err();
                    assert_eq!((fault.code, fault.detail), (ErrorCode::BadRowIndex, id as u32));
                }
            }
        }
    }

    /// Rows land where ids say, the last of equals stays, the others are left alone; ids shared by the matrices.
    #[test]
    fn rows_are_set() {
        for dtype in [DType::F32, DType::F16] {
            for (k, m) in [(1usize, 4usize), (31, 4), (33, 3), (100, 5), (3000, 40)] {
                let n = 50;
                let x = random(k as u64, k * m * 4, -3.0, 3.0);
                // {m, c2 = 1, c3 = 2} over {k, m, 2, 2}; the last two rows go to the same place.
                let mut ids: Vec<i32> = (0..2 * m as i32).map(|i| (i * 13 + 5) % n as i32).collect();
                ids[m - 2] = ids[m - 1];
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let x = batch.f32([k as u32, m as u32, 2, 2], &x);
                    let ids = batch.i32([m as u32, 1, 2, 1], &ids);
                    let y = batch.tensor(dtype, [k as u32, n, 2, 2]);
                    batch.run(setup, Op::SetRows, &[x, ids], &[y], &[0u32; 0], STEP).unwrap();
                    batch.read(y).to_vec()
                });
                let mut expected = vec![0.0; k * n as usize * 4];
                for matrix in 0..4 {
                    for i in 0..m {
                        let id = ids[matrix / 2 * m + i] as usize;
                        let from = (matrix * m + i) * k;
                        let to = (matrix * n as usize + id) * k;
                        expected[to..to + k].copy_from_slice(&x[from..from + k]);
                    }
                }
                let encoded: Vec<u8> = match dtype {
                    DType::F16 => {
                        expected.iter().flat_map(|&v| f16::from_f32(v).to_bits().to_le_bytes()).collect()
                    }
                    _ => expected.iter().flat_map(|&v| v.to_le_bytes()).collect(),
                };
                assert!(actual == encoded, "{dtype} k={k}");
            }
        }
    }

    /// Rows of x apart, and a step with fewer tokens than the program.
    #[test]
    fn setting_views_and_the_token_axis() {
        let values = random(1, 50 * 4, -1.0, 1.0);
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(4, 8);
            let x = batch.f32([50, 4, 1, 1], &values);
            let x = batch.view(x, |t| (t.ne[0], t.offset, t.token_axis) = (33, t.offset + 40, 1));
            // The last id is out of range, but no token of the step.
            let ids = batch.i32([4, 1, 1, 1], &[6, 0, 3, 99]);
            let ids = batch.view(ids, |t| t.token_axis = 0);
            let y = batch.f32([33, 7, 1, 1], &[7.0; 33 * 7]);
            batch.run(setup, Op::SetRows, &[x, ids], &[y], &[0u32; 0], StepRegisters::step(0, 3)).unwrap();
            batch.floats(y)
        });
        for (r, row) in actual.chunks_exact(33).enumerate() {
            match [6, 0, 3].iter().position(|&id| id == r) {
                Some(t) => assert_eq!(row, &values[50 * t + 10..][..33]),
                None => assert_eq!(row, [7.0; 33]),
            }
        }
    }
}
