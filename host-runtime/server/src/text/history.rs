//! Earlier turns as templates expect them, where that is not how clients send them.

use hexflash::chat::Message;
use serde_json::{Map, Value};

use super::calls::python;
use super::family::Family;

/// Characters of a call's id in Mistral's templates, which refuse all others.
const MISTRAL_ID: usize = 9;

/// What clients call thoughts, and what harmony's templates do.
const THOUGHTS: (&str, &str) = ("reasoning_content", "thinking");

/// The fields of a message without those that say nothing: `null`, as clients send it for what they do not
/// set, and no calls. Templates ask whether a field is there.
pub(crate) fn drop_empty(message: &mut Map<String, Value>) {
    message.retain(|name, value| {
        let no_calls = name == "tool_calls" && value.as_array().is_some_and(Vec::is_empty);
        !value.is_null() && !no_calls
    });
}

/// Calls of earlier turns as templates expect them: with arguments that are objects and not their text.
/// Clients send those of a tool that has none in many ways.
pub(crate) fn open_arguments(message: &mut Map<String, Value>) {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else { continue };
        let arguments = function.entry("arguments").or_insert(Value::Null);
        let object = match &*arguments {
            Value::Null => Some(Map::new()),
            // PHP has one empty value for both.
            Value::Array(all) if all.is_empty() => Some(Map::new()),
            Value::String(text) if matches!(text.trim(), "" | "null" | "[]") => Some(Map::new()),
            Value::String(text) => serde_json::from_str::<Map<_, _>>(text).ok(),
            _ => None,
        };
        if let Some(object) = object {
            *arguments = object.into();
        }
    }
}

/// Writes a message in the way of its family's templates.
pub(crate) fn adapt(message: &mut Message, family: Family, template: &str) {
    match family {
        Family::MistralList | Family::MistralNames => short_ids(&mut message.extra),
        Family::Harmony => name_thoughts(message),
        Family::Lfm2 if !template.contains("tool_calls") => write_calls(message),
        Family::Lfm2 | Family::Json | Family::Functions | Family::Gemma | Family::Llama | Family::Generic => {
        }
    }
}

/// Ids of calls as Mistral's templates demand them. The same id becomes the same one in a call and its
/// result.
fn short_ids(message: &mut Map<String, Value>) {
    if let Some(id) = message.get_mut("tool_call_id") {
        shorten(id);
    }
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    calls.into_iter().flatten().filter_map(|call| call.get_mut("id")).for_each(shorten);
}

fn shorten(id: &mut Value) {
    let Some(text) = id.as_str() else { return };
    if text.len() == MISTRAL_ID && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return;
    }
    // FNV-1a.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    *id = format!("{:09}", hash % 1_000_000_000).into();
}

/// Thoughts under the name that harmony's templates have for them. Beside a call these refuse to have
/// thoughts and text, and show only one of them.
fn name_thoughts(message: &mut Message) {
    let (from, to) = THOUGHTS;
    let Some(thoughts) = message.extra.remove(from).filter(|thoughts| thoughts.is_string()) else { return };
    if thoughts != "" {
        message.extra.entry(to).or_insert(thoughts);
        if message.extra.contains_key("tool_calls") {
            message.content.clear();
        }
    }
}

/// Writes calls into the text of their message, for templates that do not look for them.
fn write_calls(message: &mut Message) {
    let Some(calls) = message.extra.get("tool_calls").and_then(Value::as_array) else { return };
    if let Some(tags) = Family::Lfm2.tags() {
        let close = tags.close.unwrap_or_default();
        message.content = format!("{}{}{close}{}", tags.open, python::written(calls), message.content);
    }
}
