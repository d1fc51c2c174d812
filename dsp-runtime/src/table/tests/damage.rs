//! No op turns NaN or infinity into numbers, in any setup; and those that must say so do.

use half::f16;
use hexflash_abi::op::params::{FlashAttn, Glu, GluKind, Norm, Rope, RopeMode, Scale, Visibility};
use hexflash_abi::op::{Op, params};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode, Fault, TensorIndex};
use zerocopy::{Immutable, IntoBytes};

use crate::testing::{Batch, Setup, random, setups};

const STEP: StepRegisters = StepRegisters::step(0, 1);
const DAMAGED: [f32; 4] = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

fn reported(row: u32) -> Result<(), Fault> {
    Err(Fault::new(ErrorCode::NotFinite, row))
}

/// Which of `rows` rows are NaN throughout; the others must be finite.
fn nan_rows(values: &[f32], rows: usize) -> Vec<bool> {
    let kinds = values.chunks_exact(values.len() / rows).map(|row| {
        let nan = row.iter().all(|x| x.is_nan());
        assert!(nan || row.iter().all(|x| x.is_finite()), "{row:?}");
        nan
    });
    kinds.collect()
}

/// Runs an op with F32 operands on a row that is `damaged` at `at`, and on a sound one, and gives y.
fn unary<P: IntoBytes + Immutable>(setup: Setup, op: Op, x: &[f32], more: &[&[f32]], p: &P) -> Vec<f32> {
    let mut batch = Batch::new(1, 1);
    let n = x.len() as u32;
    let src: Vec<_> = [x].iter().chain(more).map(|x| batch.f32([n, 1, 1, 1], x)).collect();
    let y = batch.f32([n, 1, 1, 1], &vec![7.0; x.len()]);
    batch.run(setup, op, &src, &[y], p, STEP).unwrap();
    batch.floats(y)
}

#[test]
fn argmax_reports_the_first_row_with_nan_or_infinity() {
    for (n, m) in [(1, 2), (33, 3), (300, 5), (8192 * 2 + 5, 3)] {
        let sound = random(n as u64, n * m, -9.0, 5.0);
        for damage in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY] {
            for (row, at) in [(0, 0), (1, n - 1), (m - 1, n / 2), (m - 1, n - 1)] {
                let mut values = sound.clone();
                values[row * n + at] = damage;
                *values.last_mut().unwrap() = damage;
                for setup in setups() {
                    let mut batch = Batch::new(1, 1);
                    let x = batch.f32([n as u32, m as u32, 1, 1], &values);
                    let y = batch.i32([m as u32, 1, 1, 1], &vec![-7; m]);
                    let margins = batch.f32([m as u32, 1, 1, 1], &vec![-7.0; m]);
                    for dst in [&[y][..], &[y, margins]] {
                        let outcome = batch.run(setup, Op::Argmax, &[x], dst, &[0u32; 0], STEP);
                        assert_eq!(outcome, reported(row as u32), "{damage} n={n} at={at} {setup:?}");
                    }
                }
            }
        }
    }
}

/// A token that is not to be chosen has a logit of -infinity, and that is no damage.
#[test]
fn argmax_takes_minus_infinity_for_a_logit() {
    for setup in setups() {
        let mut batch = Batch::new(1, 1);
        let mut values = vec![f32::NEG_INFINITY; 100];
        values[70] = -3.0;
        let (x, y) = (batch.f32([100, 1, 1, 1], &values), batch.i32([1, 1, 1, 1], &[-7]));
        batch.run(setup, Op::Argmax, &[x], &[y], &[0u32; 0], STEP).unwrap();
        assert_eq!(batch.ints(y), [70]);
    }
}

/// A value of which the square overflows is as little true as NaN, and a norm must not make zeros of its row.
#[test]
fn norms_make_rows_that_have_no_finite_norm_nan() {
    for (n, rows) in [(5, 3), (128, 9), (300, 2)] {
        let values = random(1, n * rows, -3.0, 5.0);
        let weights = random(2, n, 0.5, 1.5);
        for damage in DAMAGED.into_iter().chain([1e30, -3e38]) {
            for (op, weighted) in [(Op::RmsNorm, false), (Op::RmsNorm, true), (Op::L2Norm, false)] {
                for setup in setups() {
                    let mut batch = Batch::new(1, 1);
                    let mut x = values.clone();
                    x[n * (rows - 1) + n / 2] = damage;
                    let shape = [n as u32, rows as u32, 1, 1];
                    let mut src = vec![batch.f32(shape, &x)];
                    src.extend(weighted.then(|| batch.f32([n as u32, 1, 1, 1], &weights)));
                    let y = batch.f32(shape, &vec![7.0; n * rows]);
                    batch.run(setup, op, &src, &[y], &Norm { eps: 1e-6 }, STEP).unwrap();
                    let nan = nan_rows(&batch.floats(y), rows);
                    let last = |r| r == rows - 1;
                    assert_eq!(nan, (0..rows).map(last).collect::<Vec<_>>(), "{op} n={n} {damage} {setup:?}");
                }
            }
        }
    }
}

/// One strip of Q8_0 weights, 300 wide, of ones, and int8 activations of three rows.
struct Product {
    batch: Batch,
    w: TensorIndex,
    x: TensorIndex,
    q: TensorIndex,
    y: TensorIndex,
    values: Vec<f32>,
}

const K: usize = 320;

impl Product {
    fn new() -> Self {
        let mut batch = Batch::new(1, 1);
        let w = batch.tensor(DType::Q8_0x32, [K as u32, 40, 1, 1]);
        let one = f16::ONE.to_bits();
        let group = DType::Q8_0x32.tile_group().unwrap().bytes;
        let mut tiles = vec![129u8; batch.read(w).len()];
        for group in tiles.chunks_exact_mut(group) {
            group[128 * DType::Q8_0x32.quant_group().unwrap().scales_at()..]
                .as_chunks_mut::<2>()
                .0
                .fill(one.to_le_bytes());
        }
        batch.write(w, &tiles);
        let values = random(1, 3 * K, -2.0, 2.0);
        let x = batch.f32([K as u32, 3, 1, 1], &values);
        let q = batch.tensor(DType::Q8Act, [K as u32, 3, 1, 1]);
        let y = batch.f32([40, 3, 1, 1], &[7.0; 120]);
        Self { batch, w, x, q, y, values }
    }

    /// The products, with `damage` at `at` of the activations.
    fn run(&mut self, setup: Setup, at: usize, damage: f32) -> (Result<(), Fault>, Vec<f32>) {
        let mut values = self.values.clone();
        values[at] = damage;
        self.batch.write(self.x, values.as_bytes());
        self.batch.run(setup, Op::Quantize, &[self.x], &[self.q], &[0u32; 0], STEP).unwrap();
        let outcome = self.batch.run(setup, Op::MulMat, &[self.w, self.q], &[self.y], &[0u32; 0], STEP);
        (outcome, self.batch.floats(self.y))
    }
}

/// The scale of a block holds what is wrong with it, and so does every product with the row. As in ggml, a
/// block that is too large for a scale in f16 has an infinite one.
#[test]
fn products_with_int8_activations_that_are_not_finite_are_reported_and_not_finite() {
    for setup in setups() {
        let mut product = Product::new();
        for damage in DAMAGED.into_iter().chain([1e7, -1e38]) {
            for at in [0, K + 31, K + 32, 3 * K - 1] {
                let (outcome, y) = product.run(setup, at, damage);
                let row = at / K;
                assert_eq!(outcome, reported(row as u32), "{damage} {setup:?}");
                for (r, y) in y.chunks_exact(40).enumerate() {
                    assert!(y.iter().all(|y| y.is_finite() == (r != row)), "{damage} row {r} {setup:?}");
                }
            }
        }
        // The largest that a scale holds.
        let (outcome, y) = product.run(setup, 5, 65504.0 * 127.0);
        assert_eq!(outcome, Ok(()));
        assert!(y.iter().all(|y| y.is_finite()));
    }
}

#[test]
fn products_with_damaged_weights_are_not_finite() {
    for setup in setups() {
        for damage in [0x7c00, 0xfc00, 0x7e00, 0xfe01] {
            let mut product = Product::new();
            // Row 5 of the second strip, tile 2 of the second group.
            let group = DType::Q8_0x32.tile_group().unwrap();
            let at = group.strip_bytes(K)
                + group.bytes
                + 128 * DType::Q8_0x32.quant_group().unwrap().scales_at()
                + 128
                + 5 * 4;
            let mut tiles = product.batch.read(product.w).to_vec();
            tiles[at..at + 2].copy_from_slice(&u16::to_le_bytes(damage));
            product.batch.write(product.w, &tiles);
            let (outcome, y) = product.run(setup, 0, 1.0);
            assert_eq!(outcome, Ok(()));
            for (i, y) in y.iter().enumerate() {
                assert_eq!(y.is_finite(), i % 40 != 37, "{damage:#x} {i} {y} {setup:?}");
            }
        }
        for dtype in [DType::F32x32, DType::F16x32] {
            let mut batch = Batch::new(1, 1);
            let w = batch.tensor(dtype, [4, 3, 1, 1]);
            let mut tiles = batch.read(w).to_vec();
            // Row 1, the first value.
            let nan = [f16::NAN.to_bits(), 0, f32::NAN.to_bits() as u16, (f32::NAN.to_bits() >> 16) as u16];
            let nan = if dtype == DType::F16x32 { &nan[..2] } else { &nan[2..] };
            tiles[4..8].copy_from_slice(nan.as_bytes());
            batch.write(w, &tiles);
            let (x, y) = (batch.f32([4, 1, 1, 1], &[1.0; 4]), batch.f32([3, 1, 1, 1], &[7.0; 3]));
            batch.run(setup, Op::MulMat, &[w, x], &[y], &[0u32; 0], STEP).unwrap();
            assert_eq!(nan_rows(&batch.floats(y), 3), [false, true, false], "{dtype} {setup:?}");
        }
    }
}

/// Attention of two heads with one of keys and values, after `past` tokens, for two more.
struct Attention {
    batch: Batch,
    src: Vec<TensorIndex>,
    y: TensorIndex,
    past: usize,
    softcap: f32,
}

/// Values of a key or a value.
const D: usize = 6;

impl Attention {
    fn new(past: usize, masked: bool, softcap: f32) -> Self {
        let mut batch = Batch::new(2, 128);
        let mut tokened = |heads: usize, values: &[f32]| {
            let whole = batch.f32([D as u32, heads as u32, 2, 1], values);
            batch.view(whole, |t| t.token_axis = 2)
        };
        let [q, k, v] = [(2, 1), (1, 2), (1, 3)]
            .map(|(heads, seed)| tokened(heads, &random(seed, D * heads * 2, -1.0, 1.0)));
        let y = tokened(2, &[7.0; D * 4]);
        let k_cache = batch.tensor(DType::F16x32, [D as u32, 128, 1, 1]);
        let v_cache = batch.tensor(DType::F16, [D as u32, 128, 1, 1]);
        let mut src = vec![q, k_cache, v_cache, k, v];
        if masked {
            src.push(batch.tensor(DType::F16, [128, 2, 1, 1]));
        }
        Self { batch, src, y, past, softcap }
    }

    /// Overwrites an f16 of a cache: of K (1) or V (2), at a position.
    fn damage(&mut self, cache: usize, position: usize, bits: u16) {
        let index = self.src[cache];
        let mut bytes = self.batch.read(index).to_vec();
        let row = self.batch.desc(index).nb[1] as usize;
        // Of a tile of keys, the second pair of values.
        let at = if cache == 1 { position / 32 * row + 128 + position % 32 * 4 } else { position * row };
        bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
        self.batch.write(index, &bytes);
    }

    fn run(&mut self, setup: Setup) -> Result<(), Fault> {
        let visibility = Visibility::Causal.wire();
        let (softcap, scale) = (self.softcap, 0.5);
        let p = FlashAttn { scale, visibility, window: 0, softcap, max_bias: 0.0, first: 0 };
        let step = StepRegisters::step(self.past as u32, 2);
        self.batch.run(setup, Op::FlashAttnExt, &self.src, &[self.y], &p, step)
    }

    /// Which rows are NaN: two heads of the first token, two of the second.
    fn nan_rows(&self) -> Vec<bool> {
        nan_rows(&self.batch.floats(self.y), 4)
    }
}

/// Wherever it is among the positions that a query sees: in the first tile or a later one, before or after
/// the maximum.
#[test]
fn attention_to_a_key_that_is_not_finite_gives_nan() {
    for setup in setups() {
        for bits in [0x7e00, 0xfe00, 0x7c00, 0xfc00, 0x7c01] {
            for position in [0, 17, 31, 32, 69] {
                for (masked, softcap) in [(false, 0.0), (false, 5.0), (true, 0.0), (true, 5.0)] {
                    let mut attention = Attention::new(70, masked, softcap);
                    attention.damage(1, position, bits);
                    attention.run(setup).unwrap();
                    let nan = attention.nan_rows();
                    assert_eq!(nan, [true; 4], "{bits:#x} at {position} {masked} {softcap} {setup:?}");
                }
            }
            // Nobody sees what comes later.
            let mut attention = Attention::new(70, false, 0.0);
            attention.damage(1, 72, bits);
            attention.run(setup).unwrap();
            assert_eq!(attention.nan_rows(), [false; 4], "{bits:#x} {setup:?}");
        }
    }
}

#[test]
fn attention_of_a_query_that_is_not_finite_gives_nan() {
    for setup in setups() {
        for damage in DAMAGED {
            let mut attention = Attention::new(40, false, 0.0);
            let mut q = attention.batch.floats(attention.src[0]);
            // Of the first token, the second head.
            q[D] = damage;
            attention.batch.write(attention.src[0], q.as_bytes());
            // Keys of zeros would hide infinity behind 0 * infinity; these are random.
            for position in 0..40 {
                attention.damage(1, position, f16::from_f32(0.5 + position as f32).to_bits());
            }
            attention.run(setup).unwrap();
            assert_eq!(attention.nan_rows(), [false, true, false, false], "{damage} {setup:?}");
        }
    }
}

#[test]
fn values_that_are_not_finite_are_not_finite_in_the_sum() {
    for setup in setups() {
        for bits in [0x7e00, 0x7c00, 0xfc00] {
            let mut attention = Attention::new(70, false, 0.0);
            attention.damage(2, 33, bits);
            attention.run(setup).unwrap();
            let y = attention.batch.floats(attention.y);
            for (i, y) in y.iter().enumerate() {
                assert_eq!(y.is_finite(), i % D != 0, "{bits:#x} {y} {setup:?}");
            }
        }
    }
}

/// They would be infinite or NaN in the cache, and arithmetic without either would read 65536 there.
#[test]
fn keys_and_values_that_f16_does_not_hold_are_reported() {
    for setup in setups() {
        for damage in DAMAGED.into_iter().chain([65520.0, -1e9]) {
            for (operand, token, at) in [(3, 0, 0), (3, 1, D - 1), (4, 0, 3), (4, 1, D - 1)] {
                let mut attention = Attention::new(3, false, 0.0);
                let mut values = attention.batch.floats(attention.src[operand]);
                values[token * D + at] = damage;
                attention.batch.write(attention.src[operand], values.as_bytes());
                assert_eq!(attention.run(setup), reported(token as u32), "{damage} {operand} {setup:?}");
                let Attention { batch, src, .. } = &mut attention;
                let (src, dst) = ([src[3], src[4]], [src[1], src[2]]);
                let step = StepRegisters::step(3, 2);
                let outcome = batch.run(setup, Op::KvAppend, &src, &dst, &[0u32; 0], step);
                assert_eq!(outcome, reported(token as u32), "KV_APPEND {damage} {operand} {setup:?}");
            }
        }
        let mut attention = Attention::new(3, false, 0.0);
        attention.batch.write(attention.src[4], [65519.0f32; 2 * D].as_bytes());
        assert_eq!(attention.run(setup), Ok(()), "the largest that rounds to a number");
    }
}

/// NaN at one place gives NaN there, and in all that is computed from it.
#[test]
fn nan_stays_nan_in_every_other_op() {
    let n = 40;
    let (sound, other) = (random(1, n, -2.0, 2.0), random(2, n, -2.0, 2.0));
    for setup in setups() {
        for nan in [f32::NAN, -f32::NAN] {
            for at in [0, 31, 39] {
                let mut x = sound.clone();
                x[at] = nan;
                let only = |y: &[f32], op| {
                    for (i, y) in y.iter().enumerate() {
                        assert_eq!(y.is_nan(), i == at, "{op} {i} {setup:?}");
                    }
                };
                for op in [Op::Silu, Op::Sigmoid, Op::Softplus, Op::Exp] {
                    only(&unary(setup, op, &x, &[], &[0u32; 0]), op);
                }
                only(&unary(setup, Op::Scale, &x, &[], &Scale { scale: 0.0, bias: 1.0 }), Op::Scale);
                for op in [Op::Add, Op::Mul] {
                    only(&unary(setup, op, &x, &[&other], &[0u32; 0]), op);
                    only(&unary(setup, op, &other, &[&x], &[0u32; 0]), op);
                }
                for p in [Glu::of(GluKind::Swiglu), Glu::of(GluKind::Geglu), Glu::swiglu_oai(1.702, 7.0)] {
                    only(&unary(setup, Op::Glu, &x, &[&other], &p), Op::Glu);
                    only(&unary(setup, Op::Glu, &other, &[&x], &p), Op::Glu);
                }
                only(&unary(setup, Op::Cpy, &x, &[], &[0u32; 0]), Op::Cpy);
            }
        }
    }
}

/// A pair of values is turned together.
#[test]
fn nan_stays_nan_in_rope() {
    let p = Rope {
        n_dims: 64,
        mode: RopeMode::Neox.wire(),
        n_ctx_orig: 128,
        freq_base: 1e4,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        sections: [0; 4],
        temperature: 0.0,
        temperature_span: 0,
    };
    for setup in setups() {
        for at in [3, 31, 40] {
            let mut batch = Batch::new(1, 8);
            let mut values = random(1, 64, -1.0, 1.0);
            values[at] = f32::NAN;
            let x = batch.f32([64, 1, 1, 1], &values);
            batch.run(setup, Op::Rope, &[x], &[x], &p, StepRegisters::step(5, 1)).unwrap();
            for (i, y) in batch.floats(x).iter().enumerate() {
                assert_eq!(y.is_nan(), i % 32 == at % 32, "{i} {setup:?}");
            }
        }
    }
}

#[test]
fn nan_stays_nan_in_a_convolution_and_in_a_recurrent_state() {
    for setup in setups() {
        let mut batch = Batch::new(1, 8);
        let mut values = random(1, 64, -1.0, 1.0);
        values[40] = f32::NAN;
        let (x, y) = (batch.f32([64, 1, 1, 1], &values), batch.f32([64, 1, 1, 1], &[7.0; 64]));
        let (w, ring) = (batch.f32([64, 2, 1, 1], &[0.5; 128]), batch.f32([64, 2, 1, 1], &[0.25; 128]));
        let p = params::SsmConv { defer: 0, silu: 0 };
        for position in [0, 1] {
            batch.run(setup, Op::SsmConv, &[x, w, ring], &[y], &p, StepRegisters::step(position, 1)).unwrap();
            let nan: Vec<_> = (0..64).filter(|&i| batch.floats(y)[i].is_nan()).collect();
            assert_eq!(nan, [40], "position {position} {setup:?}");
            batch.write(x, random(2, 64, -1.0, 1.0).as_bytes());
        }
        // q, k, v, g, beta, state: a value that is NaN in any of them is NaN in the head's output, now or a
        // token later.
        for size in [16, 64, 128] {
            for operand in 0..6 {
                let (mut batch, n) = (Batch::new(1, 8), size as u32);
                let shapes = [[n, 1, 1, 1], [n, 1, 1, 1], [n, 1, 1, 1], [1; 4], [1; 4], [n, n, 1, 1]];
                let len = |ne: [u32; 4]| ne.iter().product::<u32>() as usize;
                let src = shapes.map(|ne| batch.f32(ne, &random(n.into(), len(ne), 0.1, 1.0)));
                let mut values = batch.floats(src[operand]);
                values[0] = f32::NAN;
                batch.write(src[operand], values.as_bytes());
                let y = batch.f32([n, 1, 1, 1], &vec![7.0; size]);
                let p = params::DeltaNet { defer: 0, transposed: 0 };
                batch.run(setup, Op::GatedDeltaNet, &src, &[y], &p, StepRegisters::step(3, 1)).unwrap();
                let found = batch.floats(y).iter().any(|y| y.is_nan());
                assert!(found, "S={size} operand {operand} {setup:?}");
            }
        }
    }
}
