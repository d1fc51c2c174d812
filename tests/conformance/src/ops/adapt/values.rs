//! Element by element and row by row: binary and unary ops, GLU, norms, ROPE.

use hexflash_abi::op::params::{self, GluKind, UnaryKind};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, Op};
use hexflash_oracle::cases::Inputs;
use hexflash_oracle::ops::{Glu, Rope, RopeMode, Unary};
use hexflash_oracle::{GgmlType, Tensor};

use super::super::plan::{OpProgram, T, dims};
use super::{Outcome, Trial};

const NONE: [u32; 0] = [];

fn rows(p: &mut OpProgram, t: &Tensor) -> T {
    let x = p.input(t);
    p.rows(x)
}

/// A packed copy of an input that an op then overwrites: in-place forms.
fn overwritten(p: &mut OpProgram, t: &Tensor) -> T {
    p.state(DType::F32, dims(t.ne), &t.contiguous().data)
}

/// `a op b` into a new tensor, and over `a`.
pub fn binary(trial: &mut Trial<'_>, op: Op) -> Outcome {
    let (a, b) = (trial.x.get("a"), trial.x.get("b"));
    for (way, in_place) in [("new", false), ("in place", true)] {
        if in_place && !trial.thorough() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let x = if in_place { overwritten(&mut p, a) } else { rows(&mut p, a) };
        let other = rows(&mut p, b);
        let y = if in_place { x } else { p.output(DType::F32, dims(a.ne)) };
        p.op(op, &[Some(x), Some(other)], y, &NONE);
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// SCALE.
pub fn scale(trial: &mut Trial<'_>, scale: f32, bias: f32) -> Outcome {
    elementwise(trial, Op::Scale, &params::Scale { scale, bias })
}

/// SILU, SIGMOID, SOFTPLUS, EXP, and what UNARY has.
pub fn unary(trial: &mut Trial<'_>, op: Unary) -> Outcome {
    let named = |kind| params::Unary::of(kind);
    let params = match op {
        Unary::Silu => return elementwise(trial, Op::Silu, &NONE),
        Unary::Sigmoid => return elementwise(trial, Op::Sigmoid, &NONE),
        Unary::Softplus => return elementwise(trial, Op::Softplus, &NONE),
        Unary::Exp => return elementwise(trial, Op::Exp, &NONE),
        Unary::Neg => unreachable!("`skip` has a reason for this"),
        Unary::Abs => named(UnaryKind::Abs),
        Unary::Sgn => named(UnaryKind::Sgn),
        Unary::Step => named(UnaryKind::Step),
        Unary::Tanh => named(UnaryKind::Tanh),
        Unary::Elu => named(UnaryKind::Elu),
        Unary::Relu => named(UnaryKind::Relu),
        Unary::Gelu => named(UnaryKind::Gelu),
        Unary::GeluQuick => named(UnaryKind::GeluQuick),
        Unary::GeluErf => named(UnaryKind::GeluErf),
        Unary::HardSwish => named(UnaryKind::HardSwish),
        Unary::HardSigmoid => named(UnaryKind::HardSigmoid),
        Unary::Expm1 => named(UnaryKind::Expm1),
        Unary::Floor => named(UnaryKind::Floor),
        Unary::Ceil => named(UnaryKind::Ceil),
        Unary::Round => named(UnaryKind::Round),
        Unary::Trunc => named(UnaryKind::Trunc),
        Unary::Sqrt => named(UnaryKind::Sqrt),
        Unary::Log => named(UnaryKind::Log),
        Unary::Sin => named(UnaryKind::Sin),
        Unary::Cos => named(UnaryKind::Cos),
        Unary::LeakyRelu => params::Unary { a: Unary::SLOPE, ..named(UnaryKind::LeakyRelu) },
        Unary::Clamp => {
            let [a, b] = Unary::RANGE;
            params::Unary { a, b, ..named(UnaryKind::Clamp) }
        }
    };
    elementwise(trial, Op::Unary, &params)
}

/// SOFT_MAX into a new tensor, and over `a`.
pub fn soft_max(trial: &mut Trial<'_>, scale: f32, max_bias: f32) -> Outcome {
    let (a, mask, sinks) = (trial.x.get("a"), trial.x.find("mask"), trial.x.find("sinks"));
    for (way, in_place) in [("new", false), ("in place", true)] {
        if in_place && !trial.thorough() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let x = if in_place { overwritten(&mut p, a) } else { rows(&mut p, a) };
        let src = [Some(x), mask.map(|mask| p.input(mask)), sinks.map(|sinks| p.input(sinks))];
        let y = if in_place { x } else { p.output(DType::F32, dims(a.ne)) };
        p.op(Op::SoftMax, &src, y, &params::SoftMax { scale, max_bias });
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// SUM_ROWS.
pub fn sum_rows(trial: &mut Trial<'_>) -> Outcome {
    let a = trial.x.get("a");
    let mut p = OpProgram::new(1, 1);
    let x = rows(&mut p, a);
    let [_, m, b2, b3] = dims(a.ne);
    let y = p.output(DType::F32, [1, m, b2, b3]);
    p.op(Op::SumRows, &[Some(x)], y, &NONE);
    trial.result("new", &p, y)
}

fn elementwise<P>(trial: &mut Trial<'_>, op: Op, params: &P) -> Outcome
where
    P: zerocopy::IntoBytes + zerocopy::Immutable,
{
    let a = trial.x.get("a");
    for (way, in_place) in [("new", false), ("in place", true)] {
        if in_place && !trial.thorough() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let x = if in_place { overwritten(&mut p, a) } else { rows(&mut p, a) };
        let y = if in_place { x } else { p.output(DType::F32, dims(a.ne)) };
        p.op(op, &[Some(x)], y, params);
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// GLU of two tensors, or of the halves of one. Halves of an odd row (the last element belongs to neither)
/// are two views.
pub fn glu(trial: &mut Trial<'_>, op: Glu, swapped: bool) -> Outcome {
    let params = match op {
        Glu::Swiglu => params::Glu::of(GluKind::Swiglu),
        Glu::Geglu => params::Glu::of(GluKind::Geglu),
        Glu::SwigluOai { alpha, limit } => params::Glu::swiglu_oai(alpha, limit),
    };
    let a = trial.x.get("a");
    let mut p = OpProgram::new(1, 1);
    let x = rows(&mut p, a);
    let mut ne = dims(a.ne);
    let (src, swapped) = match trial.x.find("b") {
        Some(b) => (vec![Some(x), Some(rows(&mut p, b))], 0),
        None => {
            let odd = ne[0] % 2 == 1;
            ne[0] /= 2;
            if odd {
                let nb = p.nb(x);
                let [low, high] = [0, 4 * ne[0] as usize].map(|at| p.view(x, ne, nb, at));
                (vec![Some(if swapped { high } else { low }), Some(if swapped { low } else { high })], 0)
            } else {
                (vec![Some(x)], u32::from(swapped))
            }
        }
    };
    let y = p.output(DType::F32, ne);
    p.op(Op::Glu, &src, y, &params::Glu { swapped, ..params });
    trial.result("new", &p, y)
}

/// ADD_ID into a new tensor, and over `a`.
pub fn add_id(trial: &mut Trial<'_>) -> Outcome {
    let (a, b, ids) = (trial.x.get("a"), trial.x.get("b"), trial.x.get("ids"));
    for (way, in_place) in [("new", false), ("in place", true)] {
        if in_place && !trial.thorough() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let x = if in_place { overwritten(&mut p, a) } else { p.input(a) };
        let src = [x, p.input(b), p.input(ids)].map(Some);
        let y = if in_place { x } else { p.output(DType::F32, dims(a.ne)) };
        p.op(Op::AddId, &src, y, &NONE);
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// RMS_NORM with or without a weight, L2_NORM.
pub fn norm(trial: &mut Trial<'_>, op: Op, eps: f32) -> Outcome {
    let a = trial.x.get("a");
    for (way, in_place) in [("new", false), ("in place", true)] {
        if in_place && !trial.thorough() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let x = if in_place { overwritten(&mut p, a) } else { rows(&mut p, a) };
        let w = trial.x.find("weight").map(|w| p.input(w));
        let y = if in_place { x } else { p.output(DType::F32, dims(a.ne)) };
        let src = if w.is_some() { vec![Some(x), w] } else { vec![Some(x)] };
        p.op(op, &src, y, &params::Norm { eps });
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// ROPE with the case's positions; and with those of the step, in part of the token axis.
pub fn rope(trial: &mut Trial<'_>, r: &Rope) -> Outcome {
    let params = params::Rope {
        n_dims: if r.mode == RopeMode::Vision { 2 * r.n_dims } else { r.n_dims } as u32,
        mode: r.mode as u32,
        n_ctx_orig: r.n_ctx_orig as u32,
        freq_base: r.freq_base,
        freq_scale: r.freq_scale,
        ext_factor: r.ext_factor,
        attn_factor: r.attn_factor,
        beta_fast: r.beta_fast,
        beta_slow: r.beta_slow,
        sections: r.sections.map(|s| s as u32),
        temperature: 0.0,
        temperature_span: 0,
    };
    let (a, pos) = (trial.x.get("a"), trial.x.get("pos"));
    let mut p = OpProgram::new(1, 1);
    let x = rows(&mut p, a);
    let t = a.ne[2];
    let sections = if r.mode.is_multi() { 4 } else { 1 };
    let positions = p.input(&Tensor::i32([t, sections, 1, 1], &pos.to_i32()));
    let factors = trial.x.find("factors").map(|f| p.input(f));
    let y = p.output(DType::F32, dims(a.ne));
    p.op(Op::Rope, &[Some(x), Some(positions), factors], y, &params);
    trial.result("positions", &p, y)?;
    if trial.thorough() && a.ne[3] == 1 { from_registers(trial, r.mode, &params) } else { Ok(()) }
}

/// No positions: token t stands at n_past + t, in every position row.
fn from_registers(trial: &mut Trial<'_>, mode: RopeMode, params: &params::Rope) -> Outcome {
    const WAY: &str = "positions of the step";
    let a = trial.x.get("a");
    let t = a.ne[2] as u32;
    let n_past = 37;
    let rows = if mode.is_multi() { 4 } else { 1 };
    let line: Vec<i32> = (0..rows * t).map(|i| (n_past + i % t) as i32).collect();
    let mut x = Inputs(trial.x.0.clone());
    for (name, input) in &mut x.0 {
        if *name == "pos" {
            *input = Tensor::new(GgmlType::I32, input.ne, Tensor::i32(input.ne, &line).data);
        }
    }
    let want = trial.case.expected_from(&x, trial.cpu).map_err(|e| super::Failure {
        way: WAY,
        why: e.to_string(),
        nmse: None,
    })?;
    let max_tokens = t + 3;
    let mut p = OpProgram::new(max_tokens, n_past + max_tokens);
    let input = p.tokens(a, 2);
    let factors = trial.x.find("factors").map(|f| p.input(f));
    let y = p.token_output(dims(a.ne), 2);
    p.op(Op::Rope, &[Some(input), None, factors], y, params);
    let memory = trial.run(WAY, &p, &StepRegisters::step(n_past, t))?;
    let got = p.tensor(&memory, y, t);
    trial.verdict_against(WAY, &want, &got)
}
