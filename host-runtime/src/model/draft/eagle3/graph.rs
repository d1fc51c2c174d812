//! Weights, memory and graph of an EAGLE3 draft on the device.

use hexflash_abi::Op;
use hexflash_abi::program::TensorFlags;

use super::Eagle3;
use crate::gguf::Gguf;
use crate::model::block::{Mix, Previous};
use crate::model::cache_types::CacheTypes;
use crate::model::draft::chain::{self, BLOCK, Head};
use crate::model::draft::kind::{DraftModel, finish};
use crate::model::draft::table::{self, IDS};
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Part};
use crate::model::kept::KeptPlanner;
use crate::model::scope::Scope;
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

const ALL: Scope = Scope::DRAFT;
const LAYER: Scope = Scope::DRAFT.layer(0);

/// The matrix that fuses taps, and the norm before it, in files that have it.
const FUSION: &str = "fc.weight";
const TAPS_NORM: &str = "enc.output_norm.weight";
/// The norm of the fused row, beside that of the embedding.
const FUSED_NORM: &str = "attn_norm_2.weight";
const OUTPUT_NORM: &str = "output_norm.weight";

impl DraftModel for Eagle3 {
    fn taps(&self) -> &[u32] {
        &self.taps
    }

    fn block(&self) -> u32 {
        BLOCK
    }

    fn is_chain(&self) -> bool {
        true
    }

    fn shares_embedding(&self) -> bool {
        !self.embedding.is_own()
    }

    fn reads_caches_from(&self) -> Option<usize> {
        None
    }

    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.layer.mixer.longest_context(caches, n_slots)
    }

    fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let n = self.n_embd;
        let mut plan = WeightPlanner::new(gguf);
        for table in [&self.embedding, &self.head].into_iter().filter(|table| table.is_own()) {
            plan.add(ALL, table.name, &[n, table.rows], Form::Tiled)?;
        }
        plan.add(ALL, FUSION, &[self.tap_width, n], Form::Tiled)?;
        if self.norm_before_fusion {
            plan.add(ALL, TAPS_NORM, &[self.tap_width], Form::Plain)?;
        }
        plan.add(ALL, OUTPUT_NORM, &[n], Form::Plain)?;
        plan.add(LAYER, FUSED_NORM, &[n], Form::Plain)?;
        self.layer.weights(&mut plan, LAYER)?;
        self.previous().weights(&mut plan, LAYER);
        finish(plan, gguf, "an EAGLE3 draft", |name| name.starts_with(IDS))
    }

    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        self.layer.mixer.keep(plan, LAYER)?;
        self.previous().keep(plan, LAYER, self.fused)?;
        table::keep_ids(self.d2t.as_deref(), plan)?;
        chain::keep_anchor(plan)
    }

    fn tables(&self) -> Vec<(String, Vec<u32>)> {
        self.d2t.iter().map(|ids| (ALL.label(IDS), ids.clone())).collect()
    }

    fn reads_tokens(&self) -> bool {
        true
    }

    fn observe(&self, g: &mut Graph<'_>, tokens: Tensor, features: Tensor) {
        let taps = if self.norm_before_fusion {
            g.rms_norm(features, &ALL.label(TAPS_NORM), self.rms_eps)
        } else {
            features
        };
        let fused = g.linear(taps, &ALL.label(FUSION));
        let before = self.previous().record(g, LAYER, fused);
        let embedded = self.embed(g, tokens);
        let [both, _] = self.join(g, embedded, before);
        self.layer.mixer.append(g, LAYER, both);
    }

    fn anchor(&self, g: &mut Graph<'_>) -> Tensor {
        chain::anchor(g)
    }

    fn propose(&self, g: &mut Graph<'_>) {
        let label = self.head.label();
        let head = Head { label: &label, rows: self.head.rows, reduced: self.d2t.is_some() };
        let mut last = None;
        for draft in 0..BLOCK - 1 {
            g.part(Part::DraftBlock);
            chain::next(g, draft, false);
            let token = chain::token(g, draft, TensorFlags::empty());
            let embedded = self.embed(g, token);
            let before = last.unwrap_or_else(|| self.previous().peek(g, LAYER, embedded));
            let [both, residual] = self.join(g, embedded, before);
            let stream = g.activation_like(embedded, self.n_embd);
            let [stream, y] = self.layer.record_behind(g, LAYER, both, [residual, stream]);
            g.update(Op::Add, stream, y);
            g.part(Part::DraftHead);
            let normed = g.rms_norm(stream, &ALL.label(OUTPUT_NORM), self.rms_eps);
            chain::guess(g, normed, head, draft);
            last = Some(stream);
        }
        chain::next(g, BLOCK - 1, false);
    }
}

impl Eagle3 {
    const fn previous(&self) -> Previous {
        Previous { width: self.n_embd }
    }

    /// Embeddings {n_embd,t} of tokens{t}.
    fn embed(&self, g: &mut Graph<'_>, tokens: Tensor) -> Tensor {
        chain::embed(g, &self.embedding.label(), self.n_embd, tokens)
    }

    /// Rows that the attention reads {2 n_embd,t}: an embedding and the row before it, each behind its norm;
    /// and the row {n_embd,t} that the layer adds to.
    fn join(&self, g: &mut Graph<'_>, embedded: Tensor, before: Tensor) -> [Tensor; 2] {
        let [own, fused] = [self.layer.norms.before_mixer, FUSED_NORM].map(|norm| LAYER.label(norm));
        let [both, normed] = chain::pair(g, [(embedded, &own), (before, &fused)], self.rms_eps);
        [both, if self.norm_before_residual { normed } else { before }]
    }
}
