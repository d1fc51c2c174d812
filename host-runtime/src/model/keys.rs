//! Hyper-parameters under the keys of one architecture, range checks included.

use std::fmt::Display;

use super::error::ModelError;
use crate::gguf::{Cause, Gguf, GgufError, Metadata};

/// Layers, heads and widths above this are not models but mistakes, and so are products of two of them; sums
/// of products then fit 32 bits.
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

    /// Whether the file has the tensor `name`.
    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// Values of a row of the tensor `name`, if the file has it.
    pub(super) fn row_of(&self, name: &str) -> Option<u64> {
        Some(self.gguf.tensor(name)?.ne[0])
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

    /// The error that models with this value of `name` are of a kind that no layer runs.
    pub(super) fn unsupported(&self, name: &str, found: impl Display, kind: &'static str) -> ModelError {
        ModelError::Kind {
            path: self.gguf.path().to_path_buf(),
            key: self.key(name),
            found: found.to_string(),
            kind,
        }
    }

    /// Refuses a mixture of experts.
    pub(super) fn no_experts(&self) -> Result<(), ModelError> {
        // llama.cpp takes a single expert for none.
        match self.meta().u32_or(&self.key("expert_count"), 0)? {
            0 | 1 => Ok(()),
            n => Err(self.unsupported("expert_count", n, "mixtures of experts")),
        }
    }

    /// Refuses a count that the file may name, and that is not `only`.
    pub(super) fn only(&self, name: &str, only: u32) -> Result<(), ModelError> {
        match self.or(name, only)? {
            value if value == only => Ok(()),
            value => Err(self.bad(name, value, &only.to_string())),
        }
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

    /// A count that has a default.
    pub(super) fn or(&self, name: &str, default: u32) -> Result<u32, ModelError> {
        self.bounded(name, self.meta().u32_or(&self.key(name), default)?)
    }

    /// A count for each of `layers` layers: a list, or one that all have.
    pub(super) fn per_layer(&self, name: &str, layers: u32) -> Result<Vec<u32>, ModelError> {
        let counts = self.meta().u32_per_layer(&self.key(name), layers as usize)?;
        let counts = counts.ok_or_else(|| self.missing(name))?;
        counts.into_iter().map(|n| self.bounded(name, n)).collect()
    }

    /// A bound of logits, of the model's or of attention's; 0 for none.
    pub(super) fn cap(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        let cap = self.finite(name, default)?;
        if cap >= 0.0 { Ok(cap) } else { Err(self.bad(name, cap, "at least 0")) }
    }

    /// A factor that models of the architecture may have: `default` where the file says 0 or nothing, as in
    /// llama.cpp.
    pub(super) fn scale(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        match self.finite(name, 0.0)? {
            0.0 => Ok(default),
            scale if scale > 0.0 => Ok(scale),
            scale => Err(self.bad(name, scale, "at least 0")),
        }
    }

    /// The inverse of a number that the file must name, and that values are divided by.
    pub(super) fn inverse(&self, name: &str) -> Result<f32, ModelError> {
        let divisor = self.meta().require_f32(&self.key(name))?;
        let scale = 1.0 / divisor;
        let sound = scale.is_finite() && scale > 0.0;
        if sound { Ok(scale) } else { Err(self.bad(name, divisor, "a positive number")) }
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
}
