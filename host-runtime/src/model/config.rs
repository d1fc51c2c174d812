//! Hyper-parameters of a model, read from GGUF metadata and checked.

use hexflash_abi::op::{MAX_STATE, MAX_TAPS};

use super::ModelError;
use super::keys::{Keys, LIMIT, MAX_BLOCKS};
use crate::gguf::Gguf;

/// A hybrid model: layers of linear (Gated DeltaNet) and full attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub arch: String,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Width of the MLP.
    pub n_ff: u32,
    /// Entries of the vocabulary: rows of the embedding.
    pub n_vocab: u32,
    /// Context length of the training.
    pub n_ctx_train: u32,
    /// Added to the mean of squares in every RMS norm.
    pub rms_eps: f32,
    /// The mixer of each layer of the trunk.
    pub mixers: Vec<Mixer>,
    /// Layers of multi-token prediction behind the trunk, which have no part in the text.
    pub n_mtp: u32,
    /// Full attention.
    pub attention: AttentionConfig,
    /// Linear attention.
    pub linear: LinearConfig,
    /// Whether the LM head is the embedding.
    pub tied: bool,
}

/// What mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Gated DeltaNet.
    Linear,
    /// Full attention.
    Full,
}

/// Full attention.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub n_head: u32,
    /// Key and value heads.
    pub n_head_kv: u32,
    /// Width of a query or key head.
    pub key_dim: u32,
    /// Width of a value head.
    pub value_dim: u32,
    /// Rotary embedding.
    pub rope: RopeConfig,
}

/// Rotary embedding of positions.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Values of a head that are turned.
    pub n_dims: u32,
    /// Base of the angles.
    pub freq_base: f32,
    /// Scale of positions: 1 / factor.
    pub freq_scale: f32,
    /// YaRN's share of extrapolation; 0 without YaRN.
    pub ext_factor: f32,
    /// Context length of the training before scaling.
    pub n_ctx_orig: u32,
}

/// Gated DeltaNet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearConfig {
    /// Key heads.
    pub n_head_k: u32,
    /// Value heads.
    pub n_head_v: u32,
    /// Width of a head: the state is `state` x `state`.
    pub state: u32,
    /// Taps of the causal convolution.
    pub conv_kernel: u32,
}

impl LinearConfig {
    /// Channels of the convolution: queries, keys, values.
    pub const fn channels(&self) -> u32 {
        (2 * self.n_head_k + self.n_head_v) * self.state
    }

    /// Width of the values of all heads.
    pub const fn value_width(&self) -> u32 {
        self.n_head_v * self.state
    }
}

impl Config {
    /// Reads and checks the hyper-parameters.
    ///
    /// # Errors
    /// Another architecture, a missing key, or a value that no kernel supports.
    pub fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let keys = Keys::new(gguf)?;
        match keys.arch() {
            "qwen35" => {}
            "dflash" => return Err(ModelError::DraftAsTarget { path: gguf.path().to_path_buf() }),
            arch => {
                return Err(ModelError::Architecture {
                    path: gguf.path().to_path_buf(),
                    arch: arch.to_owned(),
                });
            }
        }
        let n_embd = keys.require("embedding_length")?;
        let blocks = keys.require("block_count")?;
        let mtp = gguf.meta().u32_or(&keys.key("nextn_predict_layers"), 0)?;
        keys.at_most("block_count", blocks, MAX_BLOCKS)?;
        if mtp >= blocks {
            return Err(keys.bad("nextn_predict_layers", mtp, &format!("less than the {blocks} layers")));
        }
        let linear = LinearConfig {
            n_head_k: keys.require("ssm.group_count")?,
            n_head_v: keys.require("ssm.time_step_rank")?,
            state: keys.require("ssm.state_size")?,
            conv_kernel: keys.require("ssm.conv_kernel")?,
        };
        if !linear.n_head_v.is_multiple_of(linear.n_head_k) {
            return Err(keys.bad("ssm.time_step_rank", linear.n_head_v, "a multiple of ssm.group_count"));
        }
        let inner = keys.require("ssm.inner_size")?;
        if u64::from(inner) != u64::from(linear.n_head_v) * u64::from(linear.state) {
            return Err(keys.bad("ssm.inner_size", inner, "ssm.time_step_rank times ssm.state_size"));
        }
        keys.at_most("ssm.state_size", linear.state, MAX_STATE)?;
        keys.at_most("ssm.conv_kernel", linear.conv_kernel, MAX_TAPS)?;
        let rows = gguf.require_tensor("token_embd.weight")?.ne[1];
        let n_vocab = u32::try_from(rows).ok().filter(|n_vocab| (1..=LIMIT).contains(n_vocab));
        let n_vocab = n_vocab.ok_or_else(|| ModelError::Vocabulary {
            path: gguf.path().to_path_buf(),
            rows,
            limit: LIMIT,
        })?;
        let n_ctx_train = keys.context_length()?;
        Ok(Self {
            n_embd,
            n_ff: keys.require("feed_forward_length")?,
            n_vocab,
            n_ctx_train,
            rms_eps: keys.rms_eps()?,
            mixers: Self::mixers(&keys, blocks - mtp)?,
            n_mtp: mtp,
            attention: keys.attention(n_embd, n_ctx_train)?,
            linear,
            tied: gguf.tensor("output.weight").is_none(),
            arch: keys.arch().to_owned(),
        })
    }

    /// Label of the LM head's weight.
    pub(super) fn head(&self) -> &'static str {
        if self.tied { "token_embd.weight" } else { "output.weight" }
    }

    fn mixers(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<Mixer>, ModelError> {
        let meta = keys.meta();
        if let Some(flags) = meta.array_bool(&keys.key("attention.recurrent_layers"))? {
            if (flags.len() as u64) < u64::from(n_layer) {
                let found = format!("{} entries", flags.len());
                return Err(keys.bad("attention.recurrent_layers", found, &n_layer.to_string()));
            }
            let mixer = |&recurrent: &bool| if recurrent { Mixer::Linear } else { Mixer::Full };
            return Ok(flags[..n_layer as usize].iter().map(mixer).collect());
        }
        let interval = meta.u32_or(&keys.key("full_attention_interval"), 4)?.max(1);
        let mixer = |i: u32| if (i + 1).is_multiple_of(interval) { Mixer::Full } else { Mixer::Linear };
        Ok((0..n_layer).map(mixer).collect())
    }
}
