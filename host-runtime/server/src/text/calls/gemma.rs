//! Calls of Gemma 4: `call:NAME{key:value,...}`, where a token of its own stands on both sides of strings.

use serde_json::Value;

use crate::text::literal::{Notation, Text};
use crate::text::part::Call;
use crate::text::tags::QUOTE;

struct Gemma;

/// Text that a call begins with.
pub(super) const BEGIN: &str = "call:";

/// The calls that a text is: at least one.
pub(super) fn calls(text: &str, may_lack_ends: bool) -> Option<Vec<Call>> {
    let mut text = Text::new(text, may_lack_ends);
    let mut all = Vec::new();
    while text.eat(BEGIN).is_some() {
        let name = text.take_while(|c| c != '{').trim();
        let Value::Object(arguments) = text.value::<Gemma>()? else { return None };
        if name.is_empty() {
            return None;
        }
        all.push(Call::new(name, arguments));
    }
    (text.is_over() && !all.is_empty()).then_some(all)
}

impl Notation for Gemma {
    fn string(text: &mut Text<'_>) -> Option<String> {
        if let Some(rest) = text.rest.strip_prefix(QUOTE) {
            let (string, rest) = rest.split_once(QUOTE)?;
            text.rest = rest;
            return Some(string.to_owned());
        }
        // Models write JSON's strings at times.
        text.quoted(&["\""])
    }

    fn key(text: &mut Text<'_>) -> Option<String> {
        text.skip_blanks();
        if let Some(key) = Self::string(text) {
            return Some(key);
        }
        let key = text.take_while(|c| !":,{}[]\"".contains(c)).trim_end();
        (!key.is_empty()).then(|| key.to_owned())
    }

    fn bare(text: &mut Text<'_>) -> Option<String> {
        let word = text.take_while(|c| !",{}[]\"<".contains(c)).trim();
        (!word.is_empty()).then(|| word.to_owned())
    }
}
