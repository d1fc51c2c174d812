//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hexflash::chat::{Message, RenderOptions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::answer;
use super::body::Fields;
use super::error::ApiError;
use super::logprobs;
use super::order::{MAX_ALTERNATIVES, Settings};
use super::shape::{Head, Shape, Text, finish_reason, timings, usage, with};
use super::{Model, Shared};
use crate::scheduler::{Outcome, Piece};

/// Arguments of chat templates that are fields of their own in requests of some clients.
const TEMPLATE_FIELDS: [&str; 2] = ["reasoning_effort", "enable_thinking"];

pub(super) async fn route(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    // Templates and long texts take their time.
    let prepared = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        let mut settings = Settings::read(&fields, model)?;
        settings.logprobs = alternatives(&fields)?;
        let prompt = model.card.text.tokenizer.encode_prompt(&render(&fields, model)?)?;
        let orders = settings.orders(vec![prompt], &work, model)?;
        let shape = Chat { head: Head::new("chatcmpl", model), n: settings.n, usage: settings.usage };
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

/// A message as clients send it.
#[derive(Deserialize)]
struct Sent {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// The prompt of a conversation.
pub(super) fn render(fields: &Fields, model: &Model) -> Result<String, ApiError> {
    let (template, _) = model.card.template.as_ref().ok_or_else(|| {
        ApiError::invalid(
            "the model has no chat template; start the server with --chat-template (a file, or chatml), or use \
             /v1/completions",
        )
    })?;
    let messages = messages(fields)?;
    let mut options = RenderOptions {
        add_generation_prompt: fields.get("add_generation_prompt")?.unwrap_or(true),
        kwargs: model.card.template_args.clone(),
        now: None,
    };
    for name in TEMPLATE_FIELDS {
        options.kwargs.extend(fields.raw(name).map(|value| (name.to_owned(), value.clone())));
    }
    options.kwargs.extend(fields.get::<Map<String, Value>>("chat_template_kwargs")?.unwrap_or_default());
    Ok(template.render(&messages, &options)?)
}

fn messages(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let sent: Vec<Sent> = fields.require("messages")?;
    if sent.is_empty() {
        return Err(ApiError::field("messages", "give at least one message"));
    }
    let message = |Sent { role, content, extra }: Sent| {
        let content = match content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => join(parts)?,
        };
        Ok(Message { role, content, extra })
    };
    sent.into_iter().map(message).collect()
}

/// The text of a message in parts.
fn join(parts: Vec<Part>) -> Result<String, ApiError> {
    let mut lines = Vec::with_capacity(parts.len());
    for Part { kind, text } in parts {
        match (kind.as_str(), text) {
            ("text", Some(text)) => lines.push(text),
            ("text", None) => return Err(ApiError::field("messages", "a part of type text has no text")),
            (kind, _) => {
                let hint = format!("a part of a message has the type {kind}; send parts of the type text");
                return Err(ApiError::unsupported("messages", &hint));
            }
        }
    }
    Ok(lines.join("\n"))
}

/// OpenAI's chat completions.
struct Chat {
    head: Head,
    n: usize,
    usage: bool,
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
}

impl Shape for Chat {
    fn begin(&self, choice: usize) -> Option<Value> {
        Some(self.chunk(choice, json!({ "role": "assistant", "content": "" }), Value::Null, None))
    }

    fn piece(&mut self, choice: usize, piece: &Piece) -> Value {
        self.chunk(choice, json!({ "content": piece.text }), self.logprobs(piece), None)
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Value {
        let chunk = self.chunk(choice, json!({}), Value::Null, Some(finish_reason(outcome)));
        with(chunk, "timings", timings(outcome))
    }

    fn last(&self, outcomes: &[&Outcome]) -> Option<Value> {
        let chunk = || self.head.object("chat.completion.chunk", json!([]));
        self.usage.then(|| with(chunk(), "usage", usage(outcomes, self.n)))
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let choice = |(index, text): (usize, &Text)| {
            json!({
                "index": index,
                "message": { "role": "assistant", "content": text.all.text, "refusal": null },
                "logprobs": self.logprobs(&text.all),
                "finish_reason": finish_reason(&text.outcome),
            })
        };
        let choices = texts.iter().enumerate().map(choice).collect();
        let outcomes: Vec<_> = texts.iter().map(|text| &text.outcome).collect();
        let whole = with(self.head.object("chat.completion", choices), "usage", usage(&outcomes, self.n));
        match outcomes[..] {
            [one] => with(whole, "timings", timings(one)),
            _ => whole,
        }
    }
}
