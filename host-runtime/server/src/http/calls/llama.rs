//! Calls of Llama 3: an answer that is a JSON object with a tool's name and parameters, or such an object
//! after `<|python_tag|>`, or several with semicolons between them.
//!
//! An answer may be a JSON object that is no call, so that only names of tools that were offered count.

use serde_json::Value;

use super::super::family::PYTHON_TAG;
use super::super::thoughts::overlap;
use super::{Call, Taken, json, python};

/// Where an answer is.
enum Place {
    /// At its beginning, or behind a call: an object may begin without a tag.
    Open,
    /// In what may be a call, behind a tag or without one.
    Inside { tagged: bool, brackets: json::Brackets },
    /// In plain text: only a tag begins a call.
    Text,
}

/// Reads an answer.
pub(in super::super) struct Llama {
    pub(super) taken: Taken,
    /// What may become a call, or a tag.
    held: String,
    /// Blanks and separators before what may be a call, which are text if it is none.
    before: String,
    place: Place,
}

impl Llama {
    pub(super) fn new(taken: Taken) -> Self {
        Self { taken, held: String::new(), before: String::new(), place: Place::Open }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
        while self.advance() {}
    }

    pub(super) fn finish(&mut self) {
        let rest = std::mem::take(&mut self.held);
        let tagged = matches!(self.place, Place::Inside { tagged: true, .. });
        let call = match self.place {
            Place::Inside { .. } => {
                self.named(&rest).or_else(|| if tagged { self.builtin(&rest) } else { None })
            }
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
                match self.named(&object) {
                    Some(call) => {
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
                if let Some(at) = self.held.find(PYTHON_TAG) {
                    let before: String = self.held.drain(..at).collect();
                    self.held.drain(..PYTHON_TAG.len());
                    self.taken.text(&before);
                    self.place = Place::Inside { tagged: true, brackets: json::Brackets::default() };
                    return true;
                }
                let safe = self.held.len() - overlap(&self.held, PYTHON_TAG);
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
    fn named(&self, object: &str) -> Option<Call> {
        let call = json::call(object)?;
        let has_arguments = serde_json::from_str::<Value>(&call.arguments).is_ok_and(|all| all.is_object());
        self.is_offered(&call.name).then_some(call).filter(|_| has_arguments)
    }

    /// `name.call(key=value)`.
    fn builtin(&self, text: &str) -> Option<Call> {
        let tools = self.taken.tools.as_ref()?;
        let name = text.trim_start().split_once(".call(")?.0;
        let calls = python::calls(text, tools)?;
        let [call] = <[Call; 1]>::try_from(calls).ok()?;
        self.is_offered(name).then(|| Call { name: name.to_owned(), ..call })
    }

    fn is_offered(&self, name: &str) -> bool {
        self.taken.tools.as_ref().is_some_and(|tools| tools.has(name))
    }
}
