//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use hexflash::generate::Finish;
use serde_json::{Value, json};

use super::answer::answer;
use super::app::Shared;
use super::dialogue::{Dialogue, Request};
use super::error::ApiError;
use super::fields::Fields;
use super::json::with;
use super::logprobs;
use super::shape::{
    Head, ORIGINS, Shape, Text, finish_reason, origins, timed, timings, usage, with_progress,
};
use crate::id::id;
use crate::scheduler::news::{Outcome, Piece, Progress};
use crate::text::parser::Parser;
use crate::text::part::{Call, Part};

pub(super) async fn route(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| {
        let request = Request::read(fields)?;
        let (origins, verbose) = (request.answer.token_origins, request.answer.verbose);
        let Dialogue { orders, parsers, settings, prompt } = Dialogue::prepare(request, app, model)?;
        let shape = Chat {
            head: Head::new("chatcmpl-", model),
            n: settings.n,
            usage: settings.usage,
            origins,
            prompt: verbose.then_some(prompt),
            parsers,
        };
        Ok((orders, shape, settings.manner()))
    })
    .await
}

/// How many tokens the prompt of a conversation has.
pub(super) async fn count(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let n = app.work("the prompt", move || Dialogue::count(Request::read(fields)?, work.writer()?)).await?;
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": n })))
}

/// OpenAI's chat completions.
struct Chat {
    head: Head,
    n: usize,
    usage: bool,
    /// Whether to tell where tokens came from.
    origins: bool,
    /// The text before the answers, if it is to be told.
    prompt: Option<String>,
    /// What finds thoughts and calls in each text.
    parsers: Vec<Parser>,
}

impl Chat {
    fn chunk(&self, choice: usize, delta: Value, logprobs: Value, finish: Option<&str>) -> Value {
        let choice =
            json!({ "index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish });
        self.head.object("chat.completion.chunk", json!([choice]))
    }

    fn logprobs(&self, piece: &Piece) -> Value {
        match piece.logprobs.as_slice() {
            [] => Value::Null,
            tokens => json!({ "content": logprobs::list(&self.head.tokenizer, tokens), "refusal": null }),
        }
    }

    /// The parts that a piece completes, each with the number of calls before it.
    fn parts(&mut self, choice: usize, text: &str, end: Option<Finish>) -> Vec<(usize, Part)> {
        // There is one for each text.
        let parser = &mut self.parsers[choice];
        let mut calls = parser.calls();
        let parts = match end {
            Some(finish) => parser.finish(finish),
            None => parser.push(text),
        };
        let numbered = |part| {
            let before = calls;
            calls += usize::from(matches!(part, Part::Call(_)));
            (before, part)
        };
        parts.into_iter().map(numbered).collect()
    }

    /// Parts as events; the first one has the probabilities.
    fn deltas(&self, choice: usize, parts: Vec<(usize, Part)>, mut logprobs: Value) -> Vec<Value> {
        let delta = |(number, part): (usize, Part)| match part {
            Part::Thought(text) => json!({ "reasoning_content": text }),
            Part::Text(text) => json!({ "content": text }),
            Part::Call(call) => json!({ "tool_calls": [with(written(call), "index", number.into())] }),
        };
        let mut deltas: Vec<Value> = parts.into_iter().map(delta).collect();
        if deltas.is_empty() && !logprobs.is_null() {
            deltas.push(json!({ "content": "" }));
        }
        deltas.into_iter().map(|delta| self.chunk(choice, delta, logprobs.take(), None)).collect()
    }

    /// Why a text has ended.
    fn reason(&self, choice: usize, outcome: &Outcome) -> &'static str {
        match finish_reason(outcome) {
            "stop" if self.parsers[choice].calls() > 0 => "tool_calls",
            reason => reason,
        }
    }

    fn message(&mut self, choice: usize, text: &str, finish: Finish) -> Value {
        let mut parts = self.parts(choice, text, None);
        parts.extend(self.parts(choice, "", Some(finish)));
        let (mut thoughts, mut content, mut calls) = (String::new(), String::new(), Vec::new());
        for (_, part) in parts {
            match part {
                Part::Thought(text) => thoughts.push_str(&text),
                Part::Text(text) => content.push_str(&text),
                Part::Call(call) => calls.push(written(call)),
            }
        }
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !thoughts.is_empty() {
            message = with(message, "reasoning_content", thoughts.into());
        }
        if calls.is_empty() {
            return message;
        }
        let content = if content.is_empty() { Value::Null } else { content.into() };
        with(with(message, "content", content), "tool_calls", calls.into())
    }
}

/// A call as clients get it.
fn written(Call { name, arguments }: Call) -> Value {
    json!({ "id": id("call_"), "type": "function", "function": { "name": name, "arguments": arguments } })
}

impl Shape for Chat {
    fn begin(&mut self, choice: usize) -> Vec<Value> {
        vec![self.chunk(choice, json!({ "role": "assistant", "content": null }), Value::Null, None)]
    }

    fn progress(&mut self, choice: usize, progress: &Progress) -> Option<Value> {
        Some(with_progress(self.chunk(choice, json!({}), Value::Null, None), progress))
    }

    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value> {
        let parts = self.parts(choice, &piece.text, None);
        let mut events = self.deltas(choice, parts, self.logprobs(piece));
        if self.origins && !piece.tokens.is_empty() {
            if events.is_empty() {
                events.push(self.chunk(choice, json!({ "content": "" }), Value::Null, None));
            }
            // A text has one choice in each of its events.
            events[0]["choices"][0][ORIGINS] = origins(&self.head.tokenizer, piece);
        }
        events
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value> {
        let parts = self.parts(choice, "", Some(outcome.finish));
        let mut events = self.deltas(choice, parts, Value::Null);
        let end = self.chunk(choice, json!({}), Value::Null, Some(self.reason(choice, outcome)));
        events.push(with(end, "timings", timings(&outcome.times)));
        events
    }

    fn last(&self, outcomes: &[&Outcome]) -> Option<Value> {
        let chunk = || self.head.object("chat.completion.chunk", json!([]));
        self.usage.then(|| timed(with(chunk(), "usage", usage(outcomes, self.n)), outcomes))
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let mut choices = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let message = self.message(index, &text.all.text, text.outcome.finish);
            let mut choice = json!({
                "index": index,
                "message": message,
                "logprobs": self.logprobs(&text.all),
                "finish_reason": self.reason(index, &text.outcome),
            });
            if self.origins {
                choice = with(choice, ORIGINS, origins(&self.head.tokenizer, &text.all));
            }
            choices.push(choice);
        }
        let outcomes: Vec<_> = texts.iter().map(|text| &text.outcome).collect();
        let whole = self.head.object("chat.completion", choices.into());
        let whole = timed(with(whole, "usage", usage(&outcomes, self.n)), &outcomes);
        match &self.prompt {
            Some(prompt) => with(whole, "__verbose", json!({ "prompt": prompt })),
            None => whole,
        }
    }
}
