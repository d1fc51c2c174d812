//! Calls as JSON: an object with a name and arguments, or a list of such.

use serde_json::{Map, Value};

use super::Call;

/// The call that a text is.
pub(super) fn call(text: &str) -> Option<Call> {
    of(serde_json::from_str(text).ok()?)
}

/// The calls that a text is: one, or a list of at least one.
pub(super) fn calls(text: &str) -> Option<Vec<Call>> {
    match serde_json::from_str(text).ok()? {
        Value::Array(all) if !all.is_empty() => all.into_iter().map(of).collect(),
        one => of(one).map(|call| vec![call]),
    }
}

fn of(value: Value) -> Option<Call> {
    let Value::Object(call) = value else { return None };
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(arguments) => arguments.to_string(),
    };
    Some(Call { name, arguments })
}

/// The call of the tool `name` with these arguments, if they are a JSON object. No text at all stands for
/// none.
pub(super) fn named(name: &str, arguments: &str) -> Option<Call> {
    let arguments = match arguments.trim() {
        "" => Map::new(),
        text => serde_json::from_str::<Map<String, Value>>(text).ok()?,
    };
    let name = name.trim();
    (!name.is_empty())
        .then(|| Call { name: name.to_owned(), arguments: Value::Object(arguments).to_string() })
}

/// Finds where a JSON object or list ends in a text that grows.
#[derive(Default)]
pub(super) struct Brackets {
    /// Bytes that were looked at.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Brackets {
    /// The end of the object or list that `text` begins with, if it is there. Each call sees the same text,
    /// to which more may have been added.
    pub(super) fn end(&mut self, text: &str) -> Option<usize> {
        for byte in text.bytes().skip(self.seen) {
            self.seen += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.seen);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
