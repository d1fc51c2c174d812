//! What a DFlash draft has on the device: weights, memory, and its graph.

use hexflash_abi::op::params::Scale;
use hexflash_abi::program::TensorFlags;
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, Op};

use super::hyper::DFlash;
use crate::gguf::Gguf;
use crate::model::block::Mix;
use crate::model::cache_types::CacheTypes;
use crate::model::draft::kind::{BLOCK, DraftModel};
use crate::model::error::{DraftError, ModelError};
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
/// 1, 2, .., I32 `{MAX_VERIFY}`: rows of the block that are drafts.
const ROWS: &str = "rows";
/// Target ids of a reduced head, I32 `{1, rows}`.
const D2T: &str = "d2t";

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
        match plan.unused(|name| name.starts_with(D2T)) {
            None => Ok(plan.finish()),
            Some(name) => Err(ModelError::Draft {
                path: gguf.path().to_path_buf(),
                error: DraftError::Unsupported { name: name.to_owned(), kind: "DFlash v1" },
            }),
        }
    }

    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        for (i, layer) in self.layers.iter().enumerate() {
            layer.mixer.keep(plan, ALL.layer(i))?;
        }
        let mut ints = |name, ne| plan.keep(ALL, name, Purpose::Rounds, (DType::I32, ne));
        ints(NOISE, [MAX_VERIFY, 1, 1, 1])?;
        ints(ROWS, [MAX_VERIFY, 1, 1, 1])?;
        self.d2t.as_ref().map_or(Ok(()), |ids| ints(D2T, [1, ids.len() as u32, 1, 1]))
    }

    fn tables(&self) -> Vec<(String, Vec<u32>)> {
        let noise = (ALL.label(NOISE), vec![self.mask; MAX_VERIFY as usize]);
        let rows = (ALL.label(ROWS), (1..=MAX_VERIFY).collect());
        let d2t = self.d2t.as_ref().map(|ids| (ALL.label(D2T), ids.clone()));
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
        let x = self.embed(g);
        for (i, layer) in self.layers.iter().enumerate() {
            let [stream, y] = layer.record(g, ALL.layer(i), x, x);
            g.update(Op::Add, stream, y);
        }
        // The rows of drafts alone: the anchor's output is not used, and a short draft needs no more of the
        // head.
        g.part(Part::DraftHead);
        g.set_tokens(Register::NDraft, 0);
        self.guess(g, x);
        g.set_tokens(Register::NDraft, 1);
    }
}

impl DFlash {
    /// Embeddings {n_embd,t} of the anchor and the masks.
    fn embed(&self, g: &mut Graph<'_>) -> Tensor {
        let t = g.t();
        let noise = g.kept_part(&ALL.label(NOISE), 0, [t, 1, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(noise, 0);
        let embedding = g.weight(&self.embedding.label());
        let x = g.activation([self.n_embd, t, 1, 1], Some(1));
        g.rec.op(Op::GetRows, &[embedding, noise], x);
        if self.embedding_scale != 1.0 {
            let scale = Scale { scale: self.embedding_scale, bias: 0.0 };
            g.rec.op_with(Op::Scale, &[Some(x)], &[x], &scale);
        }
        x
    }

    /// The best token of each row of x{n_embd,t} but the anchor's.
    fn guess(&self, g: &mut Graph<'_>, x: Tensor) {
        let (t, io, rows) = (g.t(), g.cx().io, self.head.rows);
        let block = g.rec.view(x, 0, [self.n_embd, t, 1, 1], g.rec.nb(x), None);
        let ids = g.kept_part(&ALL.label(ROWS), 0, [t, 1, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(ids, 0);
        let x = g.activation([self.n_embd, t, 1, 1], Some(1));
        g.rec.op(Op::GetRows, &[block, ids], x);
        let x = g.rms_norm(x, &ALL.label(OUTPUT_NORM), self.rms_eps);
        let logits = g.io("logits", io.logits, DType::F32, [rows, t, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(logits, 1);
        g.linear_into(x, &self.head.label(), logits);

        let flags = TensorFlags::HOST_READS | g.shared();
        let drafts = g.kept_part(&ALL.label(BLOCK), 1, [t, 1, 1, 1], flags);
        g.rec.tokens_on(drafts, 0);
        let margins = g.io("margins", io.margins, DType::F32, [t, 1, 1, 1], TensorFlags::HOST_READS);
        g.rec.tokens_on(margins, 0);
        let argmax = |g: &mut Graph<'_>, best| {
            g.rec.op_with(Op::Argmax, &[Some(logits)], &[best, margins], &[0u32; 0]);
        };
        match self.d2t {
            None => argmax(g, drafts),
            Some(_) => {
                let best = g.rec.activation(DType::I32, [t, 1, 1, 1]);
                g.rec.tokens_on(best, 0);
                argmax(g, best);
                let table = g.kept(&ALL.label(D2T));
                let drafts = g.rec.view(drafts, 0, [1, t, 1, 1], [4, 4, 0, 0], Some(1));
                g.rec.op(Op::GetRows, &[table, best], drafts);
            }
        }
    }
}
