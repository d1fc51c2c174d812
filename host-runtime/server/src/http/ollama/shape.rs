//! Answers as Ollama's interface has them: an object, or one on each line.

use hexflash::chat::today;
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::json::{merged, with};
use crate::http::shape::{Shape, Text, finish_reason};
use crate::scheduler::news::{Outcome, Piece};
use crate::text::parser::Parser;
use crate::text::part::{Call, Part};

/// Nanoseconds in a second: what durations are counted in.
const NANOS: f64 = 1e9;

/// An answer to one request.
pub(super) struct Ollama {
    model: String,
    /// Whether answers are messages.
    is_chat: bool,
    /// Parser that finds thoughts and calls in the text.
    parser: Parser,
}

impl Ollama {
    pub(super) fn new(model: &str, is_chat: bool, parser: Parser) -> Self {
        Self { model: model.to_owned(), is_chat, parser }
    }

    /// An object with a part of the answer, or with all of it.
    fn object(&self, text: &str, thoughts: &str, calls: Vec<Value>) -> Value {
        let mut said = if self.is_chat {
            json!({ "role": "assistant", "content": text })
        } else {
            json!({ "response": text })
        };
        if !thoughts.is_empty() {
            said = with(said, "thinking", thoughts.into());
        }
        if !calls.is_empty() {
            said = with(said, "tool_calls", calls.into());
        }
        let head = json!({ "model": self.model, "created_at": now(), "done": false });
        if self.is_chat { with(head, "message", said) } else { merged(head, said) }
    }

    /// Answer to a request that asks for nothing: the model is there.
    fn loaded(&self) -> Value {
        merged(self.object("", "", Vec::new()), json!({ "done": true, "done_reason": "load" }))
    }

    fn lines(&self, parts: Vec<Part>) -> Vec<Value> {
        let line = |part| match part {
            Part::Thought(text) => self.object("", &text, Vec::new()),
            Part::Text(text) => self.object(&text, "", Vec::new()),
            Part::Call(call) => self.object("", "", vec![written(&call)]),
        };
        parts.into_iter().map(line).collect()
    }

    /// `object` with the end of a text.
    fn ended(object: Value, outcome: &Outcome) -> Value {
        let stats = &outcome.times.stats;
        let nanos = |seconds: f64| (seconds * NANOS) as u64;
        let (prompt, answer) = (nanos(stats.prompt_seconds), nanos(stats.generated_seconds));
        let end = json!({
            "done": true,
            "done_reason": finish_reason(outcome),
            "total_duration": prompt + answer,
            "load_duration": 0,
            "prompt_eval_count": outcome.times.cached + stats.prompt_tokens,
            "prompt_eval_duration": prompt,
            "eval_count": stats.generated_tokens,
            "eval_duration": answer,
        });
        merged(object, end)
    }
}

/// A call as clients get it: with arguments that are an object.
fn written(Call { name, arguments }: &Call) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    json!({ "function": { "name": name, "arguments": arguments } })
}

/// The time, as such answers have it.
fn now() -> String {
    // The format has nothing that is not known.
    today("%Y-%m-%dT%H:%M:%SZ").unwrap_or_default()
}

impl Shape for Ollama {
    fn is_lines(&self) -> bool {
        true
    }

    fn piece(&mut self, _choice: usize, piece: &Piece) -> Vec<Value> {
        let parts = self.parser.push(&piece.text);
        self.lines(parts)
    }

    fn end(&mut self, _choice: usize, outcome: &Outcome) -> Vec<Value> {
        let parts = self.parser.finish(outcome.finish);
        let mut lines = self.lines(parts);
        lines.push(Self::ended(self.object("", "", Vec::new()), outcome));
        lines
    }

    fn error(&mut self, error: &ApiError) -> Value {
        error.ollama()
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        // There is one, if anything was asked.
        let Some(text) = texts.first() else { return self.loaded() };
        let mut parts = self.parser.push(&text.all.text);
        parts.extend(self.parser.finish(text.outcome.finish));
        let (mut thoughts, mut answer, mut calls) = (String::new(), String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Thought(text) => thoughts.push_str(&text),
                Part::Text(text) => answer.push_str(&text),
                Part::Call(call) => calls.push(written(&call)),
            }
        }
        Self::ended(self.object(&answer, &thoughts, calls), &text.outcome)
    }
}
