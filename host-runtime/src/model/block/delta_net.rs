//! Gated DeltaNet: linear attention with a state that forgets, behind a causal convolution.
//!
//! Formulas: llama.cpp's `src/models/qwen35.cpp`. Tokens that may be taken back are not in the state: their
//! factors (keys, deltas, decays) and the inputs of their convolution lie on tapes, and the next step folds
//! those that count.

use hexflash_abi::op::params::{self, Glu, GluKind};
use hexflash_abi::op::{MAX_STATE, MAX_TAPS};
use hexflash_abi::{DType, Op};

use super::conv::CausalConv;
use super::mix::Mix;
use crate::model::cache_types::CacheTypes;
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Tapes};
use crate::model::kept::{KeptPlanner, Purpose, Rollback};
use crate::model::keys::Keys;
use crate::model::limits::MAX_VERIFY;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

/// Gated DeltaNet.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNet {
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Key heads.
    pub n_head_k: u32,
    /// Value heads.
    pub n_head_v: u32,
    /// Width of a head: the state is `state` x `state`.
    pub state: u32,
    /// Taps of the causal convolution.
    pub conv_kernel: u32,
    /// Added to squares in all of its norms.
    pub eps: f32,
}

/// Weights that all layers share: 1 / sqrt(state), with which an RMS norm gives unit length.
const UNIT_NORM: &str = "unit_norm";

const STATE: &str = "state";
const TAPE: [&str; 3] = ["tape_k", "tape_delta", "tape_g"];

impl DeltaNet {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// A key is missing, or its value is one that no kernel supports.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32, eps: f32) -> Result<Self, ModelError> {
        let block = Self {
            n_embd,
            n_head_k: keys.require("ssm.group_count")?,
            n_head_v: keys.require("ssm.time_step_rank")?,
            state: keys.require("ssm.state_size")?,
            conv_kernel: keys.require("ssm.conv_kernel")?,
            eps,
        };
        if !block.n_head_v.is_multiple_of(block.n_head_k) {
            return Err(keys.bad("ssm.time_step_rank", block.n_head_v, "a multiple of ssm.group_count"));
        }
        let inner = keys.require("ssm.inner_size")?;
        if u64::from(inner) != u64::from(block.n_head_v) * u64::from(block.state) {
            return Err(keys.bad("ssm.inner_size", inner, "ssm.time_step_rank times ssm.state_size"));
        }
        keys.at_most("ssm.state_size", block.state, MAX_STATE)?;
        keys.at_most("ssm.conv_kernel", block.conv_kernel, MAX_TAPS)?;
        Ok(block)
    }

    /// Channels of the convolution: queries, keys, values.
    pub const fn channels(&self) -> u32 {
        (2 * self.n_head_k + self.n_head_v) * self.state
    }

    const fn conv(&self) -> CausalConv {
        CausalConv { channels: self.channels(), taps: self.conv_kernel, silu: true }
    }

    /// Width of the values of all heads.
    pub const fn value_width(&self) -> u32 {
        self.n_head_v * self.state
    }
}

impl Mix for DeltaNet {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        let parts = [
            ("attn_qkv.weight", self.channels()),
            ("attn_gate.weight", self.value_width()),
            ("ssm_beta.weight", self.n_head_v),
            ("ssm_alpha.weight", self.n_head_v),
        ];
        plan.project(scope, "in", self.n_embd, &parts)?;
        plan.add(scope, "ssm_conv1d.weight", &[self.conv_kernel, self.channels()], Form::Transposed)?;
        plan.add(scope, "ssm_a", &[self.n_head_v], Form::Plain)?;
        plan.add(scope, "ssm_dt.bias", &[self.n_head_v], Form::Plain)?;
        plan.add(scope, "ssm_norm.weight", &[self.state], Form::Plain)?;
        plan.add(scope, "ssm_out.weight", &[self.value_width(), self.n_embd], Form::Tiled)?;
        // x / sqrt(sum x^2 + eps) is RMS_NORM with eps / n and every weight 1 / sqrt(n).
        let n = self.state;
        plan.constant(UNIT_NORM, || vec![1.0 / (n as f32).sqrt(); n as usize]);
        Ok(())
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        let f32 = |ne| (DType::F32, ne);
        let (s, slots) = (self.state, plan.n_slots());
        self.conv().keep(plan, scope)?;
        plan.keep(scope, STATE, Purpose::Recurrent, f32([s, s, self.n_head_v, slots]))?;
        match plan.rollback() {
            Rollback::None => Ok(()),
            Rollback::LastStep => {
                let shapes = [(s, self.n_head_k), (s, self.n_head_v), (1, self.n_head_v)];
                TAPE.iter().zip(shapes).try_for_each(|(name, (width, heads))| {
                    plan.keep(scope, name, Purpose::Tape, f32([width, heads, MAX_VERIFY, slots]))
                })
            }
        }
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let (s, hk, hv) = (self.state, self.n_head_k, self.n_head_v);
        let defer = u32::from(g.tapes() == Tapes::Defer);
        let parts = g.project(a, &scope.label("in"));
        let (u, z, beta, alpha) = (parts[0], parts[1], parts[2], parts[3]);
        // beta = sigmoid(W a); g = ssm_a * softplus(W a + dt), the log of the decay.
        g.apply(Op::Sigmoid, beta);
        let dt = g.weight(&scope.label("ssm_dt.bias"));
        g.update(Op::Add, alpha, dt);
        g.apply(Op::Softplus, alpha);
        let decay = g.weight(&scope.label("ssm_a"));
        g.update(Op::Mul, alpha, decay);

        let conv = self.conv().record(g, scope, u, "ssm_conv1d.weight");

        // q and k, all heads in one go, to unit length: x / sqrt(sum x^2 + eps).
        let qk = g.heads(conv, 0, s, 2 * hk, 4 * s);
        g.rms_norm_into(qk, UNIT_NORM, self.eps / s as f32, qk);
        let q = g.heads(conv, 0, s, hk, 4 * s);
        let k = g.heads(conv, 4 * u64::from(hk * s), s, hk, 4 * s);
        let v = g.heads(conv, 8 * u64::from(hk * s), s, hv, 4 * s);
        let decay = g.heads(alpha, 0, 1, hv, 4);
        let beta = g.heads(beta, 0, 1, hv, 4);
        let state = g.kept(&scope.label(STATE));
        let o = g.activation([s, hv, g.t(), 1], Some(2));
        let tape = TAPE.iter().filter_map(|name| g.kept_if_any(&scope.label(name)));
        let dst: Vec<_> = [o].into_iter().chain(tape).collect();
        let src = [q, k, v, decay, beta, state].map(Some);
        g.rec.op_with(Op::GatedDeltaNet, &src, &dst, &params::DeltaNet { defer, transposed: 0 });

        g.rms_norm_into(o, &scope.label("ssm_norm.weight"), self.eps, o);
        let z = g.heads(z, 0, s, hv, 4 * s);
        g.gated([z, o], Glu::of(GluKind::Swiglu), o);
        let o = g.joined(o);
        g.linear(o, &scope.label("ssm_out.weight"))
    }

    fn state_bytes(&self) -> u64 {
        let [state, heads] = [self.state, self.n_head_v].map(u64::from);
        4 * state * state * heads + self.conv().state_bytes()
    }

    fn longest_context(&self, _: CacheTypes, _: u32) -> u32 {
        u32::MAX
    }
}
