//! Ollama's requests to those of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::conversation::{Content, Sent};
use crate::http::dialogue::Request;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::form::Format;
use crate::http::parts::text_part;
use crate::http::unsupported::{OLLAMA, refuse};

/// Options about memory and processors, which the server was started with.
const OF_SERVERS: [&str; 13] = [
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "numa",
    "low_vram",
    "f16_kv",
    "use_mmap",
    "use_mlock",
    "vocab_only",
    "penalize_newline",
];

/// Fields of both interfaces that mean something else in chats, or nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Own {
    messages: Vec<Sent>,
    prompt: String,
    system: Option<String>,
    raw: bool,
    options: Map<String, Value>,
    /// A word, or a schema.
    format: Value,
    /// A switch, or a word.
    think: Value,
    stream: Option<bool>,
}

/// A request, in the words of this server.
pub(super) struct Asked {
    pub(super) request: Request,
    /// The text to go on with, where that is no message.
    pub(super) raw: Option<String>,
    /// Whether nothing is asked: clients do so to have the model loaded.
    pub(super) is_empty: bool,
}

/// A conversation (`/api/chat`).
pub(super) fn of_chat(fields: Fields) -> Result<Asked, ApiError> {
    let (own, mut request) = read(fields)?;
    let is_empty = own.messages.is_empty();
    request.chat.messages = own.messages.into_iter().map(message).collect();
    Ok(Asked { request, raw: None, is_empty })
}

/// A prompt (`/api/generate`): a message of a user, unless `raw` says that it is a text to go on with.
/// `has_template` tells whether the model knows messages at all.
pub(super) fn of_prompt(fields: Fields, has_template: bool) -> Result<Asked, ApiError> {
    let (own, mut request) = read(fields)?;
    let is_empty = own.prompt.is_empty();
    if own.raw || !has_template {
        return Ok(Asked { request, raw: Some(own.prompt), is_empty });
    }
    let system = own.system.map(|text| Sent::new("system", text));
    request.chat.messages = system.into_iter().chain([Sent::new("user", own.prompt)]).collect();
    Ok(Asked { request, raw: None, is_empty })
}

/// The settings of a request, with what it is about apart.
fn read(mut fields: Fields) -> Result<(Own, Request), ApiError> {
    refuse(&fields, &OLLAMA)?;
    let mut own: Own = fields.take()?;
    let options = std::mem::take(&mut own.options).into_iter();
    let options = options.filter(|(name, _)| !OF_SERVERS.contains(&name.as_str()));
    fields.extend(options.map(|(name, value)| match name.as_str() {
        "num_predict" => ("max_tokens".to_owned(), value),
        _ => (name, value),
    }));
    let mut request = Request::read(fields)?;
    request.text.stream = own.stream.unwrap_or(true);
    match own.format.take() {
        Value::Null => {}
        Value::String(word) if word.is_empty() => {}
        Value::String(word) if word == "json" => {
            request.form.response_format = Some(Format::of_schema(json!({ "type": "object" }), None));
        }
        schema @ Value::Object(_) => request.form.response_format = Some(Format::of_schema(schema, None)),
        _ => return Err(ApiError::field("format", "give json, or a JSON schema")),
    }
    match own.think.take() {
        Value::Null => {}
        thinks @ Value::Bool(_) => request.chat.enable_thinking = Some(thinks),
        effort @ Value::String(_) => request.chat.reasoning_effort = Some(effort),
        _ => return Err(ApiError::field("think", "give true, false, or how hard: low, medium, high")),
    }
    Ok((own, request))
}

/// A message as chats have it.
fn message(mut sent: Sent) -> Sent {
    let message = &mut sent.extra;
    if let Some(thoughts) = message.remove("thinking") {
        message.insert("reasoning_content".to_owned(), thoughts);
    }
    if let Some(name) = message.remove("tool_name") {
        message.insert("name".to_owned(), name);
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(call) = call.as_object_mut() {
            call.entry("type").or_insert_with(|| "function".into());
        }
    }
    let images = message.remove("images").unwrap_or_default();
    if let (Some(images), Some(Content::Text(text))) = (images.as_array(), &sent.content)
        && !images.is_empty()
    {
        let picture = |data: &Value| {
            Map::from_iter([("type".to_owned(), "image".into()), ("image".to_owned(), data.clone())])
        };
        let parts = images.iter().map(picture).chain([text_part(text.clone())]).collect();
        sent.content = Some(Content::Parts(parts));
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    /// The request that a chat of OpenAI's is.
    fn chat(body: &Value) -> Request {
        Request::read(fields(body)).unwrap()
    }

    #[test]
    fn options_become_fields_of_chats() {
        let body = json!({
            "model": "m", "messages": [{ "role": "user", "content": "a" }], "keep_alive": "5m",
            "think": false, "options": { "num_predict": 7, "temperature": 0.5, "num_ctx": 4096, "stop": ["x"] },
            "format": { "type": "object" }, "stream": false,
        });
        let expected = json!({
            "model": "m", "stream": false, "max_tokens": 7, "temperature": 0.5, "stop": ["x"],
            "response_format": { "type": "json_schema", "json_schema": { "schema": { "type": "object" } } },
            "enable_thinking": false, "messages": [{ "role": "user", "content": "a" }], "keep_alive": "5m",
        });
        assert_eq!(of_chat(fields(&body)).unwrap().request, chat(&expected));
    }

    #[test]
    fn streams_are_usual_and_messages_have_their_other_names() {
        let function = json!({ "name": "f", "arguments": { "a": 1 } });
        let body = json!({ "messages": [
            { "role": "assistant", "content": "", "thinking": "Hm.",
              "tool_calls": [{ "function": function }] },
            { "role": "tool", "tool_name": "f", "content": "1" },
        ] });
        let call = json!({ "function": function, "type": "function" });
        let expected = json!({ "stream": true, "messages": [
            { "role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call] },
            { "role": "tool", "name": "f", "content": "1" },
        ] });
        assert_eq!(of_chat(fields(&body)).unwrap().request, chat(&expected));
    }

    #[test]
    fn prompts_are_messages_or_texts() {
        let of = |body: Value, has_template| of_prompt(fields(&body), has_template);
        let asked = of(json!({ "prompt": "a", "system": "s" }), true).unwrap();
        let messages =
            [json!({ "role": "system", "content": "s" }), json!({ "role": "user", "content": "a" })];
        assert_eq!(asked.request, chat(&json!({ "messages": messages, "stream": true })));
        let raw = of(json!({ "prompt": "a", "raw": true }), true).unwrap();
        assert_eq!(raw.raw.as_deref(), Some("a"));
        assert!(of(json!({ "prompt": "a" }), false).unwrap().raw.is_some());
        assert!(of(json!({ "model": "m" }), true).unwrap().is_empty);
        for wrong in [json!({ "template": "x" }), json!({ "context": [1] }), json!({ "format": 7 })] {
            assert!(of(wrong, true).is_err());
        }
    }
}
