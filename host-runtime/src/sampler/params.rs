//! Sampling parameters: defaults, the model's recommendations, the user's choices, and their limits.

use super::SamplerError;

/// Longest history that penalties can look at; more than any supported context.
pub const MAX_REPEAT_LAST_N: usize = 1 << 20;

/// How to choose a token; the defaults are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerParams {
    /// Below 1 sharpens the distribution, above 1 flattens it; 0 or less always takes the best token.
    pub temperature: f32,
    /// Keep this many best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the best tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less probable than this fraction of the best; 0 drops none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 is neutral.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalties look at; 0 turns them off.
    pub repeat_last_n: usize,
    /// Subtracted once from the logits of recent tokens.
    pub presence_penalty: f32,
    /// Subtracted from the logits of recent tokens for each occurrence.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens, after penalties: negative infinity forbids a token. A token that
    /// is not in the vocabulary is ignored.
    pub logit_bias: Vec<(u32, f32)>,
    /// Start of the random sequence; `None` draws one, see [`Sampler::seed`](super::Sampler::seed).
    pub seed: Option<u64>,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

/// What the user asked for; everything else stays as it was.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "fields are those of SamplerParams")]
pub struct SamplerOverrides {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repeat_penalty: Option<f32>,
    pub repeat_last_n: Option<usize>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub seed: Option<u64>,
}

/// An inclusive range of a parameter.
#[derive(Clone, Copy)]
struct Limits {
    min: f32,
    max: f32,
}

impl Limits {
    fn contain(self, value: f32) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// Some clients ask for greedy sampling with -1.
const TEMPERATURE: Limits = Limits { min: -1.0, max: 100.0 };
const PROBABILITY: Limits = Limits { min: 0.0, max: 1.0 };
/// Far from zero, so that dividing by it cannot overflow a sane logit.
const REPEAT: Limits = Limits { min: 0.01, max: 100.0 };
const SUBTRACTED: Limits = Limits { min: -100.0, max: 100.0 };
const LAST_N: Limits = Limits { min: 0.0, max: MAX_REPEAT_LAST_N as f32 };

impl SamplerParams {
    /// Defaults with the recommendations of a model file; `metadata` looks up a key such as
    /// `general.sampling.temp`.
    ///
    /// The user's choices come on top by [`overridden_by`](Self::overridden_by).
    ///
    /// # Errors
    /// Those of `metadata`, and [`SamplerError::Metadata`].
    pub fn with_defaults_from<E: From<SamplerError>>(
        metadata: impl Fn(&'static str) -> Result<Option<f64>, E>,
    ) -> Result<Self, E> {
        let read = |key, limits: Limits| match metadata(key)?.map(|value| value as f32) {
            Some(value) if !limits.contain(value) => {
                Err(E::from(SamplerError::Metadata { key, value, min: limits.min, max: limits.max }))
            }
            found => Ok(found),
        };
        // llama.cpp's files use -1 for "all" in both counts, and its sampler takes any top_k below 1 so.
        let counts = Limits { min: -1.0, max: u32::MAX as f32 };
        let mut params = Self::default();
        if let Some(value) = read("general.sampling.temp", TEMPERATURE)? {
            params.temperature = value;
        }
        if let Some(value) = read("general.sampling.top_k", counts)? {
            params.top_k = value.max(0.0) as usize;
        }
        if let Some(value) = read("general.sampling.top_p", PROBABILITY)? {
            params.top_p = value;
        }
        if let Some(value) = read("general.sampling.min_p", PROBABILITY)? {
            params.min_p = value;
        }
        if let Some(value) = read("general.sampling.penalty_last_n", Limits { min: -1.0, ..LAST_N })? {
            params.repeat_last_n = if value < 0.0 { MAX_REPEAT_LAST_N } else { value as usize };
        }
        if let Some(value) = read("general.sampling.penalty_repeat", REPEAT)? {
            params.repeat_penalty = value;
        }
        Ok(params)
    }

    /// Replaces what the user has set.
    #[must_use]
    pub fn overridden_by(self, user: &SamplerOverrides) -> Self {
        Self {
            temperature: user.temperature.unwrap_or(self.temperature),
            top_k: user.top_k.unwrap_or(self.top_k),
            top_p: user.top_p.unwrap_or(self.top_p),
            min_p: user.min_p.unwrap_or(self.min_p),
            repeat_penalty: user.repeat_penalty.unwrap_or(self.repeat_penalty),
            repeat_last_n: user.repeat_last_n.unwrap_or(self.repeat_last_n),
            presence_penalty: user.presence_penalty.unwrap_or(self.presence_penalty),
            frequency_penalty: user.frequency_penalty.unwrap_or(self.frequency_penalty),
            logit_bias: self.logit_bias,
            seed: user.seed.or(self.seed),
        }
    }

    /// Checks every parameter.
    pub fn validate(&self) -> Result<(), SamplerError> {
        let checks = [
            ("temperature", self.temperature, TEMPERATURE),
            ("top_p", self.top_p, PROBABILITY),
            ("min_p", self.min_p, PROBABILITY),
            ("repeat_penalty", self.repeat_penalty, REPEAT),
            ("repeat_last_n", self.repeat_last_n as f32, LAST_N),
            ("presence_penalty", self.presence_penalty, SUBTRACTED),
            ("frequency_penalty", self.frequency_penalty, SUBTRACTED),
        ];
        for (name, value, limits) in checks {
            if !limits.contain(value) {
                return Err(SamplerError::Parameter { name, value, min: limits.min, max: limits.max });
            }
        }
        let wrong = |bias: &&(u32, f32)| !SUBTRACTED.contain(bias.1) && bias.1 != f32::NEG_INFINITY;
        if let Some(&(_, value)) = self.logit_bias.iter().find(wrong) {
            let Limits { min, max } = SUBTRACTED;
            return Err(SamplerError::Parameter { name: "logit_bias", value, min, max });
        }
        Ok(())
    }

    /// Whether the best token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// Whether recent tokens change the logits.
    pub fn has_penalties(&self) -> bool {
        self.repeat_last_n > 0
            && (self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Defaults with one recommendation.
    fn only(key: &str, value: f64) -> Result<SamplerParams, SamplerError> {
        SamplerParams::with_defaults_from(|asked| Ok((asked == key).then_some(value)))
    }

    #[test]
    fn user_over_model_over_defaults() {
        let model = |key| {
            Ok::<_, SamplerError>(match key {
                "general.sampling.temp" => Some(0.6),
                "general.sampling.top_k" => Some(20.0),
                "general.sampling.penalty_last_n" => Some(-1.0),
                "general.sampling.penalty_repeat" => Some(1.05),
                _ => None,
            })
        };
        let user = SamplerOverrides { top_k: Some(5), seed: Some(7), ..Default::default() };
        let params = SamplerParams::with_defaults_from(model).unwrap().overridden_by(&user);
        let expected = SamplerParams {
            temperature: 0.6,
            top_k: 5,
            repeat_penalty: 1.05,
            repeat_last_n: MAX_REPEAT_LAST_N,
            seed: Some(7),
            ..Default::default()
        };
        assert_eq!(params, expected);
        assert_eq!(params.validate(), Ok(()));
        assert_eq!(only("", 0.0), Ok(SamplerParams::default()));
        assert_eq!(only("general.sampling.top_k", -1.0).unwrap().top_k, 0);
    }

    #[test]
    fn unusable_recommendations_name_the_key() {
        for value in [f64::NAN, -1.5, 1e9] {
            let message = only("general.sampling.temp", value).unwrap_err().to_string();
            assert!(message.contains("general.sampling.temp"), "{message}");
        }
    }

    #[test]
    fn values_outside_their_limits_are_named() {
        type Set = fn(&mut SamplerParams, f32);
        let fields: [(&str, Set, &[f32]); 6] = [
            ("temperature", |p, v| p.temperature = v, &[-1.1, 101.0]),
            ("top_p", |p, v| p.top_p = v, &[-0.1, 1.1]),
            ("min_p", |p, v| p.min_p = v, &[-0.1, 1.1]),
            ("repeat_penalty", |p, v| p.repeat_penalty = v, &[-1.0, 0.0, 101.0]),
            ("presence_penalty", |p, v| p.presence_penalty = v, &[-101.0, 101.0]),
            ("frequency_penalty", |p, v| p.frequency_penalty = v, &[-101.0, 101.0]),
        ];
        for (name, set, bad) in fields {
            for &value in bad.iter().chain(&[f32::NAN, f32::INFINITY]) {
                let mut params = SamplerParams::default();
                set(&mut params, value);
                let message = params.validate().unwrap_err().to_string();
                assert!(message.starts_with(name), "{message}");
            }
        }
        let params = SamplerParams { repeat_last_n: MAX_REPEAT_LAST_N + 1, ..Default::default() };
        assert!(params.validate().is_err());
    }
}
