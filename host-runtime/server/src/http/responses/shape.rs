//! Answers as OpenAI's newer interface has them.

use std::sync::Arc;

use hexflash::generate::Finish;
use hexflash::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::http::app::Model;
use crate::http::error::ApiError;
use crate::http::json::with;
use crate::http::logprobs;
use crate::http::shape::{Shape, Text, now, timings, with_progress};
use crate::id::id;
use crate::scheduler::news::{Outcome, Piece, Progress};
use crate::text::blocks::{Block, Blocks, Change, Named, Prefixes};
use crate::text::parser::Parser;
use crate::text::part::Part;

const PREFIXES: Prefixes = Prefixes { thought: "rs_", text: "msg_", call: "fc_" };

/// An answer, with its items.
pub(super) struct Answer {
    id: String,
    created: u64,
    model: String,
    tokenizer: Arc<Tokenizer>,
    parser: Parser,
    blocks: Blocks,
    /// What it repeats of its request.
    echo: Value,
    /// Events so far.
    events: u64,
    /// Probabilities of the tokens of the text, if they are wanted.
    logprobs: Vec<Value>,
    /// Probabilities of tokens that have not become text.
    untold: Vec<Value>,
}

/// The name of a call, by which its output is sent back, from that of its item.
fn call_id(item: &str) -> String {
    format!("call_{}", item.trim_start_matches(PREFIXES.call))
}

/// A part of a message.
fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
}

fn thought_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// An item: one that has begun is empty but for the name of a call.
fn item(Named { id, block }: &Named, status: &str, logprobs: &[Value]) -> Value {
    let is_begun = status == "in_progress";
    match block {
        Block::Thought(text) => {
            let content = if is_begun { json!([]) } else { json!([thought_part(text)]) };
            json!({ "type": "reasoning", "id": id, "summary": [], "content": content, "status": status })
        }
        Block::Text(text) => {
            let content = if is_begun { json!([]) } else { json!([text_part(text, logprobs)]) };
            json!({ "type": "message", "id": id, "role": "assistant", "content": content, "status": status })
        }
        Block::Call(call) => json!({
            "type": "function_call", "id": id, "call_id": call_id(id), "name": call.name,
            "arguments": call.arguments, "status": status,
        }),
    }
}

/// The events of a change.
fn events(index: usize, named: &Named, change: Change, logprobs: &[Value]) -> Vec<Value> {
    let id = &named.id;
    // An event about the only part of an item.
    let about = |kind: &str, name: &str, value: Value| {
        let event = json!({ "type": kind, "item_id": id, "output_index": index });
        match named.block {
            Block::Call(_) => with(event, name, value),
            Block::Thought(_) | Block::Text(_) => with(with(event, "content_index", 0.into()), name, value),
        }
    };
    let part = |text: &str| match named.block {
        Block::Thought(_) => thought_part(text),
        Block::Text(_) | Block::Call(_) => text_part(text, if text.is_empty() { &[] } else { logprobs }),
    };
    match (change, &named.block) {
        (Change::Opened, block) => {
            let added = item(named, "in_progress", &[]);
            let mut events =
                vec![json!({ "type": "response.output_item.added", "output_index": index, "item": added })];
            if !matches!(block, Block::Call(_)) {
                events.push(about("response.content_part.added", "part", part("")));
            }
            events
        }
        (Change::Grew(more), Block::Thought(_)) => {
            vec![about("response.reasoning_text.delta", "delta", more.into())]
        }
        (Change::Grew(more), Block::Text(_)) => {
            let event = about("response.output_text.delta", "delta", more.into());
            vec![with(event, "logprobs", logprobs.into())]
        }
        (Change::Grew(more), Block::Call(_)) => {
            vec![about("response.function_call_arguments.delta", "delta", more.into())]
        }
        (Change::Closed, block) => {
            let mut events = match block {
                Block::Thought(text) => {
                    vec![about("response.reasoning_text.done", "text", text.as_str().into())]
                }
                Block::Text(text) => {
                    let event = about("response.output_text.done", "text", text.as_str().into());
                    vec![with(event, "logprobs", logprobs.into())]
                }
                Block::Call(call) => {
                    let arguments = call.arguments.as_str().into();
                    let event = about("response.function_call_arguments.done", "arguments", arguments);
                    vec![with(event, "name", call.name.as_str().into())]
                }
            };
            if let Block::Thought(text) | Block::Text(text) = block {
                events.push(about("response.content_part.done", "part", part(text)));
            }
            let done = item(named, "completed", logprobs);
            events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": done }));
            events
        }
    }
}

impl Answer {
    pub(super) fn new(model: &Model, parser: Parser, echo: Value) -> Self {
        Self {
            id: id("resp_"),
            created: now(),
            model: model.card.alias.clone(),
            tokenizer: Arc::clone(&model.card.text.tokenizer),
            parser,
            blocks: Blocks::default(),
            echo,
            events: 0,
            logprobs: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// The answer as it is now.
    fn response(&self, outcome: Option<&Outcome>) -> Value {
        let is_cut =
            outcome.is_some_and(|outcome| matches!(outcome.finish, Finish::Length | Finish::Context));
        let status = match outcome {
            None => "in_progress",
            Some(_) if is_cut => "incomplete",
            Some(_) => "completed",
        };
        let blocks = self.blocks.all();
        let status_of = |i: usize| if is_cut && i + 1 == blocks.len() { "incomplete" } else { "completed" };
        let output: Vec<Value> = match outcome {
            None => Vec::new(),
            Some(_) => {
                let items = blocks.iter().enumerate();
                items.map(|(i, named)| item(named, status_of(i), &self.logprobs)).collect()
            }
        };
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": outcome.filter(|_| !is_cut).map(|_| now()),
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": is_cut.then(|| json!({ "reason": "max_output_tokens" })),
            "model": self.model,
            "output": output,
            "previous_response_id": null,
            "store": false,
            "truncation": "disabled",
            "usage": outcome.map(|outcome| self.usage(outcome)),
        });
        if let (Value::Object(response), Value::Object(echo)) = (&mut response, &self.echo) {
            response.extend(echo.clone());
        }
        response
    }

    fn usage(&self, outcome: &Outcome) -> Value {
        let thoughts = self.blocks.all().iter().filter_map(|named| match &named.block {
            Block::Thought(text) => Some(self.tokenizer.encode(text, false, false).ok()?.len()),
            Block::Text(_) | Block::Call(_) => None,
        });
        let input = outcome.times.cached + outcome.times.stats.prompt_tokens;
        let output = outcome.times.stats.generated_tokens;
        json!({
            "input_tokens": input,
            "input_tokens_details": { "cached_tokens": outcome.times.cached, "cache_write_tokens": 0 },
            "output_tokens": output,
            "output_tokens_details": { "reasoning_tokens": thoughts.sum::<usize>() },
            "total_tokens": input + output,
        })
    }

    /// Adds parts of the answer, the text among them with these probabilities.
    fn add(&mut self, parts: Vec<Part>, more: Vec<Value>) -> Vec<Value> {
        let mut all = Vec::new();
        // Those of tokens that have not become text yet come first.
        let mut logprobs = std::mem::take(&mut self.untold);
        logprobs.extend(more);
        for part in parts {
            let is_text = matches!(part, Part::Text(_));
            let new = if is_text { std::mem::take(&mut logprobs) } else { Vec::new() };
            let total = &mut self.logprobs;
            self.blocks.push(part, &PREFIXES, |index, named, change| {
                let told = if matches!(change, Change::Closed) { &*total } else { &new };
                all.extend(events(index, named, change, told));
            });
            total.extend(new);
        }
        self.untold = logprobs;
        all
    }

    /// Tells the probabilities of the last tokens, which have no text: they belong to the text before them,
    /// or to an empty one.
    fn tell_rest(&mut self) -> Vec<Value> {
        let is_text = self.blocks.all().last().is_none_or(|last| matches!(last.block, Block::Text(_)));
        if is_text && !self.untold.is_empty() {
            return self.add(vec![Part::Text(String::new())], Vec::new());
        }
        self.logprobs.append(&mut self.untold);
        Vec::new()
    }

    /// Events with their numbers.
    fn number(&mut self, events: Vec<Value>) -> Vec<Value> {
        let numbered = events.into_iter().map(|event| {
            self.events += 1;
            with(event, "sequence_number", (self.events - 1).into())
        });
        numbered.collect()
    }

    fn probabilities(&self, piece: &Piece) -> Vec<Value> {
        match logprobs::list(&self.tokenizer, &piece.logprobs) {
            Value::Array(list) => list,
            _ => Vec::new(),
        }
    }
}

impl Shape for Answer {
    fn begin(&mut self, _choice: usize) -> Vec<Value> {
        let kinds = ["response.created", "response.in_progress"];
        let begin = kinds.map(|kind| json!({ "type": kind, "response": self.response(None) }));
        self.number(begin.to_vec())
    }

    fn progress(&mut self, _choice: usize, progress: &Progress) -> Option<Value> {
        let event = json!({ "type": "response.in_progress", "response": self.response(None) });
        self.number(vec![with_progress(event, progress)]).pop()
    }

    fn piece(&mut self, _choice: usize, piece: &Piece) -> Vec<Value> {
        let parts = self.parser.push(&piece.text);
        let logprobs = self.probabilities(piece);
        let events = self.add(parts, logprobs);
        self.number(events)
    }

    fn end(&mut self, _choice: usize, outcome: &Outcome) -> Vec<Value> {
        let parts = self.parser.finish(outcome.finish);
        let mut all = self.add(parts, Vec::new());
        all.extend(self.tell_rest());
        let logprobs = &self.logprobs;
        self.blocks.close(|index, named, change| all.extend(events(index, named, change, logprobs)));
        let response = self.response(Some(outcome));
        let kind = format!("response.{}", response["status"].as_str().unwrap_or("completed"));
        let end = json!({ "type": kind, "response": response });
        all.push(with(end, "timings", timings(&outcome.times)));
        self.number(all)
    }

    fn says_done(&self) -> bool {
        false
    }

    fn names_events(&self) -> bool {
        true
    }

    fn error(&mut self, error: &ApiError) -> Value {
        let event = error.json();
        let (message, kind) = (event["error"]["message"].clone(), event["error"]["type"].clone());
        let event = with(with(with(event, "type", "error".into()), "code", kind), "message", message);
        with(with(event, "param", Value::Null), "sequence_number", self.events.into())
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        // There is one.
        let Some(text) = texts.first() else { return Value::Null };
        let mut parts = self.parser.push(&text.all.text);
        parts.extend(self.parser.finish(text.outcome.finish));
        let logprobs = self.probabilities(&text.all);
        self.add(parts, logprobs);
        self.tell_rest();
        with(self.response(Some(&text.outcome)), "timings", timings(&text.outcome.times))
    }
}
