//! What was read of an answer.

use std::sync::Arc;

use crate::text::part::{Call, Part};
use crate::text::tools::Tools;

/// The part of an answer that was read.
pub(super) struct Taken {
    pub(super) tools: Option<Arc<Tools>>,
    parts: Vec<Part>,
    /// Calls so far.
    pub(super) calls: usize,
    /// Whether nothing but blanks has come since the last call.
    after_call: bool,
    /// Whether the answer did not end by itself.
    pub(super) is_cut: bool,
}

impl Taken {
    pub(super) fn new(tools: Option<Arc<Tools>>) -> Self {
        Self { tools, parts: Vec::new(), calls: 0, after_call: false, is_cut: false }
    }

    /// Whether there was a call, and another one is not wanted.
    pub(super) fn is_over(&self) -> bool {
        self.calls > 0 && !self.tools.as_ref().is_some_and(|tools| tools.parallel)
    }

    pub(super) fn thought(&mut self, text: &str) {
        if !text.is_empty() && !self.is_over() {
            self.parts.push(Part::Thought(text.to_owned()));
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        // Blanks behind a call are no text.
        let text = if self.after_call { text.trim_start() } else { text };
        if !text.is_empty() && !self.is_over() {
            self.after_call = false;
            self.parts.push(Part::Text(text.to_owned()));
        }
    }

    pub(super) fn call(&mut self, mut call: Call) {
        if !self.is_over() {
            if let Some(tools) = &self.tools {
                tools.resolve(&call.name).to_owned().clone_into(&mut call.name);
            }
            self.calls += 1;
            self.after_call = true;
            self.parts.push(Part::Call(call));
        }
    }

    pub(super) fn take(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }
}
