//! Conversations to prompts, by the Jinja template in the model file.
//!
//! Templates are written for Python's Jinja as Hugging Face sets it up, and a prompt that differs in one
//! blank from those of training costs quality silently. So the settings are theirs: blocks trimmed on both
//! sides, no HTML escaping, Python's methods and JSON.
//!
//! Templates come from strangers, and any of them ends with a prompt or with an error of one line, within two
//! seconds, in 64 MiB of stack and a few hundred megabytes:
//!
//! * **Stack.** A rendering has a thread of its own. What nests too deeply is refused before it is parsed
//!   (`nesting`), the engine bounds brackets, blocks and macros, and no value nests deeper than
//!   160 levels (`guard`): printing, comparing and dropping are recursive.
//! * **Time.** The engine counts instructions, and bytes and items that it makes, as fuel. What it does not
//!   count is paid for by guards that are put around operators and literals (`rewrite`) and around all
//!   filters, tests, functions and methods (`library`). Each guard and each turn of a loop looks at the
//!   clock too, so that a rendering ends by itself. Should one step still take too long, the caller stops
//!   waiting, and the thread ends with that step.
//! * **Memory.** Fuel pays for every byte. Whatever makes much out of little (a width, a count, a
//!   replacement) computes how much before it begins.
//!
//! This holds in the command and in other programs alike: no child process, no limit on the process, no
//! allocator. It relies on what the engine does inside, so its version is fixed, and a newer one is to be
//! read before it is used.

mod clock;
mod contain;
mod error;
mod guard;
mod library;
mod limits;
mod nesting;
mod python;
mod render;
mod rewrite;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::ErrorKind;
use minijinja::value::{Serde, Value};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

pub use self::error::ChatError;
pub use self::limits::MAX_SOURCE;
use self::limits::{MAX_INPUT_DEPTH, MAX_SHORT};

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Parts of the content, which the template gets in its place; none if it is to get the text.
    #[serde(skip)]
    pub parts: Vec<Json>,
    /// Further fields that templates may look for, such as `reasoning_content` or `tool_calls`.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Message {
    /// A plain message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), parts: Vec::new(), extra: Map::new() }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", &self.role)?;
        if self.parts.is_empty() {
            map.serialize_entry("content", &self.content)?;
        } else {
            map.serialize_entry("content", &self.parts)?;
        }
        for (name, value) in &self.extra {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Kinds of content that a template can take in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Write a text.
    pub texts: bool,
    /// Go through parts, `{"type": "text", "text": ...}` each.
    pub parts: bool,
}

/// What a template is given besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// End with the opening of the assistant's turn, so that the model answers.
    pub add_generation_prompt: bool,
    /// Extra arguments, such as `enable_thinking` or `tools`.
    pub kwargs: Map<String, Json>,
    /// The time `strftime_now` tells, in seconds since 1970; `None` is the system's.
    pub now: Option<i64>,
}

impl RenderOptions {
    /// For the next answer of the model.
    pub fn for_answer() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }

    /// Adds an extra argument.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Json>) -> Self {
        self.kwargs.insert(name.into(), value.into());
        self
    }
}

/// A template that compiles.
#[derive(Debug)]
pub struct ChatTemplate {
    source: Arc<str>,
    bos: String,
    eos: String,
    /// Found out when first asked for.
    contents: OnceLock<Contents>,
}

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of those tokens, empty if the model has none.
    ///
    /// # Errors
    /// The template is too long, nests too deeply or does not compile.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE {
            return Err(ChatError::SourceTooLong { bytes: source.len() });
        }
        let source: Arc<str> = python::without_generation_tags(&unix_lines(source)).into();
        let compiled = Arc::clone(&source);
        render::apart(move || render::check(&compiled))?;
        Ok(Self { source, bos: bos.to_owned(), eos: eos.to_owned(), contents: OnceLock::new() })
    }

    /// Kinds of content that the template can take, by what it makes of two conversations.
    pub fn contents(&self) -> Contents {
        /// A text that no template has of its own.
        const MARK: &str = "hexflashmark";
        let rendered = |message: Message| self.render(&[message], &RenderOptions::for_answer()).ok();
        *self.contents.get_or_init(|| {
            let text = rendered(Message::new("user", MARK));
            let part = |i: u32| json!({ "type": "text", "text": format!("{MARK}{i}") });
            let mut parts = Message::new("user", "");
            parts.parts = vec![part(1), part(2)];
            // A template that writes the list itself shows its keys, too.
            let is_list = |text: &str| text.contains("'type'") || text.contains("\"type\"");
            let has_both = |text: &str| [1, 2].iter().all(|i| text.contains(&format!("{MARK}{i}")));
            Contents {
                // A template that refuses this conversation tells nothing.
                texts: text.is_none_or(|text| text.contains(MARK)),
                parts: rendered(parts).is_some_and(|text| has_both(&text) && !is_list(&text)),
            }
        })
    }

    /// Renders a conversation.
    ///
    /// The text is for [`Tokenizer::encode_prompt`](crate::tokenizer::Tokenizer::encode_prompt), which parses
    /// control tokens and minds that many templates write BOS themselves.
    ///
    /// # Errors
    /// The template refuses the messages, cannot be applied to them, or takes more than a template may.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, ChatError> {
        let nested =
            messages.iter().flat_map(|message| message.extra.values()).chain(options.kwargs.values());
        if is_too_deep(nested) {
            return Err(ChatError::InputTooDeep);
        }
        let now = options.now.unwrap_or_else(system_time);
        let strftime = move |format: String| {
            if format.len() > MAX_SHORT {
                return Err(error::Exceeded::limit(format!("a format of more than {MAX_SHORT} bytes")));
            }
            clock::strftime(&format, now).map_err(|unknown| {
                let detail = format!("strftime_now does not know {unknown}");
                minijinja::Error::new(ErrorKind::InvalidOperation, detail)
            })
        };
        let own = [
            ("messages", Value::from(Serde(messages))),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("strftime_now", Value::from_function(strftime)),
        ];
        if let Some(name) = options.kwargs.keys().find(|name| own.iter().any(|(own, _)| own == name)) {
            return Err(ChatError::ReservedArgument { name: name.clone() });
        }
        // Later entries win: extra arguments may replace these, as in Python.
        let usual = [
            ("bos_token", Value::from(&self.bos)),
            ("eos_token", Value::from(&self.eos)),
            // Templates ask whether these are none, and not whether they are defined.
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        let context = usual
            .into_iter()
            .chain(options.kwargs.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value)))))
            .chain(own);
        let context = Value::from_pairs(context);

        let source = Arc::clone(&self.source);
        render::apart(move || render::render(&source, context))
    }
}

/// A template with line breaks as Jinja has them, which reads all others as these.
fn unix_lines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        source.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        source.into()
    }
}

/// Whether a value nests deeper than [`MAX_INPUT_DEPTH`], found without recursion.
fn is_too_deep<'a>(values: impl Iterator<Item = &'a Json>) -> bool {
    let mut open: Vec<(&Json, usize)> = values.map(|value| (value, 1)).collect();
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_INPUT_DEPTH {
            return true;
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(items) => open.extend(items.values().map(|item| (item, depth + 1))),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    false
}

/// Today's date in UTC, by a format of `strftime`.
///
/// # Errors
/// What the format has that is not known.
pub fn today(format: &str) -> Result<String, String> {
    clock::strftime(format, system_time())
}

/// Seconds since 1970; 0 if the clock stands before that.
fn system_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod families;
#[cfg(test)]
mod tests;
