//! The parts that answers have.

use serde_json::{Map, Value};

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the model thinks before it answers.
    Thought(String),
    Text(String),
    Call(Call),
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// A JSON object, as text.
    pub(crate) arguments: String,
}

impl Call {
    pub(super) fn new(name: &str, arguments: Map<String, Value>) -> Self {
        let name = name.trim();
        // Some models put names into quotes.
        let name = ['"', '\'', '`']
            .iter()
            .find_map(|&quote| name.strip_prefix(quote)?.strip_suffix(quote).filter(|name| !name.is_empty()))
            .unwrap_or(name);
        Self { name: name.to_owned(), arguments: Value::Object(arguments).to_string() }
    }
}
