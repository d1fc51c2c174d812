//! Hyper-parameters of a model, read from GGUF metadata and checked.

use super::ModelError;
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

/// Layers, heads and widths above this are not models but mistakes; sums of products then fit 32 bits.
const LIMIT: u32 = 1 << 20;

impl Config {
    /// Reads and checks the hyper-parameters.
    ///
    /// # Errors
    /// Another architecture, a missing key, or a value that no kernel supports.
    pub fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let meta = gguf.meta();
        let path = || gguf.path().to_path_buf();
        let arch = meta.require_str("general.architecture")?.to_owned();
        match arch.as_str() {
            "qwen35" => {}
            "dflash" => return Err(ModelError::DraftAsTarget { path: path() }),
            _ => return Err(ModelError::Architecture { path: path(), arch }),
        }
        let key = |name: &str| format!("{arch}.{name}");
        let fail = |name: &str, found: String, expected: &str| ModelError::Value {
            path: path(),
            key: key(name),
            found,
            expected: expected.to_owned(),
        };
        let bounded = |name: &str, value: u32| match value {
            1..=LIMIT => Ok(value),
            _ => Err(fail(name, value.to_string(), "1 to 1048576")),
        };
        let require = |name: &str| bounded(name, meta.require_u32(&key(name))?);
        let or = |name: &str, default: u32| bounded(name, meta.u32_or(&key(name), default)?);

        let n_embd = require("embedding_length")?;
        let blocks = require("block_count")?;
        let mtp = meta.u32_or(&key("nextn_predict_layers"), 0)?;
        if mtp >= blocks || blocks > 1024 {
            return Err(fail("block_count", blocks.to_string(), "more than the MTP layers, at most 1024"));
        }
        let n_layer = blocks - mtp;
        let n_head = require("attention.head_count")?;
        let n_head_kv = or("attention.head_count_kv", n_head)?;
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(fail(
                "attention.head_count_kv",
                n_head_kv.to_string(),
                "a divisor of the head count",
            ));
        }
        let key_dim = or("attention.key_length", n_embd / n_head)?;
        let value_dim = or("attention.value_length", n_embd / n_head)?;
        let n_dims = or("rope.dimension_count", key_dim)?;
        if n_dims > key_dim || n_dims % 2 != 0 {
            let expected = format!("even, at most {key_dim}");
            return Err(fail("rope.dimension_count", n_dims.to_string(), &expected));
        }
        let n_ctx_train = meta.require_u32(&key("context_length"))?;
        if !(1..=i32::MAX as u32).contains(&n_ctx_train) {
            return Err(fail("context_length", n_ctx_train.to_string(), "1 to 2147483647"));
        }
        let rms_eps = meta.require_f32(&key("attention.layer_norm_rms_epsilon"))?;
        if !(rms_eps.is_finite() && rms_eps >= 0.0) {
            let name = "attention.layer_norm_rms_epsilon";
            return Err(fail(name, rms_eps.to_string(), "a small positive number"));
        }
        let linear = LinearConfig {
            n_head_k: require("ssm.group_count")?,
            n_head_v: require("ssm.time_step_rank")?,
            state: require("ssm.state_size")?,
            conv_kernel: require("ssm.conv_kernel")?,
        };
        if !linear.n_head_v.is_multiple_of(linear.n_head_k) {
            return Err(fail(
                "ssm.time_step_rank",
                linear.n_head_v.to_string(),
                "a multiple of ssm.group_count",
            ));
        }
        let inner = require("ssm.inner_size")?;
        if u64::from(inner) != u64::from(linear.n_head_v) * u64::from(linear.state) {
            let expected = "ssm.time_step_rank times ssm.state_size";
            return Err(fail("ssm.inner_size", inner.to_string(), expected));
        }
        if linear.state > 128 || linear.conv_kernel > 32 {
            let expected = "at most 128 (state) and 32 (convolution)";
            return Err(fail("ssm.state_size", linear.state.to_string(), expected));
        }
        let embedding = gguf.require_tensor("token_embd.weight")?;
        let n_vocab = bounded("vocab_size", u32::try_from(embedding.ne[1]).unwrap_or(0))?;
        let rope = RopeConfig {
            n_dims,
            freq_base: meta.f32_or(&key("rope.freq_base"), 10_000.0)?,
            ..Self::scaling(gguf, &key, n_ctx_train)?
        };
        Ok(Self {
            n_embd,
            n_ff: require("feed_forward_length")?,
            n_vocab,
            n_ctx_train,
            rms_eps,
            mixers: Self::mixers(gguf, &key, n_layer)?,
            attention: AttentionConfig { n_head, n_head_kv, key_dim, value_dim, rope },
            linear,
            tied: gguf.tensor("output.weight").is_none(),
            arch,
        })
    }

    fn mixers(gguf: &Gguf, key: &impl Fn(&str) -> String, n_layer: u32) -> Result<Vec<Mixer>, ModelError> {
        let meta = gguf.meta();
        let name = key("attention.recurrent_layers");
        if let Some(flags) = meta.array_bool(&name)? {
            if (flags.len() as u64) < u64::from(n_layer) {
                return Err(ModelError::Value {
                    path: gguf.path().to_path_buf(),
                    key: name,
                    found: format!("{} entries", flags.len()),
                    expected: format!("{n_layer}"),
                });
            }
            let mixer = |&recurrent: &bool| if recurrent { Mixer::Linear } else { Mixer::Full };
            return Ok(flags[..n_layer as usize].iter().map(mixer).collect());
        }
        let interval = meta.u32_or(&key("full_attention_interval"), 4)?.max(1);
        let mixer = |i: u32| if (i + 1).is_multiple_of(interval) { Mixer::Full } else { Mixer::Linear };
        Ok((0..n_layer).map(mixer).collect())
    }

    /// Rope scaling; the other fields are filled in by the caller.
    fn scaling(
        gguf: &Gguf,
        key: &impl Fn(&str) -> String,
        n_ctx_train: u32,
    ) -> Result<RopeConfig, ModelError> {
        let meta = gguf.meta();
        let kind = meta.str_opt(&key("rope.scaling.type"))?.unwrap_or("none");
        let factor = meta.f32_or(&key("rope.scaling.factor"), 1.0)?;
        let n_ctx_orig = meta.u32_or(&key("rope.scaling.original_context_length"), n_ctx_train)?;
        let (freq_scale, ext_factor) = match kind {
            "none" => (1.0, 0.0),
            "linear" if factor > 0.0 => (1.0 / factor, 0.0),
            "yarn" if factor > 0.0 => (1.0 / factor, 1.0),
            _ => {
                return Err(ModelError::Value {
                    path: gguf.path().to_path_buf(),
                    key: key("rope.scaling.type"),
                    found: format!("{kind} with factor {factor}"),
                    expected: "none, linear or yarn, with a positive factor".to_owned(),
                });
            }
        };
        Ok(RopeConfig { n_dims: 0, freq_base: 0.0, freq_scale, ext_factor, n_ctx_orig })
    }
}
