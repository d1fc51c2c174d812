//! Calls of Llama 3: an answer that is a JSON object with a tool's name and parameters, or such an object
//! after `<|python_tag|>`, or several with semicolons between them.
//!
//! An answer may be a JSON object that is no call, or have one in it, so that only names of tools that were
//! offered count.

use super::taken::Taken;
use super::{fence, json, python};
use crate::text::part::Call;
use crate::text::tags::PYTHON_TAG;
use crate::text::thoughts::overlap;

/// Where an answer is.
enum Place {
    /// At its beginning, or behind a call: an object may begin without a tag.
    Open,
    /// In what may be a call, behind a tag or without one.
    Inside { tagged: bool, brackets: json::Brackets },
    /// Plain text.
    Text,
}

/// A reader of an answer.
pub(crate) struct Llama {
    pub(super) taken: Taken,
    /// What may become a call, or a tag.
    held: String,
    /// Blanks and separators before what may be a call, which are text if it is none.
    before: String,
    place: Place,
    /// Whether the last call was in a block of code, whose end follows.
    is_fenced: bool,
}

impl Llama {
    pub(super) fn new(taken: Taken) -> Self {
        Self { taken, held: String::new(), before: String::new(), place: Place::Open, is_fenced: false }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
        while self.advance() {}
    }

    pub(super) fn finish(&mut self) {
        let rest = std::mem::take(&mut self.held);
        let tagged = matches!(self.place, Place::Inside { tagged: true, .. });
        let call = match self.place {
            Place::Inside { .. } => self
                .named(&rest, !self.taken.is_cut)
                .or_else(|| if tagged { self.builtin(&rest) } else { None }),
            Place::Open | Place::Text => None,
        };
        self.place = Place::Text;
        match call {
            Some(call) => self.taken.call(call),
            None => self.text(tagged, &rest),
        }
    }

    /// Goes on as far as what is held tells; whether it may go on further.
    fn advance(&mut self) -> bool {
        match &mut self.place {
            Place::Open if self.is_fenced => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(fence::FENCE) {
                    self.held = rest.to_owned();
                } else if fence::FENCE.starts_with(begun) {
                    return false;
                }
                self.is_fenced = false;
                true
            }
            Place::Open => {
                let separators = |c: char| c.is_whitespace() || (c == ';' && self.taken.calls > 0);
                let begun = self.held.trim_start_matches(separators);
                let blanks = self.held.len() - begun.len();
                let tagged = begun.starts_with(PYTHON_TAG);
                if tagged || begun.starts_with('{') {
                    self.before = self.held.drain(..blanks).collect();
                    self.held.drain(..if tagged { PYTHON_TAG.len() } else { 0 });
                    self.place = Place::Inside { tagged, brackets: json::Brackets::default() };
                } else if PYTHON_TAG.starts_with(begun) {
                    return false;
                } else {
                    self.place = Place::Text;
                }
                true
            }
            Place::Inside { tagged, brackets } => {
                let tagged = *tagged;
                // What is no object behind a tag is known when the answer has ended.
                if !self.held.trim_start().starts_with('{') {
                    return false;
                }
                let Some(end) = brackets.end(&self.held) else { return false };
                let object: String = self.held.drain(..end).collect();
                match self.named(&object, false) {
                    Some(call) => {
                        self.is_fenced = self.before.contains(fence::FENCE);
                        self.before.clear();
                        self.taken.call(call);
                        self.place = Place::Open;
                    }
                    None => {
                        self.text(tagged, &object);
                        self.place = Place::Text;
                    }
                }
                true
            }
            Place::Text => {
                let tag = self.held.find(PYTHON_TAG);
                let object = json::object_of_call(&self.held[..tag.unwrap_or(self.held.len())]);
                // What a tag stands behind is no beginning.
                let object = object.filter(|&(_, is_sure)| is_sure || tag.is_none());
                if let Some((at, true)) = object {
                    // Blanks before a call are none of the answer's.
                    let text = fence::before(&self.held[..at]);
                    let before: String = self.held.drain(..at).collect();
                    self.taken.text(&before[..text]);
                    before[text..].clone_into(&mut self.before);
                    self.place = Place::Inside { tagged: false, brackets: json::Brackets::default() };
                    return true;
                }
                if let Some(at) = tag {
                    let before: String = self.held.drain(..at).collect();
                    self.held.drain(..PYTHON_TAG.len());
                    self.taken.text(&before);
                    self.place = Place::Inside { tagged: true, brackets: json::Brackets::default() };
                    return true;
                }
                let keep = overlap(&self.held, PYTHON_TAG).max(fence::held(&self.held));
                let safe = object.map_or(self.held.len() - keep, |(at, _)| at);
                let safe = fence::before(&self.held[..safe]);
                let text: String = self.held.drain(..safe).collect();
                self.taken.text(&text);
                false
            }
        }
    }

    fn text(&mut self, tagged: bool, text: &str) {
        let tag = if tagged { PYTHON_TAG } else { "" };
        let before = std::mem::take(&mut self.before);
        self.taken.text(&format!("{before}{tag}{text}"));
    }

    /// The call that an object is, of a tool that was offered.
    fn named(&self, object: &str, may_lack_ends: bool) -> Option<Call> {
        json::call(object, may_lack_ends).filter(|call| self.is_offered(&call.name))
    }

    /// `name.call(key=value)`.
    fn builtin(&self, text: &str) -> Option<Call> {
        let tools = self.taken.tools.as_ref()?;
        let name = text.trim_start().split_once(".call(")?.0;
        let calls = python::calls(text, tools, !self.taken.is_cut)?;
        let [call] = <[Call; 1]>::try_from(calls).ok()?;
        self.is_offered(name).then(|| Call { name: name.to_owned(), ..call })
    }

    fn is_offered(&self, name: &str) -> bool {
        self.taken.tools.as_ref().is_some_and(|tools| tools.has(tools.resolve(name)))
    }
}
