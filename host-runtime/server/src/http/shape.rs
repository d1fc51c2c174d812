//! How routes differ in what they answer: the same texts in another JSON.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hexflash::generate::{Finish, TokenOrigin};
use hexflash::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::app::Model;
use super::error::ApiError;
use super::json::with;
use super::logprobs;
use crate::id::id;
use crate::scheduler::news::{Outcome, Piece, Progress, Times};

/// The answer of a route, whole or in pieces.
pub(super) trait Shape: Send + 'static {
    /// What a stream begins with, for one of the texts.
    fn begin(&mut self, _choice: usize) -> Vec<Value> {
        Vec::new()
    }

    /// How far the prompt of a text was read, where the interface has a place for it.
    fn progress(&mut self, _choice: usize, _progress: &Progress) -> Option<Value> {
        None
    }

    /// A piece of a text: none, one or several events.
    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value>;

    /// The end of a text.
    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value>;

    /// What a stream ends with, after the ends of all texts.
    fn last(&self, _outcomes: &[&Outcome]) -> Option<Value> {
        None
    }

    /// Whether a stream is lines of JSON, and no events.
    fn is_lines(&self) -> bool {
        false
    }

    /// Whether a stream's last event is `[DONE]`.
    fn says_done(&self) -> bool {
        true
    }

    /// Whether events have names: what `type` says in each of them.
    fn names_events(&self) -> bool {
        false
    }

    /// What a stream ends with that cannot go on.
    fn error(&mut self, error: &ApiError) -> Value {
        error.json()
    }

    /// An event for a stream that has nothing else to say; without one, it is a comment.
    fn ping(&self) -> Option<Value> {
        None
    }

    /// All texts at once.
    fn whole(&mut self, texts: &[Text]) -> Value;
}

/// A text that is complete.
pub(super) struct Text {
    pub(super) all: Piece,
    pub(super) outcome: Outcome,
}

/// What OpenAI's answers have in common.
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) tokenizer: Arc<Tokenizer>,
}

impl Head {
    /// The head of an answer whose id begins with `prefix`.
    pub(super) fn new(prefix: &str, model: &Model) -> Self {
        Self {
            id: id(prefix),
            created: now(),
            model: model.card.alias.clone(),
            tokenizer: Arc::clone(&model.card.text.tokenizer),
        }
    }

    /// An answer of this kind with these choices.
    pub(super) fn object(&self, kind: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        })
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What made an answer.
pub(crate) const FINGERPRINT: &str = concat!("hexflash-", env!("CARGO_PKG_VERSION"));

/// OpenAI's reason of an end.
pub(super) fn finish_reason(outcome: &Outcome) -> &'static str {
    match outcome.finish {
        Finish::Eog | Finish::Stop => "stop",
        // An interrupted text is answered with an error, unless it is in pieces.
        Finish::Length | Finish::Context | Finish::Interrupted => "length",
    }
}

/// Tokens of a request with `n` texts after each prompt. Those of a prompt count once.
pub(super) fn usage(outcomes: &[&Outcome], n: usize) -> Value {
    let prompts = || outcomes.iter().step_by(n.max(1));
    let cached: usize = prompts().map(|outcome| outcome.times.cached).sum();
    let prompt = cached + prompts().map(|outcome| outcome.times.stats.prompt_tokens).sum::<usize>();
    let completion: usize = outcomes.iter().map(|outcome| outcome.times.stats.generated_tokens).sum();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": cached },
    })
}

/// The field that asks for, and has, what [`origins`] tells.
pub(super) const ORIGINS: &str = "token_origins";

/// The tokens of a piece, and which of them were drafted.
pub(super) fn origins(tokenizer: &Tokenizer, piece: &Piece) -> Value {
    let one = |(&id, origin): (&u32, &TokenOrigin)| {
        json!({
            "id": id,
            "token": logprobs::text(tokenizer, id),
            "drafted": origin.drafted,
            "rejected": origin.rejected,
        })
    };
    piece.tokens.iter().zip(&piece.origins).map(one).collect()
}

/// An answer with the times of its text, if it has one text.
pub(super) fn timed(answer: Value, outcomes: &[&Outcome]) -> Value {
    match outcomes {
        [one] => with(answer, "timings", timings(&one.times)),
        _ => answer,
    }
}

/// `event` with llama-server's progress of a prompt.
pub(super) fn with_progress(event: Value, progress: &Progress) -> Value {
    let told = json!({
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": progress.seconds * 1e3,
    });
    with(event, "prompt_progress", told)
}

/// llama-server's times of a text.
pub(super) fn timings(Times { stats, cached }: &Times) -> Value {
    let per_token = |seconds: f64, n: usize| if n == 0 { 0.0 } else { seconds * 1e3 / n as f64 };
    let per_second = |seconds: f64, n: usize| if seconds == 0.0 { 0.0 } else { n as f64 / seconds };
    // The first token came with the prompt, and its time is there.
    let timed = stats.generated_tokens.saturating_sub(1);
    let mut timings = json!({
        "cache_n": cached,
        "prompt_n": stats.prompt_tokens,
        "prompt_ms": stats.prompt_seconds * 1e3,
        "prompt_per_token_ms": per_token(stats.prompt_seconds, stats.prompt_tokens),
        "prompt_per_second": stats.prompt_per_second,
        "predicted_n": stats.generated_tokens,
        "predicted_ms": stats.generated_seconds * 1e3,
        "predicted_per_token_ms": per_token(stats.generated_seconds, timed),
        "predicted_per_second": per_second(stats.generated_seconds, timed),
    });
    if let Some(drafts) = &stats.speculation {
        timings = with(timings, "draft_n", drafts.drafted.into());
        timings = with(timings, "draft_n_accepted", drafts.accepted.into());
    }
    timings
}
