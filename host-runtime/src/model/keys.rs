//! Hyper-parameters under the keys of one architecture, range checks included.

use std::fmt::Display;

use hexflash_abi::op::MAX_HEAD;

use super::{AttentionConfig, ModelError, RopeConfig};
use crate::gguf::{Cause, Gguf, GgufError, Metadata};

/// Layers, heads and widths above this are not models but mistakes, and so are products of two of them; sums of
/// products then fit 32 bits.
pub(super) const LIMIT: u32 = 1 << 20;

/// Most layers of a model; the largest have some hundred.
pub(super) const MAX_BLOCKS: u32 = 1024;

/// The metadata of a model, its keys prefixed with its architecture.
pub(super) struct Keys<'g> {
    gguf: &'g Gguf,
    arch: &'g str,
}

impl<'g> Keys<'g> {
    pub(super) fn new(gguf: &'g Gguf) -> Result<Self, ModelError> {
        Ok(Self { gguf, arch: gguf.meta().require_str("general.architecture")? })
    }

    pub(super) fn arch(&self) -> &'g str {
        self.arch
    }

    pub(super) fn meta(&self) -> &'g Metadata {
        self.gguf.meta()
    }

    /// The full key.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// The error that `name` is `found`.
    pub(super) fn bad(&self, name: &str, found: impl Display, expected: &str) -> ModelError {
        ModelError::Value {
            path: self.gguf.path().to_path_buf(),
            key: self.key(name),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }

    /// The error that there is no `name`.
    pub(super) fn missing(&self, name: &str) -> ModelError {
        GgufError::new(self.gguf.path(), Cause::MissingKey { key: self.key(name) }).into()
    }

    /// Refuses a value that is above `limit`.
    pub(super) fn at_most(&self, name: &str, value: u32, limit: u32) -> Result<(), ModelError> {
        if value <= limit { Ok(()) } else { Err(self.bad(name, value, &format!("at most {limit}"))) }
    }

    /// A number that must be finite.
    pub(super) fn finite(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        let value = self.meta().f32_or(&self.key(name), default)?;
        if value.is_finite() { Ok(value) } else { Err(self.bad(name, value, "a finite number")) }
    }

    fn bounded(&self, name: &str, value: u32) -> Result<u32, ModelError> {
        match value {
            1..=LIMIT => Ok(value),
            _ => Err(self.bad(name, value, "1 to 1048576")),
        }
    }

    /// A count that the file must name.
    pub(super) fn require(&self, name: &str) -> Result<u32, ModelError> {
        self.bounded(name, self.meta().require_u32(&self.key(name))?)
    }

    fn or(&self, name: &str, default: u32) -> Result<u32, ModelError> {
        self.bounded(name, self.meta().u32_or(&self.key(name), default)?)
    }

    pub(super) fn context_length(&self) -> Result<u32, ModelError> {
        let n = self.meta().require_u32(&self.key("context_length"))?;
        match n {
            1..=0x7fff_ffff => Ok(n),
            _ => Err(self.bad("context_length", n, "1 to 2147483647")),
        }
    }

    pub(super) fn rms_eps(&self) -> Result<f32, ModelError> {
        let name = "attention.layer_norm_rms_epsilon";
        let eps = self.meta().require_f32(&self.key(name))?;
        if eps.is_finite() && eps >= 0.0 {
            Ok(eps)
        } else {
            Err(self.bad(name, eps, "a small positive number"))
        }
    }

    /// Full attention and its rotary embedding.
    pub(super) fn attention(&self, n_embd: u32, n_ctx_train: u32) -> Result<AttentionConfig, ModelError> {
        let n_head = self.require("attention.head_count")?;
        let n_head_kv = self.or("attention.head_count_kv", n_head)?;
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(self.bad("attention.head_count_kv", n_head_kv, "a divisor of the head count"));
        }
        let key_dim = self.or("attention.key_length", n_embd / n_head)?;
        let value_dim = self.or("attention.value_length", n_embd / n_head)?;
        for (name, dim) in [("attention.key_length", key_dim), ("attention.value_length", value_dim)] {
            let most = MAX_HEAD.min(LIMIT / n_head);
            if dim > most {
                return Err(self.bad(name, dim, &format!("at most {most}, for {n_head} heads")));
            }
        }
        let n_dims = self.or("rope.dimension_count", key_dim)?;
        if n_dims > key_dim || n_dims % 2 != 0 {
            return Err(self.bad("rope.dimension_count", n_dims, &format!("even, at most {key_dim}")));
        }
        let rope = self.rope(n_dims, n_ctx_train)?;
        Ok(AttentionConfig { n_head, n_head_kv, key_dim, value_dim, rope })
    }

    /// The rotary embedding of `n_dims` values.
    fn rope(&self, n_dims: u32, n_ctx_train: u32) -> Result<RopeConfig, ModelError> {
        let meta = self.meta();
        let kind = meta.str_opt(&self.key("rope.scaling.type"))?.unwrap_or("none");
        let freq_base = self.finite("rope.freq_base", 10_000.0)?;
        // YaRN divides by the logarithm of the base.
        let least = if kind == "yarn" { 1.0 } else { 0.0 };
        if freq_base <= least {
            return Err(self.bad("rope.freq_base", freq_base, &format!("more than {least}")));
        }
        let freq_scale = || {
            let factor = self.finite("rope.scaling.factor", 1.0)?;
            let scale = 1.0 / factor;
            let sound = scale.is_finite() && scale > 0.0;
            if sound { Ok(scale) } else { Err(self.bad("rope.scaling.factor", factor, "a positive number")) }
        };
        let (freq_scale, ext_factor) = match kind {
            "none" => (1.0, 0.0),
            "linear" => (freq_scale()?, 0.0),
            "yarn" => (freq_scale()?, 1.0),
            _ => return Err(self.bad("rope.scaling.type", kind, "none, linear or yarn")),
        };
        // 0 stands for the context length, as in llama.cpp.
        let n_ctx_orig = match meta.u32_or(&self.key("rope.scaling.original_context_length"), 0)? {
            0 => n_ctx_train,
            n => n,
        };
        Ok(RopeConfig { n_dims, freq_base, freq_scale, ext_factor, n_ctx_orig })
    }
}
