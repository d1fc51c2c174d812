//! GATED_DELTA_NET: the state with its value index fast, and ggml's snapshots as the states after prefixes.
//!
//! hexflash keeps one state. Plane s of ggml's result is the state s tokens before the end, which is what a
//! step of T - s tokens leaves: it is run as such, in a program whose token axis is longer.

use hexflash_abi::op::gated_delta_net::TRANSPOSED_SIZES;
use hexflash_abi::op::params;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, Op};
use hexflash_dsp::kernels::recurrent::gated_delta_net::has_chunks;
use hexflash_oracle::cases::{Case, CaseKind, Inputs};
use hexflash_oracle::{GgmlType, Tensor};

use super::super::plan::{OpProgram, POISON, dims};
use super::{Failure, Outcome, Trial};

/// One run: outputs and the state after it, both as ggml lays them out.
struct Step {
    y: Vec<u8>,
    state: Vec<f32>,
}

/// Which kernels a run may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernels {
    Exact,
    /// The same on a state that lies as ggml has it.
    Transposed,
    /// That which takes many tokens at once.
    Chunked,
}

/// A run of the case's first `tokens` in a program for `max_tokens`; without a state, of a new sequence.
fn step(
    trial: &mut Trial<'_>,
    way: &'static str,
    kernels: Kernels,
    tokens: u32,
    max_tokens: u32,
    state: Option<&Tensor>,
) -> Result<Step, Failure> {
    let n_past = if state.is_some() { 5 } else { 0 };
    let mut p = OpProgram::new(max_tokens, n_past + max_tokens);
    if kernels == Kernels::Chunked {
        p = p.fast();
    }
    let whole = tokens == max_tokens && i64::from(tokens) == trial.x.get("v").ne[2];
    let src: Vec<_> = ["q", "k", "v", "g", "beta"]
        .map(|name| {
            let t = trial.x.get(name);
            // As the case has them where possible: permuted inputs are rows with other strides.
            if whole {
                let t = p.input(t);
                p.on_tokens(t, 2)
            } else {
                p.tokens(t, 2)
            }
        })
        .map(Some)
        .into();
    let v = dims(trial.x.get("v").ne);
    let [s, h, _, b] = v;
    let order = |state: &[f32]| match kernels {
        Kernels::Transposed => state.to_vec(),
        Kernels::Exact | Kernels::Chunked => transposed(state, s as usize),
    };
    let bytes = match state {
        Some(t) => order(&t.to_f32()).iter().flat_map(|v| v.to_le_bytes()).collect(),
        None => vec![POISON; (s * s * h * b * 4) as usize],
    };
    let kept = p.state(DType::F32, [s, s, h, b], &bytes);
    let y = p.token_output(v, 2);
    let src: Vec<_> = src.into_iter().chain([Some(kept)]).collect();
    let transposed = u32::from(kernels == Kernels::Transposed);
    p.op(Op::GatedDeltaNet, &src, y, &params::DeltaNet { defer: 0, transposed });
    let memory = trial.run(way, &p, &StepRegisters::step(n_past, tokens))?;
    let kept = p.tensor(&memory, kept, 1).to_f32();
    Ok(Step { y: p.tensor(&memory, y, tokens).data, state: order(&kept) })
}

/// Exchanges the axes of each `s` x `s` matrix.
fn transposed(state: &[f32], s: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(state.len());
    for matrix in state.chunks_exact(s * s) {
        out.extend((0..s * s).map(|i| matrix[i % s * s + i / s]));
    }
    out
}

/// ggml's result: the outputs, then the planes; what ggml leaves alone is zero.
fn assemble(case: &Case, want: &Tensor, y: &[u8], planes: &[Vec<f32>]) -> Tensor {
    let mut data = y.to_vec();
    data.extend(planes.iter().flatten().flat_map(|v| v.to_le_bytes()));
    debug_assert_eq!(data.len(), 4 * case.defined());
    data.resize(4 * want.len(), 0);
    Tensor::new(GgmlType::F32, want.ne, data)
}

/// The case with all its snapshots; and where a sequence starts.
pub fn gated_delta_net(trial: &mut Trial<'_>) -> Outcome {
    const WAY: &str = "steps";
    let CaseKind::GatedDeltaNet { s, t, kda, snapshots, .. } = trial.case.kind else {
        unreachable!("called for GATED_DELTA_NET only")
    };
    let chunked = has_chunks(if kda { s as usize } else { 1 }, s as usize);
    let (t, snapshots) = (t as u32, snapshots as u32);
    let state = trial.x.get("state").clone();
    if !trial.only_matrix_unit {
        let whole = step(trial, WAY, Kernels::Exact, t, t, Some(&state))?;
        let mut planes = vec![whole.state];
        for back in 1..snapshots.min(t) {
            planes.push(step(trial, WAY, Kernels::Exact, t - back, t, Some(&state))?.state);
        }
        let got = assemble(trial.case, trial.want, &whole.y, &planes);
        trial.verdict(WAY, &got)?;
        if snapshots == 1 && (s as u32).is_multiple_of(TRANSPOSED_SIZES) {
            const WAY: &str = "ggml's order";
            let got = step(trial, WAY, Kernels::Transposed, t, t, Some(&state))?;
            let got = assemble(trial.case, trial.want, &got.y, &[got.state]);
            trial.verdict(WAY, &got)?;
        }
    }
    if chunked && snapshots == 1 {
        const CHUNKS: &str = "chunks";
        let got = step(trial, CHUNKS, Kernels::Chunked, t, t, Some(&state))?;
        let got = assemble(trial.case, trial.want, &got.y, &[got.state]);
        trial.verdict(CHUNKS, &got)?;
        fresh(trial, "new sequence in chunks", Kernels::Chunked)?;
    }
    if trial.only_matrix_unit || !trial.thorough() || snapshots > 1 {
        return Ok(());
    }
    part(trial, &state)?;
    fresh(trial, "new sequence", Kernels::Exact)
}

/// A step that uses part of the token axis.
fn part(trial: &mut Trial<'_>, state: &Tensor) -> Outcome {
    const WAY: &str = "part of the token axis";
    let t = trial.x.get("v").ne[2] as u32;
    let got = step(trial, WAY, Kernels::Exact, t, t + 3, Some(state))?;
    let got = assemble(trial.case, trial.want, &got.y, &[got.state]);
    trial.verdict(WAY, &got)
}

/// A new sequence: the state is zeros, whatever its memory holds.
fn fresh(trial: &mut Trial<'_>, way: &'static str, kernels: Kernels) -> Outcome {
    let mut inputs = Inputs(trial.x.0.clone());
    for (name, input) in &mut inputs.0 {
        if *name == "state" {
            *input = Tensor::zeros(GgmlType::F32, input.ne);
        }
    }
    let want = trial.case.expected_from(&inputs, trial.cpu);
    let want = want.map_err(|e| Failure { way, why: e.to_string(), nmse: None })?;
    let t = trial.x.get("v").ne[2] as u32;
    let got = step(trial, way, kernels, t, t, None)?;
    let got = assemble(trial.case, &want, &got.y, &[got.state]);
    trial.verdict_against(way, &want, &got)
}
