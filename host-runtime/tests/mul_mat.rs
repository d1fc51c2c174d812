//! QUANTIZE and MUL_MAT on packed weights: against f64, and bit for bit against themselves.

mod common;

use common::{Random, dequantize, random_rows};
use half::f16;
use hexflash::gguf::GgmlType;
use hexflash::weights::tiles::{TILED, pack_strip, tile_dtype};
use hexflash_abi::dtype::ActivationRow;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode, Op, TensorIndex};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::plan::Units;
use hexflash_dsp::testing::{Batch, Setup, nmse, setups};
use zerocopy::IntoBytes;

const WIDTHS: [u32; 6] = [1, 2, 3, 5, 16, 65];
/// Error of f32 sums against f64 on the same numbers.
const EXACT: f64 = 1e-10;
/// Error that int8 activations may add: ggml's bound for MUL_MAT in test-backend-ops.
const QUANTIZED: f64 = 5e-4;

fn lengths(t: GgmlType) -> &'static [u32] {
    match t.block_len() {
        64 => &[64, 128, 192, 768],
        128 => &[128, 256, 384, 768],
        256 => &[256, 512, 768],
        _ => &[32, 64, 96, 256, 768],
    }
}

/// Error that activations and weights of fp16 may add, and results of fp16. Each is rounded by 2^-11 of
/// itself at most; of a single result all three may be, and (2 * 2^-11)^2 is what two of them are together.
const HALVES: f64 = 1.0 / 1_048_576.0;

/// Which kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// The exact one.
    Exact,
    /// The one of the matrix unit.
    Hmx,
}

/// Weights {k, n, r2, r3}, activations {k, m, b2, b3}, in memory of the DSP side.
struct Case {
    batch: Batch,
    w: TensorIndex,
    /// What MUL_MAT reads: the activations as F32 or int8.
    x: TensorIndex,
    dtype: DType,
    weights: Vec<f32>,
    activations: Vec<f32>,
    w_ne: [usize; 4],
    x_ne: [usize; 4],
    kernel: Kernel,
}

impl Case {
    fn new(ggml_type: GgmlType, w_ne: [u32; 4], x_ne: [u32; 4]) -> Self {
        let mut random = Random::new(5);
        Self::with(Kernel::Exact, ggml_type, w_ne, x_ne, |_| random.float())
    }

    /// For the matrix unit, with activations whose rows are of very different sizes.
    fn hmx(ggml_type: GgmlType, w_ne: [u32; 4], x_ne: [u32; 4]) -> Self {
        let mut random = Random::new(5);
        let value = |row: usize| random.float() * 10f32.powi(5 - 3 * (row as i32 % 5));
        Self::with(Kernel::Hmx, ggml_type, w_ne, x_ne, value)
    }

    fn with(
        kernel: Kernel,
        ggml_type: GgmlType,
        w_ne: [u32; 4],
        x_ne: [u32; 4],
        mut value: impl FnMut(usize) -> f32,
    ) -> Self {
        let [k, n, r2, r3] = w_ne.map(|n| n as usize);
        let dtype = tile_dtype(ggml_type).unwrap();
        let group = dtype.tile_group().unwrap();
        let data = random_rows(ggml_type, k, n * r2 * r3, (k + n) as u64);
        let mut tiles = vec![0; group.matrix_bytes(k, n) * r2 * r3];
        let strips = tiles.chunks_exact_mut(group.strip_bytes(k));
        let matrices = data.chunks_exact(data.len() / (r2 * r3));
        let rows: Vec<Vec<&[u8]>> = matrices
            .flat_map(|matrix| {
                let rows: Vec<&[u8]> = matrix.chunks_exact(matrix.len() / n).collect();
                rows.chunks(32).map(<[&[u8]]>::to_vec).collect::<Vec<_>>()
            })
            .collect();
        for (strip, rows) in strips.zip(rows) {
            assert_eq!(pack_strip(ggml_type, k, &rows, strip), None);
        }

        let all = 0..x_ne.iter().product::<u32>() as usize;
        let activations: Vec<f32> = all.map(|i| value(i / k)).collect();
        let batch = Batch::new(4096, 4096);
        let mut batch = if kernel == Kernel::Hmx { batch.fast() } else { batch };
        let w = batch.tensor(dtype, w_ne);
        batch.write(w, &tiles);
        let mut x = batch.f32(x_ne, &activations);
        if dtype.wants_q8_activations() && kernel == Kernel::Exact {
            let q = batch.tensor(DType::Q8Act, x_ne);
            batch.run(setups()[0], Op::Quantize, &[x], &[q], &[0u32; 0], StepRegisters::default()).unwrap();
            x = q;
        }
        let weights = dequantize(ggml_type, &data);
        let (w_ne, x_ne) = (w_ne.map(|n| n as usize), x_ne.map(|n| n as usize));
        Self { batch, w, x, dtype, weights, activations, w_ne, x_ne, kernel }
    }

    /// A result for the first `m` rows of x.
    fn result(&mut self, m: u32) -> (TensorIndex, TensorIndex) {
        let [_, _, b2, b3] = self.x_ne.map(|n| n as u32);
        let x = self.batch.view(self.x, |x| x.ne[1] = m);
        (x, self.batch.tensor(DType::F32, [self.w_ne[1] as u32, m, b2, b3]))
    }

    fn run(&mut self, setup: Setup, x: TensorIndex, y: TensorIndex) -> Vec<f32> {
        let garbage = vec![0xcd; self.batch.read(y).len()];
        self.batch.write(y, &garbage);
        let step = StepRegisters::default();
        self.batch.run(setup, Op::MulMat, &[self.w, x], &[y], &[0u32; 0], step).unwrap();
        self.batch.floats(y)
    }

    /// The activations that the kernel sees, in f64.
    fn seen(&self) -> Vec<f64> {
        let k = self.x_ne[0];
        if self.dtype == DType::F16x32 && self.kernel == Kernel::Exact {
            return self.activations.chunks_exact(k).flat_map(rounded_to_f16).collect();
        }
        if !self.dtype.wants_q8_activations() || self.kernel == Kernel::Hmx {
            return self.activations.iter().map(|&x| x.into()).collect();
        }
        let layout = ActivationRow::new(k);
        let rows = self.batch.read(self.x).chunks_exact(layout.bytes());
        let value = |row: &[u8], i: usize| {
            let scale = &row[layout.scales() + i / 32 * 4..][..4];
            f64::from(row[i] as i8) * f64::from(f32::from_le_bytes(scale.try_into().unwrap()))
        };
        rows.flat_map(|row| (0..k).map(move |i| value(row, i))).collect()
    }

    /// The product in f64, rounded once.
    fn product(&self, x: &[f64]) -> Vec<f32> {
        let ([k, n, r2, r3], [_, m, b2, b3]) = (self.w_ne, self.x_ne);
        let mut y = Vec::new();
        for row in 0..m * b2 * b3 {
            let (i2, i3) = (row / m % b2, row / m / b2);
            let matrix = i2 / (b2 / r2) + i3 / (b3 / r3) * r2;
            let w = &self.weights[matrix * n * k..][..n * k];
            let x = &x[row * k..][..k];
            y.extend(
                w.chunks_exact(k)
                    .map(|w| w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>() as f32),
            );
        }
        y
    }

    /// What the errors of a row's results are measured by: the squares of the results, and of what their
    /// products would be if none cancelled another, of which rounded values take their share.
    fn sizes(&self, row: usize) -> f64 {
        let ([k, n, ..], x) = (self.w_ne, self.seen());
        let x = &x[row * self.x_ne[0]..][..k];
        let largest = |v: &[f64]| v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let power = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        self.weights[..n * k]
            .chunks_exact(k)
            .map(|w| {
                let w: Vec<f64> = w.iter().map(|&w| w.into()).collect();
                let product: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
                let parts: f64 = w.iter().zip(x).map(|(w, x)| (w * x).powi(2)).sum();
                // Small values are rounded as parts of the largest.
                let rest = (largest(&w).powi(2) * power(x) + largest(x).powi(2) * power(&w)) / 1e4;
                product * product + parts + rest
            })
            .sum()
    }

    fn check(&self, y: &[f32], what: &str) {
        let error = nmse(y, &self.product(&self.seen()));
        assert!(error < EXACT, "{what}: NMSE {error:e} on the same activations");
        let plain: Vec<f64> = self.activations.iter().map(|&x| x.into()).collect();
        let error = nmse(y, &self.product(&plain));
        assert!(error < QUANTIZED, "{what}: NMSE {error:e}");
    }

    /// VTCM that holds one group per piece.
    fn least_vtcm(&self, workers: usize) -> usize {
        const SUMS: usize = 64 * 2 * 128;
        workers * (SUMS + 2 * self.dtype.tile_group().unwrap().bytes)
    }
}

/// A row as f16, times the power of two that brings its largest magnitude to 1/2 or more, but below 1.
fn rounded_to_f16(row: &[f32]) -> Vec<f64> {
    let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let power = 2f64.powi(f64::from(largest.max(f32::MIN_POSITIVE)).log2().floor() as i32 + 1);
    row.iter().map(|&x| f16::from_f64(f64::from(x) / power).to_f64() * power).collect()
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

/// Every k and n: right to f64, and the same bits for every width, back end, worker count, DMA mode and cut
/// of the strips.
fn rows_are_right_and_depend_on_nothing_else(t: GgmlType) {
    for &k in lengths(t) {
        for n in [1, 8, 31, 32, 33, 100] {
            let mut case = Case::new(t, [k, n, 1, 1], [k, 65, 1, 1]);
            let (x, y) = case.result(65);
            let expected = case.run(setups()[0], x, y);
            case.check(&expected, &format!("{t} k={k} n={n}"));
            let expected = bits(&expected);
            for m in WIDTHS {
                let (x, y) = case.result(m);
                for setup in setups() {
                    // DMA modes and widths do not meet in the kernel: not every pair of them is tried.
                    if setup.dma == DmaMode::AtWait && m > 1 || setup.dma == DmaMode::OutOfOrder && m < 65 {
                        continue;
                    }
                    let small = Setup { vtcm_bytes: case.least_vtcm(setup.workers), ..setup };
                    for setup in [setup, small] {
                        let same = bits(&case.run(setup, x, y)) == expected[..(m * n) as usize];
                        assert!(same, "{t} k={k} n={n} m={m} {setup:?}");
                    }
                }
            }
        }
    }
}

/// Weights that the matrix unit multiplies.
const OF_HMX: [GgmlType; 17] = [
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q8_0,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::IQ4_NL,
    GgmlType::MXFP4,
    GgmlType::Q1_0,
    GgmlType::Q2_0,
    GgmlType::Q2_K,
    GgmlType::Q3_K,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
    GgmlType::IQ4_XS,
];

/// Setups in which matrix tiles are made: every back end, several workers, every DMA mode, and as little VTCM
/// as is taken.
fn hmx_setups(case: &mut Case, x: TensorIndex, y: TensorIndex) -> Vec<Setup> {
    let tiny = Setup { vtcm_bytes: 4096, ..setups()[0] };
    let step = StepRegisters::default();
    let fault = case.batch.run(tiny, Op::MulMat, &[case.w, x], &[y], &[0u32; 0], step).unwrap_err();
    assert_eq!(fault.code, ErrorCode::VtcmTooSmall);
    let least = fault.detail as usize;
    let less = Setup { vtcm_bytes: least - 128, ..setups()[0] };
    let fault = case.batch.run(less, Op::MulMat, &[case.w, x], &[y], &[0u32; 0], step).unwrap_err();
    assert_eq!((fault.code, fault.detail as usize), (ErrorCode::VtcmTooSmall, least));
    let small = setups().into_iter().map(|setup| Setup { vtcm_bytes: least + 128, ..setup });
    setups().into_iter().map(|setup| Setup { vtcm_bytes: 8 << 20, ..setup }).chain(small).collect()
}

/// By the matrix unit: right to f64 row by row, whatever the sizes of rows; and the same bits for every
/// width, back end, worker count, DMA mode and layout.
fn hmx_rows_are_right_and_depend_on_nothing_else(t: GgmlType) {
    let lengths: &[u32] = match t.block_len() {
        1 => &[1, 32, 33, 96, 1056, 1100],
        32 => &[32, 96, 1056],
        64 => &[64, 192, 1088],
        128 => &[128, 384, 1280],
        _ => &[256, 1280],
    };
    for &k in lengths {
        for n in [1, 33, 100] {
            let mut case = Case::hmx(t, [k, n, 1, 1], [k, 65, 1, 1]);
            let (x, y) = case.result(65);
            let expected = case.run(Setup { vtcm_bytes: 8 << 20, ..setups()[0] }, x, y);
            let product = case.product(&case.seen());
            for (row, (got, want)) in
                expected.chunks_exact(n as usize).zip(product.chunks_exact(n as usize)).enumerate()
            {
                let power = case.sizes(row);
                let error: f64 = got.iter().zip(want).map(|(g, w)| f64::from(g - w).powi(2)).sum();
                assert!(error <= HALVES * power, "{t} k={k} n={n} row {row}: {error:e} of {power:e}");
            }
            let expected = bits(&expected);
            for m in [2, 33, 65] {
                let (x, y) = case.result(m);
                for setup in hmx_setups(&mut case, x, y) {
                    let same = bits(&case.run(setup, x, y)) == expected[..(m * n) as usize];
                    assert!(same, "{t} k={k} n={n} m={m} {setup:?}");
                }
            }
        }
    }
}

#[test]
fn f16_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::F16);
}

#[test]
fn q8_0_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q8_0);
}

#[test]
fn q4_0_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_0);
}

#[test]
fn q5_0_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_0);
}

#[test]
fn iq4_nl_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::IQ4_NL);
}

#[test]
fn q4_1_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_1);
}

#[test]
fn q5_1_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_1);
}

#[test]
fn q2_k_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q2_K);
}

#[test]
fn q3_k_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q3_K);
}

#[test]
fn q4_k_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_K);
}

#[test]
fn q5_k_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_K);
}

#[test]
fn q6_k_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q6_K);
}

#[test]
fn iq4_xs_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::IQ4_XS);
}

#[test]
fn bf16_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::BF16);
}

#[test]
fn mxfp4_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::MXFP4);
}

#[test]
fn q1_0_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q1_0);
}

#[test]
fn q2_0_rows_by_the_matrix_unit() {
    hmx_rows_are_right_and_depend_on_nothing_else(GgmlType::Q2_0);
}

#[test]
fn the_matrix_unit_broadcasts_over_the_batch() {
    for t in OF_HMX {
        for (r, b) in [([1, 1], [3, 2]), ([2, 3], [6, 3])] {
            let mut case = Case::hmx(t, [256, 40, r[0], r[1]], [256, 5, b[0], b[1]]);
            let (x, y) = case.result(5);
            let got = case.run(Setup { vtcm_bytes: 8 << 20, ..setups()[0] }, x, y);
            let error = nmse(&got, &case.product(&case.seen()));
            assert!(error < QUANTIZED, "{t} {r:?} over {b:?}: {error:e}");
        }
    }
}

/// A row that no ordinary power of two brings into range changes nothing for the others of its pass, and a
/// weight that is no number makes the results of its column none, whichever way results are scaled back.
#[test]
fn the_matrix_unit_takes_rows_of_any_size() {
    let (k, n, m) = (96, 70, 45);
    let setup = Setup { vtcm_bytes: 8 << 20, ..setups()[0] };
    for (t, bad_column) in [(GgmlType::F16, None), (GgmlType::F16, Some(40)), (GgmlType::Q8_0, None)] {
        let mut case = Case::hmx(t, [k, n, 1, 1], [k, m, 1, 1]);
        if let Some(column) = bad_column {
            // A strip of F16 has 32 columns, whose values lie in pairs of k.
            let mut tiles = case.batch.read(case.w).to_vec();
            let strip = column / 32 * case.dtype.tile_group().unwrap().strip_bytes(k as usize);
            tiles[strip + column % 32 * 4..][..2].copy_from_slice(&0x7c00_u16.to_le_bytes());
            case.batch.write(case.w, &tiles);
        }
        let (x, y) = case.result(m);
        let usual = case.run(setup, x, y);
        let mut extreme = case.activations.clone();
        let row = |row: usize| row * k as usize..(row + 1) * k as usize;
        let sizes = [(7, 1e-30), (21, 1e30), (44, 1e-38)];
        for (i, size) in sizes {
            extreme[row(i)].iter_mut().for_each(|x| *x = x.signum() * size);
        }
        case.batch.write(x, extreme.as_bytes());
        let other = case.run(setup, x, y);
        let rows = usual.chunks_exact(n as usize).zip(other.chunks_exact(n as usize));
        for (i, (usual, other)) in rows.enumerate() {
            let changed = sizes.iter().any(|&(row, _)| row == i);
            for (column, (a, b)) in usual.iter().zip(other).enumerate() {
                let is_bad = bad_column == Some(column);
                for y in [a, b] {
                    assert_eq!(y.is_finite(), !is_bad, "{t} row {i} column {column}: {y}");
                }
                assert!(changed || is_bad || a.to_bits() == b.to_bits(), "{t} row {i} column {column}");
            }
        }
    }
}

/// What the unit would take for numbers, and sessions and programs that it is not for.
#[test]
fn the_matrix_unit_is_refused_where_it_must_be() {
    let step = StepRegisters::default();
    let setup = Setup { vtcm_bytes: 8 << 20, ..setups()[0] };
    let none = Setup { units: Units::NONE, ..setup };
    for t in OF_HMX {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut case = Case::with(Kernel::Hmx, t, [256, 32, 1, 1], [256, 40, 1, 1], |_| 1.0);
            let (x, y) = case.result(40);
            let mut values = vec![1.0f32; 256 * 40];
            values[256 * 37 + 5] = bad;
            case.batch.write(x, values.as_bytes());
            let fault = case.batch.run(setup, Op::MulMat, &[case.w, x], &[y], &[0u32; 0], step).unwrap_err();
            assert_eq!(fault.code, ErrorCode::NotFinite, "{t} {bad}");
        }
        let mut case = Case::hmx(t, [256, 32, 1, 1], [256, 4, 1, 1]);
        let (x, y) = case.result(4);
        let mut run = |setup| case.batch.run(setup, Op::MulMat, &[case.w, x], &[y], &[0u32; 0], step);
        if [GgmlType::F16, GgmlType::BF16].contains(&t) {
            run(none).unwrap();
        } else {
            assert_eq!(run(none).unwrap_err().code, ErrorCode::NoMatrixUnit, "{t}");
        }
    }
    // Programs that promise exact rows.
    let mut exact = Case::hmx(GgmlType::Q8_0, [64, 32, 1, 1], [64, 4, 1, 1]);
    exact.batch = exact.batch.exact();
    let (x, y) = exact.result(4);
    let refused = exact.batch.run(setup, Op::MulMat, &[exact.w, x], &[y], &[0u32; 0], step).unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadType);
}

#[test]
fn f32_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::F32);
}

#[test]
fn f16_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::F16);
}

/// Rows of F32 are rounded to f16, whose range none of them leaves; and where one is not finite, its results
/// are NaN, and no others. More rows than share a pass over the weights.
#[test]
fn f16_weights_take_rows_of_any_size() {
    const SIZES: [f32; 7] = [1e-38, 1e-20, 1e-6, 1.0, 7e4, 1e20, 1e36];
    const SPECIAL: [(usize, f32); 3] = [(3, f32::INFINITY), (63, f32::NEG_INFINITY), (70, f32::NAN)];
    let (k, n, m) = (100, 40, 75);
    for setup in setups() {
        let mut random = Random::new(7);
        let value = |row: usize| random.float() * SIZES[row % SIZES.len()];
        let mut case = Case::with(Kernel::Exact, GgmlType::F16, [k, n, 1, 1], [k, m, 1, 1], value);
        let mut damaged = case.activations.clone();
        for (row, bad) in SPECIAL {
            damaged[row * k as usize + 99] = bad;
        }
        let (x, y) = case.result(m);
        case.batch.write(x, damaged.as_bytes());
        let got = case.run(setup, x, y);
        let expected = case.product(&case.seen());
        let rows = got.chunks_exact(n as usize).zip(expected.chunks_exact(n as usize));
        for (row, (got, expected)) in rows.enumerate() {
            if SPECIAL.iter().any(|&(special, _)| special == row) {
                assert!(got.iter().all(|y| y.is_nan()), "row {row} {setup:?}: {got:?}");
            } else {
                let error = nmse(got, expected);
                assert!(error < EXACT, "row {row} {setup:?}: NMSE {error:e}");
            }
        }
    }
}

#[test]
fn bf16_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::BF16);
}

#[test]
fn q4_0_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_0);
}

#[test]
fn q4_1_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_1);
}

#[test]
fn q5_0_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_0);
}

#[test]
fn q5_1_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_1);
}

#[test]
fn q8_0_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q8_0);
}

#[test]
fn q2_k_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q2_K);
}

#[test]
fn q3_k_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q3_K);
}

#[test]
fn q4_k_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q4_K);
}

#[test]
fn q5_k_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q5_K);
}

#[test]
fn q6_k_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q6_K);
}

#[test]
fn iq4_nl_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::IQ4_NL);
}

#[test]
fn iq4_xs_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::IQ4_XS);
}

#[test]
fn mxfp4_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::MXFP4);
}

#[test]
fn q1_0_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q1_0);
}

#[test]
fn q2_0_rows() {
    rows_are_right_and_depend_on_nothing_else(GgmlType::Q2_0);
}

#[test]
fn matrices_are_broadcast_over_the_batch() {
    for &t in TILED {
        for (r, b) in [([1, 1], [3, 2]), ([2, 1], [4, 3]), ([2, 3], [6, 3]), ([3, 2], [3, 2])] {
            let mut case = Case::new(t, [256, 40, r[0], r[1]], [256, 5, b[0], b[1]]);
            let (x, y) = case.result(5);
            let expected = case.run(setups()[0], x, y);
            case.check(&expected, &format!("{t} {r:?} over {b:?}"));
            for setup in setups() {
                assert_eq!(bits(&case.run(setup, x, y)), bits(&expected), "{t} {r:?} over {b:?} {setup:?}");
            }
        }
    }
}

/// A strip longer than a piece, with whole pieces and a rest.
#[test]
fn long_rows_are_cut_without_a_trace() {
    for &t in TILED {
        let mut case = Case::new(t, [8960, 33, 1, 1], [8960, 3, 1, 1]);
        let (x, y) = case.result(3);
        let whole = case.run(Setup { vtcm_bytes: 8 << 20, ..setups()[0] }, x, y);
        case.check(&whole, &format!("{t}"));
        let least = case.least_vtcm(1);
        for extra in [0, 5000, 20_000, 50_000] {
            let setup = Setup { vtcm_bytes: (least + extra).next_multiple_of(128), ..setups()[0] };
            assert_eq!(bits(&case.run(setup, x, y)), bits(&whole), "{t} {setup:?}");
        }
    }
}

#[test]
fn vtcm_below_a_group_is_refused() {
    for &t in TILED {
        let mut case = Case::new(t, [256, 32, 1, 1], [256, 1, 1, 1]);
        let (x, y) = case.result(1);
        let setup = Setup { vtcm_bytes: case.least_vtcm(1) - 128, ..setups()[0] };
        let step = StepRegisters::default();
        let fault = case.batch.run(setup, Op::MulMat, &[case.w, x], &[y], &[0u32; 0], step).unwrap_err();
        assert_eq!((fault.code, fault.detail as usize), (ErrorCode::VtcmTooSmall, case.least_vtcm(1)));
    }
}

/// A row of activations.
#[derive(Debug, PartialEq)]
struct Quantized {
    quants: Vec<i8>,
    scales: Vec<f32>,
    negative_sums: Vec<i16>,
    scaled_sums: Vec<f32>,
}

/// ggml's `quantize_row_q8_0` per block, then sums, those without a scale negative.
fn quantized(x: &[f32]) -> Quantized {
    let layout = ActivationRow::new(x.len());
    let (mut quants, mut scales) = (vec![0i8; layout.padded_k], vec![0.0; layout.padded_k / 32]);
    for (block, x) in x.chunks(32).enumerate() {
        let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        scales[block] = f16::from_f32(max / 127.0).to_f32();
        for (q, x) in quants[block * 32..].iter_mut().zip(x) {
            *q = (x * (127.0 / max)).round_ties_even() as i8;
        }
    }
    let sums = |n| quants.chunks(n).map(|q| q.iter().map(|&q| i32::from(q)).sum()).collect::<Vec<i32>>();
    let scaled_sums = sums(32).into_iter().zip(&scales).map(|(sum, scale)| scale * sum as f32).collect();
    let negative_sums = sums(16).into_iter().map(|sum| -sum as i16).collect();
    Quantized { negative_sums, scaled_sums, quants, scales }
}

fn quantize(x: &[f32], setup: Setup) -> Quantized {
    let ne = [x.len() as u32, 1, 1, 1];
    let mut batch = Batch::new(1, 1);
    let (x, q) = (batch.f32(ne, x), batch.tensor(DType::Q8Act, ne));
    let garbage = vec![0xcd; batch.read(q).len()];
    batch.write(q, &garbage);
    batch.run(setup, Op::Quantize, &[x], &[q], &[0u32; 0], StepRegisters::default()).unwrap();
    let layout = ActivationRow::new(ne[0] as usize);
    let row = batch.read(q);
    let words = |from: usize, n: usize| row[from..][..4 * n].as_chunks::<4>().0.to_vec();
    let floats =
        |from: usize| words(from, layout.padded_k / 32).into_iter().map(f32::from_le_bytes).collect();
    Quantized {
        quants: row[..layout.padded_k].iter().map(|&q| q as i8).collect(),
        scales: floats(layout.scales()),
        negative_sums: row[layout.negative_sums()..][..layout.padded_k / 8]
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&half| i16::from_le_bytes(half))
            .collect(),
        scaled_sums: floats(layout.scaled_sums()),
    }
}

#[test]
fn activations_are_ggmls() {
    let mut random = Random::new(11);
    for k in [1, 16, 31, 32, 33, 96, 255, 256, 257, 768, 1056, 2304] {
        // Blocks of very different sizes, down to those whose scale is a subnormal f16 or zero.
        let x: Vec<f32> = (0..k).map(|i| random.float() * 10f32.powi(4 - 3 * (i / 32 % 5))).collect();
        for setup in setups() {
            assert_eq!(quantize(&x, setup), quantized(&x), "k={k} {setup:?}");
        }
    }
}

#[test]
fn tiny_activations_quantize_to_zero() {
    for value in [1e-6, 1e-37, f32::MIN_POSITIVE, 1e-45] {
        for setup in setups() {
            let row = quantize(&[0.0, value, -value, 0.0], setup);
            let Quantized { quants: q, scales, negative_sums, .. } = row;
            assert!(scales.iter().all(|&s| s == 0.0), "{value:e} {setup:?}");
            // Where 127 / value is finite, quants are as ggml's, though nothing comes of them.
            let expected = if value > 1e-36 { 127 } else { 0 };
            let sum = negative_sums[0];
            assert_eq!((&q[..4], sum), (&[0, expected, -expected, 0][..], 0), "{value:e} {setup:?}");
        }
    }
}

/// Wherever in a block a value is not finite, the block's scale is NaN, and no other block's.
#[test]
fn activations_that_are_not_finite_stay_so() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for i in 0..96 {
            let mut x = [1.0; 96];
            x[i] = bad;
            for setup in setups() {
                let scales = quantize(&x, setup).scales;
                let nan: Vec<bool> = scales[..3].iter().map(|s| s.is_nan()).collect();
                assert_eq!(nan, [i / 32 == 0, i / 32 == 1, i / 32 == 2], "{bad} at {i} {setup:?}");
            }
        }
    }
}
