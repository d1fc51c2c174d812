//! The gated MLP: down(silu(gate a) * up a).

use hexflash_abi::Op;
use hexflash_abi::op::params::Swiglu;

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// A gated MLP with SiLU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Width inside.
    pub n_ff: u32,
}

impl Mlp {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32) -> Result<Self, ModelError> {
        Ok(Self { n_embd, n_ff: keys.require("feed_forward_length")? })
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
        let parts = [("ffn_gate.weight", self.n_ff), ("ffn_up.weight", self.n_ff)];
        plan.project(scope, "ffn_in", self.n_embd, &parts)?;
        plan.add(scope, "ffn_down.weight", &[self.n_ff, self.n_embd], Form::Tiled)
    }

    /// Records a{n_embd,t} -> y{n_embd,t}.
    pub(in crate::model) fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let parts = g.project(a, &scope.label("ffn_in"));
        let y = g.activation_like(a, self.n_ff);
        let src = [Some(parts[0]), Some(parts[1])];
        g.rec.op_with(Op::Swiglu, &src, &[y], &Swiglu { swapped: 0 });
        g.linear(y, &scope.label("ffn_down.weight"))
    }
}
