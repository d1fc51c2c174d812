//! A layer of a vision transformer: attention of every patch to every patch, and an MLP, each behind a norm,
//! each added to the stream. Those of Gemma 4 have more norms, a gate in the MLP, and a rotary embedding of
//! columns and lines.

use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::op::params::{FlashAttn, Glu, GluKind, Rope, RopeMode, UnaryKind, Visibility};
use hexflash_abi::{DType, Op};

use super::clamps::Clamps;
use super::norm::{NormKind, bounded_linear, norm_of, plan_linear, plan_norm};
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};

/// Keys and values of the layer that runs: {head width, patches, heads}. All layers have the same.
const CACHES: [&str; 2] = ["cache_k", "cache_v"];

/// The layers, which are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VitLayer {
    /// Width of the stream.
    pub(super) n_embd: u32,
    /// Heads.
    n_head: u32,
    /// Width inside of the MLP.
    n_ff: u32,
    /// Added to variances in layer norms.
    pub(super) eps: f32,
    /// Function of each value inside of the MLP.
    activation: UnaryKind,
    /// Whether the file has the names of the MLP's two matrices the wrong way round, as old converters wrote
    /// them.
    swapped: bool,
    /// Whether it is one of Gemma 4.
    pub(super) gemma4: bool,
}

/// Base of the angles of Gemma 4's rotary embedding.
const ROPE_BASE: f32 = 100.0;
/// Norms of Gemma 4 behind what a layer adds to the stream.
const AFTER: [&str; 2] = ["attn_post_norm", "ffn_post_norm"];

impl VitLayer {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(super) fn read(keys: &Keys<'_>, gemma4: bool) -> Result<Self, ModelError> {
        let n_embd = keys.require("vision.embedding_length")?;
        let n_ff = keys.require("vision.feed_forward_length")?;
        let heads = "vision.attention.head_count";
        let n_head = keys.require(heads)?;
        if !n_embd.is_multiple_of(n_head) || n_embd / n_head > MAX_HEAD {
            let divisor = format!("a divisor of {n_embd}, for heads of at most {MAX_HEAD}");
            return Err(keys.bad(heads, n_head, &divisor));
        }
        keys.only("vision.attention.head_count_kv", n_head)?;
        keys.only("vision.attention.head_dim", n_embd / n_head)?;
        let eps = keys.meta().require_f32(&keys.key("vision.attention.layer_norm_epsilon"))?;
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(keys.bad("vision.attention.layer_norm_epsilon", eps, "a small positive number"));
        }
        let [gelu, silu] = ["use_gelu", "use_silu"].map(|name| keys.meta().bool_or(&keys.key(name), false));
        let activation = match (gelu?, silu?) {
            (true, false) => UnaryKind::Gelu,
            (false, false) => UnaryKind::GeluQuick,
            (_, true) => return Err(keys.unsupported("use_silu", true, "encoders with SiLU")),
        };
        let down = keys.row_of(&Scope::ENCODER.layer(0).name("ffn_down.weight"));
        let swapped = n_ff != n_embd && down == Some(u64::from(n_embd));
        if gemma4 && !(n_embd / n_head).is_multiple_of(4) {
            return Err(keys.bad(heads, n_head, "a number that leaves whole pairs to columns and lines"));
        }
        Ok(Self { n_embd, n_head, n_ff, eps, activation, swapped: swapped && !gemma4, gemma4 })
    }

    /// Names of the matrices into the MLP and out of it.
    const fn mlp(&self) -> [&'static str; 2] {
        if self.swapped { ["ffn_down", "ffn_up"] } else { ["ffn_up", "ffn_down"] }
    }

    /// Plans the weights of a layer.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(super) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        clamps: &Clamps,
        scope: Scope,
    ) -> Result<(), ModelError> {
        let Self { n_embd, n_ff, .. } = *self;
        let linear = |plan: &mut WeightPlanner<'_>, name: &str, shape| {
            clamps.plan(plan, &scope.name(name))?;
            plan_linear(plan, scope, name, shape)
        };
        plan_norm(plan, scope, "ln1", n_embd)?;
        for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
            linear(plan, name, [n_embd, n_embd])?;
        }
        plan_norm(plan, scope, "ln2", n_embd)?;
        let [up, down] = self.mlp();
        linear(plan, up, [n_embd, n_ff])?;
        linear(plan, down, [n_ff, n_embd])?;
        if self.gemma4 {
            linear(plan, "ffn_gate", [n_embd, n_ff])?;
            AFTER.iter().try_for_each(|name| plan_norm(plan, scope, name, n_embd))?;
            for name in ["attn_q_norm", "attn_k_norm"] {
                plan_norm(plan, scope, name, n_embd / self.n_head)?;
            }
        }
        Ok(())
    }

    /// The kind of its norms.
    pub(super) const fn norm(&self) -> NormKind {
        if self.gemma4 { NormKind::Rms } else { NormKind::Layer }
    }

    /// Declares keys and values of `n` patches, which the layers share: none outlives its layer.
    ///
    /// # Errors
    /// They are larger than programs can describe.
    pub(super) fn keep(&self, plan: &mut KeptPlanner, n: u32) -> Result<(), RecordError> {
        let shape = [self.n_embd / self.n_head, n, self.n_head, 1];
        for (name, dtype) in CACHES.into_iter().zip([DType::F16x32, DType::F16]) {
            plan.keep(Scope::ENCODER, name, Purpose::Encoder, (dtype, shape))?;
        }
        Ok(())
    }

    /// Records a layer on the stream x{n_embd,t}, in place; `places` are the columns{t} and lines{t} of
    /// patches where it has a rotary embedding.
    pub(super) fn record(
        &self,
        g: &mut Graph<'_>,
        clamps: &Clamps,
        scope: Scope,
        x: Tensor,
        places: Option<[Tensor; 2]>,
    ) {
        let kind = self.norm();
        let a = norm_of(g, kind, (scope, "ln1"), x, self.eps);
        let heads = |g: &mut Graph<'_>, name| {
            let rows = bounded_linear(g, clamps, (scope, name), a);
            let width = self.n_embd / self.n_head;
            g.heads(rows, 0, width, self.n_head, 4 * width)
        };
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|name| heads(g, name));
        if let Some(places) = places {
            for (x, name) in [(q, "attn_q_norm.weight"), (k, "attn_k_norm.weight")] {
                g.rms_norm_into(x, &scope.label(name), self.eps, x);
                self.turn(g, x, places);
            }
            g.normalize(v, self.eps);
        }
        let caches = CACHES.map(|name| g.kept(&Scope::ENCODER.label(name)));
        let attn = FlashAttn {
            scale: if self.gemma4 { 1.0 } else { 1.0 / ((self.n_embd / self.n_head) as f32).sqrt() },
            visibility: Visibility::Block.wire(),
            window: 0,
            softcap: 0.0,
            max_bias: 0.0,
            first: 0,
        };
        let y = g.attend(q, Some([k, v]), caches, None, attn);
        let y = g.joined(y);
        let y = bounded_linear(g, clamps, (scope, "attn_out"), y);
        self.add(g, (scope, AFTER[0]), [x, y]);
        let a = norm_of(g, kind, (scope, "ln2"), x, self.eps);
        let [up, down] = self.mlp();
        let y = bounded_linear(g, clamps, (scope, up), a);
        if self.gemma4 {
            let gate = bounded_linear(g, clamps, (scope, "ffn_gate"), a);
            if self.activation == UnaryKind::Gelu {
                g.gated([gate, y], Glu::of(GluKind::Geglu), y);
            } else {
                g.unary(self.activation, gate);
                g.update(Op::Mul, y, gate);
            }
        } else {
            g.unary(self.activation, y);
        }
        let y = bounded_linear(g, clamps, (scope, down), y);
        self.add(g, (scope, AFTER[1]), [x, y]);
    }

    /// Adds what a part of the layer gives to the stream x, behind the norm that Gemma 4 has there.
    fn add(&self, g: &mut Graph<'_>, (scope, norm): (Scope, &str), [x, y]: [Tensor; 2]) {
        if self.gemma4 {
            g.rms_norm_into(y, &scope.label(&format!("{norm}.weight")), self.eps, y);
        }
        g.update(Op::Add, x, y);
    }

    /// Turns x{d,h,t}, in place: the first half of each head by the column of its patch, the second by its
    /// line.
    fn turn(&self, g: &mut Graph<'_>, x: Tensor, places: [Tensor; 2]) {
        let ([d, h, t, _], nb) = (g.rec.ne(x), g.rec.nb(x));
        let half = d / 2;
        let rope = Rope {
            n_dims: half,
            mode: RopeMode::Neox.wire(),
            n_ctx_orig: 0,
            freq_base: ROPE_BASE,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 0.0,
            beta_slow: 0.0,
            sections: [0; 4],
            temperature: 0.0,
            temperature_span: 0,
        };
        for (i, place) in places.into_iter().enumerate() {
            let part = g.rec.view(x, 4 * u64::from(half) * i as u64, [half, h, t, 1], nb, Some(2));
            g.rec.op_with(Op::Rope, &[Some(part), Some(place), None], &[part], &rope);
        }
    }
}
