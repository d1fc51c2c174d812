//! Answers of gpt-oss, in OpenAI's format harmony: messages in channels.
//!
//! A message has a header, `<|message|>`, a body, and a token that ends it. The header names a channel
//! (thoughts are in `analysis`, the answer in `final`, what is said beside calls in `commentary`) and perhaps
//! a recipient: `to=functions.NAME` makes the body the arguments of a call. The recipient may stand before or
//! behind the channel. The first header has begun in the prompt, which ends with `<|start|>assistant`.

use super::json;
use super::taken::Taken;
use crate::text::harmony::{CHANNEL, CONSTRAIN, END, MESSAGE, START};
use crate::text::thoughts::overlap;

const RECIPIENT: &str = "to=";
const FUNCTIONS: &str = "functions.";
const ASSISTANT: &str = "assistant";

/// What may end a body. An end that the vocabulary ends texts with, such as `<|call|>`, is none of the text.
const ENDS: [&str; 3] = [END, START, CHANNEL];

/// Longest header in bytes. What is longer is none.
const MAX_HEADER: usize = 512;

/// What the body of a message is.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    Thought,
    Text,
    /// Text as the model wrote it, with its tags.
    Raw,
    /// Arguments for the recipient `to`, behind this header.
    Call {
        to: String,
        header: String,
    },
}

/// Where an answer is.
enum Place {
    /// In a header, or before one.
    Header,
    In(Body),
}

/// A reader of an answer.
pub(crate) struct Harmony {
    pub(super) taken: Taken,
    thoughts_apart: bool,
    /// Text that was not taken.
    held: String,
    place: Place,
}

impl Harmony {
    /// A reader that is where the prompt ends: a prompt may have begun an answer.
    pub(super) fn after(prompt: &str, taken: Taken, thoughts_apart: bool) -> Self {
        let mut harmony = Self { taken, thoughts_apart, held: String::new(), place: Place::Header };
        if let Some((_, begun)) = prompt.rsplit_once(START) {
            harmony.push(begun);
            harmony.held = parts(&harmony.held).to_owned();
            harmony.taken.take();
        }
        harmony
    }

    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
        while match &self.place {
            Place::Header => self.header(),
            Place::In(_) => self.body(),
        } {}
    }

    pub(super) fn finish(&mut self) {
        let rest = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.place, Place::Header) {
            // A header without a body says nothing, but a text that only looked like one does.
            Place::Header if is_header(&rest) => {}
            Place::Header => self.taken.text(&rest),
            Place::In(body) => {
                self.give(&body, &rest);
                self.end(body, &rest, "");
            }
        }
    }

    /// Reads a header; whether to go on.
    fn header(&mut self) -> bool {
        if let Some(at) = self.held.find(MESSAGE)
            && at <= MAX_HEADER
            && is_header(&self.held[..at])
        {
            let header: String = self.held.drain(..at + MESSAGE.len()).collect();
            self.place = Place::In(self.body_of(&header));
            return true;
        }
        let may_go_on = may_be_header(&self.held) && self.held.len() < MAX_HEADER + MESSAGE.len();
        // The token that ends a body means something else here, so it has to be there as a whole.
        if may_go_on || (self.held.len() < END.len() && END.starts_with(&self.held)) {
            return false;
        }
        // The model does not keep to the format: what it writes is its answer, with the token that it begins
        // with.
        if let Some(tag) = ENDS.iter().find(|tag| self.held.starts_with(*tag)) {
            self.held.drain(..tag.len());
            self.taken.text(tag);
        }
        self.place = Place::In(Body::Text);
        true
    }

    /// What follows a header.
    fn body_of(&mut self, header: &str) -> Body {
        let word = |after: &str| {
            let (_, rest) = header.split_once(after)?;
            Some(rest.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default())
        };
        if let Some(to) = word(RECIPIENT) {
            return Body::Call { to: to.to_owned(), header: header.to_owned() };
        }
        match word(CHANNEL) {
            Some("analysis") if self.thoughts_apart => Body::Thought,
            Some("analysis") => {
                self.taken.text(header);
                Body::Raw
            }
            _ => Body::Text,
        }
    }

    /// Reads a body; whether to go on.
    fn body(&mut self) -> bool {
        let Place::In(body) = std::mem::replace(&mut self.place, Place::Header) else { return false };
        let end = ENDS.iter().filter_map(|end| Some((self.held.find(end)?, *end))).min();
        let Some((at, end)) = end else {
            // Arguments are taken whole.
            if !matches!(body, Body::Call { .. }) {
                let keep = ENDS.iter().map(|end| overlap(&self.held, end)).max().unwrap_or(0);
                let text: String = self.held.drain(..self.held.len() - keep).collect();
                self.give(&body, &text);
            }
            self.place = Place::In(body);
            return false;
        };
        let text: String = self.held.drain(..at).collect();
        // What begins the next message is part of it.
        let close = if end == END { END } else { "" };
        self.held.drain(..close.len());
        self.give(&body, &text);
        self.end(body, &text, close);
        true
    }

    /// Takes a part of a body.
    fn give(&mut self, body: &Body, text: &str) {
        match body {
            Body::Thought => self.taken.thought(text),
            Body::Text | Body::Raw => self.taken.text(text),
            Body::Call { .. } => {}
        }
    }

    /// A body is complete, and `text` is the last part of it.
    fn end(&mut self, body: Body, text: &str, close: &str) {
        match body {
            Body::Thought | Body::Text => {}
            Body::Raw => self.taken.text(close),
            Body::Call { to, header } => {
                // Some answers have the name alone. Other recipients are none of the request's tools.
                let tools = self.taken.tools.as_ref();
                let name = to.strip_prefix(FUNCTIONS).filter(|_| tools.is_some()).or_else(|| {
                    let to = to.trim_matches(['"', '\'', '`']);
                    Some(to).filter(|to| tools.is_some_and(|tools| tools.has(to)))
                });
                let may_lack_ends = !self.taken.is_cut;
                match name.and_then(|name| json::named(name, text, may_lack_ends)) {
                    Some(call) => self.taken.call(call),
                    None => self.taken.text(&format!("{header}{text}{close}")),
                }
            }
        }
    }
}

/// The parts of a header, behind what may stand before them.
fn parts(text: &str) -> &str {
    let text = text.trim_start();
    let text = text.strip_prefix(START).unwrap_or(text);
    let text = text.strip_prefix(ASSISTANT).unwrap_or(text);
    text.trim_start()
}

/// Whether a text is a header, or nothing at all.
fn is_header(text: &str) -> bool {
    let parts = parts(text);
    parts.is_empty() || [CHANNEL, CONSTRAIN, RECIPIENT].iter().any(|begin| parts.starts_with(begin))
}

/// Whether a text may become a header.
fn may_be_header(text: &str) -> bool {
    let begins = |of: &str, text: &str| of.starts_with(text);
    let text = text.trim_start();
    let parts = parts(text);
    is_header(text)
        || [CHANNEL, CONSTRAIN, RECIPIENT, MESSAGE].iter().any(|begin| begins(begin, parts))
        || begins(START, text)
        || begins(ASSISTANT, text.strip_prefix(START).unwrap_or(text))
}
