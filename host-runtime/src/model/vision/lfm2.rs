//! The projector of LFM2-VL: a layer norm that some models have, and an MLP with GELU.

use hexflash_abi::op::params::UnaryKind;

use super::norm::{linear, linear_into, norm, plan_linear, plan_norm};
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;

const SCOPE: Scope = Scope::ENCODER;
const NORM: &str = "mm.input_norm";
/// Added to the variance there, whatever the encoder's layers add.
const NORM_EPS: f32 = 1e-5;
const UP: &str = "mm.1";
const DOWN: &str = "mm.2";

/// Plans the weights, from rows of `k` values to rows of `n`; `inside` is the width between the matrices.
pub(super) fn weights(plan: &mut WeightPlanner<'_>, [k, n]: [u32; 2], inside: u32) -> Result<(), ModelError> {
    if plan.has(SCOPE, &format!("{NORM}.weight")) {
        plan_norm(plan, SCOPE, NORM, k)?;
    }
    plan_linear(plan, SCOPE, UP, [k, inside])?;
    plan_linear(plan, SCOPE, DOWN, [inside, n])
}

/// Records merged rows x{k,t} -> y{n,t}.
pub(super) fn record(g: &mut Graph<'_>, x: Tensor, y: Tensor) {
    let has_norm = g.has_weight(&SCOPE.label(&format!("{NORM}.weight")));
    let x = if has_norm { norm(g, SCOPE, NORM, x, NORM_EPS) } else { x };
    let inside = linear(g, SCOPE, UP, x);
    g.unary(UnaryKind::Gelu, inside);
    linear_into(g, SCOPE, DOWN, inside, y);
}
