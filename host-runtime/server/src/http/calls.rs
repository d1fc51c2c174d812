//! Calls of tools in what a model writes, read while it comes, each by the way of its [`Family`]. What looks
//! like a call and is none stays text.

pub(super) mod gemma;
pub(super) mod harmony;
mod json;
mod literal;
mod llama;
mod mistral;
pub(super) mod python;
pub(super) mod tags;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::harmony::Harmony;
use self::llama::Llama;
use self::tags::Tagged;
use super::family::Family;
use super::tools::Tools;

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What the model thinks before it answers.
    Thought(String),
    Text(String),
    Call(Call),
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// A JSON object, as text.
    pub(super) arguments: String,
}

/// Reads an answer.
pub(super) enum Reader {
    Tagged(Tagged),
    Llama(Llama),
    Harmony(Harmony),
}

impl Reader {
    /// For answers of models of a family other than harmony's.
    pub(super) fn new(family: Family, tools: Arc<Tools>) -> Self {
        match family.tags() {
            Some(tags) => Self::Tagged(Tagged::new(family, tags, Taken::new(Some(tools)))),
            None => Self::Llama(Llama::new(Taken::new(Some(tools)))),
        }
    }

    /// For answers of models of harmony's family, whose messages have to be told apart whether there are
    /// tools or not. `thoughts_apart` says whether thoughts are parts of their own.
    pub(super) fn harmony(prompt: &str, tools: Option<Arc<Tools>>, thoughts_apart: bool) -> Self {
        Self::Harmony(Harmony::after(prompt, Taken::new(tools), thoughts_apart))
    }

    /// The parts that `text` completes.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        match self {
            Self::Tagged(reader) => reader.push(text),
            Self::Llama(reader) => reader.push(text),
            Self::Harmony(reader) => reader.push(text),
        }
        self.taken().take()
    }

    /// What is left when the answer has ended. A call may lack its end then.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        match self {
            Self::Tagged(reader) => reader.finish(),
            Self::Llama(reader) => reader.finish(),
            Self::Harmony(reader) => reader.finish(),
        }
        self.taken().take()
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        match self {
            Self::Tagged(reader) => reader.taken.calls,
            Self::Llama(reader) => reader.taken.calls,
            Self::Harmony(reader) => reader.taken.calls,
        }
    }

    fn taken(&mut self) -> &mut Taken {
        match self {
            Self::Tagged(reader) => &mut reader.taken,
            Self::Llama(reader) => &mut reader.taken,
            Self::Harmony(reader) => &mut reader.taken,
        }
    }
}

/// What was read of an answer.
struct Taken {
    tools: Option<Arc<Tools>>,
    parts: Vec<Part>,
    /// Calls so far.
    calls: usize,
    /// Whether nothing but blanks has come since the last call.
    after_call: bool,
}

impl Taken {
    fn new(tools: Option<Arc<Tools>>) -> Self {
        Self { tools, parts: Vec::new(), calls: 0, after_call: false }
    }

    /// Whether there was a call, and another one is not wanted.
    fn is_over(&self) -> bool {
        self.calls > 0 && !self.tools.as_ref().is_some_and(|tools| tools.parallel)
    }

    fn thought(&mut self, text: &str) {
        if !text.is_empty() && !self.is_over() {
            self.parts.push(Part::Thought(text.to_owned()));
        }
    }

    fn text(&mut self, text: &str) {
        // Blanks behind a call are no text.
        let text = if self.after_call { text.trim_start() } else { text };
        if !text.is_empty() && !self.is_over() {
            self.after_call = false;
            self.parts.push(Part::Text(text.to_owned()));
        }
    }

    fn call(&mut self, call: Call) {
        if !self.is_over() {
            self.calls += 1;
            self.after_call = true;
            self.parts.push(Part::Call(call));
        }
    }

    fn take(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }
}
