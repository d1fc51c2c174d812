//! Generation: prompt in, text out, one token at a time.

use std::time::{Duration, Instant};

use crate::engine::{Engine, EngineError};
use crate::sampler::{Sampler, SamplerError};
use crate::tokenizer::{TokenStream, Tokenizer, TokenizerError};

/// When to stop.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tokens to generate at most; `None` until the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Go on after an end-of-generation token.
    pub ignore_eos: bool,
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
    /// The user interrupted.
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
    /// Tokens of the prompt.
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
    /// Messages to the device per decode step.
    pub messages_per_step: f64,
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
}

/// Finds stop texts in a stream, holding back text that may be the beginning of one.
struct StopFinder<'s> {
    stops: &'s [String],
    held: String,
}

impl StopFinder<'_> {
    /// Takes text; gives what is safe to print, and whether a stop text was found.
    fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }
}

/// Bytes at the end of `text` that are a proper beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let starts = stop.char_indices().map(|(i, _)| i).skip(1).filter(|&n| n <= text.len());
    starts.filter(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).max().unwrap_or(0)
}

/// Runs `prompt` and generates. `on_text` gets complete pieces of text as they come, and answers whether to go on;
/// `on_prompt` gets the number of prompt tokens done.
///
/// # Errors
/// The prompt does not fit, or the device failed.
pub fn generate(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    limits: &Limits,
    on_prompt: impl FnMut(usize),
    mut on_text: impl FnMut(&str) -> bool,
) -> Result<Generated, GenerateError> {
    let start = Instant::now();
    engine.prefill(prompt, on_prompt)?;
    let prompt_time = start.elapsed();
    for &token in prompt {
        sampler.accept(token);
    }
    engine.reset_stats();
    let start = Instant::now();
    let mut stream = TokenStream::new(tokenizer, true);
    let mut finder = StopFinder { stops: &limits.stop, held: String::new() };
    let mut tokens = Vec::with_capacity(limits.max_tokens.unwrap_or(0).min(engine.n_ctx() as usize));
    let mut text = String::new();
    let mut emit = |piece: &str, text: &mut String| {
        text.push_str(piece);
        piece.is_empty() || on_text(piece)
    };
    let finish = loop {
        let token = next_token(engine, sampler)?;
        sampler.accept(token);
        tokens.push(token);
        if !limits.ignore_eos && tokenizer.eog().contains(token) {
            break Finish::Eog;
        }
        let (piece, stopped) = finder.push(&stream.push(token)?);
        let go_on = emit(&piece, &mut text);
        if stopped {
            break Finish::Stop;
        }
        if !go_on {
            break Finish::Interrupted;
        }
        if limits.max_tokens.is_some_and(|max| tokens.len() >= max) {
            break Finish::Length;
        }
        if engine.n_past() == engine.n_ctx() {
            break Finish::Context;
        }
        engine.decode(token)?;
    };
    if finish != Finish::Stop {
        // What was held back was no stop text after all, and what is left of the last character.
        let (piece, _) = finder.push(&stream.finish());
        let rest = piece + &finder.held;
        emit(&rest, &mut text);
    }
    let stats = stats(engine, prompt.len(), prompt_time, tokens.len(), start.elapsed());
    Ok(Generated { tokens, text, finish_reason: finish, stats })
}

/// The next token: the device's argmax where the sampler would choose just that, else drawn from the logits.
fn next_token(engine: &mut Engine, sampler: &mut Sampler) -> Result<u32, SamplerError> {
    if sampler.is_argmax() { Ok(engine.argmax(0)) } else { sampler.sample(engine.logits(0)) }
}

fn stats(engine: &Engine, prompt: usize, prompt_time: Duration, generated: usize, time: Duration) -> Stats {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut finder = StopFinder { stops: &stops, held: String::new() };
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = finder.push(piece);
            out.push_str(&text);
            if stopped {
                return (out, true);
            }
        }
        (out + &finder.held, false)
    }

    #[test]
    fn a_stop_text_is_found_across_pieces_and_not_printed() {
        assert_eq!(run(&["\n\n"], &["a\n", "\nb"]), ("a".to_owned(), true));
        assert_eq!(run(&["END", "\n"], &["xE", "N", "D"]), ("x".to_owned(), true));
        assert_eq!(run(&["abc"], &["ab", "ab", "c"]), ("ab".to_owned(), true));
    }

    #[test]
    fn what_only_looked_like_a_stop_text_is_printed() {
        assert_eq!(run(&["END"], &["E", "N", "x"]), ("ENx".to_owned(), false));
        assert_eq!(run(&["END"], &["EN"]), ("EN".to_owned(), false));
        assert_eq!(run(&["é!"], &["é", "é"]), ("éé".to_owned(), false));
        assert_eq!(run(&[], &["a", "b"]), ("ab".to_owned(), false));
    }
}
