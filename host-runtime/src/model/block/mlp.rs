//! The gated MLP: down(f(gate a) * up a).

use hexflash_abi::op::params::{Glu, GluKind};

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// A gated MLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Width inside.
    pub n_ff: u32,
    /// The function of the gate.
    pub activation: Activation,
    /// Whether the file has gate and up as one tensor, called up, with the gate's rows first.
    pub fused: bool,
}

/// What an MLP's gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x * sigmoid(x).
    Silu,
    /// x times the share of a normal distribution below x, nearly.
    Gelu,
    /// x * sigmoid(1.702 x) with x at most 7; what it is multiplied by is kept between -7 and 7, and is 1
    /// more. gpt-oss has it.
    ClampedSilu,
}

impl Activation {
    /// The op between the matrices: f(gate) * up.
    pub(super) const fn glu(self) -> Glu {
        match self {
            Self::Silu => Glu::of(GluKind::Swiglu),
            Self::Gelu => Glu::of(GluKind::Geglu),
            Self::ClampedSilu => Glu::swiglu_oai(1.702, 7.0),
        }
    }
}

impl Mlp {
    /// An MLP with SiLU, whose gate and up are tensors of their own.
    pub const fn new(n_embd: u32, n_ff: u32) -> Self {
        Self { n_embd, n_ff, activation: Activation::Silu, fused: false }
    }

    /// Reads the hyper-parameters, as [`new`](Self::new) has them.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32) -> Result<Self, ModelError> {
        Ok(Self::new(n_embd, keys.require("feed_forward_length")?))
    }

    /// Plans the weights: matrices whose names end with `suffix`, which is empty for those of a layer's own
    /// MLP.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(in crate::model) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        scope: Scope,
        suffix: &str,
    ) -> Result<(), ModelError> {
        let [gate, up, down] = ["gate", "up", "down"].map(|name| matrix(name, suffix));
        if self.fused {
            plan.split(scope, &input(suffix), self.n_embd, &up, &[self.n_ff; 2])?;
        } else {
            plan.project(scope, &input(suffix), self.n_embd, &[(&gate, self.n_ff), (&up, self.n_ff)])?;
        }
        plan.add(scope, &down, &[self.n_ff, self.n_embd], Form::Tiled)
    }

    /// Records a{n_embd,t} -> y{n_embd,t}, with the matrices whose names end with `suffix`.
    pub(in crate::model) fn record(
        &self,
        g: &mut Graph<'_>,
        scope: Scope,
        a: Tensor,
        suffix: &str,
    ) -> Tensor {
        let parts = g.project(a, &scope.label(&input(suffix)));
        let y = g.activation_like(a, self.n_ff);
        g.gated([parts[0], parts[1]], self.activation.glu(), y);
        g.linear(y, &scope.label(&matrix("down", suffix)))
    }
}

fn matrix(name: &str, suffix: &str) -> String {
    format!("ffn_{name}{suffix}.weight")
}

/// The projection that gate and up are.
fn input(suffix: &str) -> String {
    format!("ffn_in{suffix}")
}
