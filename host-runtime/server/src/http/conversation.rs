//! Conversations to prompts, by the chat template.
//!
//! Templates differ in what they take, and clients send what the largest models take. What a template does
//! not know is said in another way; it is not left out.

use hexflash::chat::{Message, RenderOptions, today};
use hexflash::picture::PLACE;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::app::Model;
use super::error::ApiError;
use super::parts::text_part;
use super::pictures;
use crate::text::family::Family;
use crate::text::thoughts::Thoughts;
use crate::text::tools::Tools;
use crate::text::turns::{DEVELOPER, SYSTEM, hand_over_parts, rendered};
use crate::text::{generic, harmony, history};

/// Arguments of chat templates that are fields of their own in requests of some clients.
const EFFORT: &str = "reasoning_effort";
const THINKING: &str = "enable_thinking";
/// How hard a model is to think, where it is not to.
const NO_EFFORT: &str = "none";
const LEAST_EFFORT: &str = "low";

/// What templates of Llama 3 call today's date, and how they write it. Without it they tell the model that it
/// is the day on which they were made.
const DATE: (&str, &str) = ("date_string", "%d %b %Y");

/// Fields about a conversation, and how the template writes it.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct ChatFields {
    pub(super) messages: Vec<Sent>,
    pub(super) reasoning_effort: Option<Value>,
    pub(super) enable_thinking: Option<Value>,
    /// Anthropic's switch, which other servers have in chats, too.
    thinking: Option<Value>,
    chat_template_kwargs: Map<String, Value>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
}

/// A message as clients send it.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(expecting = "a message, with a role and content")]
pub(super) struct Sent {
    pub(super) role: String,
    pub(super) content: Option<Content>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

impl Sent {
    /// A message that is a text.
    pub(super) fn new(role: &str, text: String) -> Self {
        Self { role: role.to_owned(), content: Some(Content::Text(text)), extra: Map::new() }
    }

    /// A message of parts, some of which may be pictures; without any it is a text.
    pub(super) fn of_parts(role: &str, parts: Vec<Map<String, Value>>) -> Self {
        if parts.iter().any(pictures::is_picture) {
            return Self { role: role.to_owned(), content: Some(Content::Parts(parts)), extra: Map::new() };
        }
        let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
        Self::new(role, texts.collect::<Vec<_>>().join("\n"))
    }

    /// The message with another field.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}

/// A text, or parts.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "give a text, or a list of parts")]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Map<String, Value>>),
}

/// A prompt, whether it ends within thoughts that the client has begun, and the pictures in its places.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) thinks: bool,
    pub(super) pictures: Vec<Vec<u8>>,
}

/// Beginning of the answer that a client gives.
struct Begun {
    thoughts: String,
    text: String,
}

/// Fields of messages in which some clients send pictures and sounds.
const MEDIA: [&str; 7] = ["images", "image", "image_url", "input_image", "audio", "input_audio", "video"];

/// The prompt of a conversation, with tools if there are any.
pub(super) fn render(mut chat: ChatFields, tools: Option<&Tools>, model: &Model) -> Result<Prompt, ApiError> {
    let (template, source) = model.card.template.as_ref().ok_or_else(|| {
        ApiError::invalid(
            "the model has no chat template; start the server with --chat-template (a file, or chatml), or use \
             /v1/completions",
        )
    })?;
    let family = model.card.calls();
    let mut pictures = Vec::new();
    let shows = model.encoder.is_some();
    let mut messages = messages(std::mem::take(&mut chat.messages), shows.then_some(&mut pictures))?;
    messages.iter_mut().for_each(|message| history::adapt(message, family, source));
    let begun = chat.take_begun(&mut messages)?;
    for message in &mut messages {
        // Most templates know no other name for it.
        let is_known = || ["'developer'", "\"developer\""].iter().any(|role| source.contains(role));
        if message.role == DEVELOPER && !is_known() {
            message.role = SYSTEM.to_owned();
        }
    }
    // A template may have calls in a form that is not known here.
    if family == Family::Generic && (tools.is_some() || !source.contains("tool_calls")) {
        generic::write(&mut messages, tools);
    }
    let shown = tools.filter(|_| family != Family::Generic);
    let mut options = RenderOptions {
        add_generation_prompt: begun.is_some() || chat.add_generation_prompt.unwrap_or(true),
        kwargs: chat.arguments(shown, model, family),
        now: None,
    };
    hand_over_parts(&mut messages, template.contents());
    let mut text = rendered(template, &messages, &options)?;
    let mut thinks = false;
    if let Some(Begun { thoughts, text: said }) = begun {
        let open = |text: &str| Thoughts::after(text, source).filter(Thoughts::is_open);
        // What is begun is no header of a message.
        if family == Family::Harmony && text.ends_with(harmony::OPENED) {
            text.push_str(harmony::FINAL);
        } else if let Some((tag, close)) = Thoughts::after(&text, source).map(|tags| tags.around()) {
            if said.trim_start().starts_with(tag.trim_end()) {
                // The client has begun with thoughts of its own.
                if open(&text).is_some() {
                    text.truncate(text.rfind(tag.trim_end()).unwrap_or(text.len()));
                }
                thinks = !said.contains(close);
            } else if !thoughts.is_empty() {
                if open(&text).is_none() {
                    text.push_str(tag);
                    text.push_str(if tag.ends_with('\n') { "" } else { "\n" });
                }
                text.push_str(&thoughts);
                thinks = said.is_empty();
                if !thinks {
                    text.push_str(&format!("\n{close}\n\n"));
                }
            } else if open(&text).is_some() {
                // A text that has begun is behind the thoughts. Most templates can do without these.
                if !options.kwargs.contains_key(THINKING) {
                    options.kwargs.insert(THINKING.to_owned(), false.into());
                    text = rendered(template, &messages, &options)?;
                }
                if open(&text).is_some() {
                    let blank = if text.ends_with('\n') { "" } else { "\n" };
                    text.push_str(&format!("{blank}\n{close}\n\n"));
                }
            }
        }
        text.push_str(&said);
    }
    Ok(Prompt { text, thinks, pictures })
}

impl ChatFields {
    /// Arguments that the template is given besides messages.
    fn arguments(self, tools: Option<&Tools>, model: &Model, family: Family) -> Map<String, Value> {
        let source = model.card.template_source();
        let mut all = model.card.template_args.clone();
        let has_no_effort = self.reasoning_effort.as_ref().is_some_and(|effort| effort == NO_EFFORT);
        all.extend(self.reasoning_effort.map(|effort| (EFFORT.to_owned(), effort)));
        all.extend(self.enable_thinking.map(|thinks| (THINKING.to_owned(), thinks)));
        if let Some(kind) = self.thinking.as_ref().and_then(|thinking| thinking.get("type")) {
            all.entry(THINKING).or_insert_with(|| (kind != "disabled").into());
        }
        if has_no_effort {
            // Few templates have a word for it: most have a switch, and harmony has a least effort.
            all.entry(THINKING).or_insert_with(|| false.into());
            if family == Family::Harmony {
                all.insert(EFFORT.to_owned(), LEAST_EFFORT.into());
            } else if !["'none'", "\"none\""].iter().any(|word| source.contains(word)) {
                all.remove(EFFORT);
            }
        }
        all.extend(tools.map(|tools| ("tools".to_owned(), tools.list.clone().into())));
        all.extend(self.chat_template_kwargs);
        let (name, format) = DATE;
        if let (false, Ok(date)) = (all.contains_key(name), today(format)) {
            all.insert(name.to_owned(), date.into());
        }
        all
    }

    /// The beginning of the answer, if a conversation ends with one: a last message of the assistant's that
    /// calls no tools is no turn of its own. The text goes on from it, as with llama-server and Anthropic.
    fn take_begun(&self, messages: &mut Vec<Message>) -> Result<Option<Begun>, ApiError> {
        const NAME: &str = "continue_final_message";
        let (wanted, opens) = (self.continue_final_message, self.add_generation_prompt);
        if wanted == Some(true) && opens == Some(true) {
            return Err(ApiError::field(NAME, "add_generation_prompt asks for another answer; ask for one"));
        }
        let is_begun =
            |message: &Message| message.role == "assistant" && !message.extra.contains_key("tool_calls");
        if !wanted.unwrap_or(opens != Some(false)) || !messages.last().is_some_and(is_begun) {
            return match wanted {
                Some(true) => Err(ApiError::field(NAME, "the last message is no text of the assistant's")),
                _ => Ok(None),
            };
        }
        let begun = messages.pop().map(|message| {
            let thoughts = message.extra.get("reasoning_content").and_then(Value::as_str).unwrap_or_default();
            Begun { thoughts: thoughts.to_owned(), text: message.content }
        });
        if messages.last().is_some_and(is_begun) {
            return Err(ApiError::field("messages", "the last two messages are the assistant's; join them"));
        }
        Ok(begun)
    }
}

/// Messages for the template. Pictures go to `pictures`, in their order, and have a place in the text; they
/// are refused if there is no such list.
fn messages(sent: Vec<Sent>, mut pictures: Option<&mut Vec<Vec<u8>>>) -> Result<Vec<Message>, ApiError> {
    if sent.is_empty() {
        return Err(ApiError::field("messages", "give at least one message"));
    }
    let message = |Sent { role, content, mut extra }: Sent| {
        history::drop_empty(&mut extra);
        history::open_arguments(&mut extra);
        refuse_media(&extra, "messages")?;
        let (content, parts) = match content {
            None => (String::new(), Vec::new()),
            Some(Content::Text(text)) => (text, Vec::new()),
            Some(Content::Parts(mut parts)) => {
                parts.iter_mut().try_for_each(|part| take_picture(part, pictures.as_deref_mut()))?;
                (join(&parts)?, parts)
            }
        };
        // One part is the same as its text.
        let parts = if parts.len() > 1 { parts.into_iter().map(Value::from).collect() } else { Vec::new() };
        Ok(Message { role, content, parts, extra })
    };
    sent.into_iter().map(message).collect()
}

/// Takes the bytes of a part that is a picture, and leaves a text with a place for it.
fn take_picture(part: &mut Map<String, Value>, taken: Option<&mut Vec<Vec<u8>>>) -> Result<(), ApiError> {
    if pictures::is_picture(part) {
        taken.ok_or_else(|| ApiError::no_images("messages"))?.push(pictures::bytes(part)?);
        *part = text_part(PLACE);
    }
    Ok(())
}

/// Refuses pictures and sounds beside a message's content.
pub(super) fn refuse_media(message: &Map<String, Value>, field: &str) -> Result<(), ApiError> {
    let is_nothing = |value: &Value| value.is_null() || *value == "" || *value == json!([]);
    let found = MEDIA.iter().find(|name| message.get(**name).is_some_and(|value| !is_nothing(value)));
    found.map_or(Ok(()), |name| Err(ApiError::no_images(&format!("{field}.{name}"))))
}

/// The text of a message in parts.
fn join(parts: &[Map<String, Value>]) -> Result<String, ApiError> {
    let mut joined = String::new();
    for part in parts {
        let kind = part.get("type").and_then(Value::as_str);
        let kind = kind.ok_or_else(|| ApiError::field("messages", "a part of a message has no type"))?;
        match (kind, part.get("text").and_then(Value::as_str)) {
            ("text", Some(text)) => {
                // A picture is no line of its own.
                let is_line = !joined.is_empty() && !joined.ends_with(PLACE) && text != PLACE;
                joined.push_str(if is_line { "\n" } else { "" });
                joined.push_str(text);
            }
            ("text", None) => return Err(ApiError::field("messages", "a part of type text has no text")),
            (kind, _) => {
                let hint = format!("a part of a message has the type {kind}; send parts of the type text");
                return Err(ApiError::unsupported("messages", &hint));
            }
        }
    }
    Ok(joined)
}
