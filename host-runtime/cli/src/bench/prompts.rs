//! The prompts of a sweep: one a line, as text or as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::{CliError, input};
use hexflash::text::{TextError, TextModel};

/// Prompts that suit the models in `models/`: those of `tests/data/expected/`, as text.
const SHIPPED: &str = include_str!("prompts.jsonl");

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    /// Tokens of all the vocabulary; another number, others.
    Random(u32),
}

/// Tokens of a random prompt.
const RANDOM: u64 = 32;

impl Prompt {
    /// The prompts of a file, or those that ship with hexflash.
    pub(super) fn read(path: Option<&Path>) -> Result<Vec<Self>, CliError> {
        let Some(path) = path else { return parse(SHIPPED, Path::new("prompts.jsonl")) };
        let bytes = input::read(path, input::MAX_PROMPT)
            .map_err(|source| CliError::Prompts { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid].iter().filter(|&&b| b == b'\n').count();
            CliError::PromptLine { path: path.to_owned(), line, what: format!("byte {valid} is not UTF-8") }
        })?;
        parse(&text, path)
    }

    pub(super) fn ids(&self, model: &TextModel) -> Result<Vec<u32>, TextError> {
        match self {
            Self::Text(text) => model.encode(text),
            Self::Ids(ids) => Ok(ids.clone()),
            Self::Random(number) => {
                let n_vocab = model.tokenizer.vocab_size() as u64;
                let places = (0..RANDOM).map(|i| u64::from(*number) * RANDOM + i);
                Ok(places.map(|place| (hash(place) % n_vocab) as u32).collect())
            }
        }
    }
}

/// A number in which all bits depend on all bits of `place`: the output of SplitMix64.
fn hash(place: u64) -> u64 {
    let z = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The text, or the ids in brackets.
impl fmt::Display for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Ids(ids) => write!(f, "{ids:?}"),
            Self::Random(number) => write!(f, "random tokens, {number}"),
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Prompt>, CliError> {
    let path = || -> PathBuf { path.to_owned() };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = lines.map(|(i, line)| {
        line_of(line).map_err(|what| CliError::PromptLine { path: path(), line: i + 1, what })
    });
    let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
    if prompts.is_empty() { Err(CliError::NoPrompts { path: path() }) } else { Ok(prompts) }
}

/// A line that is JSON of the right kind is taken as such, any other as text.
fn line_of(line: &str) -> Result<Prompt, String> {
    match serde_json::from_str(line) {
        Ok(Json::String(text)) if text.is_empty() => Err("the prompt is empty".to_owned()),
        Ok(Json::String(text)) => Ok(Prompt::Text(text)),
        Ok(Json::Array(ids)) if ids.is_empty() => Err("there are no token ids".to_owned()),
        Ok(Json::Array(ids)) => {
            let id = |id: &Json| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or(id.to_string());
            let ids = ids.iter().map(id).collect::<Result<_, _>>();
            ids.map(Prompt::Ids).map_err(|other| format!("{other} is not a token id"))
        }
        _ => Ok(Prompt::Text(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(text: &str) -> Result<Vec<Prompt>, String> {
        parse(text, Path::new("p")).map_err(|error| error.to_string())
    }

    #[test]
    fn text_json_and_ids() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        let read = prompts("import os\n\n\"a\\nb\"\r\n[1, 2]\n  {x}\n\"open\n").unwrap();
        let expected =
            [text("import os"), text("a\nb"), Prompt::Ids(vec![1, 2]), text("  {x}"), text("\"open")];
        assert_eq!(read, expected);
    }

    #[test]
    fn lines_that_are_no_prompt() {
        for (file, what) in [
            ("", "no prompts in p"),
            (" \n\t\n", "no prompts in p"),
            ("a\n\"\"", "p, line 2: the prompt is empty"),
            ("[]", "line 1: there are no token ids"),
            ("[1, -2]", "line 1: -2 is not a token id"),
            ("[\"x\"]", "\"x\" is not a token id"),
            ("[4294967296]", "4294967296 is not a token id"),
        ] {
            let error = prompts(file).unwrap_err();
            assert!(error.contains(what), "{file:?}: {error}");
        }
    }

    #[test]
    fn shipped_prompts() {
        assert_eq!(Prompt::read(None).unwrap().len(), 10);
    }
}
