//! A layer: a mixer, and an MLP or a mixture of experts, each behind a norm, each added to the residual
//! stream.

use hexflash_abi::Op;

use super::feed_forward::FeedForward;
use super::mix::Mix;
use super::mixer::Mixer;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;
use crate::weights::Form;

/// A layer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer<M = Mixer> {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// The norms.
    pub norms: Norms,
    /// What mixes the tokens.
    pub mixer: M,
    /// What works on each token by itself.
    pub mlp: FeedForward,
    /// Factor on what mixer and MLP add to the stream.
    pub residual_scale: f32,
}

/// The RMS norms of a layer: names of their weights, which differ between architectures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norms {
    /// Of what the mixer reads.
    pub before_mixer: &'static str,
    /// Of what the mixer adds to the stream, in architectures that have it.
    pub after_mixer: Option<&'static str>,
    /// Of what the MLP reads.
    pub before_mlp: &'static str,
    /// Of what the MLP adds to the stream, in architectures that have it.
    pub after_mlp: Option<&'static str>,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Norms {
    /// A norm before the mixer and one before the MLP, called `ffn_norm`: what most models have.
    pub const fn usual(eps: f32) -> Self {
        Self {
            before_mixer: "attn_norm.weight",
            after_mixer: None,
            before_mlp: "ffn_norm.weight",
            after_mlp: None,
            eps,
        }
    }
}

impl<M> Layer<M> {
    /// A layer with the usual norms, which add `eps` to the mean of squares, and no factor on what it adds.
    pub fn new(n_embd: u32, eps: f32, mixer: M, mlp: impl Into<FeedForward>) -> Self {
        Self { n_embd, norms: Norms::usual(eps), mixer, mlp: mlp.into(), residual_scale: 1.0 }
    }

    /// This layer with another mixer.
    pub fn with_mixer<N>(&self, mixer: N) -> Layer<N> {
        let Self { n_embd, norms, ref mlp, residual_scale, mixer: _ } = *self;
        Layer { n_embd, norms, mixer, mlp: mlp.clone(), residual_scale }
    }
}

impl<M: Mix> Layer<M> {
    /// Plans the weights of the layer.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub(in crate::model) fn weights(
        &self,
        plan: &mut WeightPlanner<'_>,
        scope: Scope,
    ) -> Result<(), ModelError> {
        let Norms { before_mixer, after_mixer, before_mlp, after_mlp, eps: _ } = self.norms;
        for norm in [Some(before_mixer), after_mixer, Some(before_mlp), after_mlp].into_iter().flatten() {
            plan.add(scope, norm, &[self.n_embd], Form::Plain)?;
        }
        self.mixer.weights(plan, scope)?;
        self.mlp.weights(plan, scope)
    }

    /// Records the layer for x{n_embd,t}, with `stream` for the residual stream inside of it; `x` may be
    /// `stream`. The output is the sum of the two tensors that it returns, so that the caller chooses where
    /// that lies.
    pub(in crate::model) fn record(
        &self,
        g: &mut Graph<'_>,
        scope: Scope,
        x: Tensor,
        stream: Tensor,
    ) -> [Tensor; 2] {
        let Norms { before_mixer, eps, .. } = self.norms;
        let a = g.rms_norm(x, &scope.label(before_mixer), eps);
        self.record_behind(g, scope, a, [x, stream])
    }

    /// Records what is behind the norm before the mixer, of which `a` is the output: x{n_embd,t} is what the
    /// mixer adds to, otherwise as [`record`](Self::record).
    pub(in crate::model) fn record_behind(
        &self,
        g: &mut Graph<'_>,
        scope: Scope,
        a: Tensor,
        [x, stream]: [Tensor; 2],
    ) -> [Tensor; 2] {
        let Norms { after_mixer, before_mlp, after_mlp, eps, .. } = self.norms;
        let y = self.mixer.record(g, scope, a);
        self.finish_branch(g, scope, y, after_mixer);
        g.rec.op(Op::Add, &[x, y], stream);
        let a = g.rms_norm(stream, &scope.label(before_mlp), eps);
        let y = self.mlp.record(g, scope, a);
        self.finish_branch(g, scope, y, after_mlp);
        [stream, y]
    }

    /// Makes of y{n_embd,t}, which mixer or MLP gave, what is added to the stream, in place.
    fn finish_branch(&self, g: &mut Graph<'_>, scope: Scope, y: Tensor, norm: Option<&str>) {
        if let Some(norm) = norm {
            g.rms_norm_into(y, &scope.label(norm), self.norms.eps, y);
        }
        if self.residual_scale != 1.0 {
            g.scale(y, self.residual_scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use hexflash_abi::program::Numerics;
    use hexflash_abi::{BufferId, DType};

    use super::*;
    use crate::gguf::writer::GgufWriter;
    use crate::gguf::{GgmlType, Gguf};
    use crate::model::block::Mlp;
    use crate::model::cache_types::CacheTypes;
    use crate::model::graph::{Buffers, Context, Tapes};
    use crate::model::io::{IoLayout, Widths};
    use crate::model::kept::{KeptPlanner, Rollback};
    use crate::model::split::Split;
    use crate::model::tensors::WeightMap;
    use crate::record::{MAX_SESSIONS, RecordError};

    const WIDTH: u32 = 32;
    const AFTER: [&str; 2] = ["post_attention_norm.weight", "post_ffw_norm.weight"];

    /// A mixer that is a matrix, and mixes nothing.
    struct Plain;

    impl Mix for Plain {
        fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
            plan.add(scope, "mix.weight", &[WIDTH, WIDTH], Form::Tiled)
        }

        fn keep(&self, _: &mut KeptPlanner, _: Scope) -> Result<(), RecordError> {
            Ok(())
        }

        fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
            g.linear(a, &scope.label("mix.weight"))
        }

        fn state_bytes(&self) -> u64 {
            0
        }

        fn longest_context(&self, _: CacheTypes, _: u32) -> u32 {
            u32::MAX
        }
    }

    fn file(path: &std::path::Path) -> Gguf {
        let mut file = GgufWriter::new();
        let mut add = |name: &str, ne: &[u64]| {
            let bytes = vec![0; 4 * ne.iter().product::<u64>() as usize];
            file.tensor(&format!("blk.0.{name}"), GgmlType::F32, ne, bytes).unwrap();
        };
        let width = u64::from(WIDTH);
        for norm in ["attn_norm.weight", "ffn_norm.weight"].into_iter().chain(AFTER) {
            add(norm, &[width]);
        }
        for matrix in ["mix", "ffn_gate", "ffn_up", "ffn_down"] {
            add(&format!("{matrix}.weight"), &[width, width]);
        }
        file.write_to(File::create(path).unwrap()).unwrap();
        Gguf::open(path).unwrap()
    }

    /// The weights that the ops of a layer read or follow, in order.
    fn sites(gguf: &Gguf, change: impl FnOnce(&mut Layer<Plain>)) -> Vec<String> {
        let mlp = Mlp::new(WIDTH, WIDTH);
        let mut layer = Layer::new(WIDTH, 1e-6, Plain, mlp);
        change(&mut layer);
        let (scope, id) = (Scope::TARGET.layer(0), BufferId(0));
        let mut plan = WeightPlanner::new(gguf);
        layer.weights(&mut plan, scope).unwrap();
        let plan = plan.finish();
        let entries = crate::weights::layout(gguf, &plan.specs).unwrap().0;
        let weights = WeightMap::new(plan, |label| entries.get(label).copied(), |at| (id, at));
        let kept = KeptPlanner::new(8, Rollback::None).finish();
        let buffers = Buffers { state: [id; MAX_SESSIONS], io: id, spec: id };
        let (io, split) = (IoLayout::new(WIDTH, 1, Widths::new(8, 1), 0), Split::one());
        let cx = Context { weights: &weights, kept: &kept, io: &io, split: &split, buffers };
        let mut g = Graph::new(cx, 8, Tapes::Fold, Numerics::Exact);
        let x = g.io("x", 0, DType::F32, [WIDTH, 8, 1, 1], hexflash_abi::program::TensorFlags::empty());
        g.rec.tokens_on(x, 1);
        let [a, b] = layer.record(&mut g, scope, x, x);
        g.update(Op::Add, a, b);
        g.finish().unwrap().sites(0).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn norms_after_mixer_and_mlp_are_those_of_what_they_add() {
        let dir = tempfile::tempdir().unwrap();
        let gguf = file(&dir.path().join("layer.gguf"));
        let both = |layer: &mut Layer<Plain>| {
            [layer.norms.after_mixer, layer.norms.after_mlp] = AFTER.map(Some);
        };
        let (plain, normed) = (sites(&gguf, |_| ()), sites(&gguf, both));
        assert_eq!(plain.len() + 2, normed.len());
        let norm = |name: &str| format!("RMS_NORM with blk.0.{name}");
        let at = |name: &str| normed.iter().position(|site| *site == norm(name)).unwrap();
        assert_eq!(normed[at(AFTER[0]) - 1], "MUL_MAT with blk.0.mix.weight");
        assert_eq!(normed[at(AFTER[0]) + 1], format!("ADD after blk.0.{}", AFTER[0]));
        assert_eq!(normed[at(AFTER[1]) - 1], "MUL_MAT with blk.0.ffn_down.weight");
        assert!(plain.iter().all(|site| !site.contains("post_")), "{plain:?}");
        // What is scaled is what the stream gets, norm included.
        let scaled = sites(&gguf, |layer| {
            both(layer);
            layer.residual_scale = 0.25;
        });
        assert_eq!(scaled.len(), normed.len() + 2);
        for name in AFTER {
            let at = scaled.iter().position(|site| *site == norm(name)).unwrap();
            assert_eq!(scaled[at + 1], format!("SCALE after blk.0.{name}"));
        }
    }
}
