//! Calls of Gemma 4: `call:NAME{key:value,...}`, where a token of its own stands on both sides of strings.

use serde_json::Value;

use super::Call;
use super::literal::{Notation, Text};

/// What stands on both sides of a string, in which nothing is escaped.
pub(in super::super) const QUOTE: &str = "<|\"|>";

struct Gemma;

/// The call that a text is.
pub(super) fn call(text: &str) -> Option<Call> {
    let mut text = Text::new(text);
    text.eat("call:")?;
    let name = text.take_while(|c| c != '{').trim().to_owned();
    let Value::Object(arguments) = text.value::<Gemma>()? else { return None };
    (!name.is_empty() && text.rest.trim().is_empty())
        .then(|| Call { name, arguments: Value::Object(arguments).to_string() })
}

impl Notation for Gemma {
    fn string(text: &mut Text<'_>) -> Option<String> {
        if let Some(rest) = text.rest.strip_prefix(QUOTE) {
            let mut inner = Text::new(rest);
            let string = inner.until(QUOTE)?.to_owned();
            text.rest = inner.rest;
            return Some(string);
        }
        // Models write JSON's strings at times.
        if !text.rest.starts_with('"') {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(text.rest).into_iter::<String>();
        let string = values.next()?.ok()?;
        text.rest = &text.rest[values.byte_offset()..];
        Some(string)
    }

    fn key(text: &mut Text<'_>) -> Option<String> {
        text.skip_blanks();
        if let Some(key) = Self::string(text) {
            return Some(key);
        }
        let key = text.take_while(|c| !":,{}[]\"".contains(c)).trim_end();
        (!key.is_empty()).then(|| key.to_owned())
    }

    fn word(word: &str) -> Option<Value> {
        match word {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            "null" => Some(Value::Null),
            _ => None,
        }
    }
}
