//! The projector of Gemma 3: the mean of squares of rows, an RMS norm, and a matrix that files have the other
//! way round.

use hexflash_abi::Op;

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

const SCOPE: Scope = Scope::ENCODER;
const NORM: &str = "mm.soft_emb_norm.weight";
pub(super) const MATRIX: &str = "mm.input_projection.weight";

/// Plans the weights, from rows of `n_embd` values to rows of `n`.
pub(super) fn weights(plan: &mut WeightPlanner<'_>, [n_embd, n]: [u32; 2]) -> Result<(), ModelError> {
    plan.add(SCOPE, NORM, &[n_embd], Form::Plain)?;
    plan.add(SCOPE, MATRIX, &[n, n_embd], Form::Turned)
}

/// Records merged rows x{n_embd * patches,t} -> y{n,t}; `eps` is added to the mean of squares.
pub(super) fn record(g: &mut Graph<'_>, x: Tensor, y: Tensor, [n_embd, patches]: [u32; 2], eps: f32) {
    let mean = mean(g, x, [n_embd, patches]);
    g.rms_norm_into(mean, &SCOPE.label(NORM), eps, mean);
    g.linear_into(mean, &SCOPE.label(MATRIX), y);
}

/// The mean of the rows of `n_embd` values that each row of x{n_embd * patches,t} consists of: {n_embd,t}.
pub(super) fn mean(g: &mut Graph<'_>, x: Tensor, [n_embd, patches]: [u32; 2]) -> Tensor {
    let sum = g.activation_like(x, n_embd);
    let part = |g: &mut Graph<'_>, i: u32| g.columns(x, i * n_embd, n_embd);
    let first = part(g, 0);
    g.rec.op(Op::Cpy, &[first], sum);
    for i in 1..patches {
        let part = part(g, i);
        g.update(Op::Add, sum, part);
    }
    g.scale(sum, 1.0 / patches as f32);
    sum
}
