//! Which weights a model needs, in which form, and which of them are multiplied together.

use std::collections::{HashMap, HashSet};

use hexflash_abi::{BufferId, DType};

use super::split::layer_of;
use super::{Config, Mixer, ModelError};
use crate::gguf::Gguf;
use crate::weights::{Form, WeightEntry, WeightSpec};

/// Weights that all linear layers share: 1 / sqrt(n).
pub(super) const UNIT_NORM: &str = "unit_norm";

/// Matrices that read the same activations: neighbours of one type are stored, and multiplied, as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Per output, in the order asked for: label of the stored matrix, first row, rows.
    pub outputs: Vec<(String, u32, u32)>,
}

/// The weights of a model, before they are loaded.
#[derive(Debug, Default)]
pub struct WeightPlan {
    /// What to store.
    pub specs: Vec<WeightSpec>,
    /// Projections by name.
    pub projections: HashMap<String, Projection>,
}

/// Where a loaded weight lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPlace {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Type and layout.
    pub dtype: DType,
    /// Elements per axis.
    pub ne: [u32; 4],
}

/// The weights of a model on a device, by label.
#[derive(Debug)]
pub struct WeightMap {
    places: HashMap<String, WeightPlace>,
    projections: HashMap<String, Projection>,
}

impl WeightMap {
    /// The weights of an image whose entries `entry` knows. `home` says where a byte of the image is: the buffer, and
    /// the place in it.
    pub fn new(
        plan: WeightPlan,
        entry: impl Fn(&str) -> Option<WeightEntry>,
        home: impl Fn(u64) -> (BufferId, u64),
    ) -> Self {
        let place = |spec: &WeightSpec| {
            let entry = entry(&spec.name)?;
            let (buffer, offset) = home(entry.offset);
            Some((spec.name.clone(), WeightPlace { buffer, offset, dtype: entry.dtype, ne: entry.ne }))
        };
        Self { places: plan.specs.iter().filter_map(place).collect(), projections: plan.projections }
    }

    /// The weights of both maps.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self.projections.extend(other.projections);
        self
    }

    /// The weight called `label`.
    ///
    /// # Panics
    /// If the plan has no such weight: graph and plan of a model are written together.
    #[expect(
        clippy::panic,
        reason = "a label depends on the hyper-parameters alone, which plan and graph share"
    )]
    pub fn get(&self, label: &str) -> WeightPlace {
        *self.places.get(label).unwrap_or_else(|| panic!("the weight plan lacks {label}"))
    }

    /// The projection called `name`.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    #[expect(clippy::panic, reason = "as for labels of weights")]
    pub fn projection(&self, name: &str) -> &Projection {
        self.projections.get(name).unwrap_or_else(|| panic!("the weight plan lacks {name}"))
    }
}

/// Collects a plan and checks every tensor's shape on the way.
pub(super) struct Planner<'g> {
    gguf: &'g Gguf,
    prefix: &'static str,
    plan: WeightPlan,
}

impl<'g> Planner<'g> {
    /// A planner whose labels begin with `prefix`.
    pub(super) fn new(gguf: &'g Gguf, prefix: &'static str) -> Self {
        Self { gguf, prefix, plan: WeightPlan::default() }
    }

    /// The first tensor of the file that the plan has no use for.
    pub(super) fn unused(&self, expected: impl Fn(&str) -> bool) -> Option<&'g str> {
        let used: HashSet<&str> =
            self.plan.specs.iter().flat_map(|spec| &spec.sources).map(String::as_str).collect();
        let names = self.gguf.tensors().map(|tensor| tensor.name.as_str());
        names.into_iter().find(|name| !used.contains(name) && !expected(name))
    }

    /// Refuses tensors that llama.cpp would have no use for, either: something is wrong with the file.
    fn check_all_used(&self, config: &Config) -> Result<(), ModelError> {
        let trunk = config.mixers.len();
        let layers = trunk + config.n_mtp as usize;
        let predicts = |name: &str| layer_of(name).is_some_and(|layer| (trunk..layers).contains(&layer));
        let Some(name) = self.unused(predicts) else { return Ok(()) };
        let (path, name) = (self.gguf.path().to_path_buf(), name.to_owned());
        Err(match layer_of(&name) {
            Some(layer) if layer >= layers => ModelError::SuperfluousLayer {
                path,
                name,
                key: format!("{}.block_count", config.arch),
                layers,
            },
            _ => ModelError::Superfluous { path, name },
        })
    }

    pub(super) fn finish(self) -> WeightPlan {
        self.plan
    }

    fn check(&self, name: &str, ne: &[u64]) -> Result<(), ModelError> {
        let tensor = self.gguf.require_tensor(name)?;
        let mut expected = [1; 4];
        expected[..ne.len()].copy_from_slice(ne);
        if tensor.ne == expected {
            return Ok(());
        }
        Err(ModelError::Shape {
            path: self.gguf.path().to_path_buf(),
            name: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: ne.to_vec(),
        })
    }

    /// One tensor, labelled with its own name.
    pub(super) fn add(&mut self, name: &str, ne: &[u64], form: Form) -> Result<(), ModelError> {
        self.check(name, ne)?;
        let label = format!("{}{name}", self.prefix);
        self.plan.specs.push(WeightSpec { name: label, sources: vec![name.to_owned()], form });
        Ok(())
    }

    fn values(&mut self, label: &str, values: Vec<f32>) {
        let form = Form::Values(values);
        self.plan.specs.push(WeightSpec { name: label.to_owned(), sources: Vec::new(), form });
    }

    /// Matrices of `k` columns that read the same activations.
    pub(super) fn project(&mut self, name: &str, k: u32, parts: &[(String, u32)]) -> Result<(), ModelError> {
        let name = format!("{}{name}", self.prefix);
        let mut outputs = Vec::new();
        let mut open: Option<(WeightSpec, _, u32)> = None;
        for (source, rows) in parts {
            self.check(source, &[k.into(), (*rows).into()])?;
            let kind = self.gguf.require_tensor(source)?.ggml_type;
            let fits = open.as_ref().is_some_and(|(_, open_kind, _)| *open_kind == kind);
            if !fits {
                self.plan.specs.extend(open.take().map(|(spec, ..)| spec));
                let label = format!("{name}.{}", outputs.len());
                let spec = WeightSpec { name: label, sources: Vec::new(), form: Form::Tiled };
                open = Some((spec, kind, 0));
            }
            if let Some((spec, _, at)) = &mut open {
                spec.sources.push(source.clone());
                outputs.push((spec.name.clone(), *at, *rows));
                *at += rows;
            }
        }
        self.plan.specs.extend(open.map(|(spec, ..)| spec));
        self.plan.projections.insert(name, Projection { outputs });
        Ok(())
    }
}

/// The weights that `config` implies, with their shapes checked against the file.
///
/// # Errors
/// A tensor is missing or has another shape.
pub(super) fn plan(gguf: &Gguf, config: &Config) -> Result<WeightPlan, ModelError> {
    let mut p = Planner::new(gguf, "");
    let (e, f) = (config.n_embd, config.n_ff);
    let wide = |n: u32| [u64::from(n)];
    p.add("token_embd.weight", &[e.into(), config.n_vocab.into()], Form::Tiled)?;
    if !config.tied {
        p.add("output.weight", &[e.into(), config.n_vocab.into()], Form::Tiled)?;
    }
    p.add("output_norm.weight", &wide(e), Form::Plain)?;
    let (a, l) = (&config.attention, &config.linear);
    for (i, mixer) in config.mixers.iter().enumerate() {
        let name = |suffix: &str| format!("blk.{i}.{suffix}");
        p.add(&name("attn_norm.weight"), &wide(e), Form::Plain)?;
        p.add(&name("post_attention_norm.weight"), &wide(e), Form::Plain)?;
        match mixer {
            Mixer::Full => {
                let parts = [
                    (name("attn_q.weight"), 2 * a.n_head * a.key_dim),
                    (name("attn_k.weight"), a.n_head_kv * a.key_dim),
                    (name("attn_v.weight"), a.n_head_kv * a.value_dim),
                ];
                p.project(&name("qkv"), e, &parts)?;
                p.add(&name("attn_q_norm.weight"), &wide(a.key_dim), Form::Plain)?;
                p.add(&name("attn_k_norm.weight"), &wide(a.key_dim), Form::Plain)?;
                let output = [u64::from(a.n_head) * u64::from(a.value_dim), e.into()];
                p.add(&name("attn_output.weight"), &output, Form::Tiled)?;
            }
            Mixer::Linear => {
                let parts = [
                    (name("attn_qkv.weight"), l.channels()),
                    (name("attn_gate.weight"), l.value_width()),
                    (name("ssm_beta.weight"), l.n_head_v),
                    (name("ssm_alpha.weight"), l.n_head_v),
                ];
                p.project(&name("in"), e, &parts)?;
                let conv = [u64::from(l.conv_kernel), l.channels().into()];
                p.add(&name("ssm_conv1d.weight"), &conv, Form::Transposed)?;
                p.add(&name("ssm_a"), &wide(l.n_head_v), Form::Plain)?;
                p.add(&name("ssm_dt.bias"), &wide(l.n_head_v), Form::Plain)?;
                p.add(&name("ssm_norm.weight"), &wide(l.state), Form::Plain)?;
                p.add(&name("ssm_out.weight"), &[l.value_width().into(), e.into()], Form::Tiled)?;
            }
        }
        let parts = [(name("ffn_gate.weight"), f), (name("ffn_up.weight"), f)];
        p.project(&name("ffn_in"), e, &parts)?;
        p.add(&name("ffn_down.weight"), &[f.into(), e.into()], Form::Tiled)?;
    }
    p.check_all_used(config)?;
    // x / sqrt(sum x^2 + eps) is RMS_NORM with eps / n and every weight 1 / sqrt(n).
    p.values(UNIT_NORM, vec![1.0 / (l.state as f32).sqrt(); l.state as usize]);
    Ok(p.finish())
}

impl WeightPlan {
    /// The weights of the model in `gguf`.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn of(gguf: &Gguf, config: &Config) -> Result<Self, ModelError> {
        plan(gguf, config)
    }
}
