//! Anthropic's fields to those of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::conversation::refuse_media;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::json::with;

/// A text, or blocks.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Map<String, Value>>),
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

#[derive(Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct OutputConfig {
    format: Option<OutputFormat>,
}

#[derive(Deserialize)]
struct OutputFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
}

/// The fields of a chat that say the same. Fields that both interfaces have stay as they are.
pub(super) fn translate(fields: Fields) -> Result<Fields, ApiError> {
    for name in ["mcp_servers", "container"] {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if fields.raw(name).is_some_and(|value| !is_empty(value)) {
            return Err(ApiError::unsupported(name, "use tools that your program runs itself"));
        }
    }
    let mut messages = Vec::new();
    if let Some(system) = fields.get::<Content>("system")? {
        messages.push(json!({ "role": "system", "content": plain("system", system)? }));
    }
    for message in fields.require::<Vec<Message>>("messages")? {
        add(&mut messages, message)?;
    }
    if messages.is_empty() {
        return Err(ApiError::field("messages", "give at least one message"));
    }
    let tools = fields.get::<Vec<Tool>>("tools")?.map(|tools| tools.into_iter().map(tool).collect());
    let tools: Option<Vec<Value>> = tools.transpose()?;
    let choice = fields.get::<Choice>("tool_choice")?;
    let thinking = fields.get::<Thinking>("thinking")?;
    let output = fields.get::<OutputConfig>("output_config")?.and_then(|config| config.format);
    // An older name of the same.
    let output = output.or(fields.get::<OutputFormat>("output_format")?);
    let stop = fields.raw("stop_sequences").cloned();

    let mut all = fields.into_map();
    for name in ["system", "stop_sequences", "tools", "tool_choice", "thinking"] {
        all.remove(name);
    }
    all.insert("messages".to_owned(), messages.into());
    all.extend(stop.map(|stop| ("stop".to_owned(), stop)));
    all.extend(tools.map(|tools| ("tools".to_owned(), tools.into())));
    if let Some(choice) = choice {
        all.insert("parallel_tool_calls".to_owned(), (!choice.disable_parallel_tool_use).into());
        all.insert("tool_choice".to_owned(), chosen(choice)?);
    }
    if let Some(thinking) = thinking {
        all.insert("enable_thinking".to_owned(), (thinking.kind != "disabled").into());
    }
    if let Some(output) = output {
        all.insert("response_format".to_owned(), form(output)?);
    }
    Ok(Fields::new(all))
}

fn form(OutputFormat { kind, schema }: OutputFormat) -> Result<Value, ApiError> {
    match (kind.as_str(), schema) {
        ("json_schema", Some(schema)) => {
            Ok(json!({ "type": "json_schema", "json_schema": { "schema": schema } }))
        }
        ("json_schema", None) => Err(ApiError::field("output_config", "the schema is missing in format")),
        (kind, _) => Err(ApiError::unsupported("output_config", &format!("{kind} is no json_schema"))),
    }
}

fn tool(Tool { name, kind, description, input_schema }: Tool) -> Result<Value, ApiError> {
    // What Anthropic's servers run has a kind of its own.
    if let Some(kind) = kind.filter(|kind| kind != "custom") {
        return Ok(json!({ "type": kind }));
    }
    let parameters = input_schema
        .ok_or_else(|| ApiError::field("tools", format!("the tool {name} has no input_schema")))?;
    let mut function = json!({ "name": name });
    if let Some(description) = description {
        function = with(function, "description", description.into());
    }
    let function = with(function, "parameters", parameters);
    Ok(json!({ "type": "function", "function": function }))
}

fn chosen(Choice { kind, name, .. }: Choice) -> Result<Value, ApiError> {
    match (kind.as_str(), name) {
        ("auto", _) => Ok("auto".into()),
        ("none", _) => Ok("none".into()),
        ("any", _) => Ok("required".into()),
        ("tool", Some(name)) => Ok(json!({ "type": "function", "function": { "name": name } })),
        _ => Err(ApiError::field("tool_choice", "give auto, any, none, or tool with its name")),
    }
}

/// The text of a field that can be nothing but text.
fn plain(field: &str, content: Content) -> Result<String, ApiError> {
    let blocks = match content {
        Content::Text(text) => return Ok(text),
        Content::Blocks(blocks) => blocks,
    };
    let texts: Result<Vec<String>, _> = blocks.iter().map(|block| text(field, block)).collect();
    Ok(texts?.join("\n"))
}

fn kind(block: &Map<String, Value>) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or("no type")
}

/// The text of a block.
fn text(field: &str, block: &Map<String, Value>) -> Result<String, ApiError> {
    match (kind(block), block.get("text").and_then(Value::as_str)) {
        ("text", Some(text)) => Ok(text.to_owned()),
        ("text", None) => Err(ApiError::field(field, "a block of type text has no text")),
        ("image", _) => Err(ApiError::no_images(field)),
        (kind, _) => {
            let hint = format!("a block has the type {kind}, where this server takes text only");
            Err(ApiError::unsupported(field, &hint))
        }
    }
}

/// Adds a message. One with results of tools becomes several, as templates have a message for each.
fn add(messages: &mut Vec<Value>, message: Message) -> Result<(), ApiError> {
    let Message { role, content, extra } = message;
    refuse_media(&extra, "messages")?;
    let blocks = match content {
        Content::Text(text) => {
            messages.push(json!({ "role": role, "content": text }));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let missing =
        |kind: &str, name: &str| ApiError::field("messages", format!("a block of type {kind} has no {name}"));
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for mut block in blocks {
        let kind = kind(&block).to_owned();
        let word = |block: &Map<String, Value>, name: &str| {
            block.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(&kind, name))
        };
        match kind.as_str() {
            "thinking" => thoughts.push(word(&block, "thinking")?),
            // What nobody but its author can read.
            "redacted_thinking" => {}
            "tool_use" => {
                let (id, name) = (word(&block, "id")?, word(&block, "name")?);
                let arguments = block.remove("input").unwrap_or_else(|| json!({}));
                let function = json!({ "name": name, "arguments": arguments });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            "tool_result" => {
                let id = word(&block, "tool_use_id")?;
                let content = block.remove("content").unwrap_or_else(|| "".into());
                let content = Content::deserialize(content)
                    .map_err(|error| ApiError::field("messages", format!("tool_result: {error}")))?;
                let content = plain("messages", content)?;
                // What was said before comes before.
                if !texts.is_empty() {
                    let said = std::mem::take(&mut texts).join("\n");
                    messages.push(json!({ "role": role, "content": said }));
                }
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            _ => texts.push(text("messages", &block)?),
        }
    }
    if texts.is_empty() && thoughts.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = json!({ "role": role, "content": texts.join("\n") });
    if !thoughts.is_empty() {
        message = with(message, "reasoning_content", thoughts.join("\n").into());
    }
    if !calls.is_empty() {
        message = with(message, "tool_calls", calls.into());
    }
    messages.push(message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(body: &Value) -> Result<Value, String> {
        let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        translate(fields)
            .map(|fields| fields.into_map().into())
            .map_err(|error| error.json()["error"]["message"].to_string())
    }

    #[test]
    fn a_conversation_with_a_tool_is_the_same_in_both_interfaces() {
        let body = json!({
            "max_tokens": 5, "top_k": 3, "stop_sequences": ["X"], "thinking": { "type": "disabled" },
            "system": [{ "type": "text", "text": "Be brief." }],
            "messages": [
                { "role": "user", "content": "How many?" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "Hm.", "signature": "" },
                    { "type": "text", "text": "Let me count." },
                    { "type": "tool_use", "id": "t1", "name": "count", "input": { "n": 3 } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t1",
                      "content": [{ "type": "text", "text": "three" }] },
                    { "type": "text", "text": "So?" },
                ] },
            ],
            "tools": [{ "name": "count", "input_schema": { "type": "object" } }],
            "tool_choice": { "type": "any", "disable_parallel_tool_use": true },
        });
        let expected = json!({
            "max_tokens": 5, "top_k": 3,
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "How many?" },
                { "role": "assistant", "content": "Let me count.", "reasoning_content": "Hm.", "tool_calls": [
                    { "id": "t1", "type": "function",
                      "function": { "name": "count", "arguments": { "n": 3 } } }] },
                { "role": "tool", "tool_call_id": "t1", "content": "three" },
                { "role": "user", "content": "So?" },
            ],
            "stop": ["X"],
            "tools": [{ "type": "function", "function": {
                "name": "count", "parameters": { "type": "object" } } }],
            "parallel_tool_calls": false, "tool_choice": "required", "enable_thinking": false,
        });
        assert_eq!(translated(&body).unwrap(), expected);
    }

    #[test]
    fn both_names_of_a_form_are_known() {
        let format = json!({ "type": "json_schema", "schema": { "type": "integer" } });
        for (name, value) in
            [("output_format", format.clone()), ("output_config", json!({ "format": format }))]
        {
            let body = json!({ "messages": [{ "role": "user", "content": "x" }], name: value });
            assert_eq!(
                translated(&body).unwrap()["response_format"]["json_schema"]["schema"]["type"],
                "integer"
            );
        }
    }

    #[test]
    fn what_is_no_text_is_refused_by_name() {
        let user = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
        for (body, word) in [
            (user(json!({ "type": "image", "source": {} })), "image"),
            (user(json!({ "type": "document", "source": {} })), "document"),
            (
                user(json!({ "type": "tool_result", "tool_use_id": "x", "content": [{ "type": "image" }] })),
                "image",
            ),
            (json!({ "messages": [{ "role": "user", "content": "x", "images": ["x"] }] }), "messages.images"),
            (user(json!({ "text": "x" })), "no type"),
            (user(json!({ "type": "tool_use", "name": "x" })), "no id"),
            (json!({ "messages": [] }), "at least one"),
            (json!({ "messages": [{ "role": "user", "content": "x" }], "mcp_servers": [{}] }), "mcp_servers"),
            (
                json!({ "messages": [{ "role": "user", "content": "x" }],
                     "tool_choice": { "type": "tool" } }),
                "tool_choice",
            ),
        ] {
            let message = translated(&body).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
