//! MUL_MAT as phones run it: the bits of a row do not depend on how many rows there are, nor on threads and
//! VTCM, which decide how a matrix is cut into pieces. Float sums of v73 and v79 are rounded when they leave
//! the form that they are added in, so this is not said by the tests on processors with IEEE arithmetic.
#![cfg(target_os = "linux")]

mod common;
#[path = "device/emulator.rs"]
mod emulator;
#[path = "common/program.rs"]
mod program;

use common::{Random, random_rows};
use hexflash::device::qemu::Settings;
use hexflash::device::{Arch, Device, DeviceOptions};
use hexflash::gguf::GgmlType;
use hexflash::record::{Recorder, packed_bytes};
use hexflash::weights::tiles::{pack_strip, tile_dtype};
use hexflash_abi::program::TensorFlags;
use hexflash_abi::{DType, Op};
use zerocopy::IntoBytes;

/// Values of a row: so many that a matrix is cut within its rows where VTCM is small.
const K: u32 = 4096;
/// Rows of the matrix.
const N: u32 = 64;
/// Most rows of activations: more than are multiplied at once.
const M: u32 = 9;
/// Kernel threads, and bytes of VTCM.
const SETTINGS: [(usize, usize); 4] = [(1, 8 << 20), (3, 8 << 20), (2, 128 << 10), (8, 768 << 10)];

/// A type's matrix in tiles.
struct Matrix {
    dtype: DType,
    tiles: Vec<u8>,
}

impl Matrix {
    fn random(ggml_type: GgmlType) -> Self {
        let (k, n) = (K as usize, N as usize);
        let dtype = tile_dtype(ggml_type).unwrap();
        let group = dtype.tile_group().unwrap();
        let data = random_rows(ggml_type, k, n, 7);
        let rows: Vec<&[u8]> = data.chunks_exact(data.len() / n).collect();
        let mut tiles = vec![0; group.matrix_bytes(k, n)];
        for (strip, rows) in tiles.chunks_exact_mut(group.strip_bytes(k)).zip(rows.chunks(32)) {
            assert_eq!(pack_strip(ggml_type, k, rows, strip), None);
        }
        Self { dtype, tiles }
    }

    /// Its products with the first `m` rows of `x`.
    fn times(&self, device: &mut dyn Device, x: &[f32], m: u32) -> Vec<f32> {
        let up = |at: u64| at.next_multiple_of(128);
        let x = &x[..(K * m) as usize];
        let y_at = up(size_of_val(x) as u64);
        let q_at = y_at + up(u64::from(4 * N * m));
        let q_bytes = packed_bytes(DType::Q8Act, [K, m, 1, 1]).unwrap();
        let data = device.allocate(q_at + q_bytes).unwrap();
        let weights = device.allocate(self.tiles.len() as u64).unwrap();
        let mut rec = Recorder::new(1, 1);
        let w = rec.tensor(weights.id, 0, self.dtype, [K, N, 1, 1], TensorFlags::CONST);
        let floats = rec.tensor(data.id, 0, DType::F32, [K, m, 1, 1], TensorFlags::HOST_WRITES);
        let y = rec.tensor(data.id, y_at, DType::F32, [N, m, 1, 1], TensorFlags::HOST_READS);
        if self.dtype.wants_q8_activations() {
            let q = rec.tensor(data.id, q_at, DType::Q8Act, [K, m, 1, 1], TensorFlags::empty());
            rec.op(Op::Quantize, &[floats], q);
            rec.op(Op::MulMat, &[w, q], y);
        } else {
            rec.op(Op::MulMat, &[w, floats], y);
        }
        weights.memory.write(0, &self.tiles);
        data.memory.write(0, x.as_bytes());
        program::run(device, rec, &weights, &data);
        let mut found = vec![0f32; (N * m) as usize];
        data.memory.read(y_at as usize, found.as_mut_bytes());
        for buffer in [data, weights] {
            device.free(buffer).unwrap();
        }
        found
    }
}

fn rows_are_the_same_everywhere(arch: Arch) {
    let types = [
        GgmlType::F32,
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
    let matrices = types.map(|t| (t, Matrix::random(t)));
    let mut random = Random::new(3);
    let x: Vec<f32> = (0..K * M).map(|_| random.float()).collect();
    let mut expected: Vec<Vec<u32>> = Vec::new();
    for (threads, vtcm_bytes) in SETTINGS {
        let options = DeviceOptions {
            threads: Some(threads),
            vtcm_bytes: Some(vtcm_bytes),
            arch: Some(arch),
            ..DeviceOptions::default()
        };
        let Some(mut device) = emulator::qemu(Settings::from_options(&options).unwrap()) else { return };
        for (i, (t, matrix)) in matrices.iter().enumerate() {
            for m in (1..=M).rev() {
                let y: Vec<_> = matrix.times(&mut device, &x, m).iter().map(|y| y.to_bits()).collect();
                if expected.len() == i {
                    expected.push(y);
                    continue;
                }
                let differs = (0..y.len()).find(|&at| y[at] != expected[i][at]);
                assert_eq!(
                    differs.map(|at| (at, y[at], expected[i][at])),
                    None,
                    "{t:?}, {m} rows on {arch}, {threads} threads, {vtcm_bytes} bytes of VTCM: not the bits of \
                     {M} rows on one thread"
                );
            }
        }
    }
}

#[test]
fn rows_of_v73() {
    rows_are_the_same_everywhere(Arch::V73);
}

#[test]
fn rows_of_v79() {
    rows_are_the_same_everywhere(Arch::V79);
}
