//! The gated MLP: down(f(gate a) * up a).

use hexflash_abi::Op;
use hexflash_abi::op::params::{Scale, Swiglu};

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// GELU by ggml's definition, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as ops give it: x times
/// the sigmoid of x * (bias + scale * x^2), where the bias is 2 sqrt(2 / pi), and the scale 0.044715 times
/// that.
const GELU: Scale = Scale { scale: 0.071_354_82, bias: 1.595_769 };

/// A gated MLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Width inside.
    pub n_ff: u32,
    /// The function of the gate.
    pub activation: Activation,
}

/// What an MLP's gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x * sigmoid(x).
    Silu,
    /// x times the share of a normal distribution below x, nearly.
    Gelu,
}

impl Mlp {
    /// Reads the hyper-parameters, with SiLU.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32) -> Result<Self, ModelError> {
        Ok(Self { n_embd, n_ff: keys.require("feed_forward_length")?, activation: Activation::Silu })
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
        plan.project(scope, &input(suffix), self.n_embd, &[(&gate, self.n_ff), (&up, self.n_ff)])?;
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
        let [gate, up] = [parts[0], parts[1]];
        match self.activation {
            Activation::Silu => {
                g.rec.op_with(Op::Swiglu, &[Some(gate), Some(up)], &[y], &Swiglu { swapped: 0 });
            }
            Activation::Gelu => {
                g.rec.op(Op::Mul, &[gate, gate], y);
                g.rec.op_with(Op::Scale, &[Some(y)], &[y], &GELU);
                g.update(Op::Mul, y, gate);
                g.apply(Op::Sigmoid, y);
                g.update(Op::Mul, y, gate);
                g.update(Op::Mul, y, up);
            }
        }
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
