//! What an MTP head has on the device: weights, memory, and its graph.

use hexflash_abi::Op;
use hexflash_abi::program::TensorFlags;

use super::{EMBEDDING_NORM, HIDDEN_NORM, Mtp, OWN_EMBEDDING, OWN_HEAD, OWN_NORM, PROJECTION, scope};
use crate::gguf::Gguf;
use crate::model::block::{Mix, Previous};
use crate::model::cache_types::CacheTypes;
use crate::model::draft::chain::{self, BLOCK, Head};
use crate::model::draft::kind::{DraftModel, finish};
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Part};
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::{Scope, layer_of};
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

impl DraftModel for Mtp {
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
        self.embedding == Scope::TARGET.label(crate::model::scope::EMBEDDING)
    }

    fn reads_caches_from(&self) -> Option<usize> {
        None
    }

    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.layer.mixer.longest_context(caches, n_slots)
    }

    fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let (n, scope) = (self.n_embd, scope(self.number));
        let mut plan = WeightPlanner::new(gguf);
        plan.add(scope, PROJECTION, &[2 * n, n], Form::Tiled)?;
        plan.add(scope, EMBEDDING_NORM, &[n], Form::Plain)?;
        plan.add(scope, HIDDEN_NORM, &[n], Form::Plain)?;
        for table in [OWN_EMBEDDING, OWN_HEAD] {
            if plan.has(scope, table) {
                plan.add(scope, table, &[n, self.n_vocab], Form::Tiled)?;
            }
        }
        if plan.has(scope, OWN_NORM) {
            plan.add(scope, OWN_NORM, &[n], Form::Plain)?;
        }
        self.layer.weights(&mut plan, scope)?;
        self.previous().weights(&mut plan, scope);
        // What else is in the file belongs to the target, which checks its own.
        finish(plan, gguf, "an MTP head", |name| layer_of(name) != Some(self.number))
    }

    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        self.layer.mixer.keep(plan, scope(self.number))?;
        self.previous().keep(plan, scope(self.number), Purpose::Recurrent)?;
        chain::keep_anchor(plan)
    }

    fn tables(&self) -> Vec<(String, Vec<u32>)> {
        Vec::new()
    }

    fn reads_tokens(&self) -> bool {
        true
    }

    /// The features are the output of the target's last layer.
    fn observe(&self, g: &mut Graph<'_>, tokens: Tensor, features: Tensor) {
        let (scope, eps) = (scope(self.number), self.rms_eps);
        let hidden = g.rms_norm(features, &Scope::TARGET.label(self.target_norm), eps);
        let before = self.previous().record(g, scope, hidden);
        let embedded = self.embed(g, tokens);
        let x = self.join(g, embedded, before);
        let a = g.rms_norm(x, &scope.label(self.layer.norms.before_mixer), eps);
        self.layer.mixer.append(g, scope, a);
    }

    fn anchor(&self, g: &mut Graph<'_>) -> Tensor {
        chain::anchor(g)
    }

    fn propose(&self, g: &mut Graph<'_>) {
        let scope = scope(self.number);
        let mut last = None;
        for draft in 0..BLOCK - 1 {
            g.part(Part::DraftBlock);
            chain::next(g, draft, false);
            let token = chain::token(g, draft, TensorFlags::empty());
            let embedded = self.embed(g, token);
            let before = last.unwrap_or_else(|| self.previous().peek(g, scope, embedded));
            let x = self.join(g, embedded, before);
            let [stream, y] = self.layer.record(g, scope, x, x);
            g.update(Op::Add, stream, y);
            g.part(Part::DraftHead);
            let hidden = g.rms_norm(stream, &self.norm, self.rms_eps);
            let head = Head { label: &self.head, rows: self.n_vocab, reduced: false };
            chain::guess(g, hidden, head, draft);
            last = Some(hidden);
        }
        chain::next(g, BLOCK - 1, false);
    }
}

impl Mtp {
    const fn previous(&self) -> Previous {
        Previous { width: self.n_embd }
    }

    /// Embeddings {n_embd,t} of tokens{t}.
    fn embed(&self, g: &mut Graph<'_>, tokens: Tensor) -> Tensor {
        chain::embed(g, &self.embedding, self.n_embd, tokens)
    }

    /// What enters the layer: one row of an embedding and of what precedes it, each behind its norm.
    fn join(&self, g: &mut Graph<'_>, embedded: Tensor, before: Tensor) -> Tensor {
        let scope = scope(self.number);
        let [own, hidden] = [EMBEDDING_NORM, HIDDEN_NORM].map(|norm| scope.label(norm));
        let [both, _] = chain::pair(g, [(embedded, &own), (before, &hidden)], self.rms_eps);
        g.linear(both, &scope.label(PROJECTION))
    }
}
