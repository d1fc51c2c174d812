//! Qwen3.5: layers of Gated DeltaNet and gated full attention, each followed by a SwiGLU MLP.
//!
//! The graph is recorded once per shape. Positions, the causal mask and the states follow the step registers, so
//! that a step sends nothing but token ids.

use hexflash_abi::op::params::{FlashAttn, Norm, Rope, RopeMode, Swiglu, Visibility};
use hexflash_abi::program::TensorFlags;
use hexflash_abi::{BufferId, DType, Op};

use super::graph::Graph;
use super::layout::MAX_VERIFY;
use super::{Config, IoLayout, LayerState, Mixer, StateLayout, WeightMap};
use crate::record::{Recorded, Recorder, Tensor};

/// Rows of a step for which the LM head runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The one that the input `row` names: prefill.
    One,
    /// All of them: decode and verify.
    All,
}

/// What a program is recorded for.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Tokens of the longest step.
    pub max_tokens: u32,
    /// Rows of logits.
    pub rows: Rows,
    /// Layers whose input (the residual stream) is wanted; the number of layers means the last one's output.
    pub taps: Vec<u32>,
}

/// Buffers that a program refers to.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Caches and states.
    pub state: BufferId,
    /// Inputs and outputs.
    pub io: BufferId,
}

struct Qwen35<'a> {
    g: Graph<'a>,
    config: &'a Config,
    state: &'a StateLayout,
    buffers: Buffers,
    t: u32,
}

/// Records the program of a shape.
pub fn record(
    config: &Config,
    weights: &WeightMap,
    state: &StateLayout,
    io: &IoLayout,
    buffers: Buffers,
    shape: &Shape,
) -> Recorded {
    let t = shape.max_tokens;
    let rec = Recorder::new(t, state.n_ctx);
    let mut m = Qwen35 { g: Graph::new(rec, weights), config, state, buffers, t };

    let tokens = m.io(io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
    m.g.rec.tokens_on(tokens, 0);
    let embedding = m.g.weight("token_embd.weight");
    let x = m.g.activation([config.n_embd, t, 1, 1], Some(1));
    m.g.rec.op(Op::GetRows, &[embedding, tokens], x);

    let tap_bytes = 4 * u64::from(config.n_embd) * u64::from(t);
    let tap = |m: &mut Qwen35<'_>, layer: usize| {
        for (i, _) in shape.taps.iter().enumerate().filter(|&(_, &l)| l as usize == layer) {
            let at = io.taps + i as u64 * tap_bytes;
            let y = m.io(at, DType::F32, [config.n_embd, t, 1, 1], TensorFlags::HOST_READS);
            m.g.rec.tokens_on(y, 1);
            m.g.rec.op(Op::Cpy, &[x], y);
        }
    };
    for (i, mixer) in config.mixers.iter().enumerate() {
        tap(&mut m, i);
        let name = |suffix: &str| format!("blk.{i}.{suffix}");
        let a = m.g.rms_norm(x, &name("attn_norm.weight"), config.rms_eps);
        let y = match mixer {
            Mixer::Full => m.attention(a, i, &name),
            Mixer::Linear => m.delta_net(a, i, &name),
        };
        m.g.update(Op::Add, x, y);
        let a = m.g.rms_norm(x, &name("post_attention_norm.weight"), config.rms_eps);
        let y = m.mlp(a, &name);
        m.g.update(Op::Add, x, y);
    }
    tap(&mut m, config.mixers.len());
    m.head(x, io, shape.rows);
    m.g.rec.finish()
}

impl Qwen35<'_> {
    fn io(&mut self, offset: u64, dtype: DType, ne: [u32; 4], flags: TensorFlags) -> Tensor {
        self.g.rec.tensor(self.buffers.io, offset, dtype, ne, flags)
    }

    fn state(&mut self, offset: u64, dtype: DType, ne: [u32; 4]) -> Tensor {
        self.g.rec.tensor(self.buffers.state, offset, dtype, ne, TensorFlags::empty())
    }

    /// Gated full attention of a{n_embd,t}.
    fn attention(&mut self, a: Tensor, layer: usize, name: &dyn Fn(&str) -> String) -> Tensor {
        let LayerState::Attention { k: k_at, v: v_at } = self.state.layers[layer] else {
            unreachable!("layout and graph follow the same list of mixers");
        };
        let c = &self.config.attention;
        let (d, dv, h, hk) = (c.key_dim, c.value_dim, c.n_head, c.n_head_kv);
        let qkv = self.g.project(a, &name("qkv"));
        // Per query head: d values of the query, then d of its output gate.
        let q = self.g.heads(qkv[0], 0, d, h, 8 * d);
        let gate = self.g.heads(qkv[0], 4 * u64::from(d), d, h, 8 * d);
        let k = self.g.heads(qkv[1], 0, d, hk, 4 * d);
        let v = self.g.heads(qkv[2], 0, dv, hk, 4 * dv);
        self.g.rms_norm_into(q, &name("attn_q_norm.weight"), self.config.rms_eps, q);
        self.g.rms_norm_into(k, &name("attn_k_norm.weight"), self.config.rms_eps, k);
        // For text the three position rows of Qwen3.5's interleaved M-RoPE are equal, which makes it plain NEOX.
        let rope = Rope {
            n_dims: c.rope.n_dims,
            mode: RopeMode::Neox.wire(),
            n_ctx_orig: c.rope.n_ctx_orig,
            freq_base: c.rope.freq_base,
            freq_scale: c.rope.freq_scale,
            ext_factor: c.rope.ext_factor,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            sections: [0; 4],
        };
        for x in [q, k] {
            self.g.rec.op_with(Op::Rope, &[Some(x)], x, &rope);
        }
        let k_cache = self.state(k_at, DType::F16x32, [d, self.state.n_ctx, hk, 1]);
        let v_cache = self.state(v_at, DType::F16, [dv, self.state.n_ctx, hk, 1]);
        let y = self.g.activation([dv, h, self.t, 1], Some(2));
        let attn = FlashAttn {
            scale: 1.0 / (d as f32).sqrt(),
            visibility: Visibility::Causal.wire(),
            window: 0,
            softcap: 0.0,
            max_bias: 0.0,
        };
        let src = [q, k_cache, v_cache, k, v].map(Some);
        self.g.rec.op_with(Op::FlashAttnExt, &src, y, &attn);
        self.g.apply(Op::Sigmoid, gate);
        self.g.update(Op::Mul, y, gate);
        let y = self.g.rec.view(y, 0, [dv * h, self.t, 1, 1], [4, 4 * dv * h, 0, 0], Some(1));
        self.g.linear(y, &name("attn_output.weight"))
    }

    /// Gated DeltaNet of a{n_embd,t}.
    fn delta_net(&mut self, a: Tensor, layer: usize, name: &dyn Fn(&str) -> String) -> Tensor {
        let LayerState::Linear { ring, state } = self.state.layers[layer] else {
            unreachable!("layout and graph follow the same list of mixers");
        };
        let c = &self.config.linear;
        let (s, hk, hv, t) = (c.state, c.n_head_k, c.n_head_v, self.t);
        let parts = self.g.project(a, &name("in"));
        let (u, z, beta, alpha) = (parts[0], parts[1], parts[2], parts[3]);
        // beta = sigmoid(W a); g = ssm_a * softplus(W a + dt), the log of the decay.
        self.g.apply(Op::Sigmoid, beta);
        let dt = self.g.weight(&name("ssm_dt.bias"));
        self.g.update(Op::Add, alpha, dt);
        self.g.apply(Op::Softplus, alpha);
        let decay = self.g.weight(&name("ssm_a"));
        self.g.update(Op::Mul, alpha, decay);

        let conv = self.g.activation([c.channels(), t, 1, 1], Some(1));
        let w = self.g.weight(&name("ssm_conv1d.weight"));
        let ring = self.state(ring, DType::F32, [c.channels(), self.state.ring_rows, 1, 1]);
        self.g.rec.op(Op::SsmConv, &[u, w, ring], conv);
        self.g.apply(Op::Silu, conv);

        // q and k, all heads in one go, to unit length: x / sqrt(sum x^2 + eps).
        let qk = self.g.heads(conv, 0, s, 2 * hk, 4 * s);
        let unit = self.g.weight("unit_norm");
        let eps = Norm { eps: self.config.rms_eps / s as f32 };
        self.g.rec.op_with(Op::RmsNorm, &[Some(qk), Some(unit)], qk, &eps);
        let q = self.g.heads(conv, 0, s, hk, 4 * s);
        let k = self.g.heads(conv, 4 * u64::from(hk * s), s, hk, 4 * s);
        let v = self.g.heads(conv, 8 * u64::from(hk * s), s, hv, 4 * s);
        let g = self.g.heads(alpha, 0, 1, hv, 4);
        let beta = self.g.heads(beta, 0, 1, hv, 4);
        let state = self.state(state, DType::F32, [s, s, hv, 1]);
        let o = self.g.activation([s, hv, t, 1], Some(2));
        self.g.rec.op(Op::GatedDeltaNet, &[q, k, v, g, beta, state], o);

        self.g.rms_norm_into(o, &name("ssm_norm.weight"), self.config.rms_eps, o);
        let z = self.g.heads(z, 0, s, hv, 4 * s);
        self.g.rec.op_with(Op::Swiglu, &[Some(z), Some(o)], o, &Swiglu { swapped: 0 });
        let width = c.value_width();
        let o = self.g.rec.view(o, 0, [width, t, 1, 1], [4, 4 * width, 0, 0], Some(1));
        self.g.linear(o, &name("ssm_out.weight"))
    }

    /// down(silu(gate a) * up a).
    fn mlp(&mut self, a: Tensor, name: &dyn Fn(&str) -> String) -> Tensor {
        let parts = self.g.project(a, &name("ffn_in"));
        let y = self.g.activation([self.config.n_ff, self.t, 1, 1], Some(1));
        let src = [Some(parts[0]), Some(parts[1])];
        self.g.rec.op_with(Op::Swiglu, &src, y, &Swiglu { swapped: 0 });
        self.g.linear(y, &name("ffn_down.weight"))
    }

    /// Final norm, LM head and the best token of each row of x{n_embd,t}.
    fn head(&mut self, x: Tensor, io: &IoLayout, rows: Rows) {
        let (x, n) = match rows {
            Rows::One => {
                let row = self.io(io.row, DType::I32, [1, 1, 1, 1], TensorFlags::HOST_WRITES);
                let y = self.g.activation([self.config.n_embd, 1, 1, 1], None);
                self.g.rec.op(Op::GetRows, &[x, row], y);
                (y, 1)
            }
            Rows::All => (x, self.t.min(MAX_VERIFY)),
        };
        let axis = (rows == Rows::All).then_some(1);
        let x = self.g.rms_norm(x, "output_norm.weight", self.config.rms_eps);
        let logits = self.io(io.logits, DType::F32, [self.config.n_vocab, n, 1, 1], TensorFlags::HOST_READS);
        let best = self.io(io.argmax, DType::I32, [n, 1, 1, 1], TensorFlags::HOST_READS);
        if let Some(axis) = axis {
            self.g.rec.tokens_on(logits, axis);
            self.g.rec.tokens_on(best, 0);
        }
        let head = if self.config.tied { "token_embd.weight" } else { "output.weight" };
        self.g.linear_into(x, head, logits);
        self.g.rec.op(Op::Argmax, &[logits], best);
    }
}
