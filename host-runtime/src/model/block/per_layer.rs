//! Per-layer embeddings: what Gemma 4 gives each layer of a token besides the stream.
//!
//! Formulas: llama.cpp's `llama_model_gemma4::graph`. A token has a row of a table, a part for each layer,
//! and its embedding gives as much through a matrix; behind each layer its part passes a gate of the stream.

use std::f32::consts::FRAC_1_SQRT_2;

use hexflash_abi::Op;
use hexflash_abi::op::params::{Glu, GluKind};

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::{Keys, LIMIT};
use crate::model::scope::{
    PER_LAYER_MATRIX as MATRIX, PER_LAYER_NORM as NORM, PER_LAYER_TABLE as TABLE, Scope,
};
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

const GATE: &str = "inp_gate.weight";
const PROJECTION: &str = "proj.weight";
const AFTER: &str = "post_norm.weight";
/// A factor on what leaves the layer.
const SCALE: &str = "layer_output_scale.weight";

/// Per-layer embeddings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerLayer {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Layers.
    pub n_layer: u32,
    /// Values of a token for each layer.
    pub width: u32,
    /// Added to the mean of squares in its norms.
    pub eps: f32,
}

impl PerLayer {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// The key is missing or out of range.
    pub(in crate::model) fn read(
        keys: &Keys<'_>,
        n_embd: u32,
        n_layer: u32,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let name = "embedding_length_per_layer_input";
        let width = keys.require(name)?;
        keys.at_most(name, width, LIMIT / n_layer)?;
        Ok(Self { n_embd, n_layer, width, eps })
    }

    /// Plans the weights, for a vocabulary of `n_vocab` entries.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(in crate::model) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        model: Scope,
        n_vocab: u32,
    ) -> Result<(), ModelError> {
        let Self { n_embd, width, .. } = *self;
        let all = width * self.n_layer;
        plan.add(model, TABLE, &[all, n_vocab], Form::Tiled)?;
        plan.add(model, MATRIX, &[n_embd, all], Form::Tiled)?;
        plan.add(model, NORM, &[width], Form::Plain)?;
        for i in 0..self.n_layer as usize {
            let scope = model.layer(i);
            plan.add(scope, GATE, &[n_embd, width], Form::Tiled)?;
            plan.add(scope, PROJECTION, &[width, n_embd], Form::Tiled)?;
            plan.add(scope, AFTER, &[n_embd], Form::Plain)?;
            plan.add(scope, SCALE, &[1], Form::Plain)?;
        }
        Ok(())
    }

    /// The parts of all layers, {width * n_layer,t}, of tokens{t} and their embeddings x{n_embd,t}.
    pub(in crate::model) fn inputs(
        &self,
        g: &mut Graph<'_>,
        model: Scope,
        [tokens, x]: [Tensor; 2],
    ) -> Tensor {
        let (width, n_layer) = (self.width, self.n_layer);
        let rows = g.activation_like(x, width * n_layer);
        let table = g.weight(&model.label(TABLE));
        g.rec.op(Op::GetRows, &[table, tokens], rows);
        g.scale(rows, (width as f32).sqrt());
        let y = g.linear(x, &model.label(MATRIX));
        g.scale(y, 1.0 / (self.n_embd as f32).sqrt());
        let parts = g.heads(y, 0, width, n_layer, 4 * width);
        g.rms_norm_into(parts, &model.label(NORM), self.eps, parts);
        g.update(Op::Add, y, rows);
        g.scale(y, FRAC_1_SQRT_2);
        y
    }

    /// Records what follows layer `layer`, whose output is the sum of two tensors {n_embd,t}; `inputs` are
    /// those of all layers. What leaves it is the product of the two tensors that it returns.
    pub(in crate::model) fn record(
        &self,
        g: &mut Graph<'_>,
        (scope, layer): (Scope, usize),
        sum: [Tensor; 2],
        inputs: Tensor,
    ) -> [Tensor; 2] {
        // Not in place: a matrix reads it, and the stream is another in the next layer.
        let x = g.activation_like(sum[0], self.n_embd);
        g.rec.op(Op::Add, &sum, x);
        let input = g.columns(inputs, layer as u32 * self.width, self.width);
        let gate = g.linear(x, &scope.label(GATE));
        g.gated([gate, input], Glu::of(GluKind::Geglu), gate);
        let y = g.linear(gate, &scope.label(PROJECTION));
        g.rms_norm_into(y, &scope.label(AFTER), self.eps, y);
        g.update(Op::Add, x, y);
        [x, g.weight(&scope.label(SCALE))]
    }
}
