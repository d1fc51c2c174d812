//! A layer of a vision transformer: attention of every patch to every patch, and an MLP without a gate, each
//! behind a layer norm, each added to the stream.

use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::op::params::{FlashAttn, UnaryKind, Visibility};
use hexflash_abi::{DType, Op};

use super::norm::{linear, norm, plan_linear, plan_norm};
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
}

impl VitLayer {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Self, ModelError> {
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
        Ok(Self { n_embd, n_head, n_ff, eps, activation, swapped })
    }

    /// Names of the matrices into the MLP and out of it.
    const fn mlp(&self) -> [&'static str; 2] {
        if self.swapped { ["ffn_down", "ffn_up"] } else { ["ffn_up", "ffn_down"] }
    }

    /// Plans the weights of a layer.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(super) fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        let Self { n_embd, n_ff, .. } = *self;
        plan_norm(plan, scope, "ln1", n_embd)?;
        for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
            plan_linear(plan, scope, name, [n_embd, n_embd])?;
        }
        plan_norm(plan, scope, "ln2", n_embd)?;
        let [up, down] = self.mlp();
        plan_linear(plan, scope, up, [n_embd, n_ff])?;
        plan_linear(plan, scope, down, [n_ff, n_embd])
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

    /// Records a layer on the stream x{n_embd,t}, in place.
    pub(super) fn record(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor) {
        let a = norm(g, scope, "ln1", x, self.eps);
        let heads = |g: &mut Graph<'_>, name| {
            let rows = linear(g, scope, name, a);
            let width = self.n_embd / self.n_head;
            g.heads(rows, 0, width, self.n_head, 4 * width)
        };
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|name| heads(g, name));
        let caches = CACHES.map(|name| g.kept(&Scope::ENCODER.label(name)));
        let attn = FlashAttn {
            scale: 1.0 / ((self.n_embd / self.n_head) as f32).sqrt(),
            visibility: Visibility::Block.wire(),
            window: 0,
            softcap: 0.0,
            max_bias: 0.0,
            first: 0,
        };
        let y = g.attend(q, Some([k, v]), caches, None, attn);
        let y = g.joined(y);
        let y = linear(g, scope, "attn_out", y);
        g.update(Op::Add, x, y);
        let a = norm(g, scope, "ln2", x, self.eps);
        let [up, down] = self.mlp();
        let y = linear(g, scope, up, a);
        g.unary(self.activation, y);
        let y = linear(g, scope, down, y);
        g.update(Op::Add, x, y);
    }
}
