//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::answer;
use super::body::Fields;
use super::calls::{Call, Part, Reader};
use super::conversation::render;
use super::error::ApiError;
use super::logprobs;
use super::order::{MAX_ALTERNATIVES, Settings};
use super::shape::{Head, Shape, Text, finish_reason, id, timings, usage, with};
use super::tools::Tools;
use super::{Shared, form};
use crate::scheduler::{Outcome, Piece};

pub(super) async fn route(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    // Templates and long texts take their time.
    let prepared = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        let mut settings = Settings::read(&fields, model)?;
        settings.logprobs = alternatives(&fields)?;
        let mut tools = None;
        if let Some((offered, must_call)) = Tools::read(&fields, model)? {
            if let Some(grammar) = must_call {
                settings.require(form::compile(grammar, "tools", model)?, "tool_choice")?;
            }
            tools = Some(Arc::new(offered));
        }
        let rendered = render(&fields, tools.as_deref(), model)?;
        model.admit(&rendered)?;
        let prompt = model.card.text.tokenizer.encode_prompt(&rendered)?;
        let orders = settings.orders(vec![prompt], &work, model)?;
        let readers = |tools: &Arc<Tools>| (0..settings.n).map(|_| Reader::new(Arc::clone(tools))).collect();
        let shape = Chat {
            head: Head::new("chatcmpl", model),
            n: settings.n,
            usage: settings.usage,
            readers: tools.as_ref().map_or_else(Vec::new, readers),
        };
        Ok::<_, ApiError>((orders, shape, settings.stream))
    });
    let (orders, shape, stream) = prepared.await.map_err(|_| ApiError::internal("the prompt"))??;
    answer(&app, orders, shape, stream).await
}

/// `logprobs` and `top_logprobs`.
fn alternatives(fields: &Fields) -> Result<Option<usize>, ApiError> {
    let top = fields.get::<usize>("top_logprobs")?;
    let wanted = fields.flag("logprobs")?;
    match top {
        Some(n) if n > MAX_ALTERNATIVES => {
            Err(ApiError::field("top_logprobs", format!("ask for at most {MAX_ALTERNATIVES}")))
        }
        Some(n) if n > 0 && !wanted => Err(ApiError::field("top_logprobs", "this needs logprobs: true")),
        top => Ok(wanted.then_some(top.unwrap_or(0))),
    }
}

/// OpenAI's chat completions.
struct Chat {
    head: Head,
    n: usize,
    usage: bool,
    /// What finds calls in each text; empty if there are no tools.
    readers: Vec<Reader>,
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
    fn parts(&mut self, choice: usize, text: &str, is_end: bool) -> Vec<(usize, Part)> {
        let Some(reader) = self.readers.get_mut(choice) else {
            return if is_end { Vec::new() } else { vec![(0, Part::Text(text.to_owned()))] };
        };
        let mut calls = reader.calls;
        let parts = if is_end { reader.finish() } else { reader.push(text) };
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
        match (finish_reason(outcome), self.readers.get(choice)) {
            ("stop", Some(reader)) if reader.calls > 0 => "tool_calls",
            (reason, _) => reason,
        }
    }

    fn message(&mut self, choice: usize, text: &str) -> Value {
        let mut parts = self.parts(choice, text, false);
        parts.extend(self.parts(choice, "", true));
        let (mut content, mut calls) = (String::new(), Vec::new());
        for (_, part) in parts {
            match part {
                Part::Text(text) => content.push_str(&text),
                Part::Call(call) => calls.push(written(call)),
            }
        }
        let message = json!({ "role": "assistant", "content": content, "refusal": null });
        if calls.is_empty() {
            return message;
        }
        let content = if content.is_empty() { Value::Null } else { content.into() };
        with(with(message, "content", content), "tool_calls", calls.into())
    }
}

/// A call as clients get it.
fn written(Call { name, arguments }: Call) -> Value {
    json!({ "id": id("call"), "type": "function", "function": { "name": name, "arguments": arguments } })
}

impl Shape for Chat {
    fn begin(&self, choice: usize) -> Option<Value> {
        Some(self.chunk(choice, json!({ "role": "assistant", "content": "" }), Value::Null, None))
    }

    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value> {
        let parts = self.parts(choice, &piece.text, false);
        self.deltas(choice, parts, self.logprobs(piece))
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value> {
        let parts = self.parts(choice, "", true);
        let mut events = self.deltas(choice, parts, Value::Null);
        let end = self.chunk(choice, json!({}), Value::Null, Some(self.reason(choice, outcome)));
        events.push(with(end, "timings", timings(outcome)));
        events
    }

    fn last(&self, outcomes: &[&Outcome]) -> Option<Value> {
        let chunk = || self.head.object("chat.completion.chunk", json!([]));
        self.usage.then(|| with(chunk(), "usage", usage(outcomes, self.n)))
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let mut choices = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let message = self.message(index, &text.all.text);
            choices.push(json!({
                "index": index,
                "message": message,
                "logprobs": self.logprobs(&text.all),
                "finish_reason": self.reason(index, &text.outcome),
            }));
        }
        let outcomes: Vec<_> = texts.iter().map(|text| &text.outcome).collect();
        let whole = self.head.object("chat.completion", choices.into());
        let whole = with(whole, "usage", usage(&outcomes, self.n));
        match outcomes[..] {
            [one] => with(whole, "timings", timings(one)),
            _ => whole,
        }
    }
}
