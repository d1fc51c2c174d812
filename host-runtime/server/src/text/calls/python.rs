//! Calls as Python writes them: `[name(key=value, ...), ...]`, as LFM2 does, and `name.call(key=value, ...)`,
//! as Llama does for tools that its makers chose.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::text::literal::Text;
use crate::text::part::Call;
use crate::text::python::Python;
use crate::text::tools::Tools;

/// The calls that a text is: one, or a list of at least one.
pub(super) fn calls(text: &str, tools: &Tools, may_lack_ends: bool) -> Option<Vec<Call>> {
    let mut text = Text::new(text, may_lack_ends);
    let mut all = Vec::new();
    if text.rest.starts_with('[') {
        text.items("[", "]", |text| {
            all.push(call(text, tools)?);
            Some(())
        })?;
    } else {
        all.push(call(&mut text, tools)?);
    }
    (text.is_over() && !all.is_empty()).then_some(all)
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
            None => tools.parameter(tools.resolve(&name), arguments.len())?.to_owned(),
        };
        arguments.insert(key, text.value::<Python>()?);
        Some(())
    })?;
    Some(Call::new(&name, arguments))
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

/// Calls as a text: `[name(key=value, ...), ...]`. Those without a name are left out.
pub(in crate::text) fn written(calls: &[Value]) -> String {
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
