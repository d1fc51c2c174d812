//! Operands and results of small kernels: ggml's definitions in double precision, rounded once.

use hexflash_abi::Op;
use hexflash_hvx_float::ieee::HF;

/// An op on one row.
#[derive(Clone, Debug)]
pub struct Block {
    pub op: Op,
    /// Which of an op's ways: the types of a copy, the unit of a product.
    pub way: &'static str,
    /// Parameters, as words.
    pub params: Vec<u32>,
    /// How far a result may be, in units of its last place: 0 where every device must give these words.
    pub ulps: u32,
    /// Words of each source.
    pub takes: Vec<Vec<u32>>,
    pub gives: Vec<u32>,
}

/// Epsilon of the norms.
const EPS: f32 = 1e-6;
/// What qfloat may be off by after the dozen operations of a function or a norm.
const NEAR: u32 = 16;

/// Values of both signs, without a pattern: multiples of 1/64 between -4 and 4.
fn values(n: u32, seed: u32) -> Vec<f32> {
    (0..n).map(|i| (i * 37 + seed * 101 + i * i * 11) % 512).map(|x| (x as f32 - 256.0) / 64.0).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Doubles, rounded to floats.
fn rounded(values: impl Iterator<Item = f64>) -> Vec<u32> {
    values.map(|x| (x as f32).to_bits()).collect()
}

fn block(op: Op, ulps: u32, takes: &[&[f32]], gives: Vec<u32>) -> Block {
    let takes = takes.iter().map(|row| bits(row)).collect();
    Block { op, way: "", params: Vec::new(), ulps, takes, gives }
}

/// All blocks.
pub fn blocks() -> Vec<Block> {
    let (a, b) = (values(40, 1), values(40, 2));
    // No integer of 24 bits, so that sums round.
    let thirds: Vec<f32> = a.iter().map(|x| x / 3.0).collect();
    let wide = |row: &[f32]| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let of = |row: &[f32], f: fn(f64) -> f64| rounded(wide(row).into_iter().map(f));
    let pairs = |f: fn(f32, f32) -> f32| thirds.iter().zip(&b).map(|(&x, &y)| f(x, y).to_bits()).collect();
    let squares = wide(&thirds).iter().map(|x| x * x).sum::<f64>();
    let norm = |row: &[f32], by: f64| rounded(wide(row).into_iter().map(|x| x / by));
    let exps: Vec<f64> = wide(&thirds).into_iter().map(f64::exp).collect();
    let all: f64 = exps.iter().sum();
    let halves: Vec<u32> = thirds.iter().map(|&x| HF.of_f64(x.into())).collect();
    let packed: Vec<u32> = halves.chunks(2).map(|pair| pair[0] | pair[1] << 16).collect();
    let half = |&half: &u32| (HF.to_f64(half) as f32).to_bits();
    let sum: f64 = wide(&a).iter().sum();
    // Small integers, so that their sum is one that halves have, too.
    let row: Vec<f32> = values(64, 3).iter().map(|x| (x * 64.0).rem_euclid(8.0)).collect();
    let dot: f64 = wide(&row).iter().sum();
    vec![
        block(Op::Add, 0, &[&thirds, &b], pairs(|x, y| x + y)),
        block(Op::Mul, 0, &[&thirds, &b], pairs(|x, y| x * y)),
        block(Op::SumRows, NEAR, &[&a], vec![(sum as f32).to_bits()]),
        Block { way: "f32 f16", ..block(Op::Cpy, 0, &[&thirds], packed.clone()) },
        Block {
            way: "f16 f32",
            takes: vec![packed],
            ..block(Op::Cpy, 0, &[], halves.iter().map(half).collect())
        },
        Block {
            params: vec![EPS.to_bits()],
            ..block(
                Op::RmsNorm,
                NEAR,
                &[&thirds],
                norm(&thirds, (squares / thirds.len() as f64 + f64::from(EPS)).sqrt()),
            )
        },
        Block {
            params: vec![EPS.to_bits()],
            ..block(Op::L2Norm, NEAR, &[&thirds], norm(&thirds, squares.sqrt().max(f64::from(EPS))))
        },
        block(Op::Silu, NEAR, &[&thirds], of(&thirds, |x| x / (1.0 + (-x).exp()))),
        block(Op::Sigmoid, NEAR, &[&thirds], of(&thirds, |x| 1.0 / (1.0 + (-x).exp()))),
        block(Op::Exp, NEAR, &[&thirds], of(&thirds, f64::exp)),
        Block {
            params: vec![1.0_f32.to_bits(), 0],
            ..block(Op::SoftMax, NEAR, &[&thirds], rounded(exps.iter().map(|e| e / all)))
        },
        // Weights are all 1, so that it does not matter how they are laid out.
        Block { way: "ones", ..block(Op::MulMat, 64, &[&row], vec![(dot as f32).to_bits(); 32]) },
        Block { way: "ones by HMX", ..block(Op::MulMat, 0, &[&row], vec![(dot as f32).to_bits(); 32]) },
    ]
}
