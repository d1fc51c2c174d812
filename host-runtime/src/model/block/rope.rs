//! Rotary embedding of positions.

use hexflash_abi::Op;
use hexflash_abi::op::params::{self, RopeMode};

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::record::Tensor;

/// Rotary embedding, of pairs of values half the turned width apart (NEOX).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
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

impl Rope {
    /// Reads the hyper-parameters for heads of width `key_dim`.
    ///
    /// # Errors
    /// A key is out of range.
    pub(super) fn read(keys: &Keys<'_>, key_dim: u32, n_ctx_train: u32) -> Result<Self, ModelError> {
        let n_dims = keys.or("rope.dimension_count", key_dim)?;
        if n_dims > key_dim || n_dims % 2 != 0 {
            return Err(keys.bad("rope.dimension_count", n_dims, &format!("even, at most {key_dim}")));
        }
        let meta = keys.meta();
        let kind = meta.str_opt(&keys.key("rope.scaling.type"))?.unwrap_or("none");
        let freq_base = keys.finite("rope.freq_base", 10_000.0)?;
        // YaRN divides by the logarithm of the base.
        let least = if kind == "yarn" { 1.0 } else { 0.0 };
        if freq_base <= least {
            return Err(keys.bad("rope.freq_base", freq_base, &format!("more than {least}")));
        }
        let freq_scale = || {
            let factor = keys.finite("rope.scaling.factor", 1.0)?;
            let scale = 1.0 / factor;
            let sound = scale.is_finite() && scale > 0.0;
            if sound { Ok(scale) } else { Err(keys.bad("rope.scaling.factor", factor, "a positive number")) }
        };
        let (freq_scale, ext_factor) = match kind {
            "none" => (1.0, 0.0),
            "linear" => (freq_scale()?, 0.0),
            "yarn" => (freq_scale()?, 1.0),
            _ => return Err(keys.bad("rope.scaling.type", kind, "none, linear or yarn")),
        };
        // 0 stands for the context length, as in llama.cpp.
        let n_ctx_orig = match meta.u32_or(&keys.key("rope.scaling.original_context_length"), 0)? {
            0 => n_ctx_train,
            n => n,
        };
        Ok(Self { n_dims, freq_base, freq_scale, ext_factor, n_ctx_orig })
    }

    /// Turns x{d,h,t} by absolute position, in place. For text the position rows of a (interleaved) M-RoPE
    /// are equal, which makes it plain NEOX.
    pub(super) fn record(&self, g: &mut Graph<'_>, x: Tensor) {
        let rope = params::Rope {
            n_dims: self.n_dims,
            mode: RopeMode::Neox.wire(),
            n_ctx_orig: self.n_ctx_orig,
            freq_base: self.freq_base,
            freq_scale: self.freq_scale,
            ext_factor: self.ext_factor,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            sections: [0; 4],
        };
        g.rec.op_with(Op::Rope, &[Some(x)], &[x], &rope);
    }
}
