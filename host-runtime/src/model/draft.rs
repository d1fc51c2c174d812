//! DFlash v1 draft models: hyper-parameters, weights, and whether a draft belongs to a target.
//!
//! A draft reads the residual stream of some target layers (the *taps*), and guesses a whole block of tokens at once.
//! Sources: llama.cpp's `src/models/dflash.cpp`, z-lab's `dflash` module.

use super::keys::{Keys, LIMIT, MAX_BLOCKS};
use super::tensors::Planner;
use super::{AttentionConfig, Config, MAX_VERIFY, ModelError, WeightPlan};
use crate::gguf::{Clean, GgmlType, Gguf};
use crate::weights::Form;

/// What the labels of a draft's weights begin with: they lie in one map with the target's.
pub(crate) const PREFIX: &str = "draft.";

/// A DFlash v1 draft.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftConfig {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Width of the MLP.
    pub n_ff: u32,
    /// Added to the mean of squares in every RMS norm.
    pub rms_eps: f32,
    /// Attention of every layer.
    pub attention: AttentionConfig,
    /// Sliding window of each layer, in tokens; 0 for none.
    pub windows: Vec<u32>,
    /// Whether a token of the block sees those before it only.
    pub causal: bool,
    /// Tokens of a block: the anchor, and one mask per draft.
    pub block: u32,
    /// Id of the mask token.
    pub mask: u32,
    /// Target layers whose input is tapped; the number of layers means the last one's output.
    pub taps: Vec<u32>,
    /// Factor on embeddings.
    pub embedding_scale: f32,
    /// Factor on q.k.
    pub attention_scale: f32,
    /// Whether the draft has embeddings of its own; else the target's.
    pub own_embedding: bool,
    /// Rows of its own LM head; `None` if it is the target's.
    pub own_head: Option<u32>,
    /// Target id of each row of a reduced head.
    pub d2t: Option<Vec<u32>>,
}

/// A draft that cannot be used, or not with this target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// Another architecture.
    #[error(
        "architecture \"{}\" is no DFlash draft; give a file of architecture dflash{}",
        Clean(arch),
        crate::setting::Setting::DraftModel.with()
    )]
    Architecture {
        /// `general.architecture`.
        arch: String,
    },
    /// A later kind of draft.
    #[error("this is a {kind} draft, which is not supported yet; use a DFlash v1 draft")]
    Kind {
        /// Its name.
        kind: &'static str,
    },
    /// An older converter wrote it.
    #[error(
        "{what}: the file comes from an older converter, whose layer ids are not shifted by one; convert the draft again with a current llama.cpp"
    )]
    OldConverter {
        /// What shows it.
        what: String,
    },
    /// No mask token.
    #[error(
        "neither tokenizer.ggml.mask_token_id nor dflash.mask_token_id names the mask token; convert the draft again"
    )]
    NoMask,
    /// A tensor that the graph has no use for.
    #[error(
        "tensor {} is not part of DFlash v1 as hexflash runs it; the draft would guess wrongly without it",
        Clean(name)
    )]
    Unsupported {
        /// The tensor.
        name: String,
    },
    /// Draft and target differ.
    #[error(
        "{what} is {draft} in the draft, {target} in the target; use the draft that was trained for this target"
    )]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// In the draft.
        draft: String,
        /// In the target.
        target: String,
    },
}

impl DraftConfig {
    /// Reads a draft and checks that it was made for `target`.
    ///
    /// # Errors
    /// Not a DFlash v1 draft, a missing key, or a draft for another target.
    pub fn read(gguf: &Gguf, target: &Config) -> Result<Self, ModelError> {
        let keys = Keys::new(gguf)?;
        let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
        if keys.arch() != "dflash" {
            return Err(wrap(DraftError::Architecture { arch: keys.arch().to_owned() }));
        }
        for (tensor, kind) in [("selector_hidden.weight", "DFlash v2"), ("markov_w1.weight", "DSpark")] {
            if gguf.tensor(tensor).is_some() {
                return Err(wrap(DraftError::Kind { kind }));
            }
        }
        if gguf.tensor("enc.output_norm.weight").is_none() {
            let what = "there is no tensor enc.output_norm.weight".to_owned();
            return Err(wrap(DraftError::OldConverter { what }));
        }
        let meta = gguf.meta();
        let n_embd = keys.require("embedding_length")?;
        let n_layer = keys.require("block_count")?;
        keys.at_most("block_count", n_layer, MAX_BLOCKS)?;
        let n_ctx_train = keys.context_length()?;
        let attention = keys.attention(n_embd, n_ctx_train)?;
        let config = Self {
            n_embd,
            n_ff: keys.require("feed_forward_length")?,
            rms_eps: keys.rms_eps()?,
            windows: Self::windows(&keys, n_layer)?,
            causal: meta.bool_or(&keys.key("attention.causal"), false)?,
            block: meta.u32_or(&keys.key("block_size"), 16)?,
            mask: Self::mask(&keys)?.ok_or_else(|| wrap(DraftError::NoMask))?,
            taps: Self::taps(&keys)?,
            embedding_scale: keys.finite("embedding_scale", 1.0)?,
            attention_scale: keys.finite("attention.scale", 1.0 / (attention.key_dim as f32).sqrt())?,
            own_embedding: gguf.tensor("token_embd.weight").is_some(),
            own_head: gguf.tensor("output.weight").map(|t| u32::try_from(t.ne[1]).unwrap_or(u32::MAX)),
            d2t: None,
            attention,
        };
        if !(2..=MAX_VERIFY).contains(&config.block) {
            return Err(keys.bad("block_size", config.block, &format!("2 to {MAX_VERIFY}")));
        }
        let activation = meta.str_opt(&keys.key("hidden_activation"))?.unwrap_or("silu");
        if activation != "silu" {
            return Err(keys.bad("hidden_activation", activation, "silu"));
        }
        config.belongs_to(target).map_err(wrap)?;
        let (fc, width) = (gguf.require_tensor("fc.weight")?.ne[0], config.tap_width(target));
        if fc != u64::from(width) {
            let what = "the width of the tapped layers together (fc.weight)";
            let target = format!("{width} ({} layers of {})", config.taps.len(), target.n_embd);
            return Err(wrap(DraftError::Mismatch { what, draft: fc.to_string(), target }));
        }
        let d2t = config.reduced_vocabulary(gguf, target)?;
        Ok(Self { d2t, ..config })
    }

    fn windows(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<u32>, ModelError> {
        let meta = keys.meta();
        let window = meta.u32_or(&keys.key("attention.sliding_window"), 0)?;
        let name = "attention.sliding_window_pattern";
        if window == 0 {
            return Ok(vec![0; n_layer as usize]);
        }
        let pattern = meta.array_bool(&keys.key(name))?.unwrap_or_default();
        if pattern.len() != n_layer as usize {
            let expected = format!("one flag for each of {n_layer} layers");
            return Err(keys.bad(name, format!("{} flags", pattern.len()), &expected));
        }
        Ok(pattern.iter().map(|&sliding| if sliding { window } else { 0 }).collect())
    }

    /// The mask token, under the vocabulary's key or that of forks and older files.
    fn mask(keys: &Keys<'_>) -> Result<Option<u32>, ModelError> {
        let meta = keys.meta();
        let mask = meta.u32_opt("tokenizer.ggml.mask_token_id")?;
        Ok(match mask {
            Some(mask) => Some(mask),
            None => meta.u32_opt(&keys.key("mask_token_id"))?,
        })
    }

    fn taps(keys: &Keys<'_>) -> Result<Vec<u32>, ModelError> {
        let name = "target_layers";
        let Some(layers) = keys.meta().array_i32(&keys.key(name))? else {
            return Err(keys.missing(name));
        };
        let rising = layers.windows(2).all(|pair| pair[0] < pair[1]);
        let taps: Option<Vec<u32>> = layers.iter().map(|&l| u32::try_from(l).ok()).collect();
        match taps {
            Some(taps) if rising && !taps.is_empty() => Ok(taps),
            _ => Err(keys.bad(name, format!("{layers:?}"), "a rising list of at least one layer")),
        }
    }

    fn belongs_to(&self, target: &Config) -> Result<(), DraftError> {
        let differ = |what, draft: String, target: String| Err(DraftError::Mismatch { what, draft, target });
        let layers = target.mixers.len() as u32;
        if self.taps.contains(&0) {
            let what =
                format!("dflash.target_layers is {:?}, but no layer comes before the first", self.taps);
            return Err(DraftError::OldConverter { what });
        }
        if let Some(&last) = self.taps.last().filter(|&&last| last > layers) {
            return differ("the last tapped layer", last.to_string(), format!("at most {layers}"));
        }
        let shares = !self.own_embedding || self.own_head.is_none();
        if shares && self.n_embd != target.n_embd {
            return differ("the hidden size", self.n_embd.to_string(), target.n_embd.to_string());
        }
        let most = LIMIT / target.n_embd;
        if self.taps.len() as u64 > u64::from(most) {
            return differ(
                "the number of tapped layers",
                self.taps.len().to_string(),
                format!("at most {most}"),
            );
        }
        if let Some(rows) = self.own_head.filter(|&rows| rows > target.n_vocab) {
            let (draft, target) = (rows.to_string(), target.n_vocab.to_string());
            return differ("the size of the vocabulary", draft, target);
        }
        if self.mask >= target.n_vocab {
            return differ("the mask token's id", self.mask.to_string(), format!("below {}", target.n_vocab));
        }
        Ok(())
    }

    /// Target ids of the rows of a reduced head.
    fn reduced_vocabulary(&self, gguf: &Gguf, target: &Config) -> Result<Option<Vec<u32>>, ModelError> {
        let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
        let rows = self.own_head.unwrap_or(target.n_vocab);
        let Some(tensor) = gguf.tensor("d2t").or_else(|| gguf.tensor("d2t.weight")) else {
            if rows == target.n_vocab {
                return Ok(None);
            }
            let (draft, target) = (rows.to_string(), target.n_vocab.to_string());
            return Err(wrap(DraftError::Mismatch { what: "the size of the vocabulary", draft, target }));
        };
        let shape = [u64::from(rows), 1, 1, 1];
        if self.own_head.is_none() || tensor.ne != shape || tensor.ggml_type != GgmlType::I64 {
            return Err(ModelError::Shape {
                path: gguf.path().to_path_buf(),
                name: tensor.name.clone(),
                found: tensor.shape().to_vec(),
                expected: vec![u64::from(rows)],
            });
        }
        let data = gguf.data(tensor)?;
        let ids = data.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id));
        let known = |id: i64| u32::try_from(id).ok().filter(|&id| id < target.n_vocab).ok_or(id);
        match ids.map(known).collect() {
            Ok(ids) => Ok(Some(ids)),
            Err(id) => Err(wrap(DraftError::Mismatch {
                what: "an id of d2t",
                draft: id.to_string(),
                target: format!("below {}", target.n_vocab),
            })),
        }
    }

    /// Width of the taps of a token, one after the other.
    pub fn tap_width(&self, target: &Config) -> u32 {
        self.taps.len() as u32 * target.n_embd
    }

    /// The weights of the draft, whose labels begin with `draft.`.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or is not one that the graph uses.
    pub fn weights(&self, gguf: &Gguf, target: &Config) -> Result<WeightPlan, ModelError> {
        let mut p = Planner::new(gguf, PREFIX);
        let (e, a) = (self.n_embd, &self.attention);
        let wide = |n: u32| [u64::from(n)];
        if self.own_embedding {
            p.add("token_embd.weight", &[e.into(), target.n_vocab.into()], Form::Tiled)?;
        }
        if let Some(rows) = self.own_head {
            p.add("output.weight", &[e.into(), rows.into()], Form::Tiled)?;
        }
        p.add("fc.weight", &[self.tap_width(target).into(), e.into()], Form::Tiled)?;
        p.add("enc.output_norm.weight", &wide(e), Form::Plain)?;
        p.add("output_norm.weight", &wide(e), Form::Plain)?;
        for i in 0..self.windows.len() {
            let name = |suffix: &str| format!("blk.{i}.{suffix}");
            p.add(&name("attn_norm.weight"), &wide(e), Form::Plain)?;
            p.add(&name("ffn_norm.weight"), &wide(e), Form::Plain)?;
            p.add(&name("attn_q.weight"), &[e.into(), (a.n_head * a.key_dim).into()], Form::Tiled)?;
            // Apart from the queries: the context has keys and values only.
            let parts = [
                (name("attn_k.weight"), a.n_head_kv * a.key_dim),
                (name("attn_v.weight"), a.n_head_kv * a.value_dim),
            ];
            p.project(&name("kv"), e, &parts)?;
            p.add(&name("attn_q_norm.weight"), &wide(a.key_dim), Form::Plain)?;
            p.add(&name("attn_k_norm.weight"), &wide(a.key_dim), Form::Plain)?;
            let output = [u64::from(a.n_head) * u64::from(a.value_dim), e.into()];
            p.add(&name("attn_output.weight"), &output, Form::Tiled)?;
            let parts = [(name("ffn_gate.weight"), self.n_ff), (name("ffn_up.weight"), self.n_ff)];
            p.project(&name("ffn_in"), e, &parts)?;
            p.add(&name("ffn_down.weight"), &[self.n_ff.into(), e.into()], Form::Tiled)?;
        }
        match p.unused(|name| name.starts_with("d2t")) {
            None => Ok(p.finish()),
            Some(name) => Err(ModelError::Draft {
                path: gguf.path().to_path_buf(),
                error: DraftError::Unsupported { name: name.to_owned() },
            }),
        }
    }
}
