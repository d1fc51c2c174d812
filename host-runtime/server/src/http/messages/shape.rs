//! Answers as Anthropic's interface has them.

use hexflash::generate::Finish;
use serde_json::{Value, json};

use crate::http::app::Model;
use crate::http::error::ApiError;
use crate::http::shape::{Shape, Text};
use crate::id::id;
use crate::scheduler::news::{Outcome, Piece};
use crate::text::blocks::{Block, Blocks, Change, Named, Prefixes};
use crate::text::parser::Parser;
use crate::text::part::Part;

/// Only calls have names here.
const PREFIXES: Prefixes = Prefixes { thought: "", text: "", call: "toolu_" };

/// A message.
pub(super) struct Messages {
    id: String,
    model: String,
    parser: Parser,
    blocks: Blocks,
    /// Tokens of the prompt.
    prompt: usize,
}

impl Messages {
    pub(super) fn new(model: &Model, parser: Parser, prompt: usize) -> Self {
        let model = model.card.alias.clone();
        Self { id: id("msg_"), model, parser, blocks: Blocks::default(), prompt }
    }

    fn message(&self, content: Value, outcome: Option<&Outcome>) -> Value {
        let usage = match outcome {
            Some(outcome) => usage(outcome),
            // What of it is there already is not known before the text begins.
            None => json!({ "input_tokens": self.prompt, "cache_read_input_tokens": 0, "output_tokens": 0 }),
        };
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": outcome.map(|outcome| self.reason(outcome)),
            "stop_sequence": outcome.and_then(|outcome| outcome.stop.as_deref()),
            "usage": usage,
        })
    }

    /// Why the text has ended.
    fn reason(&self, outcome: &Outcome) -> &'static str {
        match outcome.finish {
            Finish::Eog if self.parser.calls() > 0 => "tool_use",
            Finish::Eog => "end_turn",
            Finish::Stop => "stop_sequence",
            Finish::Length | Finish::Context | Finish::Interrupted => "max_tokens",
        }
    }

    /// The events that parts bring.
    fn add(&mut self, parts: Vec<Part>) -> Vec<Value> {
        let mut events = Vec::new();
        for part in parts {
            self.blocks
                .push(part, &PREFIXES, |index, named, change| events.push(event(index, named, change)));
        }
        events
    }
}

fn event(index: usize, named: &Named, change: Change) -> Value {
    match change {
        Change::Opened => {
            json!({ "type": "content_block_start", "index": index, "content_block": begun(named) })
        }
        Change::Grew(more) => {
            let delta = match named.block {
                Block::Thought(_) => json!({ "type": "thinking_delta", "thinking": more }),
                Block::Text(_) => json!({ "type": "text_delta", "text": more }),
                Block::Call(_) => json!({ "type": "input_json_delta", "partial_json": more }),
            };
            json!({ "type": "content_block_delta", "index": index, "delta": delta })
        }
        Change::Closed => json!({ "type": "content_block_stop", "index": index }),
    }
}

/// A block that is empty yet.
fn begun(Named { id, block }: &Named) -> Value {
    match block {
        Block::Thought(_) => json!({ "type": "thinking", "thinking": "", "signature": "" }),
        Block::Text(_) => json!({ "type": "text", "text": "" }),
        Block::Call(call) => json!({ "type": "tool_use", "id": id, "name": call.name, "input": {} }),
    }
}

/// A block that is complete.
fn whole(Named { id, block }: &Named) -> Value {
    match block {
        Block::Thought(text) => json!({ "type": "thinking", "thinking": text, "signature": "" }),
        Block::Text(text) => json!({ "type": "text", "text": text }),
        Block::Call(call) => {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": id, "name": call.name, "input": input })
        }
    }
}

/// Tokens; those of the prompt that were there already are counted apart.
fn usage(outcome: &Outcome) -> Value {
    json!({
        "input_tokens": outcome.times.stats.prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": outcome.times.cached,
        "output_tokens": outcome.times.stats.generated_tokens,
    })
}

impl Shape for Messages {
    fn begin(&mut self, _choice: usize) -> Vec<Value> {
        let start = json!({ "type": "message_start", "message": self.message(json!([]), None) });
        vec![start, json!({ "type": "ping" })]
    }

    fn piece(&mut self, _choice: usize, piece: &Piece) -> Vec<Value> {
        let parts = self.parser.push(&piece.text);
        self.add(parts)
    }

    fn end(&mut self, _choice: usize, outcome: &Outcome) -> Vec<Value> {
        let parts = self.parser.finish(outcome.finish);
        let mut events = self.add(parts);
        self.blocks.close(|index, named, change| events.push(event(index, named, change)));
        events.push(json!({
            "type": "message_delta",
            "delta": { "stop_reason": self.reason(outcome), "stop_sequence": outcome.stop },
            "usage": usage(outcome),
        }));
        events.push(json!({ "type": "message_stop" }));
        events
    }

    fn says_done(&self) -> bool {
        false
    }

    fn names_events(&self) -> bool {
        true
    }

    fn error(&mut self, error: &ApiError) -> Value {
        error.anthropic()
    }

    fn ping(&self) -> Option<Value> {
        Some(json!({ "type": "ping" }))
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        // There is one.
        let Some(text) = texts.first() else { return Value::Null };
        let mut parts = self.parser.push(&text.all.text);
        parts.extend(self.parser.finish(text.outcome.finish));
        self.add(parts);
        let content = self.blocks.all().iter().map(whole).collect();
        self.message(content, Some(&text.outcome))
    }
}
