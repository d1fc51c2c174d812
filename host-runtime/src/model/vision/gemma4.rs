//! The projector of Gemma 4: the mean of squares of rows, a standardization that some files have, a norm
//! without weights, and a matrix.
//!
//! Formulas: llama.cpp's `tools/mtmd/models/gemma4v.cpp`.

use hexflash_abi::Op;

use super::clamps::Clamps;
use super::gemma3::mean;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

const SCOPE: Scope = Scope::ENCODER;
/// Vectors that standardize the mean: the first is taken off, the second is a factor. Both or none are there.
const STD: [&str; 2] = ["v.std_bias", "v.std_scale"];
const MATRIX: &str = "mm.input_projection";

/// The matrix that gives rows for the text model.
pub(super) const LAST: &str = "mm.input_projection.weight";

/// Plans the weights, from rows of `n_embd` values to rows of `n`.
pub(super) fn weights(
    plan: &mut WeightPlanner<'_>,
    clamps: &Clamps,
    [n_embd, n]: [u32; 2],
) -> Result<(), ModelError> {
    if STD.iter().all(|name| plan.has(SCOPE, name)) {
        STD.iter().try_for_each(|name| plan.add(SCOPE, name, &[n_embd], Form::Plain))?;
    }
    clamps.plan(plan, MATRIX)?;
    plan.add(SCOPE, LAST, &[n_embd, n], Form::Tiled)
}

/// Records merged rows x{n_embd * patches,t} -> y{n,t}; `eps` is added to the mean of squares.
pub(super) fn record(
    g: &mut Graph<'_>,
    clamps: &Clamps,
    [x, y]: [Tensor; 2],
    [n_embd, patches]: [u32; 2],
    eps: f32,
) {
    let mean = mean(g, x, [n_embd, patches]);
    g.scale(mean, (n_embd as f32).sqrt());
    if STD.iter().all(|name| g.has_weight(&SCOPE.label(name))) {
        let [bias, factor] = STD.map(|name| g.weight(&SCOPE.label(name)));
        // There is no difference of rows: the bias is taken off by adding it to what has the other sign.
        g.scale(mean, -1.0);
        g.update(Op::Add, mean, bias);
        g.scale(mean, -1.0);
        g.update(Op::Mul, mean, factor);
    }
    g.normalize(mean, eps);
    let input = clamps.input(g, MATRIX, mean);
    g.linear_into(input, &SCOPE.label(LAST), y);
    clamps.output(g, MATRIX, y);
}
