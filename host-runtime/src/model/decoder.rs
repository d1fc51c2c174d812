//! A model as every architecture describes it: an embedding, layers made of blocks, and an LM head.

use hexflash_abi::Op;
use hexflash_abi::op::params::Visibility;
use hexflash_abi::program::TensorFlags;

use super::block::{FeedForward, Layer, Mix, Mixer, Moe, PerLayer, Queries};
use super::cache_types::CacheTypes;
use super::classifier::{is_of_classifier, makes_scores};
use super::error::ModelError;
use super::graph::Graph;
use super::kept::KeptPlanner;
use super::keys::{Keys, LIMIT, MAX_BLOCKS};
use super::scales::Scales;
use super::scope::{EMBEDDING, HEAD, Scope, layer_of};
use super::split::{EmbeddingReaders, Split};
use super::tensors::{WeightPlan, WeightPlanner};
use crate::gguf::Gguf;
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

/// The norm before the LM head, as most architectures call it.
const OUTPUT_NORM: &str = "output_norm.weight";

/// The matrices behind the last norm of models that give vectors of another space than that of their stream:
/// `{n_embd, width}` and `{width, n_embd}`.
pub(super) const DENSE: [&str; 2] = ["dense_2.weight", "dense_3.weight"];

/// A model: its hyper-parameters, and with them its weights, what it keeps, and its graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// `general.architecture`.
    pub arch: String,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Entries of the vocabulary: rows of the embedding.
    pub n_vocab: u32,
    /// Context length of the training.
    pub n_ctx_train: u32,
    /// Added to the mean of squares in the norm before the LM head.
    pub rms_eps: f32,
    /// Factors on embeddings and logits.
    pub scales: Scales,
    /// Name of the weight of the norm before the LM head.
    pub output_norm: &'static str,
    /// The layers of the trunk.
    pub layers: Vec<Layer>,
    /// What each layer gets of a token besides the stream, in architectures that have it.
    pub per_layer: Option<PerLayer>,
    /// Layers of multi-token prediction behind the trunk, which have no part in the text.
    pub n_mtp: u32,
    /// Width between the two matrices through which vectors of texts go, in models that have these.
    pub dense: Option<u32>,
    /// Whether the LM head is the embedding.
    pub tied: bool,
}

/// The hyper-parameters that all architectures have under the same keys, or as constants of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Common {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Layers of the trunk.
    pub n_layer: u32,
    /// Layers of multi-token prediction behind the trunk.
    pub n_mtp: u32,
    /// Context length of the training.
    pub n_ctx_train: u32,
    /// Added to the mean of squares in every RMS norm.
    pub rms_eps: f32,
    /// Factors on embeddings and logits: none, unless the architecture sets them.
    pub scales: Scales,
    /// Name of the weight of the norm before the LM head: `output_norm.weight`, unless the architecture sets
    /// it.
    pub output_norm: &'static str,
    /// What each layer gets of a token besides the stream: nothing, unless the architecture sets it.
    pub per_layer: Option<PerLayer>,
    /// Width between the two matrices through which vectors of texts go: none, unless the architecture sets
    /// it.
    pub dense: Option<u32>,
    /// Whether no model of the architecture has the embedding for its LM head: then a file without a head is
    /// not whole.
    pub never_tied: bool,
}

impl Common {
    /// Reads and checks them.
    ///
    /// # Errors
    /// A key is missing or out of range.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Self, ModelError> {
        let n_embd = keys.require("embedding_length")?;
        let blocks = keys.require("block_count")?;
        let n_mtp = keys.meta().u32_or(&keys.key("nextn_predict_layers"), 0)?;
        keys.at_most("block_count", blocks, MAX_BLOCKS)?;
        if n_mtp >= blocks {
            return Err(keys.bad("nextn_predict_layers", n_mtp, &format!("less than the {blocks} layers")));
        }
        let (n_ctx_train, rms_eps) = (keys.context_length()?, keys.rms_eps()?);
        Ok(Self {
            n_embd,
            n_layer: blocks - n_mtp,
            n_mtp,
            n_ctx_train,
            rms_eps,
            scales: Scales::NONE,
            output_norm: OUTPUT_NORM,
            per_layer: None,
            dense: None,
            never_tied: false,
        })
    }
}

/// Input of the trunk.
#[derive(Clone, Copy)]
pub(super) enum Input {
    /// Tokens{t}.
    Tokens(Tensor),
    /// Rows{n_embd,t} in place of their embeddings, and tokens{t} for what layers read of a token besides.
    Rows { rows: Tensor, tokens: Tensor },
}

/// Who reads the residual stream that enters a layer; layer n of n means the stream that leaves the last one.
pub(super) struct Taps<'a> {
    /// The layers that a draft reads, and its features {tap width, t}, of which the stream at each of them is
    /// a part.
    pub(super) draft: Option<(&'a [u32], Tensor)>,
    /// The layers that the host reads.
    pub(super) host: &'a [u32],
}

impl Decoder {
    /// A model of these layers.
    ///
    /// # Errors
    /// The embedding has no vocabulary's number of rows.
    pub(super) fn new(
        gguf: &Gguf,
        arch: &str,
        common: Common,
        layers: Vec<Layer>,
    ) -> Result<Self, ModelError> {
        let rows = gguf.require_tensor(EMBEDDING)?.ne[1];
        let n_vocab = u32::try_from(rows).ok().filter(|n_vocab| (1..=LIMIT).contains(n_vocab));
        let n_vocab = n_vocab.ok_or_else(|| ModelError::Vocabulary {
            path: gguf.path().to_path_buf(),
            rows,
            limit: LIMIT,
        })?;
        let Common { n_embd, n_mtp, n_ctx_train, rms_eps, scales, output_norm, per_layer, dense, .. } =
            common;
        let tied = gguf.tensor(HEAD).is_none() && !common.never_tied;
        let arch = arch.to_owned();
        Ok(Self {
            arch,
            n_embd,
            n_vocab,
            n_ctx_train,
            rms_eps,
            scales,
            output_norm,
            layers,
            per_layer,
            n_mtp,
            dense,
            tied,
        })
    }

    /// Whether no token sees a later one, so that the model can write text.
    pub fn is_causal(&self) -> bool {
        self.layers.iter().all(|layer| match &layer.mixer {
            Mixer::Attention(attention) => attention.visibility == Visibility::Causal,
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) => true,
        })
    }

    /// Whether all layers are attention, which can see several tokens at once.
    pub(super) fn has_attention_alone(&self) -> bool {
        self.layers.iter().all(|layer| matches!(layer.mixer, Mixer::Attention(_)))
    }

    /// This model, where each row of a step sees all rows of the step.
    #[must_use]
    pub(super) fn seeing_steps_whole(&self) -> Self {
        let mut whole = self.clone();
        for layer in &mut whole.layers {
            if let Mixer::Attention(attention) = &mut layer.mixer {
                attention.visibility = Visibility::Block;
            }
        }
        whole
    }

    /// How many layers there are of each kind of mixer: "6 linear (Gated DeltaNet), 2 full attention".
    pub fn mixers(&self) -> String {
        let mut kinds: Vec<(&str, usize)> = Vec::new();
        for kind in self.layers.iter().map(|layer| layer.mixer.kind()) {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }

    /// Width inside of the widest MLP or expert.
    pub fn n_ff(&self) -> u32 {
        self.layers.iter().map(|layer| layer.mlp.n_ff()).max().unwrap_or(0)
    }

    /// The mixture of experts of the last layer, if it has one: those before it may be dense.
    pub fn experts(&self) -> Option<&Moe> {
        match &self.layers.last()?.mlp {
            FeedForward::Mlp(_) => None,
            FeedForward::Moe(moe) => Some(moe),
        }
    }

    /// Label of the LM head's weight.
    pub fn head(&self) -> &'static str {
        if self.tied { EMBEDDING } else { HEAD }
    }

    /// The longest context whose caches, for `n_slots` sequences, programs can describe.
    pub fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.layers.iter().map(|layer| layer.mixer.longest_context(caches, n_slots)).min().unwrap_or(u32::MAX)
    }

    /// Bytes of a copy of all recurrent states.
    pub fn state_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.mixer.state_bytes()).sum()
    }

    /// How many of the layers a session may begin with: those from the first whose caches others read are
    /// together.
    pub fn session_starts(&self) -> usize {
        let homes = self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => match attention.queries {
                Queries::Alone(home) => Some(home + 1),
                Queries::WithKeys | Queries::Apart | Queries::OfTarget(_) => None,
            },
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) => None,
        });
        homes.min().unwrap_or(self.layers.len())
    }

    /// The sessions that read the embedding for this model alone.
    pub fn embedding_readers(&self) -> EmbeddingReaders {
        if self.tied { EmbeddingReaders::FirstAndLast } else { EmbeddingReaders::First }
    }

    /// The weights that the hyper-parameters imply, with their shapes checked against the file.
    ///
    /// # Errors
    /// A tensor is missing or has another shape, or is one that the graph has no use for.
    pub fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let mut plan = WeightPlanner::new(gguf);
        let all = Scope::TARGET;
        plan.add(all, EMBEDDING, &[self.n_embd, self.n_vocab], Form::Tiled)?;
        if !self.tied {
            plan.add(all, HEAD, &[self.n_embd, self.n_vocab], Form::Tiled)?;
        }
        plan.add(all, self.output_norm, &[self.n_embd], Form::Plain)?;
        if let Some(width) = self.dense {
            plan.add(all, DENSE[0], &[self.n_embd, width], Form::Tiled)?;
            plan.add(all, DENSE[1], &[width, self.n_embd], Form::Tiled)?;
        }
        if let Some(per_layer) = &self.per_layer {
            per_layer.weights(&mut plan, all, self.n_vocab)?;
        }
        for (i, layer) in self.layers.iter().enumerate() {
            layer.weights(&mut plan, all.layer(i))?;
        }
        self.check_all_used(gguf, &plan)?;
        Ok(plan.finish())
    }

    /// What of these a draft model may read on a device that has no target: the embedding, the LM head and
    /// the norm before it.
    ///
    /// # Errors
    /// As [`weights`](Self::weights), for these.
    pub fn shared_weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let mut plan = WeightPlanner::new(gguf);
        plan.add(Scope::TARGET, EMBEDDING, &[self.n_embd, self.n_vocab], Form::Tiled)?;
        if !self.tied {
            plan.add(Scope::TARGET, HEAD, &[self.n_embd, self.n_vocab], Form::Tiled)?;
        }
        plan.add(Scope::TARGET, self.output_norm, &[self.n_embd], Form::Plain)?;
        Ok(plan.finish())
    }

    /// Refuses tensors that llama.cpp would have no use for, either: something is wrong with the file.
    fn check_all_used(&self, gguf: &Gguf, plan: &WeightPlanner<'_>) -> Result<(), ModelError> {
        let trunk = self.layers.len();
        let layers = trunk + self.n_mtp as usize;
        let predicts = |name: &str| layer_of(name).is_some_and(|layer| (trunk..layers).contains(&layer));
        let scores = makes_scores(gguf)?;
        let is_of_others = |name: &str| predicts(name) || (scores && is_of_classifier(name));
        let Some(name) = plan.unused(is_of_others) else { return Ok(()) };
        let (path, name) = (gguf.path().to_path_buf(), name.to_owned());
        Err(match layer_of(&name) {
            Some(layer) if layer >= layers => {
                ModelError::SuperfluousLayer { path, name, key: format!("{}.block_count", self.arch), layers }
            }
            _ => ModelError::Superfluous { path, name },
        })
    }

    /// Declares what the layers keep, in the sessions that `split` gives them.
    ///
    /// # Errors
    /// A cache is larger than programs can describe: see [`longest_context`](Self::longest_context).
    pub fn keep(&self, plan: &mut KeptPlanner, split: &Split) -> Result<(), RecordError> {
        for (i, layer) in self.layers.iter().enumerate() {
            if split.begins(i) {
                plan.next_session();
            }
            layer.mixer.keep(plan, Scope::TARGET.layer(i))?;
        }
        Ok(())
    }

    /// The trunk: its input to the last layer's output {n_embd,t}.
    pub(super) fn trunk(&self, g: &mut Graph<'_>, input: Input, taps: &Taps<'_>) -> Tensor {
        let stream = g.activation([self.n_embd, g.t(), 1, 1], Some(1));
        let (mut x, inputs) = match input {
            Input::Tokens(tokens) => {
                let embedding = g.weight(EMBEDDING);
                let x = self.enter(g, 0, Op::GetRows, &[embedding, tokens], stream, taps);
                let inputs = self.per_layer.map(|per_layer| per_layer.inputs(g, Scope::TARGET, [tokens, x]));
                (x, inputs)
            }
            // They have the scale of embeddings.
            Input::Rows { rows, tokens } => {
                let x = self.enter(g, 0, Op::Cpy, &[rows], stream, taps);
                (x, self.per_layer.map(|per_layer| per_layer.inputs(g, Scope::TARGET, [tokens, x])))
            }
        };
        for (i, layer) in self.layers.iter().enumerate() {
            let scope = Scope::TARGET.layer(i);
            g.rec.session(g.cx().split.session_of(i));
            let sum = layer.record(g, scope, x, stream);
            let (op, src) = match (&self.per_layer, inputs) {
                (Some(per_layer), Some(inputs)) => (Op::Mul, per_layer.record(g, (scope, i), sum, inputs)),
                _ => (Op::Add, sum),
            };
            x = self.enter(g, i + 1, op, &src, stream, taps);
        }
        x
    }

    /// The residual stream that enters `layer`, by `op`: in `stream`, or where a draft reads it, so that
    /// nothing need be copied for it.
    fn enter(
        &self,
        g: &mut Graph<'_>,
        layer: usize,
        op: Op,
        src: &[Tensor],
        stream: Tensor,
        taps: &Taps<'_>,
    ) -> Tensor {
        let x = taps.draft.and_then(|(layers, features)| {
            let i = layers.iter().position(|&tapped| tapped as usize == layer)?;
            let (at, row) = (4 * u64::from(self.n_embd) * i as u64, g.rec.nb(features)[1]);
            Some(g.rec.view(features, at, [self.n_embd, g.t(), 1, 1], [4, row, 0, 0], Some(1)))
        });
        let x = x.unwrap_or(stream);
        g.rec.op(op, src, x);
        if op == Op::GetRows {
            self.scales.embed(g, x);
        }
        self.show(g, layer, x, taps.host);
        x
    }

    /// Copies the residual stream where the host wants it.
    fn show(&self, g: &mut Graph<'_>, layer: usize, x: Tensor, wanted: &[u32]) {
        let ne = [self.n_embd, g.t(), 1, 1];
        let bytes = 4 * u64::from(ne[0]) * u64::from(ne[1]);
        for (i, _) in wanted.iter().enumerate().filter(|&(_, &l)| l as usize == layer) {
            let at = g.cx().io.probes + i as u64 * bytes;
            let y = g.io("tap", at, hexflash_abi::DType::F32, ne, TensorFlags::HOST_READS);
            g.rec.tokens_on(y, 1);
            g.rec.op(Op::Cpy, &[x], y);
        }
    }

    /// Final norm of each row of x{n_embd,t}, and the matrices behind it, if there are any, into
    /// vectors{n_embd,t}. These have no bias, so that the mean of rows behind them is what they make of the
    /// mean of rows before.
    pub(super) fn vectors(&self, g: &mut Graph<'_>, x: Tensor, vectors: Tensor) {
        if self.dense.is_none() {
            g.rms_norm_into(x, self.output_norm, self.rms_eps, vectors);
            return;
        }
        let x = g.rms_norm(x, self.output_norm, self.rms_eps);
        let x = g.linear(x, DENSE[0]);
        g.linear_into(x, DENSE[1], vectors);
    }

    /// Final norm, LM head and the best token of each row of x{n_embd,n}, into logits{n_vocab,n} and best{n}.
    pub(super) fn logits(&self, g: &mut Graph<'_>, x: Tensor, logits: Tensor, best: Tensor) {
        let x = g.rms_norm(x, self.output_norm, self.rms_eps);
        g.linear_into(x, self.head(), logits);
        self.scales.finish(g, logits);
        g.rec.op(Op::Argmax, &[logits], best);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use hexflash_abi::program::Numerics;
    use hexflash_abi::{BufferId, DType};

    use super::*;
    use crate::gguf::GgmlType;
    use crate::gguf::writer::GgufWriter;
    use crate::model::graph::{Buffers, Context, Tapes};
    use crate::model::io::{IoLayout, Widths};
    use crate::model::kept::Rollback;
    use crate::model::tensors::WeightMap;
    use crate::record::MAX_SESSIONS;

    const WIDTH: u32 = 32;

    /// The ops of a trunk without layers, whose output the host reads.
    fn trunk(gguf: &Gguf, embedding: f32) -> Vec<Op> {
        let common = Common {
            n_embd: WIDTH,
            n_layer: 0,
            n_mtp: 0,
            n_ctx_train: 8,
            rms_eps: 1e-6,
            scales: Scales { embedding, ..Scales::NONE },
            output_norm: OUTPUT_NORM,
            per_layer: None,
            dense: None,
            never_tied: false,
        };
        let model = Decoder::new(gguf, "empty", common, Vec::new()).unwrap();
        let (plan, id) = (model.weights(gguf).unwrap(), BufferId(0));
        let entries = crate::weights::layout(gguf, &plan.specs).unwrap().0;
        let weights = WeightMap::new(plan, |label| entries.get(label).copied(), |at| (id, at));
        let kept = KeptPlanner::new(8, Rollback::None).finish();
        let buffers = Buffers { state: [id; MAX_SESSIONS], io: id, spec: id };
        let (io, split) = (IoLayout::new(WIDTH, model.n_vocab, Widths::new(8, 1), 1), Split::one());
        let cx = Context { weights: &weights, kept: &kept, io: &io, split: &split, buffers };
        let mut g = Graph::new(cx, 8, Tapes::Fold, Numerics::Exact);
        let tokens = g.io("tokens", io.tokens, DType::I32, [8, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(tokens, 0);
        model.trunk(&mut g, Input::Tokens(tokens), &Taps { draft: None, host: &[0] });
        g.finish().unwrap().sites(0).iter().map(|site| site.op()).collect()
    }

    #[test]
    fn embeddings_are_scaled_before_anything_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let mut file = GgufWriter::new();
        file.kv("general.architecture", "empty");
        for (name, ne) in [(EMBEDDING, &[WIDTH.into(), 64][..]), (OUTPUT_NORM, &[WIDTH.into()])] {
            let bytes = vec![0; 4 * ne.iter().product::<u64>() as usize];
            file.tensor(name, GgmlType::F32, ne, bytes).unwrap();
        }
        file.write_to(File::create(&path).unwrap()).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(trunk(&gguf, 1.0), [Op::GetRows, Op::Cpy]);
        assert_eq!(trunk(&gguf, 5.5), [Op::GetRows, Op::Scale, Op::Cpy]);
    }
}
