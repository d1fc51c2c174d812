//! DFlash v1: the draft's graph.
//!
//! Features of a token are the tapped residual streams of the target, one after the other. Per draft layer they give
//! keys and values at the token's own position (*injection*): the context, which no query ever comes from. A block is
//! the last token, whose features do not exist yet, followed by masks; its tokens see the context and each other, and
//! row i of the output guesses the token i places after the anchor.

use hexflash_abi::op::params::{FlashAttn, Scale, Visibility};
use hexflash_abi::program::TensorFlags;
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, Op};

use super::DraftConfig;
use super::draft::PREFIX;
use super::layout::MAX_PENDING;
use super::programs::{Drafter, Part, Recording};
use crate::record::Tensor;

/// Label of a tensor of layer `i`.
fn label(i: usize, suffix: &str) -> String {
    format!("{PREFIX}blk.{i}.{suffix}")
}

impl Recording<'_> {
    /// Room for the features of a step, {tap width, t}.
    pub(super) fn features(&mut self, draft: &DraftConfig) -> Tensor {
        self.g.activation([draft.tap_width(self.model.config), self.t, 1, 1], Some(1))
    }

    /// Where in `features` the residual stream {n_embd,t} that enters `layer` has its place, if the draft reads it: the
    /// target goes on from there, and nothing is copied.
    pub(super) fn tap(&mut self, draft: &DraftConfig, layer: usize, features: Tensor) -> Option<Tensor> {
        let i = draft.taps.iter().position(|&tapped| tapped as usize == layer)?;
        let (n_embd, stride) = (self.model.config.n_embd, self.g.rec.nb(features)[1]);
        let at = 4 * u64::from(n_embd) * i as u64;
        Some(self.g.rec.view(features, at, [n_embd, self.t, 1, 1], [4, stride, 0, 0], Some(1)))
    }

    /// Features {tap width, 1} into row `row` of those that wait for [`Model::inject`](super::Model::inject).
    pub(super) fn keep(&mut self, (draft, at): Drafter<'_>, features: Tensor, row: Tensor) {
        let width = draft.tap_width(self.model.config);
        let pending = self.spec(at.pending, DType::F32, [width, MAX_PENDING, 1, 1]);
        self.g.rec.op(Op::SetRows, &[features, row], pending);
    }

    /// Features {tap width, t} into the draft's caches, at the positions of their tokens.
    pub(super) fn inject(&mut self, (draft, at): Drafter<'_>, features: Tensor) {
        let c = &draft.attention;
        let x = self.g.linear(features, &format!("{PREFIX}fc.weight"));
        self.g.rms_norm_into(x, &format!("{PREFIX}enc.output_norm.weight"), draft.rms_eps, x);
        for (i, &places) in at.kv.iter().enumerate() {
            let (k, v) = self.keys_and_values(draft, i, x);
            let caches = self.caches(self.model.buffers.spec, places, c, self.model.state.n_ctx);
            self.g.rec.op_with(Op::KvAppend, &[Some(k), Some(v)], &caches, &[0u32; 0]);
        }
    }

    /// Keys, normed and turned, and values of layer `i`, of x{n_embd,t}.
    fn keys_and_values(&mut self, draft: &DraftConfig, i: usize, x: Tensor) -> (Tensor, Tensor) {
        let c = &draft.attention;
        let kv = self.g.project(x, &label(i, "kv"));
        let k = self.g.heads(kv[0], 0, c.key_dim, c.n_head_kv, 4 * c.key_dim);
        let v = self.g.heads(kv[1], 0, c.value_dim, c.n_head_kv, 4 * c.value_dim);
        self.g.rms_norm_into(k, &label(i, "attn_k_norm.weight"), draft.rms_eps, k);
        self.g.rope(k, &c.rope);
        (k, v)
    }

    /// Drafts `n_draft` tokens after the anchor at position `n_past`, into the block to verify. The step is as wide
    /// as the draft's block; afterwards it is `n_draft` wide.
    pub(super) fn draft(&mut self, drafter: Drafter<'_>) {
        let (draft, at) = drafter;
        let (t, e) = (self.t, draft.n_embd);
        self.part(Part::Draft);
        let noise = self.spec(at.noise, DType::I32, [t, 1, 1, 1]);
        self.g.rec.tokens_on(noise, 0);
        let own = |own, name: &str| if own { format!("{PREFIX}{name}") } else { name.to_owned() };
        let embedding = self.g.weight(&own(draft.own_embedding, "token_embd.weight"));
        let x = self.g.activation([e, t, 1, 1], Some(1));
        self.g.rec.op(Op::GetRows, &[embedding, noise], x);
        if draft.embedding_scale != 1.0 {
            let scale = Scale { scale: draft.embedding_scale, bias: 0.0 };
            self.g.rec.op_with(Op::Scale, &[Some(x)], &[x], &scale);
        }
        for i in 0..draft.windows.len() {
            let a = self.g.rms_norm(x, &label(i, "attn_norm.weight"), draft.rms_eps);
            let y = self.draft_attention(drafter, i, a);
            self.g.update(Op::Add, x, y);
            let a = self.g.rms_norm(x, &label(i, "ffn_norm.weight"), draft.rms_eps);
            let y = self.g.mlp(a, draft.n_ff, &|suffix| label(i, suffix));
            self.g.update(Op::Add, x, y);
        }

        // The rows of drafts alone: the anchor's output is not used, and a short draft needs no more of the head.
        self.part(Part::DraftHead);
        self.set_tokens(Register::NDraft, 0);
        let block = self.g.rec.view(x, 0, [e, t, 1, 1], self.g.rec.nb(x), None);
        let rows = self.spec(at.rows, DType::I32, [t, 1, 1, 1]);
        self.g.rec.tokens_on(rows, 0);
        let x = self.g.activation([e, t, 1, 1], Some(1));
        self.g.rec.op(Op::GetRows, &[block, rows], x);
        let x = self.g.rms_norm(x, &format!("{PREFIX}output_norm.weight"), draft.rms_eps);
        let target = self.model.config;
        let n_vocab = draft.own_head.unwrap_or(target.n_vocab);
        let io = self.model.buffers.io;
        let at_logits = self.model.io.logits;
        let none = TensorFlags::empty();
        let logits = self.g.rec.tensor(io, at_logits, DType::F32, [n_vocab, t, 1, 1], none);
        self.g.rec.tokens_on(logits, 1);
        let head = if draft.own_head.is_some() { "output.weight" } else { target.head() };
        self.g.linear_into(x, &own(draft.own_head.is_some(), head), logits);

        let flags = TensorFlags::HOST_READS | self.shared_flags();
        let drafts =
            self.g.rec.tensor(self.model.buffers.spec, at.block + 4, DType::I32, [t, 1, 1, 1], flags);
        self.g.rec.tokens_on(drafts, 0);
        let margins =
            self.g.rec.tensor(io, self.model.io.margins, DType::F32, [t, 1, 1, 1], TensorFlags::HOST_READS);
        self.g.rec.tokens_on(margins, 0);
        let argmax = |m: &mut Self, best| {
            m.g.rec.op_with(Op::Argmax, &[Some(logits)], &[best, margins], &[0u32; 0]);
        };
        match at.d2t {
            None => argmax(self, drafts),
            Some(table) => {
                let best = self.g.rec.activation(DType::I32, [t, 1, 1, 1]);
                self.g.rec.tokens_on(best, 0);
                argmax(self, best);
                let table = self.spec(table, DType::I32, [1, n_vocab, 1, 1]);
                let drafts = self.g.rec.view(drafts, 0, [1, t, 1, 1], [4, 4, 0, 0], Some(1));
                self.g.rec.op(Op::GetRows, &[table, best], drafts);
            }
        }
    }

    /// Attention of layer `i` for a{n_embd,t}, a block: over the context and the block itself.
    fn draft_attention(&mut self, (draft, at): Drafter<'_>, i: usize, a: Tensor) -> Tensor {
        let c = &draft.attention;
        let q = self.g.linear(a, &label(i, "attn_q.weight"));
        let q = self.g.heads(q, 0, c.key_dim, c.n_head, 4 * c.key_dim);
        self.g.rms_norm_into(q, &label(i, "attn_q_norm.weight"), draft.rms_eps, q);
        self.g.rope(q, &c.rope);
        let (k, v) = self.keys_and_values(draft, i, a);
        let caches = self.caches(self.model.buffers.spec, at.kv[i], c, self.model.state.n_ctx);
        let visibility = if draft.causal { Visibility::Causal } else { Visibility::Block };
        let attn = FlashAttn {
            scale: draft.attention_scale,
            visibility: visibility.wire(),
            window: draft.windows[i],
            softcap: 0.0,
            max_bias: 0.0,
        };
        let y = self.g.attend([q, k, v], caches, attn);
        let y = self.g.joined(y);
        self.g.linear(y, &label(i, "attn_output.weight"))
    }
}
