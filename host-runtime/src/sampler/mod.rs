//! Choosing the next token from logits.
//!
//! The order and meaning of the steps are llama.cpp's: penalties, biases, top-k, top-p, min-p, temperature,
//! and then one random draw. Greedy sampling draws nothing. Speculative decoding relies on exactly that: a
//! verified token costs one draw as in plain decoding, so both give the same text from the same seed.
//!
//! Random numbers (PCG) and exponentials are computed with integer and IEEE arithmetic only, so a seed gives
//! the same tokens on every platform. With top-k the cost is a pass or two over the logits, about 0.3 ms for
//! 250 000 on one x86 server core; without it every logit is weighed and that takes some milliseconds.

mod candidates;
mod constraint;
mod error;
mod exp;
mod history;
mod logprob;
mod params;

use std::hash::{BuildHasher, Hasher, RandomState};

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

pub use self::constraint::Constraint;
pub use self::error::SamplerError;
pub use self::logprob::TokenLogprob;
pub use self::params::{MAX_REPEAT_LAST_N, SamplerOverrides, SamplerParams};

use self::candidates::Candidates;
use self::history::History;

/// Stream constant of the generator; any value will do, but changing it changes every seed's text.
const STREAM: u128 = 0x0a02_bdbf_7bb3_c0a7_ac28_fa16_a64a_bf96;

/// Chooses tokens of one sequence. A clone continues the same random sequence from the same point, which
/// is how a rejected speculation is taken back.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplerParams,
    seed: u64,
    rng: Pcg64,
    history: History,
    /// The logits that penalties and biases have changed, by ascending id.
    changed: Vec<(u32, f32)>,
    candidates: Candidates,
}

impl Sampler {
    /// Checks the parameters and seeds the generator.
    pub fn new(params: SamplerParams) -> Result<Self, SamplerError> {
        params.validate()?;
        // The standard library's hash keys are drawn from the operating system.
        let seed = params.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let history = History::new(if params.has_penalties() { params.repeat_last_n } else { 0 });
        Ok(Self {
            params,
            seed,
            rng: generator(seed),
            history,
            changed: Vec::new(),
            candidates: Candidates::default(),
        })
    }

    /// Chooses a token. It enters the history only by [`accept`](Self::accept).
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplerError> {
        check(logits)?;
        self.history.penalize(&self.params, logits, &mut self.changed);
        self.add_biases(logits);
        if self.is_greedy() {
            return self.first_maximum(logits);
        }
        let params = &self.params;
        self.candidates.fill(logits, &self.changed, params.top_k);
        if self.candidates.is_empty() {
            return Err(SamplerError::NothingAllowed { count: logits.len() });
        }
        // Penalties are bounded, so only a logit near the end of the f32 range can overflow.
        if self.candidates.best() == f32::INFINITY {
            return Err(self.overflow());
        }
        if params.top_p < 1.0 || params.min_p > 0.0 {
            self.candidates.weigh();
            self.candidates.top_p(params.top_p);
            self.candidates.min_p(params.min_p);
        }
        // 53 bits make an f64 in [0, 1) by exact arithmetic.
        let point = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        Ok(self.candidates.pick(params.temperature, point))
    }

    /// Changes the logits of tokens that have a bias.
    fn add_biases(&mut self, logits: &[f32]) {
        for &(id, bias) in &self.params.logit_bias {
            let Some(&logit) = logits.get(id as usize) else { continue };
            match self.changed.binary_search_by_key(&id, |change| change.0) {
                Ok(at) => self.changed[at].1 += bias,
                Err(at) => self.changed.insert(at, (id, logit + bias)),
            }
        }
    }

    fn first_maximum(&self, logits: &[f32]) -> Result<u32, SamplerError> {
        let mut changes = self.changed.iter().copied().peekable();
        let (mut best, mut chosen) = (f32::NEG_INFINITY, None);
        for (id, &logit) in (0..).zip(logits) {
            let logit = changes.next_if(|change| change.0 == id).map_or(logit, |change| change.1);
            if logit > best {
                (best, chosen) = (logit, Some(id));
            }
        }
        if best == f32::INFINITY {
            return Err(self.overflow());
        }
        chosen.ok_or(SamplerError::NothingAllowed { count: logits.len() })
    }

    /// The error for a logit that became infinite by penalties.
    fn overflow(&self) -> SamplerError {
        let id = self.changed.iter().find(|(_, logit)| *logit == f32::INFINITY).map_or(0, |c| c.0);
        SamplerError::InvalidLogit { id: id as usize, value: f32::INFINITY }
    }

    /// Takes a token of the sequence, prompt included, into the history that penalties look at.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Forgets the sequence and starts the random sequence again.
    pub fn reset(&mut self) {
        self.history.clear();
        self.rng = generator(self.seed);
    }

    /// Whether the best token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.params.is_greedy()
    }

    /// Whether sampling is nothing but the first maximum of the logits, which a device can compute itself.
    pub fn is_argmax(&self) -> bool {
        self.params.is_greedy() && !self.params.has_penalties() && self.params.logit_bias.is_empty()
    }

    /// The seed in use, to repeat a run that drew its own.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The parameters in use.
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }
}

fn generator(seed: u64) -> Pcg64 {
    // The constructor is part of the algorithm's definition, unlike the seeding helpers of the crates.
    Pcg64::new(u128::from(seed), STREAM)
}

/// Refuses NaN and +inf; -inf means that a token is not allowed.
fn check(logits: &[f32]) -> Result<(), SamplerError> {
    if logits.is_empty() || u32::try_from(logits.len()).is_err() {
        return Err(SamplerError::LogitCount { count: logits.len() });
    }
    // NaN fails every comparison. No early exit, so that the loop becomes vector instructions.
    if logits.iter().fold(true, |fine, &logit| fine & (logit < f32::INFINITY)) {
        return Ok(());
    }
    let id = logits.iter().position(|logit| !logit.lt(&f32::INFINITY)).unwrap_or_default();
    Err(SamplerError::InvalidLogit { id, value: logits[id] })
}

#[cfg(test)]
mod tests;
