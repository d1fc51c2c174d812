//! Ollama's fields to those of `/v1/chat/completions`.

use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::fields::Fields;

/// Fields that are read here or say nothing to this server: it has one model, which stays.
const TAKEN: [&str; 14] = [
    "options",
    "format",
    "think",
    "messages",
    "prompt",
    "system",
    "raw",
    "template",
    "context",
    "keep_alive",
    "truncate",
    "shift",
    "images",
    "suffix",
];

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

/// A request, in the words of this server.
pub(super) struct Asked {
    /// Fields of a chat or a completion.
    pub(super) fields: Fields,
    /// Whether the prompt is a text to go on with, and no message.
    pub(super) raw: bool,
    /// Whether nothing is asked: clients do so to have the model loaded.
    pub(super) is_empty: bool,
}

/// A conversation (`/api/chat`).
pub(super) fn of_chat(fields: Fields) -> Result<Asked, ApiError> {
    let messages: Vec<Map<String, Value>> = fields.get("messages")?.unwrap_or_default();
    let is_empty = messages.is_empty();
    let messages: Vec<Value> = messages.into_iter().map(message).collect();
    let fields = settings(fields, ("messages", messages.into()))?;
    Ok(Asked { fields, raw: false, is_empty })
}

/// A prompt (`/api/generate`): a message of a user, unless `raw` says that it is a text to go on with.
/// `has_template` tells whether the model knows messages at all.
pub(super) fn of_prompt(fields: Fields, has_template: bool) -> Result<Asked, ApiError> {
    for (name, hint) in [
        ("suffix", "use /infill, with input_prefix and input_suffix"),
        ("template", "start the server with --chat-template"),
        ("context", "use /api/chat, which gets the whole conversation"),
        ("images", "prompts are text"),
    ] {
        let asks_nothing = |value: &Value| value == "" || value.as_array().is_some_and(Vec::is_empty);
        if fields.raw(name).is_some_and(|value| !asks_nothing(value)) {
            return Err(ApiError::unsupported(name, hint));
        }
    }
    let prompt: String = fields.get("prompt")?.unwrap_or_default();
    let raw = fields.flag("raw")? || !has_template;
    let is_empty = prompt.is_empty();
    let text = if raw {
        ("prompt", prompt.into())
    } else {
        let system: Option<String> = fields.get("system")?;
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        let user = json!({ "role": "user", "content": prompt });
        ("messages", system.into_iter().chain([user]).collect::<Vec<_>>().into())
    };
    Ok(Asked { fields: settings(fields, text)?, raw, is_empty })
}

/// A message as chats have it.
fn message(mut message: Map<String, Value>) -> Value {
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
    message.into()
}

/// The settings of a request, with what it is about.
fn settings(fields: Fields, (name, about): (&str, Value)) -> Result<Fields, ApiError> {
    // Answers of this interface have no place for them.
    for name in ["logprobs", "top_logprobs"] {
        if fields.raw(name).is_some_and(|value| *value != false && *value != 0) {
            return Err(ApiError::unsupported(name, "use /v1/chat/completions"));
        }
    }
    let options: Map<String, Value> = fields.get("options")?.unwrap_or_default();
    let format = fields.raw("format").cloned();
    let think = fields.raw("think").cloned();
    let stream = fields.get("stream")?.unwrap_or(true);
    let mut all = fields.into_map();
    TAKEN.iter().for_each(|name| _ = all.remove(*name));
    for (name, value) in options {
        match name.as_str() {
            "num_predict" => _ = all.insert("max_tokens".to_owned(), value),
            name if OF_SERVERS.contains(&name) => {}
            _ => _ = all.insert(name, value),
        }
    }
    match format {
        None => {}
        Some(Value::String(word)) if word.is_empty() => {}
        Some(Value::String(word)) if word == "json" => {
            all.insert("response_format".to_owned(), json!({ "type": "json_object" }));
        }
        Some(schema @ Value::Object(_)) => {
            let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
            all.insert("response_format".to_owned(), format);
        }
        Some(_) => return Err(ApiError::field("format", "give json, or a JSON schema")),
    }
    match think {
        None => {}
        Some(Value::Bool(thinks)) => _ = all.insert("enable_thinking".to_owned(), thinks.into()),
        Some(Value::String(effort)) => _ = all.insert("reasoning_effort".to_owned(), effort.into()),
        Some(_) => return Err(ApiError::field("think", "give true, false, or how hard: low, medium, high")),
    }
    all.insert("stream".to_owned(), stream.into());
    all.insert(name.to_owned(), about);
    Ok(Fields::new(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &Value) -> Result<Map<String, Value>, ApiError> {
        Ok(of_chat(Fields::parse(body.to_string().as_bytes()).unwrap())?.fields.into_map())
    }

    #[test]
    fn options_become_fields_of_chats() {
        let fields = chat(&json!({
            "model": "m", "messages": [{ "role": "user", "content": "a" }], "keep_alive": "5m", "think": false,
            "options": { "num_predict": 7, "temperature": 0.5, "num_ctx": 4096, "stop": ["x"] },
            "format": { "type": "object" }, "stream": false,
        }))
        .unwrap();
        let expected = json!({
            "model": "m", "stream": false, "max_tokens": 7, "temperature": 0.5, "stop": ["x"],
            "response_format": { "type": "json_schema", "json_schema": { "schema": { "type": "object" } } },
            "enable_thinking": false, "messages": [{ "role": "user", "content": "a" }],
        });
        assert_eq!(Value::from(fields), expected);
    }

    #[test]
    fn streams_are_usual_and_messages_have_their_other_names() {
        let call = json!({ "function": { "name": "f", "arguments": { "a": 1 } } });
        let fields = chat(&json!({ "messages": [
            { "role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call] },
            { "role": "tool", "tool_name": "f", "content": "1" },
        ] }))
        .unwrap();
        assert_eq!(fields["stream"], true);
        let messages = &fields["messages"];
        assert_eq!(messages[0]["reasoning_content"], "Hm.");
        assert_eq!(messages[0]["tool_calls"][0]["type"], "function");
        assert_eq!(messages[1]["name"], "f");
    }

    #[test]
    fn prompts_are_messages_or_texts() {
        let of = |body: Value, has_template| {
            of_prompt(Fields::parse(body.to_string().as_bytes()).unwrap(), has_template)
        };
        let asked = of(json!({ "prompt": "a", "system": "s" }), true).unwrap();
        let roles = [json!({ "role": "system", "content": "s" }), json!({ "role": "user", "content": "a" })];
        assert_eq!(asked.fields.raw("messages"), Some(&json!(roles)));
        let raw = of(json!({ "prompt": "a", "raw": true }), true).unwrap();
        assert!(raw.raw && raw.fields.raw("prompt") == Some(&json!("a")));
        assert!(of(json!({ "prompt": "a" }), false).unwrap().raw);
        assert!(of(json!({ "model": "m" }), true).unwrap().is_empty);
        for wrong in [json!({ "suffix": "x" }), json!({ "context": [1] }), json!({ "format": 7 })] {
            assert!(of(wrong, true).is_err());
        }
    }
}
