//! What a Gemma 4 assistant has on the device: weights, memory, and its graph.

use hexflash_abi::Op;
use hexflash_abi::op::params::Scale;
use hexflash_abi::program::TensorFlags;

use super::Assistant;
use crate::gguf::Gguf;
use crate::model::block::Previous;
use crate::model::cache_types::CacheTypes;
use crate::model::draft::chain::{self, BLOCK, Head};
use crate::model::draft::kind::{DraftModel, finish};
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Part};
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::{EMBEDDING, Scope};
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

const ALL: Scope = Scope::DRAFT;

/// The matrix in front of the layers, and the one that makes what the next draft reads.
const BEFORE: &str = "nextn.pre_projection.weight";
const AFTER: &str = "nextn.post_projection.weight";
const OUTPUT_NORM: &str = "output_norm.weight";
/// A factor on what leaves a layer.
const LAYER_SCALE: &str = "layer_output_scale.weight";
/// The head of two stages, which nothing reads.
const CLUSTERS: &str = "masked_embd_";

impl DraftModel for Assistant {
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
        true
    }

    fn reads_caches_from(&self) -> Option<usize> {
        Some(self.caches_from)
    }

    /// The target's own is shorter.
    fn longest_context(&self, _: CacheTypes, _: u32) -> u32 {
        u32::MAX
    }

    fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let (n, target) = (self.n_embd, self.n_embd_target);
        let mut plan = WeightPlanner::new(gguf);
        plan.add(ALL, EMBEDDING, &[n, self.n_vocab], Form::Tiled)?;
        plan.add(ALL, BEFORE, &[2 * target, n], Form::Tiled)?;
        plan.add(ALL, AFTER, &[n, target], Form::Tiled)?;
        plan.add(ALL, OUTPUT_NORM, &[n], Form::Plain)?;
        for (i, layer) in self.layers.iter().enumerate() {
            layer.weights(&mut plan, ALL.layer(i))?;
            plan.add(ALL.layer(i), LAYER_SCALE, &[1], Form::Plain)?;
        }
        self.previous().weights(&mut plan, ALL);
        finish(plan, gguf, "a Gemma 4 assistant", |name| name.starts_with(CLUSTERS))
    }

    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        self.previous().keep(plan, ALL, Purpose::DraftRows)?;
        chain::keep_anchor(plan)
    }

    fn tables(&self) -> Vec<(String, Vec<u32>)> {
        Vec::new()
    }

    fn reads_tokens(&self) -> bool {
        false
    }

    /// The features are the output of the target's last layer.
    fn observe(&self, g: &mut Graph<'_>, _: Tensor, features: Tensor) {
        let hidden = g.rms_norm(features, &Scope::TARGET.label(self.target_norm), self.target_eps);
        self.previous().record(g, ALL, hidden);
    }

    fn anchor(&self, g: &mut Graph<'_>) -> Tensor {
        chain::anchor(g)
    }

    fn propose(&self, g: &mut Graph<'_>) {
        let mut last = None;
        for draft in 0..BLOCK - 1 {
            g.part(Part::DraftBlock);
            chain::next(g, draft, true);
            let x = self.enter(g, draft, last);
            for (i, layer) in self.layers.iter().enumerate() {
                let scope = ALL.layer(i);
                let [stream, y] = layer.record(g, scope, x, x);
                g.update(Op::Add, stream, y);
                let scale = g.weight(&scope.label(LAYER_SCALE));
                g.update(Op::Mul, stream, scale);
            }
            g.part(Part::DraftHead);
            let normed = g.rms_norm(x, &ALL.label(OUTPUT_NORM), self.rms_eps);
            let head = Head { label: &ALL.label(EMBEDDING), rows: self.n_vocab, reduced: false };
            chain::guess(g, normed, head, draft);
            last = Some(normed);
        }
        chain::next(g, BLOCK - 1, true);
    }
}

impl Assistant {
    const fn previous(&self) -> Previous {
        Previous { width: self.n_embd_target }
    }

    /// Rows {n_embd,t} that enter the layers for draft number `draft`: of the token before it, and of the
    /// normed row {n_embd,t} that guessed that token. The first draft has the target's row instead.
    fn enter(&self, g: &mut Graph<'_>, draft: u32, last: Option<Tensor>) -> Tensor {
        let n = self.n_embd_target;
        let token = chain::token(g, draft, TensorFlags::empty());
        let embedded = chain::embed(g, EMBEDDING, n, token);
        let both = g.activation_like(embedded, 2 * n);
        let [x, h] = [0, n].map(|first| g.columns(both, first, n));
        let scale = Scale { scale: self.embedding_scale, bias: 0.0 };
        g.rec.op_with(Op::Scale, &[Some(embedded)], &[x], &scale);
        match last {
            Some(normed) => g.linear_into(normed, &ALL.label(AFTER), h),
            None => {
                let hidden = self.previous().peek(g, ALL, embedded);
                g.rec.op(Op::Cpy, &[hidden], h);
            }
        }
        g.linear(both, &ALL.label(BEFORE))
    }
}
