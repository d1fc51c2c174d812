//! What a generation gave, and what it took.

use std::time::Duration;

use crate::engine::StepStats;
use crate::speculation::SpecStats;

/// Why the generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An end-of-generation token.
    Eog,
    /// The number of tokens asked for.
    Length,
    /// A stop text.
    Stop,
    /// The context is full.
    Context,
    /// It was cancelled, for example with [`Limits::cancel`](super::Limits::cancel).
    Interrupted,
}

/// The result of a generation.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Generated {
    /// Ids of the generated tokens, an end-of-generation token included.
    pub tokens: Vec<u32>,
    /// The text of the tokens.
    pub text: String,
    /// Why the generation ended.
    pub finish_reason: Finish,
    /// The stop text that ended it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Times and counts of the generation.
    pub stats: Stats,
}

/// Where a token of a text came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TokenOrigin {
    /// Whether it was drafted, and accepted. So many tokens as [`SpecStats::accepted`] counts are; one more
    /// where a text was interrupted within a block.
    pub drafted: bool,
    /// Drafts that were verified and rejected at its place: the first of them was another token.
    pub rejected: u32,
}

/// Times and counts of a generation.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Tokens of the prompt that were run: all of them, unless the generation was cancelled before.
    pub prompt_tokens: usize,
    /// Seconds for the prompt.
    pub prompt_seconds: f64,
    /// Tokens of the prompt per second.
    pub prompt_per_second: f64,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Seconds from the first token on.
    pub generated_seconds: f64,
    /// Tokens generated per second.
    pub generated_per_second: f64,
    /// Tokens of the context, with all turns so far. The last token is counted if there is room for it,
    /// because the next step puts it there.
    pub context_tokens: u32,
    /// Host time per decode step for packing, submitting and reading, in microseconds.
    pub host_us_per_step: f64,
    /// Messages to the device per decode step, or per round.
    pub messages_per_step: f64,
    /// What the steps of the text cost. Steps of other texts that came between count, too.
    #[serde(skip)]
    pub steps: StepStats,
    /// How often the device was lost and started again; absent if never.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// What speculation did; absent without speculation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpecStats>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Stats {
    /// The figures of a prompt of `tokens` tokens.
    pub(super) fn prompt(&mut self, tokens: usize, time: Duration) {
        (self.prompt_tokens, self.prompt_seconds) = (tokens, time.as_secs_f64());
        self.prompt_per_second = per_second(tokens, time);
    }

    /// The figures of a text of `tokens` tokens.
    pub(super) fn text(&mut self, tokens: usize, time: Duration, steps: &StepStats) {
        (self.generated_tokens, self.generated_seconds) = (tokens, time.as_secs_f64());
        self.generated_per_second = per_second(tokens, time);
        let per_step = |x: f64| if steps.steps == 0 { 0.0 } else { x / steps.steps as f64 };
        self.host_us_per_step = per_step(steps.host.as_secs_f64() * 1e6);
        self.messages_per_step = per_step(steps.messages as f64);
        self.steps = *steps;
    }
}

fn per_second(n: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}
