//! Parts of messages.

use serde_json::{Map, Value};

/// A part of a message that is a text.
pub(super) fn text_part(text: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), "text".into()), ("text".to_owned(), text.into())])
}

/// The type of a part of a message.
pub(super) fn kind(part: &Map<String, Value>) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or("no type")
}
