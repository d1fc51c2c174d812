//! Calls as JSON: an object with a name and arguments, or a list of such.

use serde_json::{Deserializer, Map, Value};

use crate::text::literal::{Json, Text};
use crate::text::part::Call;

/// The call that a text is.
pub(super) fn call(text: &str, may_lack_ends: bool) -> Option<Call> {
    let calls = calls(text, may_lack_ends)?;
    let [call] = <[Call; 1]>::try_from(calls).ok()?;
    Some(call)
}

/// The calls that a text is: objects, one after the other, or lists of them; at least one.
pub(super) fn calls(text: &str, may_lack_ends: bool) -> Option<Vec<Call>> {
    let mut all = Vec::new();
    for value in values(text, may_lack_ends)? {
        match value {
            Value::Array(items) => all.extend(items.into_iter().map(of).collect::<Option<Vec<_>>>()?),
            one => all.push(of(one)?),
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The values that a text is. What is no JSON is read once more as what models write in its place.
fn values(text: &str, may_lack_ends: bool) -> Option<Vec<Value>> {
    let exact: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
    if let Ok(values) = exact {
        return Some(values);
    }
    let mut text = Text::new(text, may_lack_ends);
    let mut all = Vec::new();
    while !text.is_over() {
        all.push(text.value::<Json>()?);
        text.eat(",");
    }
    Some(all)
}

/// The call that a value is: `{"name": ..., "arguments": {...}}`, by whatever names the models of all
/// families have for these, also within `function`, as OpenAI's interface has it.
fn of(value: Value) -> Option<Call> {
    let Value::Object(mut call) = value else { return None };
    if let Some(Value::Object(function)) = call.get_mut("function") {
        call = std::mem::take(function);
    }
    let name = call.get("name").or_else(|| call.get("function"))?.as_str()?.to_owned();
    let given = ["arguments", "parameters"].into_iter().find_map(|key| call.remove(key));
    Some(Call::new(&name, object(given.unwrap_or_default())?))
}

/// Arguments as an object. Nothing at all stands for none, and some models write JSON into a text.
fn object(arguments: Value) -> Option<Map<String, Value>> {
    match arguments {
        Value::Null => Some(Map::new()),
        Value::Object(all) => Some(all),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => match serde_json::from_str(&text).ok()? {
            Value::Null => Some(Map::new()),
            Value::Object(all) => Some(all),
            _ => None,
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The call of the tool `name` with these arguments, if they are a JSON object. No text at all stands for
/// none.
pub(super) fn named(name: &str, arguments: &str, may_lack_ends: bool) -> Option<Call> {
    let mut values = values(arguments, may_lack_ends)?.into_iter();
    let arguments = object(values.next().unwrap_or_default())?;
    (!name.trim().is_empty() && values.next().is_none()).then(|| Call::new(name, arguments))
}

/// The keys that the object of a call may begin with. What begins with another one needs not be held back.
const KEYS: [&str; 5] = ["\"name\"", "\"type\"", "\"function\"", "\"parameters\"", "\"arguments\""];

/// Place in a text where an object begins as those of calls do, and whether that is sure: it is not where
/// the text ends within such a beginning.
pub(super) fn object_of_call(text: &str) -> Option<(usize, bool)> {
    text.match_indices('{').find_map(|(at, brace)| {
        let inside = text[at + brace.len()..].trim_start();
        let is_sure = KEYS.iter().any(|key| inside.starts_with(key));
        (is_sure || KEYS.iter().any(|key| key.starts_with(inside))).then_some((at, is_sure))
    })
}

/// Whether a text ends within a string.
pub(super) fn ends_in_string(text: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ => {}
        }
    }
    inside
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
