//! Qwen3.5: layers of Gated DeltaNet and gated full attention, each followed by a SwiGLU MLP.

use hexflash_abi::Op;
use hexflash_abi::op::params::{DeltaNet, FlashAttn, Norm, SsmConv, Swiglu, Visibility};

use super::LayerState;
use super::programs::{Recording, Taps};
use crate::record::Tensor;

impl Recording<'_> {
    /// The trunk: tokens{t} to the last layer's output {n_embd,t}. With `defer` the tokens go onto the tapes and not into
    /// recurrent states; with `commit` convolutions take up what is on their tapes.
    pub(super) fn trunk(&mut self, tokens: Tensor, defer: bool, commit: bool, taps: &Taps<'_>) -> Tensor {
        let config = self.model.config;
        let embedding = self.g.weight("token_embd.weight");
        let stream = self.g.activation([config.n_embd, self.t, 1, 1], Some(1));
        let mut x = self.enter(0, Op::GetRows, [embedding, tokens], stream, taps);
        for (i, state) in self.model.state.layers.iter().enumerate() {
            self.g.rec.session(self.model.split.session_of(i));
            let name = |suffix: &str| format!("blk.{i}.{suffix}");
            let a = self.g.rms_norm(x, &name("attn_norm.weight"), config.rms_eps);
            let y = match *state {
                LayerState::Attention { k, v } => self.gated_attention(a, (k, v), &name),
                LayerState::Linear { ring, state } => {
                    self.delta_net(a, i, (ring, state), &name, defer, commit)
                }
            };
            self.g.rec.op(Op::Add, &[x, y], stream);
            let a = self.g.rms_norm(stream, &name("post_attention_norm.weight"), config.rms_eps);
            let y = self.g.mlp(a, config.n_ff, &name);
            x = self.enter(i + 1, Op::Add, [stream, y], stream, taps);
        }
        x
    }

    /// The residual stream that enters `layer`, by `op`: in `stream`, or where the draft reads it, so that nothing need be
    /// copied for it.
    fn enter(&mut self, layer: usize, op: Op, src: [Tensor; 2], stream: Tensor, taps: &Taps<'_>) -> Tensor {
        let place = taps.draft.and_then(|(draft, features)| self.tap(draft, layer, features));
        let x = place.unwrap_or(stream);
        self.g.rec.op(op, &src, x);
        self.observe(taps.host, layer, x);
        x
    }

    /// Gated full attention of a{n_embd,t}, with caches at `k_at` and `v_at`.
    fn gated_attention(
        &mut self,
        a: Tensor,
        (k_at, v_at): (u64, u64),
        name: &dyn Fn(&str) -> String,
    ) -> Tensor {
        let (config, n_ctx) = (self.model.config, self.model.state.n_ctx);
        let c = &config.attention;
        let (d, dv, h, hk) = (c.key_dim, c.value_dim, c.n_head, c.n_head_kv);
        let qkv = self.g.project(a, &name("qkv"));
        // Per query head: d values of the query, then d of its output gate.
        let q = self.g.heads(qkv[0], 0, d, h, 8 * d);
        let gate = self.g.heads(qkv[0], 4 * u64::from(d), d, h, 8 * d);
        let k = self.g.heads(qkv[1], 0, d, hk, 4 * d);
        let v = self.g.heads(qkv[2], 0, dv, hk, 4 * dv);
        self.g.rms_norm_into(q, &name("attn_q_norm.weight"), config.rms_eps, q);
        self.g.rms_norm_into(k, &name("attn_k_norm.weight"), config.rms_eps, k);
        for x in [q, k] {
            self.g.rope(x, &c.rope);
        }
        let ((buffer, k_at), (_, v_at)) = (self.state_home(k_at), self.state_home(v_at));
        let caches = self.caches(buffer, (k_at, v_at), c, n_ctx);
        let attn = FlashAttn {
            scale: 1.0 / (d as f32).sqrt(),
            visibility: Visibility::Causal.wire(),
            window: 0,
            softcap: 0.0,
            max_bias: 0.0,
        };
        let y = self.g.attend([q, k, v], caches, attn);
        self.g.apply(Op::Sigmoid, gate);
        self.g.update(Op::Mul, y, gate);
        let y = self.g.joined(y);
        self.g.linear(y, &name("attn_output.weight"))
    }

    /// Gated DeltaNet of a{n_embd,t}, with its convolution's ring and its state at these places.
    fn delta_net(
        &mut self,
        a: Tensor,
        layer: usize,
        (ring, state): (u64, u64),
        name: &dyn Fn(&str) -> String,
        defer: bool,
        commit: bool,
    ) -> Tensor {
        let (config, t) = (self.model.config, self.t);
        let c = &config.linear;
        let (s, hk, hv) = (c.state, c.n_head_k, c.n_head_v);
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
        let ring = self.state(ring, [c.channels(), self.model.state.ring_rows, 1, 1]);
        let mut dst = vec![conv];
        dst.extend(self.conv_tape(layer).filter(|_| commit));
        let params = SsmConv { defer: defer.into() };
        self.g.rec.op_with(Op::SsmConv, &[u, w, ring].map(Some), &dst, &params);
        self.g.apply(Op::Silu, conv);

        // q and k, all heads in one go, to unit length: x / sqrt(sum x^2 + eps).
        let qk = self.g.heads(conv, 0, s, 2 * hk, 4 * s);
        let unit = self.g.weight(super::tensors::UNIT_NORM);
        let eps = Norm { eps: config.rms_eps / s as f32 };
        self.g.rec.op_with(Op::RmsNorm, &[Some(qk), Some(unit)], &[qk], &eps);
        let q = self.g.heads(conv, 0, s, hk, 4 * s);
        let k = self.g.heads(conv, 4 * u64::from(hk * s), s, hk, 4 * s);
        let v = self.g.heads(conv, 8 * u64::from(hk * s), s, hv, 4 * s);
        let g = self.g.heads(alpha, 0, 1, hv, 4);
        let beta = self.g.heads(beta, 0, 1, hv, 4);
        let state = self.state(state, [s, s, hv, 1]);
        let o = self.g.activation([s, hv, t, 1], Some(2));
        let mut dst = vec![o];
        dst.extend(self.tape(layer).into_iter().flatten());
        let src = [q, k, v, g, beta, state].map(Some);
        self.g.rec.op_with(Op::GatedDeltaNet, &src, &dst, &DeltaNet { defer: defer.into() });

        self.g.rms_norm_into(o, &name("ssm_norm.weight"), config.rms_eps, o);
        let z = self.g.heads(z, 0, s, hv, 4 * s);
        self.g.rec.op_with(Op::Swiglu, &[Some(z), Some(o)], &[o], &Swiglu { swapped: 0 });
        let o = self.g.joined(o);
        self.g.linear(o, &name("ssm_out.weight"))
    }
}
