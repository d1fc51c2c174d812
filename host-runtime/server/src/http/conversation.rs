//! Conversations to prompts, by the chat template.

use hexflash::chat::{Message, RenderOptions, today};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Model;
use super::body::Fields;
use super::calls::harmony;
use super::error::ApiError;
use super::family::Family;
use super::history;
use super::tools::Tools;

/// Arguments of chat templates that are fields of their own in requests of some clients.
const TEMPLATE_FIELDS: [&str; 2] = ["reasoning_effort", "enable_thinking"];

/// What templates of Llama 3 call today's date, and how they write it. Without it they tell the model that it
/// is the day on which they were made.
const DATE: (&str, &str) = ("date_string", "%d %b %Y");

/// A message as clients send it.
#[derive(Deserialize)]
struct Sent {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// The prompt of a conversation, with tools if there are any.
pub(super) fn render(fields: &Fields, tools: Option<&Tools>, model: &Model) -> Result<String, ApiError> {
    let (template, _) = model.card.template.as_ref().ok_or_else(|| {
        ApiError::invalid(
            "the model has no chat template; start the server with --chat-template (a file, or chatml), or use \
             /v1/completions",
        )
    })?;
    let mut messages = messages(fields)?;
    if let Some((family, (_, source))) = model.card.family.zip(model.card.template.as_ref()) {
        messages.iter_mut().for_each(|message| history::adapt(message, family, source));
    }
    let begun = take_begun(fields, &mut messages)?;
    let mut options = RenderOptions {
        add_generation_prompt: begun.is_some() || fields.get("add_generation_prompt")?.unwrap_or(true),
        kwargs: model.card.template_args.clone(),
        now: None,
    };
    for name in TEMPLATE_FIELDS {
        options.kwargs.extend(fields.raw(name).map(|value| (name.to_owned(), value.clone())));
    }
    options.kwargs.extend(tools.map(|tools| ("tools".to_owned(), tools.list.clone().into())));
    options.kwargs.extend(fields.get::<Map<String, Value>>("chat_template_kwargs")?.unwrap_or_default());
    let (name, format) = DATE;
    if let (false, Ok(date)) = (options.kwargs.contains_key(name), today(format)) {
        options.kwargs.insert(name.to_owned(), date.into());
    }
    let mut prompt = template.render(&messages, &options)?;
    if let Some(begun) = begun {
        // What is begun is no header of a message.
        if model.card.family == Some(Family::Harmony) && prompt.ends_with(harmony::OPENED) {
            prompt.push_str(harmony::FINAL);
        }
        prompt.push_str(&begun);
    }
    Ok(prompt)
}

/// The beginning of the answer, if a conversation ends with one: a last message of the assistant's that calls
/// no tools is no turn of its own, and the text goes on from it, as with llama-server and Anthropic.
fn take_begun(fields: &Fields, messages: &mut Vec<Message>) -> Result<Option<String>, ApiError> {
    const NAME: &str = "continue_final_message";
    let (wanted, opens) = (fields.get(NAME)?, fields.get::<bool>("add_generation_prompt")?);
    if wanted == Some(true) && opens == Some(true) {
        return Err(ApiError::field(
            NAME,
            "add_generation_prompt asks for an answer of its own; ask for one of them",
        ));
    }
    let is_begun =
        |message: &Message| message.role == "assistant" && !message.extra.contains_key("tool_calls");
    if !wanted.unwrap_or(opens != Some(false)) || !messages.last().is_some_and(is_begun) {
        return match wanted {
            Some(true) => Err(ApiError::field(NAME, "the last message is no text of the assistant's")),
            _ => Ok(None),
        };
    }
    let begun = messages.pop().map(|message| message.content);
    if messages.last().is_some_and(is_begun) {
        return Err(ApiError::field(
            "messages",
            "the conversation ends with two messages of the assistant's",
        ));
    }
    Ok(begun)
}

fn messages(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let sent: Vec<Sent> = fields.require("messages")?;
    if sent.is_empty() {
        return Err(ApiError::field("messages", "give at least one message"));
    }
    let message = |Sent { role, content, mut extra }: Sent| {
        history::open_arguments(&mut extra);
        let content = match content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => join(parts)?,
        };
        Ok(Message { role, content, extra })
    };
    sent.into_iter().map(message).collect()
}

/// The text of a message in parts.
fn join(parts: Vec<Part>) -> Result<String, ApiError> {
    let mut lines = Vec::with_capacity(parts.len());
    for Part { kind, text } in parts {
        match (kind.as_str(), text) {
            ("text", Some(text)) => lines.push(text),
            ("text", None) => return Err(ApiError::field("messages", "a part of type text has no text")),
            ("image_url" | "image" | "input_image", _) => return Err(ApiError::no_images("messages")),
            (kind, _) => {
                let hint = format!("a part of a message has the type {kind}; send parts of the type text");
                return Err(ApiError::unsupported("messages", &hint));
            }
        }
    }
    Ok(lines.join("\n"))
}
