//! Values as Python writes them.

use serde_json::Value;

use super::literal::{Notation, Text};

/// Python's notation.
pub(super) struct Python;

/// The value that a text is, if it is one.
pub(super) fn value(text: &str) -> Option<Value> {
    let mut text = Text::new(text, false);
    text.value::<Python>().filter(|_| text.rest.trim().is_empty())
}

impl Notation for Python {
    const TUPLES: bool = true;

    fn string(text: &mut Text<'_>) -> Option<String> {
        text.quoted(&["\"\"\"", "'''", "\"", "'"])
    }

    fn key(text: &mut Text<'_>) -> Option<String> {
        text.skip_blanks();
        Self::string(text)
    }
}
