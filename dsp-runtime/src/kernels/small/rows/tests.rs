//! Rows by id, of every type, to the bit.

use half::f16;
use hexflash_abi::dtype::{IQ4_NL, MXFP4};
use hexflash_abi::op::Op;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode};

use crate::testing::{Batch, everywhere, random, setups};

const STEP: StepRegisters = StepRegisters::step(0, 1);

/// A matrix{k,n} of a type: its bytes, and its values as ggml dequantizes them.
fn matrix(dtype: DType, k: usize, n: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let values = random(seed, k * n, -2.0, 2.0);
    let random_bits: Vec<u32> =
        random(seed + 1, k * n, 0.0, 65536.0 * 16.0).iter().map(|&v| v as u32 >> 4).collect();
    let bytes = match dtype.tile_group() {
        Some(group) => group.matrix_bytes(k, n),
        None => dtype.row_bytes(k * n),
    };
    let mut data = vec![0u8; bytes];
    let mut exact = vec![0.0; k * n];
    for row in 0..n {
        for at in 0..k {
            let e = row * k + at;
            // Adds bits to bytes that may have others already.
            let mut put = |at: usize, bytes: &[u8]| {
                data[at..].iter_mut().zip(bytes).for_each(|(to, from)| *to |= from);
            };
            let half = f16::from_f32(values[e]);
            let group = dtype
                .tile_group()
                .map_or(0, |group| row / 32 * group.strip_bytes(k) + at / group.k * group.bytes);
            let (lane, t) = (row % 32, at % 32);
            exact[e] = match dtype {
                DType::F32 => {
                    put(4 * e, &values[e].to_le_bytes());
                    values[e]
                }
                DType::F16 => {
                    put(2 * e, &half.to_le_bytes());
                    half.to_f32()
                }
                DType::Q8_0 => {
                    let (block, d) = (e / 32 * 34, f16::from_f32(values[e / 32 * 32]));
                    if t == 0 {
                        put(block, &d.to_le_bytes());
                    }
                    let q = random_bits[e] as i8;
                    put(block + 2 + t, &[q as u8]);
                    d.to_f32() * f32::from(q)
                }
                DType::F32x32 => {
                    put(group + 128 * t + 4 * lane, &values[e].to_le_bytes());
                    values[e]
                }
                DType::F16x32 => {
                    put(group + 128 * (t / 2) + 4 * lane + 2 * (t % 2), &half.to_le_bytes());
                    half.to_f32()
                }
                DType::BF16x32 => {
                    let high = (values[e].to_bits() >> 16) as u16;
                    put(group + 128 * (t / 2) + 4 * lane + 2 * (t % 2), &high.to_le_bytes());
                    f32::from_bits(u32::from(high) << 16)
                }
                _ => {
                    let start = |unit: usize| row * k + at / unit * unit;
                    let block = Block {
                        q: random_bits[e],
                        d: [32, 256, 64, 128].map(|unit| f16::from_f32(values[start(unit)])),
                        m: [32, 256].map(|unit| f16::from_bits(random_bits[start(unit)] as u16 & 0xbbff)),
                        bytes: [16, 32].map(|unit| random_bits[start(unit)] as u8),
                        mins: (random_bits[start(32)] >> 8) as u8,
                    };
                    let mut put_word = |v: usize, b: usize, bytes: &[u8]| {
                        put(group + 128 * v + 4 * lane + b, bytes);
                    };
                    quant(dtype, at, &block, &mut put_word)
                }
            };
        }
    }
    (data, exact)
}

/// What a quant is made of.
struct Block {
    /// Bits of the quant.
    q: u32,
    /// d per 32 values, per 256, per 64 and per 128.
    d: [f16; 4],
    /// The minimum per 32 values, and dmin per 256.
    m: [f16; 2],
    /// A byte per 16 values, and per 32.
    bytes: [u8; 2],
    /// Another per 32.
    mins: u8,
}

/// Puts the quant of value `at` of a row, with its scales, in bytes of words of its group's vectors; gives
/// its value. Offsets are those of the text of `hexflash_abi::dtype`, in numbers.
fn quant(dtype: DType, at: usize, block: &Block, put: &mut impl FnMut(usize, usize, &[u8])) -> f32 {
    // Bits of quants, and where the scales, the mins and d are.
    let (bits, [scales_at, mins_at, d_at]) = match dtype {
        DType::Q8_0x32 => (8, [32, 0, 0]),
        DType::Q4_0x32 | DType::IQ4NLx32 | DType::MXFP4x32 => (4, [16, 0, 0]),
        DType::Q4_1x32 => (4, [16, 18, 0]),
        DType::Q5_0x32 => (5, [20, 0, 0]),
        DType::Q5_1x32 => (5, [20, 22, 0]),
        DType::Q1_0x32 => (1, [8, 0, 0]),
        DType::Q2_0x32 => (2, [8, 0, 0]),
        DType::Q2Kx32 => (2, [16, 0, 20]),
        DType::Q3Kx32 => (3, [24, 0, 28]),
        DType::Q4Kx32 => (4, [32, 0, 36]),
        DType::Q5Kx32 => (5, [40, 0, 44]),
        DType::Q6Kx32 => (6, [48, 0, 52]),
        DType::IQ4XSx32 => (4, [32, 0, 34]),
        _ => unreachable!(),
    };
    let group_k = dtype.tile_group().unwrap().k;
    let (tile, t) = (at % group_k / 32, at % 32);
    let q = block.q & ((1 << bits) - 1);
    let (quant_bits, f, mut left) = (bits, t / 4, q);
    // Vectors and places in a byte, from the lowest bits on.
    let places: &[(usize, usize, usize)] = match (bits, f) {
        (8, _) => &[(f, 0, 8)],
        (4, _) => &[(f % 4, f / 4 * 4, 4)],
        (2, _) => &[(f / 4, f % 4 * 2, 2)],
        (1, _) => &[(0, f, 1)],
        (3, 3) => &[(0, 3, 2), (2, 3, 1)],
        (3, 7) => &[(1, 3, 2), (2, 4, 1)],
        (3, _) => &[([0, 0, 1, 0, 1, 2, 2][f], [0, 5, 0, 0, 5, 0, 5][f], 3)],
        (5, 0 | 1) => &[(f, 0, 5)],
        (5, 5) => &[(2, 0, 3), (0, 6, 2)],
        (5, 6) => &[(3, 0, 3), (1, 6, 2)],
        (5, 7) => &[(4, 0, 3), (0, 5, 1), (1, 5, 1)],
        (5, _) => &[(f, 3, 5)],
        (6, 3 | 7) => &[(f / 4 * 3, 6, 2), (f / 4 * 3 + 1, 6, 2), (f / 4 * 3 + 2, 6, 2)],
        _ => &[(f - f / 4, 0, 6)],
    };
    for &(vector, place, bits) in places {
        let part = left & ((1 << bits) - 1);
        put(quant_bits * tile + vector, t % 4, &[(part << place) as u8]);
        left >>= bits;
    }
    let super_block = usize::from(d_at > 0);
    let m = block.m[super_block];
    // Of types with two blocks to a group: which d, and of how many tiles it is.
    let shared = match dtype {
        DType::Q1_0x32 => Some((3, 4)),
        DType::Q2_0x32 => Some((2, 2)),
        _ => None,
    };
    let d = block.d[shared.map_or(super_block, |(d, _)| d)];
    if let Some((_, tiles)) = shared {
        put(scales_at, tile / tiles * 2, &d.to_le_bytes());
    } else if super_block == 1 {
        put(d_at, 0, &d.to_le_bytes());
    } else if dtype != DType::MXFP4x32 {
        put(scales_at + tile / 2, tile % 2 * 2, &d.to_le_bytes());
    }
    let [per_16, per_32] = block.bytes;
    // Of a pair of tiles: first bytes of the even and the odd one, then second bytes.
    let of_pair = |which: usize| (scales_at + tile / 2, 2 * which + tile % 2);
    let mut put_16 = |byte: u8| put(of_pair(t / 16).0, of_pair(t / 16).1, &[byte]);
    let q = q as i32;
    let d = d.to_f32();
    let signed = |byte: u8| f32::from(byte as i8);
    match dtype {
        DType::Q1_0x32 => d * (2 * q - 1) as f32,
        DType::Q2_0x32 => d * (q - 1) as f32,
        DType::Q8_0x32 => d * (q - 128) as f32,
        DType::Q4_0x32 => d * (q - 8) as f32,
        DType::Q5_0x32 => d * (q - 16) as f32,
        DType::Q4_1x32 | DType::Q5_1x32 => {
            put(mins_at + tile / 2, tile % 2 * 2, &m.to_le_bytes());
            d * q as f32 + m.to_f32()
        }
        DType::IQ4NLx32 => d * f32::from(IQ4_NL[q as usize]),
        DType::MXFP4x32 => {
            // Every exponent, the smallest ones more often.
            let e = if per_32 < 250 { per_32 } else { per_32 % 3 };
            put(scales_at, tile, &[e]);
            (f64::from(MXFP4[q as usize]) * 2f64.powi(i32::from(e) - 128)) as f32
        }
        DType::Q2Kx32 => {
            put_16(per_16);
            put(d_at, 2, &m.to_le_bytes());
            d * f32::from(per_16 & 15) * q as f32 - m.to_f32() * f32::from(per_16 >> 4)
        }
        DType::Q3Kx32 => {
            put_16(per_16);
            d * signed(per_16) * (q - 4) as f32
        }
        DType::Q6Kx32 => {
            put_16(per_16);
            d * signed(per_16) * (q - 32) as f32
        }
        DType::Q4Kx32 | DType::Q5Kx32 => {
            put(of_pair(0).0, of_pair(0).1, &[per_32]);
            put(of_pair(1).0, of_pair(1).1, &[block.mins]);
            put(d_at, 2, &m.to_le_bytes());
            d * f32::from(per_32) * q as f32 - m.to_f32() * f32::from(block.mins)
        }
        DType::IQ4XSx32 => {
            put(scales_at + tile / 4, tile % 4, &[per_32]);
            d * signed(per_32) * f32::from(IQ4_NL[q as usize])
        }
        _ => unreachable!(),
    }
}

/// Every type but I32.
fn tables() -> impl Iterator<Item = DType> {
    let tables = |dtype: &DType| dtype.is_weight() || dtype.row_block().is_some() && *dtype != DType::I32;
    DType::ALL.iter().copied().filter(tables)
}

/// A width of at least `k` that is whole blocks of a type.
fn width(dtype: DType, k: usize) -> usize {
    k.next_multiple_of(dtype.row_block().map_or(1, |block| block.values))
}

/// Every type, widths that do and do not fill a group, ids in any order and repeated: to the bit.
#[test]
fn rows_of_every_type() {
    for dtype in tables() {
        for (k, n) in [(1, 3), (31, 33), (33, 5), (100, 70), (256, 40), (1024, 33)] {
            let k = width(dtype, k);
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
    for dtype in tables() {
        let (k, n) = (width(dtype, 40), 35usize);
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

/// Ids stay ids: every bit of them, which no float holds. Rows apart, several matrices, the token axis.
#[test]
fn rows_of_integers() {
    let words = |n: usize| (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9) as i32).collect::<Vec<_>>();
    for (k, n) in [(1usize, 1usize), (1, 300), (16, 5), (33, 40)] {
        let values = words(k * n * 2);
        let ids: Vec<i32> = (0..2 * 60).map(|i| i * 7 % n as i32).collect();
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(60, 60);
            let table = batch.i32([k as u32, 2, n as u32, 1], &values);
            let table = batch.view(table, |t| {
                t.ne.swap(1, 2);
                t.nb.swap(1, 2);
            });
            let ids = batch.i32([60, 2, 1, 1], &ids);
            let ids = batch.view(ids, |t| t.token_axis = 0);
            let y = batch.i32([k as u32, 60, 2, 1], &vec![-7; k * 120]);
            let out = batch.view(y, |t| t.token_axis = 1);
            let step = StepRegisters::step(0, 59);
            batch.run(setup, Op::GetRows, &[table, ids], &[out], &[0u32; 0], step).unwrap();
            batch.ints(y)
        });
        for (r, row) in actual.chunks_exact(k).enumerate() {
            let (m, matrix, id) = (r % 60, r / 60, ids[r] as usize);
            let of = |j| values[(2 * id + matrix) * k + j];
            let expected: Vec<_> = (0..k).map(|j| if m < 59 { of(j) } else { -7 }).collect();
            assert_eq!(row, expected, "k={k} n={n} row {r}");
        }
    }
}

#[test]
fn bad_ids_are_refused() {
    for id in [-1, i32::MIN, 33, i32::MAX] {
        for setup in setups() {
            for dtype in tables() {
                let mut batch = Batch::new(1, 1);
                let k = width(dtype, 40);
                let table = batch.tensor(dtype, [k as u32, 33, 1, 1]);
                let ids = batch.i32([3, 1, 1, 1], &[32, id, 0]);
                let y = batch.f32([k as u32, 3, 1, 1], &vec![7.0; 3 * k]);
                let fault = batch.run(setup, Op::GetRows, &[table, ids], &[y], &[0u32; 0], STEP).unwrap_err();
                assert_eq!((fault.code, fault.detail), (ErrorCode::BadRowIndex, id as u32));
            }
            for dtype in [DType::F32, DType::F16, DType::Q8_0] {
                let (mut batch, k) = (Batch::new(1, 1), width(dtype, 40));
                let x = batch.f32([k as u32, 3, 1, 1], &vec![7.0; 3 * k]);
                let ids = batch.i32([3, 1, 1, 1], &[32, id, 0]);
                let y = batch.tensor(dtype, [k as u32, 33, 1, 1]);
                let fault = batch.run(setup, Op::SetRows, &[x, ids], &[y], &[0u32; 0], STEP).unwrap_err();
                assert_eq!((fault.code, fault.detail), (ErrorCode::BadRowIndex, id as u32));
            }
        }
    }
}

/// Rows land where ids say, the last of equals stays, the others are left alone; ids shared by the matrices.
#[test]
fn rows_are_set() {
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        for (k, m) in [(1usize, 4usize), (31, 4), (33, 3), (100, 5), (3000, 40)] {
            let (k, n) = (width(dtype, k), 50);
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
                DType::Q8_0 => crate::row_blocks::tests::reference(&expected),
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
