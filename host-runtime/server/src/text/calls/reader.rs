//! A reader of answers, by the family of their model.

use std::sync::Arc;

use super::harmony::Harmony;
use super::llama::Llama;
use super::tagged::Tagged;
use super::taken::Taken;
use crate::text::family::Family;
use crate::text::part::Part;
use crate::text::tools::Tools;

/// Reads an answer.
pub(crate) enum Reader {
    Tagged(Tagged),
    Llama(Llama),
    Harmony(Harmony),
}

impl Reader {
    /// For answers of models of a family other than harmony's.
    pub(crate) fn new(family: Family, tools: Arc<Tools>) -> Self {
        match family.tags() {
            Some(tags) => Self::Tagged(Tagged::new(family, tags, Taken::new(Some(tools)))),
            None => Self::Llama(Llama::new(Taken::new(Some(tools)))),
        }
    }

    /// For answers of models of harmony's family, whose messages have to be told apart whether there are
    /// tools or not. `thoughts_apart` says whether thoughts are parts of their own.
    pub(crate) fn harmony(prompt: &str, tools: Option<Arc<Tools>>, thoughts_apart: bool) -> Self {
        Self::Harmony(Harmony::after(prompt, Taken::new(tools), thoughts_apart))
    }

    /// The parts that `text` completes.
    pub(in crate::text) fn push(&mut self, text: &str) -> Vec<Part> {
        match self {
            Self::Tagged(reader) => reader.push(text),
            Self::Llama(reader) => reader.push(text),
            Self::Harmony(reader) => reader.push(text),
        }
        self.taken().take()
    }

    /// Gives the parts that are left when the answer has ended. A call may lack its end then, unless the
    /// answer was cut off: nobody knows what would have come.
    pub(in crate::text) fn finish(&mut self, is_cut: bool) -> Vec<Part> {
        self.taken().is_cut = is_cut;
        match self {
            Self::Tagged(reader) => reader.finish(),
            Self::Llama(reader) => reader.finish(),
            Self::Harmony(reader) => reader.finish(),
        }
        self.taken().take()
    }

    /// Calls so far.
    pub(in crate::text) fn calls(&self) -> usize {
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
