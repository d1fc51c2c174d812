//! Anthropic's requests to those of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::conversation::{Content, Sent, refuse_media};
use crate::http::dialogue::Request;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::form::FlatFormat;
use crate::http::json::with;
use crate::http::offer::Choice;
use crate::http::parts::{kind, text_part};
use crate::http::unsupported::{MESSAGES, refuse};

/// Fields that mean something else in chats, or nothing.
#[derive(Deserialize)]
struct Own {
    system: Option<Content>,
    messages: Vec<Sent>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    /// An older name of the form in it.
    output_format: Option<FlatFormat>,
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
struct ToolChoice {
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
    format: Option<FlatFormat>,
}

/// The request for a chat that says the same. Fields that both interfaces have stay as they are.
pub(super) fn translate(mut fields: Fields) -> Result<Request, ApiError> {
    refuse(&fields, &MESSAGES)?;
    let own: Own = fields.take()?;
    let mut request = Request::read(fields)?;
    if let Some(system) = own.system {
        request.chat.messages.push(Sent::new("system", plain("system", system)?));
    }
    for message in own.messages {
        add(&mut request.chat.messages, message)?;
    }
    request.tools.tools = own.tools.unwrap_or_default().into_iter().map(tool).collect::<Result<_, _>>()?;
    if let Some(choice) = own.tool_choice {
        request.tools.parallel_tool_calls = Some(!choice.disable_parallel_tool_use);
        request.tools.tool_choice = chosen(choice)?;
    }
    if let Some(thinking) = own.thinking {
        request.chat.enable_thinking = Some((thinking.kind != "disabled").into());
    }
    if let Some(output) = own.output_config.and_then(|config| config.format).or(own.output_format) {
        request.form.response_format = Some(output.nested("output_config")?);
    }
    Ok(request)
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

fn chosen(ToolChoice { kind, name, .. }: ToolChoice) -> Result<Choice, ApiError> {
    match (kind.as_str(), name) {
        ("auto", _) => Ok(Choice::Auto),
        ("none", _) => Ok(Choice::None),
        ("any", _) => Ok(Choice::Required(None)),
        ("tool", Some(name)) => Ok(Choice::Required(Some(name))),
        _ => Err(ApiError::field("tool_choice", "give auto, any, none, or tool with its name")),
    }
}

/// The text of a field that can be nothing but text.
fn plain(field: &str, content: Content) -> Result<String, ApiError> {
    let blocks = match content {
        Content::Text(text) => return Ok(text),
        Content::Parts(blocks) => blocks,
    };
    let texts: Result<Vec<String>, _> = blocks.iter().map(|block| text(field, block)).collect();
    Ok(texts?.join("\n"))
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
fn add(messages: &mut Vec<Sent>, message: Sent) -> Result<(), ApiError> {
    let Sent { role, content, extra } = message;
    refuse_media(&extra, "messages")?;
    let blocks = match content {
        None => return Err(ApiError::field("messages", "a message has no content")),
        Some(Content::Text(text)) => {
            messages.push(Sent::new(&role, text));
            return Ok(());
        }
        Some(Content::Parts(blocks)) => blocks,
    };
    let missing =
        |kind: &str, name: &str| ApiError::field("messages", format!("a block of type {kind} has no {name}"));
    let (mut said, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
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
                if !said.is_empty() {
                    messages.push(Sent::of_parts(&role, std::mem::take(&mut said)));
                }
                messages.push(Sent::new("tool", content).with("tool_call_id", id));
            }
            "image" => said.push(block),
            _ => said.push(text_part(text("messages", &block)?)),
        }
    }
    if said.is_empty() && thoughts.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = Sent::of_parts(&role, said);
    if !thoughts.is_empty() {
        message = message.with("reasoning_content", thoughts.join("\n"));
    }
    if !calls.is_empty() {
        message = message.with("tool_calls", calls);
    }
    messages.push(message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::form::Format;

    fn translated(body: &Value) -> Result<Request, String> {
        let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        translate(fields).map_err(|error| error.json()["error"]["message"].to_string())
    }

    /// The request that a chat of this body is.
    fn chat(body: &Value) -> Request {
        Request::read(Fields::parse(body.to_string().as_bytes()).unwrap()).unwrap()
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
            "stop_sequences": ["X"],
            "tools": [{ "type": "function", "function": {
                "name": "count", "parameters": { "type": "object" } } }],
            "parallel_tool_calls": false, "tool_choice": "required", "enable_thinking": false,
        });
        assert_eq!(translated(&body).unwrap(), chat(&expected));
    }

    #[test]
    fn both_names_of_a_form_are_known() {
        let format = json!({ "type": "json_schema", "schema": { "type": "integer" } });
        for (name, value) in
            [("output_format", format.clone()), ("output_config", json!({ "format": format }))]
        {
            let body = json!({ "messages": [{ "role": "user", "content": "x" }], name: value });
            let expected = Format::of_schema(json!({ "type": "integer" }), None);
            assert_eq!(translated(&body).unwrap().form.response_format, Some(expected));
        }
    }

    #[test]
    fn what_is_no_text_is_refused_by_name() {
        let user = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
        for (body, word) in [
            (user(json!({ "type": "document", "source": {} })), "document"),
            (
                user(json!({ "type": "tool_result", "tool_use_id": "x", "content": [{ "type": "image" }] })),
                "image",
            ),
            (json!({ "messages": [{ "role": "user", "content": "x", "images": ["x"] }] }), "messages.images"),
            (user(json!({ "text": "x" })), "no type"),
            (user(json!({ "type": "tool_use", "name": "x" })), "no id"),
            (json!({ "messages": [{ "role": "user", "content": "x" }], "mcp_servers": [{}] }), "mcp_servers"),
            (json!({ "messages": [{ "role": "user", "content": 7 }] }), "messages[0].content: give a text"),
            (json!({ "messages": [{ "content": "x" }] }), "messages[0].role: this field is missing"),
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
