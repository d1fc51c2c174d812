//! SSM_CONV: ggml's window of past and new rows as a ring and a step.

use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, Op};
use hexflash_oracle::Tensor;
use hexflash_oracle::cases::{CaseKind, Inputs};

use super::super::plan::{OpProgram, POISON};
use super::{Failure, Outcome, Trial};

/// Where in its ring a step finds its history.
struct Way {
    name: &'static str,
    /// Rows of the ring beyond the taps.
    more: usize,
    /// Tokens before the step, beyond the history.
    before: usize,
    /// Rows of the token axis that the step does not use.
    spare: usize,
    /// A new sequence: no history, whatever the ring holds.
    fresh: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "smallest ring", more: 0, before: 0, spare: 0, fresh: false },
    Way { name: "wrapped ring", more: 3, before: 5, spare: 0, fresh: false },
    Way { name: "part of the token axis", more: 16, before: 1000, spare: 3, fresh: false },
    Way { name: "new sequence", more: 1, before: 0, spare: 0, fresh: true },
];

/// All ways: they are quick.
pub fn ssm_conv(trial: &mut Trial<'_>) -> Outcome {
    WAYS.iter().try_for_each(|way| one(trial, way))
}

fn one(trial: &mut Trial<'_>, way: &Way) -> Outcome {
    let CaseKind::SsmConv { taps, channels, t, seqs } = trial.case.kind else {
        unreachable!("called for SSM_CONV only")
    };
    let [taps, channels, t, seqs] = [taps, channels, t, seqs].map(|n| n as usize);
    let history = taps - 1;
    let (x, w) = (trial.x.get("x").to_f32(), trial.x.get("w").to_f32());
    // Rows of a sequence: ggml has positions fast, hexflash channels.
    let row = |b: usize, i: usize| (0..channels).map(|c| x[(b * channels + c) * (history + t) + i]).collect();
    let rows: Vec<Vec<Vec<f32>>> = (0..seqs).map(|b| (0..history + t).map(|i| row(b, i)).collect()).collect();
    let n_past = if way.fresh { 0 } else { history + way.before };
    let size = taps + way.more;

    let poison = f32::from_le_bytes([POISON; 4]);
    let mut ring = vec![poison; channels * size * seqs];
    let put = |ring: &mut [f32], b: usize, position: usize, row: &[f32]| {
        ring[(b * size + position % size) * channels..][..channels].copy_from_slice(row);
    };
    if !way.fresh {
        for (b, rows) in rows.iter().enumerate() {
            for (i, row) in rows[..history].iter().enumerate() {
                put(&mut ring, b, n_past - history + i, row);
            }
        }
    }
    let mut p = OpProgram::new((t + way.spare) as u32, (n_past + t + way.spare) as u32);
    let new: Vec<f32> = rows.iter().flat_map(|rows| rows[history..].concat()).collect();
    let x = p.tokens(&Tensor::f32([channels, t, seqs, 1].map(|n| n as i64), &new), 1);
    let transposed: Vec<f32> =
        (0..taps).flat_map(|j| w.iter().skip(j).step_by(taps).copied().collect::<Vec<_>>()).collect();
    let ne = |n: [usize; 3]| [n[0] as u32, n[1] as u32, n[2] as u32, 1];
    let floats = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let w = p.packed(DType::F32, ne([channels, taps, 1]), &floats(&transposed));
    let state = p.state(DType::F32, ne([channels, size, seqs]), &floats(&ring));
    let y = p.token_output(ne([channels, t, seqs]), 1);
    p.op(Op::SsmConv, &[Some(x), Some(w), Some(state)], y, &[0u32; 0]);
    let memory = trial.run(way.name, &p, &StepRegisters::step(n_past as u32, t as u32))?;

    for (b, rows) in rows.iter().enumerate() {
        for (i, row) in rows[history..].iter().enumerate() {
            put(&mut ring, b, n_past + i, row);
        }
    }
    trial.same_bytes(way.name, "the ring", &floats(&ring), p.bytes(&memory, state))?;
    let got = p.tensor(&memory, y, t as u32);
    if !way.fresh {
        return trial.verdict(way.name, &got);
    }
    let want = without_history(trial, history, history + t).map_err(|why| Failure {
        way: way.name,
        why,
        nmse: None,
    })?;
    trial.verdict_against(way.name, &want, &got)
}

/// ggml's result where everything before the step is zero.
fn without_history(trial: &Trial<'_>, history: usize, width: usize) -> Result<Tensor, String> {
    let mut inputs = Inputs(trial.x.0.clone());
    for (name, input) in &mut inputs.0 {
        if *name == "x" {
            let mut x = input.to_f32();
            x.chunks_exact_mut(width).for_each(|row| row[..history].fill(0.0));
            *input = Tensor::f32(input.ne, &x);
        }
    }
    trial.case.expected_from(&inputs, trial.cpu).map_err(|e| e.to_string())
}
