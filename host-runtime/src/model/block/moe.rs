//! A mixture of experts: many small MLPs, of which a router chooses a few for each token.
//!
//! Formulas: llama.cpp's `llm_graph_context::build_moe_ffn`; the expert that all tokens share is that of
//! `src/models/qwen35moe.cpp`. The weights of the experts that no token of a step goes to are not read.

use hexflash_abi::Op;
use hexflash_abi::op::MAX_EXPERTS;
use hexflash_abi::op::params::{Gating, TopkMoe};

use super::mlp::{Activation, Mlp};
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Width inside of an expert.
    pub n_ff: u32,
    /// Experts.
    pub n_expert: u32,
    /// Experts that each token goes to.
    pub n_used: u32,
    /// How they are chosen.
    pub router: Router,
    /// The function of their gates.
    pub activation: Activation,
    /// Whether something is added to the products: to those of the router and to all of the experts'.
    pub biases: bool,
    /// An expert that every token goes to, whose output a gate of its own scales.
    pub shared: Option<Mlp>,
}

/// What becomes of the logits of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// How they become weights.
    pub gating: Gating,
    /// Whether a bias is added to what experts are chosen by.
    pub bias: bool,
    /// Whether the weights of a token are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
}

/// The matrix of the router.
const ROUTER: &str = "ffn_gate_inp.weight";
/// What is added to what experts are chosen by.
const BIAS: &str = "exp_probs_b.bias";
/// Gate and up of all experts as one tensor, gate first, or each by itself.
const GATE_UP: &str = "ffn_gate_up_exps.weight";
const GATE: &str = "ffn_gate_exps.weight";
const UP: &str = "ffn_up_exps.weight";
const DOWN: &str = "ffn_down_exps.weight";
/// What is added to the products of the router, and to those of each expert.
const ROUTER_BIAS: &str = "ffn_gate_inp.bias";
const GATE_BIAS: &str = "ffn_gate_exps.bias";
const UP_BIAS: &str = "ffn_up_exps.bias";
const DOWN_BIAS: &str = "ffn_down_exps.bias";
/// The gate of the expert that all tokens share, and what the names of its matrices end with.
const SHARED_GATE: &str = "ffn_gate_inp_shexp.weight";
const SHARED: &str = "_shexp";

impl Router {
    /// The softmax of all experts' logits, and of those that are chosen again: what most models have.
    pub const SOFTMAX: Self = Self { gating: Gating::Softmax, bias: false, normalize: true, scale: 1.0 };
}

impl Moe {
    /// Reads the hyper-parameters: with SiLU, without biases or a shared expert.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32, router: Router) -> Result<Self, ModelError> {
        let (meta, count, used) = (keys.meta(), "expert_count", "expert_used_count");
        let n_expert = meta.require_u32(&keys.key(count))?;
        if !(1..=MAX_EXPERTS).contains(&n_expert) {
            return Err(keys.bad(count, n_expert, &format!("1 to {MAX_EXPERTS}")));
        }
        let n_used = meta.require_u32(&keys.key(used))?;
        if !(1..=n_expert).contains(&n_used) {
            return Err(keys.bad(used, n_used, &format!("1 to {n_expert}, as many experts as there are")));
        }
        let width = "expert_feed_forward_length";
        let n_ff = match meta.u32_or(&keys.key(width), 0)? {
            // As llama.cpp has it for files that do not say.
            0 => (keys.require("feed_forward_length")? / n_used).max(1),
            _ => keys.require(width)?,
        };
        let activation = Activation::Silu;
        Ok(Self { n_embd, n_ff, n_expert, n_used, router, activation, biases: false, shared: None })
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
        let Self { n_embd, n_ff, n_expert, .. } = *self;
        plan.add(scope, ROUTER, &[n_embd, n_expert], Form::Tiled)?;
        if self.router.bias {
            plan.add(scope, BIAS, &[n_expert], Form::Plain)?;
        }
        if plan.has(scope, GATE_UP) {
            plan.add(scope, GATE_UP, &[n_embd, 2 * n_ff, n_expert], Form::Tiled)?;
        } else {
            plan.add(scope, GATE, &[n_embd, n_ff, n_expert], Form::Tiled)?;
            plan.add(scope, UP, &[n_embd, n_ff, n_expert], Form::Tiled)?;
        }
        plan.add(scope, DOWN, &[n_ff, n_embd, n_expert], Form::Tiled)?;
        if self.biases {
            plan.add(scope, ROUTER_BIAS, &[n_expert], Form::Plain)?;
            for (name, n) in [(GATE_BIAS, n_ff), (UP_BIAS, n_ff), (DOWN_BIAS, n_embd)] {
                plan.add(scope, name, &[n, n_expert], Form::Plain)?;
            }
        }
        let Some(shared) = &self.shared else { return Ok(()) };
        plan.add(scope, SHARED_GATE, &[n_embd], Form::Tiled)?;
        shared.weights(plan, scope, SHARED)
    }

    /// Records a{n_embd,t} -> y{n_embd,t}.
    pub(in crate::model) fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let [ids, weights] = self.route(g, scope, a);
        let y = self.experts(g, scope, a, ids);
        let y = g.weighted_sum(y, weights);
        if let Some(shared) = &self.shared {
            let gate = g.linear(a, &scope.label(SHARED_GATE));
            g.apply(Op::Sigmoid, gate);
            let common = shared.record(g, scope, a, SHARED);
            g.update(Op::Mul, common, gate);
            g.update(Op::Add, y, common);
        }
        y
    }

    /// The experts of each token and their weights: ids{n_used,t}, weights{n_used,t}.
    fn route(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> [Tensor; 2] {
        let Router { gating, bias, normalize, scale } = self.router;
        let logits = g.linear(a, &scope.label(ROUTER));
        if self.biases {
            let bias = g.weight(&scope.label(ROUTER_BIAS));
            g.update(Op::Add, logits, bias);
        }
        let bias = bias.then(|| g.weight(&scope.label(BIAS)));
        let ids = g.integers_like(a, self.n_used);
        let weights = g.activation_like(a, self.n_used);
        let params = TopkMoe { gating: gating.wire(), normalize: normalize.into(), scale };
        g.rec.op_with(Op::TopkMoe, &[Some(logits), bias], &[ids, weights], &params);
        [ids, weights]
    }

    /// What the chosen experts make of a{n_embd,t}: {n_embd,n_used,t}.
    fn experts(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor, ids: Tensor) -> Tensor {
        let fused = scope.label(GATE_UP);
        let [gate, up] = if g.has_weight(&fused) {
            let both = g.linear_by_id(a, ids, &fused);
            [0, self.n_ff].map(|first| g.columns_of_each(both, first, self.n_ff))
        } else {
            [GATE, UP].map(|name| g.linear_by_id(a, ids, &scope.label(name)))
        };
        self.add_bias(g, scope, gate, ids, GATE_BIAS);
        self.add_bias(g, scope, up, ids, UP_BIAS);
        let y = g.activation_of_each(ids, self.n_ff);
        g.gated([gate, up], self.activation.glu(), y);
        let y = g.linear_each_by_id(y, ids, &scope.label(DOWN));
        self.add_bias(g, scope, y, ids, DOWN_BIAS);
        y
    }

    /// Adds the biases of the chosen experts to {n,n_used,t}, if they have some.
    fn add_bias(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor, ids: Tensor, name: &str) {
        if self.biases {
            g.add_by_id(x, ids, &scope.label(name));
        }
    }
}
