//! The graph of a DFlash or DSpark draft, with its weights and memory on the device.

use hexflash_abi::op::params::Scale;
use hexflash_abi::program::TensorFlags;
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, Op};

use super::hyper::{Chain, DFlash, MARKOV};
use crate::gguf::Gguf;
use crate::model::block::Mix;
use crate::model::cache_types::CacheTypes;
use crate::model::draft::chain;
use crate::model::draft::kind::{DraftModel, finish};
use crate::model::draft::table::{self, IDS};
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Part};
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::limits::MAX_VERIFY;
use crate::model::scope::Scope;
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

const ALL: Scope = Scope::DRAFT;

const FEATURES: &str = "fc.weight";
const FEATURES_NORM: &str = "enc.output_norm.weight";
const OUTPUT_NORM: &str = "output_norm.weight";

/// The block to draft from: the anchor, then masks, I32 `{MAX_VERIFY}`.
const NOISE: &str = "noise";
/// 0, 1, 2, .., I32 `{2 * MAX_VERIFY}`: rows of the block, so that they can begin at any.
const ROWS: &str = "rows";
/// The head that says how sure a DSpark draft is. Drafts are not cut by it: `auto` adapts to what is kept.
const CONFIDENCE: &str = "conf_proj.";

impl DraftModel for DFlash {
    fn taps(&self) -> &[u32] {
        &self.taps
    }

    fn block(&self) -> u32 {
        self.block
    }

    fn is_chain(&self) -> bool {
        false
    }

    fn shares_embedding(&self) -> bool {
        !self.embedding.is_own()
    }

    fn reads_caches_from(&self) -> Option<usize> {
        None
    }

    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.layers.iter().map(|layer| layer.mixer.longest_context(caches, n_slots)).min().unwrap_or(u32::MAX)
    }

    fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let mut plan = WeightPlanner::new(gguf);
        for table in [&self.embedding, &self.head].into_iter().filter(|table| table.is_own()) {
            plan.add(ALL, table.name, &[self.n_embd, table.rows], Form::Tiled)?;
        }
        plan.add(ALL, FEATURES, &[self.tap_width, self.n_embd], Form::Tiled)?;
        plan.add(ALL, FEATURES_NORM, &[self.n_embd], Form::Plain)?;
        plan.add(ALL, OUTPUT_NORM, &[self.n_embd], Form::Plain)?;
        for (i, layer) in self.layers.iter().enumerate() {
            layer.weights(&mut plan, ALL.layer(i))?;
        }
        if let Some(Chain { rank, n_vocab, .. }) = self.chain {
            plan.add(ALL, MARKOV[0], &[rank, n_vocab], Form::Tiled)?;
            plan.add(ALL, MARKOV[1], &[rank, self.head.rows], Form::Tiled)?;
        }
        let is_chain = self.chain.is_some();
        finish(plan, gguf, self.kind(), |name| {
            name.starts_with(IDS) || is_chain && name.starts_with(CONFIDENCE)
        })
    }

    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        for (i, layer) in self.layers.iter().enumerate() {
            layer.mixer.keep(plan, ALL.layer(i))?;
        }
        let mut ints = |name, ne| plan.keep(ALL, name, Purpose::Rounds, (DType::I32, ne));
        ints(NOISE, [MAX_VERIFY, 1, 1, 1])?;
        ints(ROWS, [2 * MAX_VERIFY, 1, 1, 1])?;
        table::keep_ids(self.d2t.as_deref(), plan)
    }

    fn tables(&self) -> Vec<(String, Vec<u32>)> {
        let noise = (ALL.label(NOISE), vec![self.mask; MAX_VERIFY as usize]);
        let rows = (ALL.label(ROWS), (0..2 * MAX_VERIFY).collect());
        let d2t = self.d2t.as_ref().map(|ids| (ALL.label(IDS), ids.clone()));
        [noise, rows].into_iter().chain(d2t).collect()
    }

    fn reads_tokens(&self) -> bool {
        false
    }

    fn observe(&self, g: &mut Graph<'_>, _: Tensor, features: Tensor) {
        let x = g.linear(features, &ALL.label(FEATURES));
        g.rms_norm_into(x, &ALL.label(FEATURES_NORM), self.rms_eps, x);
        for (i, layer) in self.layers.iter().enumerate() {
            layer.mixer.append(g, ALL.layer(i), x);
        }
    }

    fn anchor(&self, g: &mut Graph<'_>) -> Tensor {
        g.kept_part(&ALL.label(NOISE), 0, [1; 4], TensorFlags::empty())
    }

    fn propose(&self, g: &mut Graph<'_>) {
        g.part(Part::DraftBlock);
        if let Some(chain) = self.chain {
            // Rows see each other, so that their number counts. A chain was trained with a row for each draft
            // that may be wanted, DFlash with the rows of a whole block.
            g.set_tokens(Register::DraftMax, (!chain.from_anchor).into());
        }
        let x = self.embed(g);
        for (i, layer) in self.layers.iter().enumerate() {
            let [stream, y] = layer.record(g, ALL.layer(i), x, x);
            g.update(Op::Add, stream, y);
        }
        // The rows of drafts alone: the anchor's output is not used, and a short draft needs no more of the
        // head.
        g.part(Part::DraftHead);
        g.set_tokens(Register::NDraft, 0);
        let logits = self.logits(g, x);
        match self.chain {
            None => {
                chain::choose(g, logits, 0, self.d2t.is_some());
                g.set_tokens(Register::NDraft, 1);
            }
            Some(_) => self.guess_in_turn(g, logits),
        }
    }
}

impl DFlash {
    /// Embeddings {n_embd,t} of the anchor and the masks.
    fn embed(&self, g: &mut Graph<'_>) -> Tensor {
        let t = g.t();
        let noise = g.kept_part(&ALL.label(NOISE), 0, [t, 1, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(noise, 0);
        let x = chain::embed(g, &self.embedding.label(), self.n_embd, noise);
        if self.embedding_scale != 1.0 {
            let scale = Scale { scale: self.embedding_scale, bias: 0.0 };
            g.rec.op_with(Op::Scale, &[Some(x)], &[x], &scale);
        }
        x
    }

    /// The logits {rows,t} of the rows of x{n_embd,t} that guess drafts.
    fn logits(&self, g: &mut Graph<'_>, x: Tensor) -> Tensor {
        let t = g.t();
        let from_anchor = self.chain.is_some_and(|chain| chain.from_anchor);
        let x = self.rows_from(g, x, u32::from(!from_anchor));
        let x = g.rms_norm(x, &ALL.label(OUTPUT_NORM), self.rms_eps);
        let at = g.cx().io.logits;
        let logits = g.io("logits", at, DType::F32, [self.head.rows, t, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(logits, 1);
        g.linear_into(x, &self.head.label(), logits);
        logits
    }

    /// The rows of x{n,t} from row `first` on, as many as the token axis has: {n,t}.
    fn rows_from(&self, g: &mut Graph<'_>, x: Tensor, first: u32) -> Tensor {
        let (t, [n, ..]) = (g.t(), g.rec.ne(x));
        let all = g.rec.view(x, 0, [n, t, 1, 1], g.rec.nb(x), None);
        let ids = g.kept_part(&ALL.label(ROWS), first, [t, 1, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(ids, 0);
        let rows = g.activation([n, t, 1, 1], Some(1));
        g.rec.op(Op::GetRows, &[all, ids], rows);
        rows
    }

    /// One draft after the other: the logits of each get what the chain says of the draft before it.
    fn guess_in_turn(&self, g: &mut Graph<'_>, all: Tensor) {
        let first = g.weight(&ALL.label(MARKOV[0]));
        for draft in 0..self.block - 1 {
            chain::next(g, draft, false);
            let before = chain::token(g, draft, TensorFlags::empty());
            let row = g.activation([g.rec.ne(first)[0], g.t(), 1, 1], Some(1));
            g.rec.op(Op::GetRows, &[first, before], row);
            let logits = g.linear(row, &ALL.label(MARKOV[1]));
            let own = self.rows_from(g, all, draft);
            g.update(Op::Add, logits, own);
            chain::choose(g, logits, draft, self.d2t.is_some());
        }
        chain::next(g, self.block - 1, false);
    }
}
