//! The projector of Idefics 3 and SmolVLM: a matrix.

use super::norm::{linear_into, plan_linear};
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;

const MATRIX: &str = "mm.model.fc";

/// Plans the weights, from rows of `k` values to rows of `n`.
pub(super) fn weights(plan: &mut WeightPlanner<'_>, shape: [u32; 2]) -> Result<(), ModelError> {
    plan_linear(plan, Scope::ENCODER, MATRIX, shape)
}

/// Records merged rows x{k,t} -> y{n,t}.
pub(super) fn record(g: &mut Graph<'_>, x: Tensor, y: Tensor) {
    linear_into(g, Scope::ENCODER, MATRIX, x, y);
}
