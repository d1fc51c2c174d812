//! Tokens of harmony, OpenAI's format of answers, and what prompts in it end with.

pub(super) const START: &str = "<|start|>";
pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";

/// Tokens that have to be shown, so that messages can be told apart.
pub(super) const TOKENS: [&str; 5] = [START, CHANNEL, CONSTRAIN, MESSAGE, END];

/// What prompts end with.
pub(crate) const OPENED: &str = "<|start|>assistant";

/// The header of an answer that is not to begin with thoughts or calls.
pub(crate) const FINAL: &str = "<|channel|>final<|message|>";
