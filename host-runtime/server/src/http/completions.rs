//! `/v1/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::answer;
use super::app::Shared;
use super::error::ApiError;
use super::fields::Fields;
use super::json::with;
use super::logprobs;
use super::order::{MAX_ALTERNATIVES, Settings, prompts};
use super::shape::{Head, Shape, Text, finish_reason, timed, timings, usage, with_progress};
use super::unsupported::refuse_chats_only;
use crate::scheduler::news::{Outcome, Piece, Progress};

pub(super) async fn route(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || {
        let model = work.writer()?;
        refuse_chats_only(&fields)?;
        let mut settings = Settings::read(&fields, &work, model)?;
        settings.logprobs = fields.get("logprobs")?;
        if settings.logprobs > Some(MAX_ALTERNATIVES) {
            return Err(ApiError::field("logprobs", format!("ask for at most {MAX_ALTERNATIVES}")));
        }
        let prompts = prompts(&fields.require::<Value>("prompt")?, &work, model)?;
        let offsets = vec![0; prompts.len() * settings.n];
        let orders = settings.orders(prompts, &work, model)?;
        let shape =
            Completion { head: Head::new("cmpl-", model), n: settings.n, usage: settings.usage, offsets };
        Ok((orders, shape, settings.manner()))
    });
    let (orders, shape, manner) = prepared.await?;
    answer(&app, orders, shape, manner).await
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
