//! Options of sampling, which commands that write text share.

use hexflash::sampler::{MAX_REPEAT_LAST_N, SamplerOverrides};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Sampling (defaults: the model's own, else llama.cpp's)")]
pub(super) struct SamplingArgs {
    /// Temperature; 0 always takes the best token [default: 0.8]
    #[arg(long, alias = "temperature", value_name = "T", allow_hyphen_values = true)]
    temp: Option<f32>,
    /// Choose among the K best tokens; 0 or less for all [default: 40]
    #[arg(long, value_name = "K")]
    top_k: Option<i64>,
    /// Choose among the best tokens that have probability P together [default: 0.95]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    top_p: Option<f32>,
    /// Choose among tokens at least P times as probable as the best [default: 0.05]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    min_p: Option<f32>,
    /// Divide the logits of recent tokens by this [default: 1.0]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    repeat_penalty: Option<f32>,
    /// How many tokens count as recent; -1 for all [default: 64]
    #[arg(long, value_name = "N", value_parser = last_n)]
    repeat_last_n: Option<usize>,
    /// Subtract this from the logits of recent tokens [default: 0]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    presence_penalty: Option<f32>,
    /// Subtract this for every recent occurrence of a token [default: 0]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    frequency_penalty: Option<f32>,
    /// Seed of the random choices [default: -1, a new one each time]
    #[arg(short, long, value_name = "N", value_parser = seed)]
    seed: Option<Seed>,
}

impl SamplingArgs {
    /// What they change of a model's own sampling.
    pub(super) fn overrides(&self) -> SamplerOverrides {
        SamplerOverrides {
            temperature: self.temp,
            top_k: self.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.flatten(),
        }
    }
}

/// Parses `--repeat-last-n`.
fn last_n(text: &str) -> Result<usize, String> {
    match text.parse() {
        Err(_) if text == "-1" => Ok(MAX_REPEAT_LAST_N),
        Ok(n) => Ok(n),
        Err(_) => Err("give a number of tokens, or -1 for all".to_owned()),
    }
}

/// A seed; `None` for a new one each time.
type Seed = Option<u64>;

/// Parses `--seed`.
fn seed(text: &str) -> Result<Seed, String> {
    match text.parse() {
        Err(_) if text == "-1" => Ok(None),
        Ok(n) => Ok(Some(n)),
        Err(_) => {
            Err("give a number from 0 to 18446744073709551615, or -1 for a new one each time".to_owned())
        }
    }
}
