//! Generation: prompt in, text out, by plain steps or speculative rounds.
//!
//! Whatever drafts the tokens, the text is that of plain decoding: a token is emitted only if the target chose it, the
//! sampler draws once per token in the same order, and when a generation ends the context holds exactly the tokens
//! that plain decoding would have left in it.

mod drive;
mod emit;
mod retries;

use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::engine::{Engine, EngineError};
use crate::model::MAX_VERIFY;
use crate::sampler::{Sampler, SamplerError};
use crate::speculation::{SpecStats, Speculation};
use crate::tokenizer::{Tokenizer, TokenizerError};
use drive::Drive;
use emit::Emitter;
pub use retries::MAX_RETRIES;
use retries::{Recovery, Retries};

/// When to stop. By default nothing ends a text but the model and the context.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Tokens to generate at most; `None` until the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Go on after an end-of-generation token.
    pub ignore_eos: bool,
    /// Ends the generation after the step, the batch of the prompt or the round under way, whether its tokens
    /// have visible text or not.
    pub cancel: Cancel,
}

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
    /// Somebody interrupted, by [`Limits::cancel`] or by what `on_text` answered.
    Interrupted,
}

/// What a generation gave.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Generated {
    /// Ids of the generated tokens, an end-of-generation token included.
    pub tokens: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Why it ended.
    pub finish_reason: Finish,
    /// What it took.
    pub stats: Stats,
}

/// What a generation took.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Tokens of the prompt that were run: all of them, unless it was interrupted.
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
    /// Host time per decode step for packing, submitting and reading, in microseconds.
    pub host_us_per_step: f64,
    /// Messages to the device per decode step, or per round.
    pub messages_per_step: f64,
    /// How often the device was lost and started again; absent if never.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// What speculation did; absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpecStats>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sampler.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A step gave values that are no numbers, after some text.
    #[error("{source} (the text up to here is kept)")]
    Damaged {
        /// What the engine said.
        source: Box<EngineError>,
        /// Tokens so far.
        tokens: Vec<u32>,
        /// Their text.
        text: String,
    },
    /// The device was lost, and starting it again did not help.
    #[error(
        "{source}; the device was started again {MAX_RETRIES} times in vain (the text up to here is kept)"
    )]
    Lost {
        /// The last loss.
        source: Box<EngineError>,
        /// Tokens so far.
        tokens: Vec<u32>,
        /// Their text.
        text: String,
    },
}

/// Runs `prompt` and generates. `on_text` gets complete pieces of text as they come, and answers whether to go on;
/// `on_prompt` gets the number of prompt tokens done. The engine's context may hold earlier turns; the last token of a
/// generation is not in it, so that the next prompt begins with that token or replaces it.
///
/// A prompt that is interrupted gives no tokens, and [`Stats::prompt_tokens`] of it are in the context. If
/// the device is lost as well, it is not started again before [`Engine::recover`] is called.
///
/// # Errors
/// The prompt does not fit, or the device failed.
#[expect(
    clippy::too_many_arguments,
    reason = "each is another party: model, text, chance, drafts, and the caller"
)]
pub fn generate(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    speculation: &mut Speculation,
    prompt: &[u32],
    limits: &Limits,
    on_prompt: impl FnMut(usize),
    on_text: impl FnMut(&str) -> bool,
) -> Result<Generated, GenerateError> {
    let start = Instant::now();
    let fresh = engine.n_past() == 0;
    let mut retries = Retries::default();
    let done = prefill(engine, prompt, &limits.cancel, &mut retries, on_prompt)?;
    let prompt_time = start.elapsed();
    let (prompt, rest) = prompt.split_at(done);
    speculation.begin(prompt, fresh);
    for &token in prompt {
        sampler.accept(token);
    }
    engine.reset_stats();
    let start = Instant::now();
    let mut emitter = Emitter::new(tokenizer, limits, engine.n_ctx(), on_text);
    let block = Vec::with_capacity(MAX_VERIFY as usize);
    let mut drive = Drive {
        engine: &mut *engine,
        sampler,
        speculation: &mut *speculation,
        out: &mut emitter,
        block,
        retries,
    };
    let outcome = if rest.is_empty() { drive.run() } else { Ok(Finish::Interrupted) };
    let restarts = drive.retries.total();
    let finish = match outcome {
        Ok(finish) => finish,
        Err(GenerateError::Engine(source)) if source.is_loss() => {
            // What was held back is text, too.
            let (tokens, text) = emitter.end(Finish::Interrupted);
            return Err(GenerateError::Lost { source: Box::new(source), tokens, text });
        }
        Err(GenerateError::Engine(source @ EngineError::NotFinite { .. })) => {
            let (tokens, text) = emitter.end(Finish::Interrupted);
            return Err(GenerateError::Damaged { source: Box::new(source), tokens, text });
        }
        Err(error) => return Err(error),
    };
    let (tokens, text) = emitter.end(finish);
    let speculation = speculation.is_on().then(|| speculation.stats().clone());
    let mut stats = stats(engine, prompt.len(), prompt_time, tokens.len(), start.elapsed(), speculation);
    stats.restarts = restarts;
    Ok(Generated { tokens, text, finish_reason: finish, stats })
}

/// Runs the prompt, over losses of the device; gives the tokens done.
fn prefill(
    engine: &mut Engine,
    prompt: &[u32],
    cancel: &Cancel,
    retries: &mut Retries,
    mut on_prompt: impl FnMut(usize),
) -> Result<usize, GenerateError> {
    let before = engine.n_past();
    loop {
        let done = (engine.n_past() - before) as usize;
        let go_on = |more| {
            on_prompt(done + more);
            !cancel.is_cancelled()
        };
        match engine.prefill_while(&prompt[done..], go_on) {
            Ok(more) => return Ok(done + more),
            Err(error) if error.is_loss() => {
                if retries.recover(engine, error, done, cancel)? == Recovery::Cancelled {
                    return Ok(done);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn stats(
    engine: &Engine,
    prompt: usize,
    prompt_time: Duration,
    generated: usize,
    time: Duration,
    speculation: Option<SpecStats>,
) -> Stats {
    let per_second = |n: usize, t: Duration| if t.is_zero() { 0.0 } else { n as f64 / t.as_secs_f64() };
    let steps = engine.stats();
    let per_step = |x: f64| if steps.steps == 0 { 0.0 } else { x / steps.steps as f64 };
    Stats {
        prompt_tokens: prompt,
        prompt_seconds: prompt_time.as_secs_f64(),
        prompt_per_second: per_second(prompt, prompt_time),
        generated_tokens: generated,
        generated_seconds: time.as_secs_f64(),
        generated_per_second: per_second(generated, time),
        host_us_per_step: per_step(steps.host.as_secs_f64() * 1e6),
        messages_per_step: per_step(steps.messages as f64),
        restarts: 0,
        speculation,
    }
}
