//! Rotary embedding of positions.

use hexflash_abi::Op;
use hexflash_abi::op::params::{self, RopeMode};

use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::keys::Keys;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::Tensor;

/// Divisors of the angles, of one pair each: a tensor that all layers share.
const FACTORS: &str = "rope_freqs.weight";
/// Tensors of divisors for contexts that are longer than those of the training, and for others.
const LONG_FACTORS: &str = "rope_factors_long.weight";
const SHORT_FACTORS: &str = "rope_factors_short.weight";

/// The divisors of the angles that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// There are none.
    None,
    /// There is one for each pair.
    Always,
    /// There are two for each pair, and the length of the context says which of them divides (`longrope`).
    ByContext,
}

impl Factors {
    /// The tensors that have them.
    const fn tensors(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Always => &[FACTORS],
            Self::ByContext => &[LONG_FACTORS, SHORT_FACTORS],
        }
    }

    /// The tensor that divides in contexts of `n_ctx` positions, where the training had `n_ctx_orig`.
    const fn of_context(self, n_ctx: u32, n_ctx_orig: u32) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Always => Some(FACTORS),
            Self::ByContext if n_ctx > n_ctx_orig => Some(LONG_FACTORS),
            Self::ByContext => Some(SHORT_FACTORS),
        }
    }
}

/// Rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Values of a head that are turned.
    pub n_dims: u32,
    /// Which values are a pair: neighbours (NORM), or those half the turned width apart (NEOX).
    pub pairs: RopeMode,
    /// The divisors of the angles.
    pub factors: Factors,
    /// Base of the angles.
    pub freq_base: f32,
    /// Scale of positions: 1 / factor.
    pub freq_scale: f32,
    /// YaRN's share of extrapolation; 0 without YaRN.
    pub ext_factor: f32,
    /// Turns over the training's context from which YaRN extrapolates alone, and below which it interpolates
    /// alone.
    pub yarn_bounds: [f32; 2],
    /// Magnitude of cosines and sines, besides YaRN's own.
    pub attn_factor: f32,
    /// Context length of the training before scaling.
    pub n_ctx_orig: u32,
}

/// YaRN's bounds where the architecture has no keys for them.
const YARN_BOUNDS: [f32; 2] = [32.0, 1.0];

impl Rope {
    /// Reads the hyper-parameters for heads of width `key_dim`. `suffix` is what the key of their turned
    /// width ends with.
    ///
    /// # Errors
    /// A key is out of range.
    pub(super) fn read(
        keys: &Keys<'_>,
        suffix: &str,
        key_dim: u32,
        n_ctx_train: u32,
    ) -> Result<Self, ModelError> {
        let [all, name] = ["", suffix].map(|suffix| format!("rope.dimension_count{suffix}"));
        let n_dims = keys.or(&name, keys.or(&all, key_dim)?)?;
        if n_dims > key_dim || n_dims % 2 != 0 {
            return Err(keys.bad(&name, n_dims, &format!("even, at most {key_dim}")));
        }
        let meta = keys.meta();
        // llama.cpp's defaults: a factor without a type is a linear one.
        let kind = meta.str_opt(&keys.key("rope.scaling.type"))?.unwrap_or("linear");
        let freq_base = Self::base(keys, "rope.freq_base", 10_000.0, kind == "yarn")?;
        let factor = match kind {
            "none" => 1.0,
            "linear" | "yarn" => Self::factor(keys)?,
            "longrope" if Factors::ByContext.tensors().iter().any(|name| keys.has_tensor(name)) => {
                Self::factor(keys)?
            }
            "longrope" => {
                let expected = format!("none, linear or yarn in a file without {LONG_FACTORS}");
                return Err(keys.bad("rope.scaling.type", kind, &expected));
            }
            _ => return Err(keys.bad("rope.scaling.type", kind, "none, linear, yarn or longrope")),
        };
        let attn_factor = keys.finite("rope.scaling.attn_factor", 1.0)?;
        let (ext_factor, attn_factor) = match kind {
            // The op's magnitude goes below 1 with the factor, that of the model does not.
            "yarn" if factor < 1.0 => (1.0, attn_factor / (1.0 + 0.1 * factor.ln())),
            "yarn" => (1.0, attn_factor),
            _ => (0.0, attn_factor),
        };
        if !attn_factor.is_finite() {
            return Err(keys.bad("rope.scaling.factor", factor, "a factor that YaRN has a magnitude for"));
        }
        // 0 stands for the context length, as in llama.cpp.
        let n_ctx_orig = match meta.u32_or(&keys.key("rope.scaling.original_context_length"), 0)? {
            0 => n_ctx_train,
            n => n,
        };
        Ok(Self {
            n_dims,
            pairs: RopeMode::Neox,
            factors: Factors::None,
            freq_base,
            freq_scale: 1.0 / factor,
            ext_factor,
            yarn_bounds: YARN_BOUNDS,
            attn_factor,
            n_ctx_orig,
        })
    }

    /// The same with the base of layers that see a window of the context, which is `default` where the file
    /// does not say.
    ///
    /// # Errors
    /// It is out of range.
    pub(in crate::model) fn in_windows(self, keys: &Keys<'_>, default: f32) -> Result<Self, ModelError> {
        let freq_base = Self::base(keys, "rope.freq_base_swa", default, self.ext_factor != 0.0)?;
        Ok(Self { freq_base, ..self })
    }

    /// A base of angles. YaRN divides by its logarithm.
    fn base(keys: &Keys<'_>, name: &str, default: f32, yarn: bool) -> Result<f32, ModelError> {
        let base = keys.finite(name, default)?;
        let least = if yarn { 1.0 } else { 0.0 };
        if base > least { Ok(base) } else { Err(keys.bad(name, base, &format!("more than {least}"))) }
    }

    /// The factor by which positions are divided.
    fn factor(keys: &Keys<'_>) -> Result<f32, ModelError> {
        let name = "rope.scaling.factor";
        let old = "rope.scale_linear";
        let name = if keys.meta().get(&keys.key(name)).is_none() { old } else { name };
        let factor = keys.finite(name, 1.0)?;
        let scale = 1.0 / factor;
        let sound = scale.is_finite() && scale > 0.0;
        if sound { Ok(factor) } else { Err(keys.bad(name, factor, "a positive number")) }
    }

    /// With the divisors of the angles that the file has, if it has some.
    #[must_use]
    pub(in crate::model) fn with_factors(self, keys: &Keys<'_>) -> Self {
        let has = |factors: &Factors| factors.tensors().iter().any(|name| keys.has_tensor(name));
        let factors = [Factors::Always, Factors::ByContext].into_iter().find(has);
        Self { factors: factors.unwrap_or(Factors::None), ..self }
    }

    /// With YaRN's bounds, and divided by the magnitude, that the file names: some architectures have keys.
    ///
    /// # Errors
    /// One is out of range.
    pub(in crate::model) fn with_yarn(self, keys: &Keys<'_>) -> Result<Self, ModelError> {
        let names = ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"];
        let mut yarn_bounds = self.yarn_bounds;
        for (bound, name) in yarn_bounds.iter_mut().zip(names) {
            *bound = keys.scale(name, *bound)?;
        }
        let name = "rope.scaling.yarn_log_multiplier";
        let multiplier = keys.finite(name, 0.0)?;
        // Positions that are not stretched have the magnitude 1.
        let logarithm = if self.ext_factor == 0.0 { 0.0 } else { (1.0 / self.freq_scale).ln().max(0.0) };
        let magnitude = 1.0 + 0.1 * multiplier * logarithm;
        if magnitude <= 0.0 || !magnitude.is_finite() {
            return Err(keys.bad(name, multiplier, "a number that leaves a positive magnitude"));
        }
        Ok(Self { yarn_bounds, attn_factor: self.attn_factor / magnitude, ..self })
    }

    /// Plans the divisors of the angles, if there are any, for a layer of `scope`.
    ///
    /// # Errors
    /// They have another shape or type, or are no divisors.
    pub(super) fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        let mut tensors = self.factors.tensors().iter();
        tensors.try_for_each(|name| plan.divisors(scope.model(), name, self.n_dims / 2))
    }

    /// Turns x{d,h,t} by absolute position, in place; a `temperature` above 0 makes it grow with that. For
    /// text the position rows of a (interleaved) M-RoPE are equal, which makes it plain NEOX.
    pub(super) fn record(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor, temperature: f32) {
        let rope = params::Rope {
            n_dims: self.n_dims,
            mode: self.pairs.wire(),
            n_ctx_orig: self.n_ctx_orig,
            freq_base: self.freq_base,
            freq_scale: self.freq_scale,
            ext_factor: self.ext_factor,
            attn_factor: self.attn_factor,
            beta_fast: self.yarn_bounds[0],
            beta_slow: self.yarn_bounds[1],
            sections: [0; 4],
            temperature,
            temperature_span: self.n_ctx_orig,
        };
        let factors = self.factors.of_context(g.cx().kept.n_ctx, self.n_ctx_orig);
        let factors = factors.map(|name| g.weight(&scope.model().label(name)));
        g.rec.op_with(Op::Rope, &[Some(x), None, factors], &[x], &rope);
    }
}
