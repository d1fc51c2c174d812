//! `/v1/completions`.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::app::Shared;
use super::error::ApiError;
use super::fields::Fields;
use super::json::with;
use super::logprobs;
use super::order::{Settings, alternatives, prompts};
use super::shape::{Head, Shape, Text, finish_reason, timed, timings, usage, with_progress};
use crate::scheduler::news::{Outcome, Piece, Progress};

/// Fields of this interface alone.
#[derive(Deserialize)]
struct Own {
    prompt: Value,
    logprobs: Option<usize>,
}

pub(super) async fn route(State(app): Shared, mut fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| {
        let Own { prompt, logprobs } = fields.take()?;
        let mut settings = Settings::read(fields, app, model)?;
        settings.logprobs = logprobs.map(|n| alternatives("logprobs", n)).transpose()?;
        let prompts = prompts(&prompt, app, model)?;
        let offsets = vec![0; prompts.len() * settings.n];
        let orders = settings.orders(prompts, app, model)?;
        let shape =
            Completion { head: Head::new("cmpl-", model), n: settings.n, usage: settings.usage, offsets };
        Ok((orders, shape, settings.manner()))
    })
    .await
}

/// OpenAI's completions.
struct Completion {
    head: Head,
    n: usize,
    usage: bool,
    /// Bytes of each text that were sent.
    offsets: Vec<usize>,
}

impl Completion {
    fn choice(&mut self, index: usize, piece: &Piece, finish: Option<&str>) -> Value {
        let offset = self.offsets.get_mut(index).map_or(0, |offset| {
            *offset += piece.text.len();
            *offset - piece.text.len()
        });
        let logprobs = match piece.logprobs.as_slice() {
            [] => Value::Null,
            tokens => logprobs::columns(&self.head.tokenizer, tokens, offset),
        };
        json!({ "index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": finish })
    }

    fn object(&self, choices: Value) -> Value {
        self.head.object("text_completion", choices)
    }
}

impl Shape for Completion {
    fn progress(&mut self, choice: usize, progress: &Progress) -> Option<Value> {
        let choice = self.choice(choice, &Piece::default(), None);
        Some(with_progress(self.object(json!([choice])), progress))
    }

    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value> {
        // Tokens without text are told of where they have probabilities.
        if piece.text.is_empty() && piece.logprobs.is_empty() {
            return Vec::new();
        }
        let choice = self.choice(choice, piece, None);
        vec![self.object(json!([choice]))]
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value> {
        let choice = self.choice(choice, &Piece::default(), Some(finish_reason(outcome)));
        vec![with(self.object(json!([choice])), "timings", timings(&outcome.times))]
    }

    fn last(&self, outcomes: &[&Outcome]) -> Option<Value> {
        self.usage.then(|| timed(with(self.object(json!([])), "usage", usage(outcomes, self.n)), outcomes))
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let choices: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| self.choice(index, &text.all, Some(finish_reason(&text.outcome))))
            .collect();
        let outcomes: Vec<_> = texts.iter().map(|text| &text.outcome).collect();
        timed(with(self.object(choices.into()), "usage", usage(&outcomes, self.n)), &outcomes)
    }
}
