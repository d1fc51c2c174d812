//! Conversations to prompts, by the Jinja template in the model file.
//!
//! Templates are written for Python's Jinja as Hugging Face sets it up, and a prompt that differs in one blank
//! from those of training costs quality silently. So the settings are theirs: blocks trimmed on both sides,
//! no HTML escaping, Python's methods and JSON.
//!
//! Templates come from strangers: steps, recursion and output are bounded. What the engine cannot bound is the
//! memory of a template that doubles a string again and again; it takes intent, and harms only this process.

mod clock;
mod contain;
mod error;
mod python;

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::contain::contain;
pub use self::error::ChatError;

/// Longest accepted template, about fifty times the longest known.
pub(crate) const MAX_SOURCE: usize = 1 << 20;
/// Steps a template may take. Known templates take a few hundred for each message.
/// (A fuzzer needs no more to come across everything, and its inputs must not take long.)
const FUEL: u64 = if cfg!(fuzzing) { 20_000 } else { 5_000_000 };
/// Longest prompt, in bytes; no context holds as many tokens.
const MAX_OUTPUT: usize = if cfg!(fuzzing) { 1 << 20 } else { 64 << 20 };
/// The one template of the environment.
const NAME: &str = "chat";

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Further fields that templates may look for, such as `reasoning_content` or `tool_calls`.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Message {
    /// A plain message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), extra: Map::new() }
    }
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

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of those tokens, empty if the model has none.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE {
            return Err(ChatError::SourceTooLong { bytes: source.len() });
        }
        let mut env = Environment::new();
        env.set_syntax(blocks_trimmed()?);
        env.set_fuel(Some(FUEL));
        python::install(&mut env);
        contain(|| env.add_template_owned(NAME, python::without_generation_tags(source)))
            .map_err(|panic| ChatError::engine(&panic))?
            .map_err(|error| ChatError::syntax(&error))?;
        Ok(Self { env, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Renders a conversation.
    ///
    /// The text is for [`Tokenizer::encode_prompt`](crate::tokenizer::Tokenizer::encode_prompt), which parses
    /// control tokens and minds that many templates write BOS themselves.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, ChatError> {
        let now = options.now.unwrap_or_else(system_time);
        let strftime = move |format: String| {
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
        // Later entries win: extra arguments may replace the token texts, as in Python.
        let tokens = [("bos_token", &self.bos), ("eos_token", &self.eos)];
        let context: Value = tokens
            .into_iter()
            .map(|(name, text)| (name, Value::from(text)))
            .chain(options.kwargs.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value)))))
            .chain(own)
            .collect();

        let mut out = Capped(Vec::new());
        let template = self.env.get_template(NAME).map_err(|error| ChatError::render(&error))?;
        contain(|| template.render_captured_to(context, &mut out).map(drop))
            .map_err(|panic| ChatError::engine(&panic))?
            .map_err(|error| ChatError::render(&error))?;
        // The engine writes strings only.
        Ok(String::from_utf8(out.0)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// The syntax of Hugging Face: a tag takes the blanks before it and the line break behind it.
fn blocks_trimmed() -> Result<SyntaxConfig, ChatError> {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    syntax.build().map_err(|error| ChatError::syntax(&error))
}

/// Seconds since 1970; 0 if the clock stands before that.
fn system_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}

/// Collects output up to [`MAX_OUTPUT`].
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0.len() + data.len() > MAX_OUTPUT {
            return Err(io::Error::other("output too long"));
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
