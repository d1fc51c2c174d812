//! A layer: a mixer and an MLP, each behind a norm, each added to the residual stream.

use hexflash_abi::Op;

use super::mix::Mix;
use super::mixer::Mixer;
use super::mlp::Mlp;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// A layer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer<M = Mixer> {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// The norms.
    pub norms: Norms,
    /// What mixes the tokens.
    pub mixer: M,
    /// What works on each token by itself.
    pub mlp: Mlp,
}

/// The RMS norms of a layer: names of their weights, which differ between architectures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norms {
    /// Of what the mixer reads.
    pub before_mixer: &'static str,
    /// Of what the mixer adds to the stream, in architectures that have it.
    pub after_mixer: Option<&'static str>,
    /// Of what the MLP reads.
    pub before_mlp: &'static str,
    /// Of what the MLP adds to the stream, in architectures that have it.
    pub after_mlp: Option<&'static str>,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Norms {
    /// A norm before the mixer and one before the MLP, called `ffn_norm`: what most models have.
    pub const fn usual(eps: f32) -> Self {
        Self {
            before_mixer: "attn_norm.weight",
            after_mixer: None,
            before_mlp: "ffn_norm.weight",
            after_mlp: None,
            eps,
        }
    }
}

impl<M: Mix> Layer<M> {
    /// Plans the weights of the layer.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(in crate::model) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        scope: Scope,
    ) -> Result<(), ModelError> {
        let Norms { before_mixer, after_mixer, before_mlp, after_mlp, eps: _ } = self.norms;
        for norm in [Some(before_mixer), after_mixer, Some(before_mlp), after_mlp].into_iter().flatten() {
            plan.add(scope, norm, &[self.n_embd], Form::Plain)?;
        }
        self.mixer.weights(plan, scope)?;
        self.mlp.weights(plan, scope)
    }

    /// Records the layer for x{n_embd,t}, with `stream` for the residual stream inside of it; `x` may be `stream`.
    /// The sum of the two tensors that it gives is the output, so that whoever adds them chooses where that lies.
    pub(in crate::model) fn record(
        &self,
        g: &mut Graph<'_>,
        scope: Scope,
        x: Tensor,
        stream: Tensor,
    ) -> [Tensor; 2] {
        let Norms { before_mixer, after_mixer, before_mlp, after_mlp, eps } = self.norms;
        let a = g.rms_norm(x, &scope.label(before_mixer), eps);
        let y = self.mixer.record(g, scope, a);
        if let Some(norm) = after_mixer {
            g.rms_norm_into(y, &scope.label(norm), eps, y);
        }
        g.rec.op(Op::Add, &[x, y], stream);
        let a = g.rms_norm(stream, &scope.label(before_mlp), eps);
        let y = self.mlp.record(g, scope, a);
        if let Some(norm) = after_mlp {
            g.rms_norm_into(y, &scope.label(norm), eps, y);
        }
        [stream, y]
    }
}
