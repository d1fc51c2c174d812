//! The fields of `/v1/responses` to those of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::conversation::refuse_media;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::json::with;

/// A field, and what stands for it in the answer if the request does not have it.
type Echoed = (&'static str, fn() -> Value);

/// Fields of a request that its answer repeats.
const ECHOED: [Echoed; 12] = [
    ("instructions", || Value::Null),
    ("max_output_tokens", || Value::Null),
    ("metadata", || json!({})),
    ("parallel_tool_calls", || true.into()),
    ("reasoning", || json!({ "effort": null, "summary": null })),
    ("temperature", || Value::Null),
    ("text", || json!({ "format": { "type": "text" } })),
    ("tool_choice", || "auto".into()),
    ("tools", || json!([])),
    ("top_logprobs", || 0.into()),
    ("top_p", || Value::Null),
    ("user", || Value::Null),
];

/// What asks for probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A text, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Items(Vec<Map<String, Value>>),
}

#[derive(Deserialize)]
struct TextConfig {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

/// The fields of a chat that say the same, and what the answer repeats of the request.
pub(super) fn translate(fields: Fields) -> Result<(Fields, Value), ApiError> {
    refuse_kept(&fields)?;
    let mut echo = Map::new();
    for (name, absent) in ECHOED {
        echo.insert(name.to_owned(), fields.raw(name).cloned().unwrap_or_else(absent));
    }
    let mut messages = Messages::default();
    if let Some(instructions) = fields.get::<Content>("instructions")? {
        messages.say("system", plain("instructions", instructions)?);
    }
    match fields.require::<Content>("input")? {
        Content::Text(text) => messages.say("user", text),
        Content::Items(items) => {
            for item in items {
                messages.add(item)?;
            }
        }
    }
    let messages = messages.finish();
    if messages.is_empty() {
        return Err(ApiError::field("input", "give a text, or at least one item"));
    }
    let mut chat: Map<String, Value> = Map::new();
    let mut set = |name: &str, value: Value| chat.insert(name.to_owned(), value);
    set("messages", messages.into());
    if let Some(tools) = fields.get::<Vec<Map<String, Value>>>("tools")? {
        set("tools", tools.into_iter().map(tool).collect());
    }
    if let Some(choice) = fields.raw("tool_choice") {
        set("tool_choice", chosen(choice)?);
    }
    if let Some(max) = fields.raw("max_output_tokens") {
        set("max_tokens", max.clone());
    }
    if let Some(format) = fields.get::<TextConfig>("text")?.and_then(|text| text.format) {
        set("response_format", form(format)?);
    }
    if let Some(effort) = fields.get::<Reasoning>("reasoning")?.and_then(|reasoning| reasoning.effort) {
        set("reasoning_effort", effort.into());
    }
    let include: Vec<String> = fields.get("include")?.unwrap_or_default();
    if include.iter().any(|wanted| wanted == LOGPROBS) {
        set("logprobs", true.into());
    }
    const TRANSLATED: [&str; 9] = [
        "instructions",
        "input",
        "tools",
        "tool_choice",
        "max_output_tokens",
        "text",
        "reasoning",
        "include",
        "truncation",
    ];
    let others = fields.into_map().into_iter().filter(|(name, _)| !TRANSLATED.contains(&name.as_str()));
    chat.extend(others);
    Ok((Fields::new(chat), echo.into()))
}

/// That a request asks for nothing for which answers would have to be kept.
fn refuse_kept(fields: &Fields) -> Result<(), ApiError> {
    const WHOLE: &str = "it keeps no answers; send the whole conversation as input";
    for name in ["previous_response_id", "conversation", "prompt"] {
        if fields.raw(name).is_some() {
            return Err(ApiError::unsupported(name, WHOLE));
        }
    }
    for name in ["store", "background"] {
        if fields.flag(name)? {
            return Err(ApiError::unsupported(name, "it keeps no answers; set it to false"));
        }
    }
    match fields.get::<String>("truncation")?.as_deref() {
        None | Some("disabled") => Ok(()),
        Some(_) => Err(ApiError::unsupported("truncation", "shorten the input, or set it to disabled")),
    }
}

fn form(Format { kind, schema, strict }: Format) -> Result<Value, ApiError> {
    match (kind.as_str(), schema) {
        ("json_schema", Some(schema)) => {
            let mut named = json!({ "schema": schema });
            if let Some(strict) = strict {
                named = with(named, "strict", strict.into());
            }
            Ok(json!({ "type": kind, "json_schema": named }))
        }
        ("json_schema", None) => Err(ApiError::field("text", "the schema is missing in format")),
        ("text" | "json_object", _) => Ok(json!({ "type": kind })),
        (kind, _) => {
            Err(ApiError::unsupported("text", &format!("{kind} is none of text, json_object, json_schema")))
        }
    }
}

fn kind(item: &Map<String, Value>) -> &str {
    item.get("type").and_then(Value::as_str).unwrap_or("no type")
}

/// A tool whose name stands beside its type to one that has it inside. Other kinds stay as they are.
fn tool(mut tool: Map<String, Value>) -> Value {
    if kind(&tool) != "function" {
        return tool.into();
    }
    let function = ["name", "description", "parameters"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), tool.remove(name).filter(|value| !value.is_null())?)));
    json!({ "type": "function", "function": function.collect::<Map<_, _>>() })
}

fn chosen(choice: &Value) -> Result<Value, ApiError> {
    let Value::Object(choice) = choice else { return Ok(choice.clone()) };
    match (kind(choice), choice.get("name")) {
        ("function", Some(name)) => Ok(json!({ "type": "function", "function": { "name": name } })),
        ("function", None) => Err(ApiError::field("tool_choice", "the function has no name")),
        (kind, _) => {
            let hint = format!("{kind} is none of auto, none, required, or a function with its name");
            Err(ApiError::unsupported("tool_choice", &hint))
        }
    }
}

/// The text of a field, or of an item, that can be nothing but text.
fn plain(field: &str, content: Content) -> Result<String, ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok(text),
        Content::Items(parts) => parts,
    };
    let text = |part: &Map<String, Value>| {
        let name = if kind(part) == "refusal" { "refusal" } else { "text" };
        match (kind(part), part.get(name).and_then(Value::as_str)) {
            ("input_text" | "output_text" | "text" | "refusal" | "reasoning_text" | "summary_text", text) => {
                let missing = || ApiError::field(field, format!("a part of type {} has no text", kind(part)));
                text.map(str::to_owned).ok_or_else(missing)
            }
            (kind, _) => {
                let hint = format!("a part has the type {kind}, where this server takes text only");
                Err(ApiError::unsupported(field, &hint))
            }
        }
    };
    let texts: Result<Vec<String>, _> = parts.iter().map(text).collect();
    Ok(texts?.join("\n"))
}

/// The messages of a chat. Thoughts, text and calls of the model are items of their own in the input, and one
/// message here.
#[derive(Default)]
struct Messages {
    all: Vec<Value>,
    /// What the model said last, which may go on.
    turn: Option<Turn>,
}

#[derive(Default)]
struct Turn {
    thoughts: Vec<String>,
    texts: Vec<String>,
    calls: Vec<Value>,
}

impl Messages {
    fn say(&mut self, role: &str, content: String) {
        self.end_turn();
        self.all.push(json!({ "role": role, "content": content }));
    }

    fn turn(&mut self) -> &mut Turn {
        self.turn.get_or_insert_default()
    }

    fn end_turn(&mut self) {
        let Some(Turn { thoughts, texts, calls }) = self.turn.take() else { return };
        let mut message = json!({ "role": "assistant", "content": texts.join("\n") });
        if !thoughts.is_empty() {
            message = with(message, "reasoning_content", thoughts.join("\n").into());
        }
        if !calls.is_empty() {
            message = with(message, "tool_calls", calls.into());
        }
        self.all.push(message);
    }

    fn finish(mut self) -> Vec<Value> {
        self.end_turn();
        self.all
    }

    fn add(&mut self, mut item: Map<String, Value>) -> Result<(), ApiError> {
        const FIELD: &str = "input";
        refuse_media(&item, FIELD)?;
        let kind = match item.get("type") {
            Some(_) => kind(&item).to_owned(),
            // A message needs not say what it is.
            None => "message".to_owned(),
        };
        let word = |name: &str| {
            let missing = || ApiError::field(FIELD, format!("an item of type {kind} has no {name}"));
            item.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(missing)
        };
        let content = |item: &mut Map<String, Value>, name: &str| {
            let value = item.remove(name).filter(|value| !value.is_null()).unwrap_or_else(|| json!([]));
            let content = Content::deserialize(value).map_err(|error| {
                ApiError::field(FIELD, format!("{name} of an item of type {kind}: {error}"))
            })?;
            plain(FIELD, content)
        };
        match kind.as_str() {
            "message" => match word("role")?.as_str() {
                "assistant" => {
                    let text = content(&mut item, "content")?;
                    self.turn().texts.push(text);
                }
                // Chat templates know no other name for it.
                "developer" => self.say("system", content(&mut item, "content")?),
                role => {
                    let text = content(&mut item, "content")?;
                    self.say(role, text);
                }
            },
            "reasoning" => {
                let text = content(&mut item, "content")?;
                // Thoughts that only their author can read have no text.
                if !text.is_empty() {
                    self.turn().thoughts.push(text);
                }
            }
            "function_call" => {
                // Some clients send no arguments where a function has none.
                let arguments = item.get("arguments").cloned().unwrap_or_default();
                let function = json!({ "name": word("name")?, "arguments": arguments });
                let call = json!({ "id": word("call_id")?, "type": "function", "function": function });
                self.turn().calls.push(call);
            }
            "function_call_output" => {
                let id = word("call_id")?;
                let content = content(&mut item, "output")?;
                self.end_turn();
                self.all.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            "item_reference" => {
                return Err(ApiError::unsupported(FIELD, "it keeps no items; send the item itself"));
            }
            kind => {
                let hint =
                    format!("an item has the type {kind}; send messages, functions' calls and outputs");
                return Err(ApiError::unsupported(FIELD, &hint));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(body: &Value) -> Result<Value, String> {
        let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let translated = translate(fields).map(|(fields, _)| fields.into_map().into());
        translated.map_err(|error| error.json()["error"]["message"].to_string())
    }

    #[test]
    fn a_conversation_with_a_tool_is_the_same_in_both_interfaces() {
        let body = json!({
            "model": "m", "instructions": "Be brief.", "max_output_tokens": 5, "temperature": 0.5,
            "input": [
                { "role": "developer", "content": "No jokes." },
                { "role": "user", "content": [{ "type": "input_text", "text": "How many?" }] },
                { "type": "reasoning", "id": "rs_1", "summary": [],
                  "content": [{ "type": "reasoning_text", "text": "Hm." }] },
                { "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                  "content": [{ "type": "output_text", "text": "Let me count.", "annotations": [] }] },
                { "type": "function_call", "call_id": "c1", "name": "count", "arguments": "{\"n\": 3}" },
                { "type": "function_call_output", "call_id": "c1", "output": "three" },
            ],
            "tools": [{ "type": "function", "name": "count", "strict": true,
                        "parameters": { "type": "object" } }],
            "tool_choice": { "type": "function", "name": "count" },
            "text": { "format": { "type": "json_schema", "name": "x", "schema": { "type": "integer" } } },
            "reasoning": { "effort": "low" }, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
            "store": false,
        });
        let function = json!({ "name": "count", "arguments": "{\"n\": 3}" });
        let expected = json!({
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "system", "content": "No jokes." },
                { "role": "user", "content": "How many?" },
                { "role": "assistant", "content": "Let me count.", "reasoning_content": "Hm.",
                  "tool_calls": [{ "id": "c1", "type": "function", "function": function }] },
                { "role": "tool", "tool_call_id": "c1", "content": "three" },
            ],
            "tools": [{ "type": "function", "function": {
                "name": "count", "parameters": { "type": "object" } } }],
            "tool_choice": { "type": "function", "function": { "name": "count" } },
            "max_tokens": 5,
            "response_format": { "type": "json_schema", "json_schema": { "schema": { "type": "integer" } } },
            "reasoning_effort": "low", "logprobs": true,
            "model": "m", "temperature": 0.5, "top_logprobs": 2, "store": false,
        });
        assert_eq!(translated(&body).unwrap(), expected);
        assert_eq!(
            translated(&json!({ "input": "Hi" })).unwrap(),
            json!({ "messages": [{ "role": "user", "content": "Hi" }] })
        );
    }

    #[test]
    fn what_is_not_kept_and_what_is_no_text_is_refused_by_name() {
        let user = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
        let also = |name: &str, value: Value| json!({ "input": "x", name: value });
        for (body, word) in [
            (user(json!({ "type": "input_image", "image_url": "x" })), "input_image"),
            (user(json!({ "type": "input_file", "file_id": "x" })), "input_file"),
            (json!({ "input": [{ "role": "user", "content": "x", "images": ["x"] }] }), "input.images"),
            (user(json!({ "type": "input_text" })), "no text"),
            (also("previous_response_id", json!("resp_1")), "keeps no answers"),
            (also("conversation", json!("conv_1")), "keeps no answers"),
            (also("store", json!(true)), "keeps no answers"),
            (also("background", json!(true)), "background"),
            (also("truncation", json!("auto")), "truncation"),
            (also("tool_choice", json!({ "type": "allowed_tools" })), "allowed_tools"),
            (json!({ "input": [{ "type": "item_reference", "id": "x" }] }), "keeps no items"),
            (json!({ "input": [{ "type": "computer_call" }] }), "computer_call"),
            (json!({ "input": [{ "type": "function_call", "name": "x", "arguments": "{}" }] }), "call_id"),
            (json!({ "input": [] }), "at least one"),
            (json!({}), "input"),
        ] {
            let message = translated(&body).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
