//! CPY: a copy with conversion, from any strides to rows; also CONT.

mod transposed;

use hexflash_abi::op::cpy as abi;
use hexflash_abi::{DType, Fault};

use self::transposed::Transposed;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::convert;

/// Elements of a unit of work, at least: rows may be very short.
const UNIT: usize = 1024;

/// y = x, element by element.
struct Cpy {
    x: View,
    y: View,
    /// Rows of a unit.
    rows: usize,
}

/// CPY: x{..} F32, F16 or I32 with any strides, or rows of Q8_0 -> y of the same shape, in rows; F32 and F16,
/// and F32 and Q8_0, convert into each other.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    match Transposed::new(x, y) {
        Some(transposed) => run.parallel(&transposed),
        None => run.parallel(&Cpy { x, y, rows: (UNIT / y.ne[0]).max(1) }),
    }
}

impl Cpy {
    /// Whether the elements of a row of x are adjacent.
    fn adjacent(&self) -> bool {
        self.x.dtype.row_block().is_some_and(|block| block.bytes == self.x.nb[0]) || self.x.ne[0] == 1
    }
}

impl Kernel for Cpy {
    fn units(&self) -> usize {
        self.y.rows().div_ceil(self.rows)
    }

    fn work(&self) -> usize {
        let vectors = self.y.ne[0].div_ceil(LANES);
        // Gathering is one scalar load and store per element.
        let row = if self.adjacent() { vectors * 8 } else { self.y.ne[0] * 2 };
        self.y.rows().saturating_mul(row + 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (x, y) = (&self.x, &self.y);
        let n = y.ne[0];
        while let Some(unit) = worker.claim() {
            let first = unit * self.rows;
            for r in first..(first + self.rows).min(y.rows()) {
                let i = y.unravel(r);
                let (from, to) = (x.at(i).cast_const(), y.at(i));
                if self.adjacent() {
                    // SAFETY: both rows are inside their buffers and do not overlap, and the types go
                    // together (validation); row r is in a unit that this worker alone claimed.
                    unsafe { convert::<H>(x.dtype, from, y.dtype, to, n) };
                } else if x.dtype == DType::F16 {
                    // SAFETY: n elements of x, `nb[0]` apart, and a row of y are inside their buffers and do
                    // not overlap (validation); row r is in a unit that this worker alone claimed.
                    unsafe { gather::<H, u16>(x, from, y, to, n) };
                } else {
                    // SAFETY: n elements of x, `nb[0]` apart, and a row of y are inside their buffers and do
                    // not overlap (validation); row r is in a unit that this worker alone claimed.
                    unsafe { gather::<H, u32>(x, from, y, to, n) };
                }
            }
        }
        Ok(())
    }
}

/// Copies a row whose elements, of the size of `T`, are apart: a vector's worth at a time by way of the
/// stack.
///
/// # Safety
/// 1. `from` is the first of `n` readable elements of x, aligned, each `x.nb[0]` bytes after the last; T has
///    the size of x's type.
/// 2. `to` is a row of `n` elements of y, aligned, and writable by this thread alone.
/// 3. They do not overlap; the types are ones that [`convert`] takes.
#[inline(always)]
unsafe fn gather<H: Hvx, T: Copy + Default>(x: &View, from: *const u8, y: &View, to: *mut u8, n: usize) {
    for at in (0..n).step_by(LANES) {
        let count = LANES.min(n - at);
        let mut stage = [T::default(); LANES];
        for (i, element) in stage[..count].iter_mut().enumerate() {
            // SAFETY: `at + i` is below `n`, so this is one of the `n` elements of x, readable and aligned
            // (point 1); T has the size of its type.
            *element = unsafe { from.add((at + i) * x.nb[0]).cast::<T>().read() };
        }
        // SAFETY: `stage` holds `count` elements of x's type, aligned for it. `count` elements of y from `at`
        // on are in the row, which is writable by this thread alone (point 2), and it does not overlap
        // `stage`, which is local. The types are ones that `convert` takes (point 3).
        unsafe {
            convert::<H>(x.dtype, stage.as_ptr().cast(), y.dtype, to.add(y.dtype.row_bytes(at)), count)
        };
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;
    use hexflash_abi::{DType, ErrorCode, TensorIndex};
    use zerocopy::IntoBytes;

    use crate::testing::{Batch, everywhere, random, setups};

    const STEP: StepRegisters = StepRegisters::step(0, 1);

    /// `values` as the bytes of a type.
    fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
        match dtype {
            DType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_bits().to_le_bytes()).collect(),
            DType::I32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
            _ => values.as_bytes().to_vec(),
        }
    }

    /// What a value is worth after its way through `from`.
    fn through(from: DType, value: f32) -> f32 {
        if from == DType::F16 { f16::from_f32(value).to_f32() } else { value }
    }

    const PAIRS: [(DType, DType); 5] = [
        (DType::F32, DType::F32),
        (DType::F32, DType::F16),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
        (DType::I32, DType::I32),
    ];

    /// Every pair of types, rows adjacent, and permuted in every way.
    #[test]
    fn permutations_and_types() {
        let permutations =
            [[0, 1, 2, 3], [1, 0, 2, 3], [2, 1, 0, 3], [0, 2, 1, 3], [3, 2, 1, 0], [2, 0, 1, 3]];
        let shapes =
            [[1, 3, 2, 2], [31, 3, 2, 1], [33, 2, 3, 2], [100, 5, 1, 1], [256, 40, 3, 1], [70, 99, 2, 1]];
        for ne in shapes {
            let n: u32 = ne.iter().product();
            let values = random(n.into(), n as usize, -100.0, 100.0);
            for (from, to) in PAIRS {
                for axes in permutations {
                    let shape = axes.map(|axis| ne[axis]);
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let x = batch.tensor(from, ne);
                        batch.write(x, &encode(from, &values));
                        let x = batch.view(x, |t| {
                            t.ne = shape;
                            t.nb = axes.map(|axis| t.nb[axis]);
                        });
                        let y = batch.tensor(to, shape);
                        batch.run(setup, Op::Cpy, &[x], &[y], &[0u32; 0], STEP).unwrap();
                        batch.read(y).to_vec()
                    });
                    let mut expected = Vec::new();
                    for element in 0..n {
                        let mut rest = element;
                        let mut i = [0; 4];
                        for (&axis, length) in axes.iter().zip(shape) {
                            (i[axis], rest) = (rest % length, rest / length);
                        }
                        let at = i[0] + ne[0] * (i[1] + ne[1] * (i[2] + ne[2] * i[3]));
                        expected.push(through(from, values[at as usize]));
                    }
                    assert!(actual == encode(to, &expected), "{ne:?} {axes:?} {from} -> {to}");
                }
            }
        }
    }

    /// Ids keep all their bits: they are not floats.
    #[test]
    fn integers_are_copied_as_they_are() {
        let ids = [i32::MIN, -1, 0, 1, i32::MAX, 0x7f80_0001, 0x7fc0_0000, 3];
        for stride in [4, 8] {
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(1, 1);
                let x = batch.i32([8, 1, 1, 1], &ids);
                let x = batch.view(x, |t| (t.ne[0], t.nb[0]) = (4, stride));
                let y = batch.i32([4, 1, 1, 1], &[-7; 4]);
                batch.run(setup, Op::Cpy, &[x], &[y], &[0u32; 0], STEP).unwrap();
                batch.ints(y)
            });
            let step = stride as usize / 4;
            assert_eq!(actual, ids.iter().step_by(step).take(4).copied().collect::<Vec<_>>());
        }
    }

    /// One element repeated (stride 0), rows of y apart, and a step with fewer tokens than the program.
    #[test]
    fn repeated_elements_gaps_and_the_token_axis() {
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(4, 8);
            let x = batch.f32([4, 1, 1, 1], &[1.5, 2.5, 3.5, 4.5]);
            let x = batch.view(x, |t| {
                t.ne = [33, 4, 1, 1];
                t.nb = [0, 4, 16, 16];
                t.token_axis = 1;
            });
            let y = batch.f32([40, 4, 1, 1], &[7.0; 160]);
            let out: TensorIndex = batch.view(y, |t| (t.ne[0], t.token_axis) = (33, 1));
            batch.run(setup, Op::Cpy, &[x], &[out], &[0u32; 0], StepRegisters::step(0, 3)).unwrap();
            batch.floats(y)
        });
        for (t, row) in actual.chunks_exact(40).enumerate() {
            let value = if t < 3 { t as f32 + 1.5 } else { 7.0 };
            assert!(row[..33].iter().all(|&v| v == value) && row[33..].iter().all(|&v| v == 7.0));
        }
    }

    #[test]
    fn ids_and_floats_do_not_mix() {
        let mut batch = Batch::new(1, 1);
        let (x, y) = (batch.f32([4, 1, 1, 1], &[0.0; 4]), batch.i32([4, 1, 1, 1], &[0; 4]));
        let fault = batch.run(setups()[0], Op::Cpy, &[x], &[y], &[0u32; 0], STEP).unwrap_err();
        assert_eq!(fault.code, ErrorCode::BadType);
    }
}
