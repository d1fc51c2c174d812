//! Requests to `/v1/responses` to those of `/v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::conversation::{Content, Sent, refuse_media};
use crate::http::dialogue::Request;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::form::FlatFormat;
use crate::http::offer::Choice;
use crate::http::parts::{kind, text_part};
use crate::http::pictures::is_picture;
use crate::http::unsupported::{RESPONSES, refuse};

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

/// Fields that mean something else in chats, or nothing.
#[derive(Deserialize)]
struct Own {
    instructions: Option<Content>,
    input: Content,
    tools: Option<Vec<Map<String, Value>>>,
    tool_choice: Option<Value>,
    max_output_tokens: Option<i64>,
    text: Option<TextConfig>,
    reasoning: Option<Reasoning>,
    #[serde(default)]
    include: Vec<String>,
}

#[derive(Deserialize)]
struct TextConfig {
    format: Option<FlatFormat>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

/// The request for a chat that says the same, and what the answer repeats of this one.
pub(super) fn translate(mut fields: Fields) -> Result<(Request, Value), ApiError> {
    refuse(&fields, &RESPONSES)?;
    let echo =
        |&(name, absent): &Echoed| (name.to_owned(), fields.left(name).cloned().unwrap_or_else(absent));
    let echo: Map<String, Value> = ECHOED.iter().map(echo).collect();
    let own: Own = fields.take()?;
    let mut request = Request::read(fields)?;
    let mut messages = Messages::default();
    if let Some(instructions) = own.instructions {
        messages.say(Sent::new("system", plain("instructions", instructions)?));
    }
    match own.input {
        Content::Text(text) => messages.say(Sent::new("user", text)),
        Content::Parts(items) => items.into_iter().try_for_each(|item| messages.add(item))?,
    }
    request.chat.messages = messages.finish();
    if request.chat.messages.is_empty() {
        return Err(ApiError::field("input", "give a text, or at least one item"));
    }
    request.tools.tools = own.tools.unwrap_or_default().into_iter().map(tool).collect();
    if let Some(choice) = own.tool_choice {
        request.tools.tool_choice = chosen(choice)?;
    }
    request.text.max_tokens = own.max_output_tokens.or(request.text.max_tokens);
    if let Some(format) = own.text.and_then(|text| text.format) {
        request.form.response_format = Some(format.nested("text")?);
    }
    if let Some(effort) = own.reasoning.and_then(|reasoning| reasoning.effort) {
        request.chat.reasoning_effort = Some(effort.into());
    }
    request.answer.logprobs |= own.include.iter().any(|wanted| wanted == LOGPROBS);
    Ok((request, echo.into()))
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

fn chosen(choice: Value) -> Result<Choice, ApiError> {
    let Value::Object(choice) = choice else {
        return choice.try_into().map_err(|reason| ApiError::field("tool_choice", reason));
    };
    match (kind(&choice), choice.get("name").and_then(Value::as_str)) {
        ("function", Some(name)) => Ok(Choice::Required(Some(name.to_owned()))),
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
        Content::Parts(parts) => parts,
    };
    let texts: Result<Vec<String>, _> = parts.iter().map(|part| text(field, part)).collect();
    Ok(texts?.join("\n"))
}

/// The text of a part.
fn text(field: &str, part: &Map<String, Value>) -> Result<String, ApiError> {
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
}

/// A message of somebody other than the model, which may have pictures.
fn message(field: &str, role: &str, content: Content) -> Result<Sent, ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok(Sent::new(role, text)),
        Content::Parts(parts) => parts,
    };
    let part = |part: Map<String, Value>| match is_picture(&part) {
        true => Ok(part),
        false => text(field, &part).map(text_part),
    };
    Ok(Sent::of_parts(role, parts.into_iter().map(part).collect::<Result<_, ApiError>>()?))
}

/// The messages of a chat. Thoughts, text and calls of the model are items of their own in the input, and one
/// message here.
#[derive(Default)]
struct Messages {
    all: Vec<Sent>,
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
    fn say(&mut self, message: Sent) {
        self.end_turn();
        self.all.push(message);
    }

    fn turn(&mut self) -> &mut Turn {
        self.turn.get_or_insert_default()
    }

    fn end_turn(&mut self) {
        let Some(Turn { thoughts, texts, calls }) = self.turn.take() else { return };
        let mut message = Sent::new("assistant", texts.join("\n"));
        if !thoughts.is_empty() {
            message = message.with("reasoning_content", thoughts.join("\n"));
        }
        if !calls.is_empty() {
            message = message.with("tool_calls", calls);
        }
        self.all.push(message);
    }

    fn finish(mut self) -> Vec<Sent> {
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
        let read = |item: &mut Map<String, Value>, name: &str| {
            let value = item.remove(name).filter(|value| !value.is_null()).unwrap_or_else(|| json!([]));
            Content::deserialize(value)
                .map_err(|error| ApiError::field(FIELD, format!("{name} of an item of type {kind}: {error}")))
        };
        let content = |item: &mut Map<String, Value>, name: &str| plain(FIELD, read(item, name)?);
        match kind.as_str() {
            "message" => match word("role")?.as_str() {
                "assistant" => {
                    let text = content(&mut item, "content")?;
                    self.turn().texts.push(text);
                }
                // Chat templates know no other name for it.
                "developer" => self.say(Sent::new("system", content(&mut item, "content")?)),
                role => self.say(message(FIELD, role, read(&mut item, "content")?)?),
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
                self.all.push(Sent::new("tool", content).with("tool_call_id", id));
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

    fn translated(body: &Value) -> Result<Request, String> {
        let translated = translate(Fields::parse(body.to_string().as_bytes()).unwrap());
        translated.map(|(request, _)| request).map_err(|error| error.json()["error"]["message"].to_string())
    }

    /// The request that a chat of this body is.
    fn chat(body: &Value) -> Request {
        Request::read(Fields::parse(body.to_string().as_bytes()).unwrap()).unwrap()
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
        assert_eq!(translated(&body).unwrap(), chat(&expected));
        assert_eq!(
            translated(&json!({ "input": "Hi" })).unwrap(),
            chat(&json!({ "messages": [{ "role": "user", "content": "Hi" }] }))
        );
    }

    #[test]
    fn what_is_not_kept_and_what_is_no_text_is_refused_by_name() {
        let user = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
        let also = |name: &str, value: Value| json!({ "input": "x", name: value });
        for (body, word) in [
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
