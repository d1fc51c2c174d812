//! Texts that stand around calls: families are known by them, and readers look for them.

/// What stands around a call.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    pub(super) open: &'static str,
    /// Without it a call ends where the next one begins.
    pub(super) close: Option<&'static str>,
}

/// What a function begins with, in calls that have a tag for each of their parts.
pub(super) const FUNCTION: &str = "<function=";

/// What a call begins with in answers of Llama that are no JSON from their first character on.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// Between a name and its arguments, with Mistral.
pub(super) const ARGS: &str = "[ARGS]";

/// Between a name and an id, which some of Mistral's templates have between name and arguments.
pub(super) const CALL_ID: &str = "[CALL_ID]";

/// What stands on both sides of a string of Gemma's, in which nothing is escaped.
pub(super) const QUOTE: &str = "<|\"|>";
