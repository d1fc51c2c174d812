//! The blocks that work on each token of a layer by itself.

use super::mlp::Mlp;
use super::moe::Moe;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;

/// What works on each token of a layer by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// An MLP.
    Mlp(Mlp),
    /// A mixture of experts.
    Moe(Moe),
}

impl From<Mlp> for FeedForward {
    fn from(mlp: Mlp) -> Self {
        Self::Mlp(mlp)
    }
}

impl From<Moe> for FeedForward {
    fn from(moe: Moe) -> Self {
        Self::Moe(moe)
    }
}

impl FeedForward {
    /// Width inside of the MLP, or of one expert.
    pub const fn n_ff(&self) -> u32 {
        match self {
            Self::Mlp(mlp) => mlp.n_ff,
            Self::Moe(moe) => moe.n_ff,
        }
    }

    /// Plans the weights.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(in crate::model) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        scope: Scope,
    ) -> Result<(), ModelError> {
        match self {
            Self::Mlp(mlp) => mlp.weights(plan, scope, ""),
            Self::Moe(moe) => moe.weights(plan, scope),
        }
    }

    /// Records a{n_embd,t} -> y{n_embd,t}.
    pub(in crate::model) fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        match self {
            Self::Mlp(mlp) => mlp.record(g, scope, a, ""),
            Self::Moe(moe) => moe.record(g, scope, a),
        }
    }
}
