//! Calls as Python writes them: `[name(key=value, ...), ...]`, as LFM2 does, and `name.call(key=value, ...)`,
//! as Llama does for tools that its makers chose.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::super::tools::Tools;
use super::Call;
use super::literal::{Notation, Text};

struct Python;

/// The calls that a text is: one, or a list of at least one.
pub(super) fn calls(text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let mut text = Text::new(text);
    let mut all = Vec::new();
    if text.rest.starts_with('[') {
        text.items("[", "]", |text| {
            all.push(call(text, tools)?);
            Some(())
        })?;
    } else {
        all.push(call(&mut text, tools)?);
    }
    (text.rest.trim().is_empty() && !all.is_empty()).then_some(all)
}

fn call(text: &mut Text<'_>, tools: &Tools) -> Option<Call> {
    text.skip_blanks();
    let name = text.take_while(|c| c.is_alphanumeric() || "_-.".contains(c)).to_owned();
    if name.is_empty() {
        return None;
    }
    let mut arguments = Map::new();
    text.items("(", ")", |text| {
        let (key, rest) = key(text.rest);
        let key = match key {
            Some(key) => {
                text.rest = rest;
                key.to_owned()
            }
            // Without a key, it is the next parameter of the tool.
            None => tools.parameter(&name, arguments.len())?.to_owned(),
        };
        arguments.insert(key, text.value::<Python>()?);
        Some(())
    })?;
    Some(Call { name, arguments: Value::Object(arguments).to_string() })
}

/// The key before `=`, if there is one, and what follows.
fn key(text: &str) -> (Option<&str>, &str) {
    let begin = text.trim_start();
    let end = begin.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(begin.len());
    match begin[end..].trim_start().strip_prefix('=') {
        Some(rest) if end > 0 => (Some(&begin[..end]), rest),
        _ => (None, text),
    }
}

impl Notation for Python {
    fn string(text: &mut Text<'_>) -> Option<String> {
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| text.rest.starts_with(quote))?;
        let mut rest = &text.rest[quote.len()..];
        let mut out = String::new();
        loop {
            if let Some(after) = rest.strip_prefix(quote) {
                text.rest = after;
                return Some(out);
            }
            let mut characters = rest.chars();
            match characters.next()? {
                '\\' => {
                    rest = characters.as_str();
                    rest = escape(rest, &mut out)?;
                }
                c => {
                    out.push(c);
                    rest = characters.as_str();
                }
            }
        }
    }

    fn key(text: &mut Text<'_>) -> Option<String> {
        text.skip_blanks();
        Self::string(text)
    }

    fn word(word: &str) -> Option<Value> {
        match word {
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            "None" | "null" => Some(Value::Null),
            _ => None,
        }
    }
}

/// Reads what follows a backslash; what follows that.
fn escape<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let mut characters = text.chars();
    let (digits, rest) = match characters.next()? {
        'n' => return put('\n', out, characters.as_str()),
        't' => return put('\t', out, characters.as_str()),
        'r' => return put('\r', out, characters.as_str()),
        c @ ('\\' | '\'' | '"' | '/') => return put(c, out, characters.as_str()),
        '\n' => return Some(characters.as_str()),
        'x' => (2, characters.as_str()),
        'u' => (4, characters.as_str()),
        'U' => (8, characters.as_str()),
        // Python keeps the backslash before all others.
        c => {
            out.push('\\');
            return put(c, out, characters.as_str());
        }
    };
    let code = u32::from_str_radix(rest.get(..digits)?, 16).ok()?;
    put(char::from_u32(code)?, out, &rest[digits..])
}

fn put<'t>(c: char, out: &mut String, rest: &'t str) -> Option<&'t str> {
    out.push(c);
    Some(rest)
}

/// Calls as a text: `[name(key=value, ...), ...]`. Those without a name are left out.
pub(in super::super) fn written(calls: &[Value]) -> String {
    let mut out = String::from("[");
    for call in calls {
        let Some(name) = call.pointer("/function/name").and_then(Value::as_str) else { continue };
        let separator = if out.len() > 1 { ", " } else { "" };
        out.push_str(separator);
        out.push_str(name);
        out.push('(');
        let arguments = call.pointer("/function/arguments").and_then(Value::as_object);
        for (i, (key, value)) in arguments.into_iter().flatten().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            // Writing to a text does not fail.
            let _ = write!(out, "{separator}{key}=");
            literal(value, &mut out);
        }
        out.push(')');
    }
    out + "]"
}

/// A value as Python writes it. JSON's strings and numbers are Python's, too.
fn literal(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                literal(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (key, item)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push_str(": ");
                literal(item, out);
            }
            out.push('}');
        }
    }
}
