//! Calls between tags.

use serde_json::Map;
use serde_json::Value;

use super::super::family::Family;
use super::super::thoughts::overlap;
use super::super::tools::Tools;
use super::{Call, Taken, gemma, json, mistral, python};

/// The beginning of a call by tags.
const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const END_FUNCTION: &str = "</function>";
const END_PARAMETER: &str = "</parameter>";

/// What stands around a call.
#[derive(Clone, Copy)]
pub(in super::super) struct Tags {
    pub(in super::super) open: &'static str,
    /// Without it a call ends where the next one begins.
    pub(in super::super) close: Option<&'static str>,
}

/// Reads an answer in which tags stand around calls.
pub(in super::super) struct Tagged {
    family: Family,
    tags: Tags,
    pub(super) taken: Taken,
    /// What may become a call.
    held: String,
    /// Whether `held` is behind an opening tag.
    inside: bool,
    /// Blanks before that tag.
    blanks: String,
}

impl Tagged {
    pub(super) fn new(family: Family, tags: Tags, taken: Taken) -> Self {
        Self { family, tags, taken, held: String::new(), inside: false, blanks: String::new() }
    }

    pub(super) fn push(&mut self, text: &str) {
        let Tags { open, close } = self.tags;
        self.held.push_str(text);
        loop {
            let tag = if self.inside { close.unwrap_or(open) } else { open };
            let Some(at) = self.held.find(tag) else { break };
            let mut before: String = self.held.drain(..at + tag.len()).collect();
            before.truncate(at);
            if self.inside {
                self.calls(&before, close.unwrap_or_default());
                self.blanks.clear();
                self.inside = close.is_none();
            } else {
                let text = before.trim_end();
                before[text.len()..].clone_into(&mut self.blanks);
                self.taken.text(text);
                self.inside = true;
            }
        }
        if !self.inside {
            // Blanks before a call are none of the answer's, and the end may be the beginning of a tag.
            let safe = self.held.len() - overlap(&self.held, open);
            let safe = self.held[..safe].trim_end().len();
            let text: String = self.held.drain(..safe).collect();
            self.taken.text(&text);
        }
    }

    pub(super) fn finish(&mut self) {
        let rest = std::mem::take(&mut self.held);
        match self.inside {
            true => self.calls(&rest, ""),
            false => self.taken.text(&rest),
        }
        self.inside = false;
    }

    /// Takes the calls between two tags, of which the second may be missing.
    fn calls(&mut self, block: &str, close: &str) {
        let calls = self.taken.tools.as_ref().and_then(|tools| parse(self.family, block.trim(), tools));
        match calls {
            Some(calls) => calls.into_iter().for_each(|call| self.taken.call(call)),
            None => self.taken.text(&format!("{}{}{block}{close}", self.blanks, self.tags.open)),
        }
    }
}

/// The calls in a block, of which there is at least one.
fn parse(family: Family, block: &str, tools: &Tools) -> Option<Vec<Call>> {
    let one = |call: Option<Call>| call.map(|call| vec![call]);
    match family {
        Family::Json | Family::Functions => match block.strip_prefix(FUNCTION) {
            Some(rest) => one(parse_tags(rest, tools)),
            None => one(json::call(block)),
        },
        Family::Lfm2 => python::calls(block, tools).or_else(|| json::calls(block)),
        Family::Gemma => one(gemma::call(block)),
        Family::MistralList | Family::MistralNames => mistral::calls(block),
        // Their calls have other readers.
        Family::Llama | Family::Harmony => None,
    }
}

/// What follows `<function=`.
fn parse_tags(rest: &str, tools: &Tools) -> Option<Call> {
    let (name, mut rest) = rest.split_once('>')?;
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with(END_FUNCTION) {
            return Some(Call { name: name.to_owned(), arguments: Value::Object(arguments).to_string() });
        }
        let (parameter, after) = rest.strip_prefix(PARAMETER)?.split_once('>')?;
        let (text, after) = after.split_once(END_PARAMETER)?;
        // A line break on each side belongs to the form.
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        arguments.insert(parameter.to_owned(), tools.value(name, parameter, text));
        rest = after;
    }
}
