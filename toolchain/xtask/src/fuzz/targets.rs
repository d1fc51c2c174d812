//! The table of targets.

use crate::failure::{Failure, Result};

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    /// The name of its program.
    pub name: &'static str,
    /// Bytes of the longest input.
    pub max_len: u32,
    /// Words that inputs are made of, below `tests/fuzz`.
    pub dictionary: Option<&'static str>,
}

const fn target(name: &'static str, max_len: u32) -> Target {
    Target { name, max_len, dictionary: None }
}

/// All targets; `tests/fuzz/src/lib.rs` says what each checks.
pub const TARGETS: &[Target] = &[
    target("message", 6000),
    target("program", 1500),
    target("session", 6000),
    target("gguf", 3000),
    target("tokenizer", 1000),
    Target { dictionary: Some("chat_template.dict"), ..target("chat_template", 2000) },
    target("repack_cache", 64),
];

/// The targets with these names, or all.
pub fn select(names: &[String]) -> Result<Vec<&'static Target>> {
    let known = |name: &str| TARGETS.iter().find(|target| target.name == name);
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let unknown = |name: &String| {
        Failure::unusable(
            format!("there is no target `{name}`"),
            format!("the targets are: {}", all.join(", ")),
        )
    };
    names.iter().map(|name| known(name).ok_or_else(|| unknown(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_target_is_refused_with_the_known_ones() {
        let error = select(&["gguv".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`gguv`") && error.contains("gguf, tokenizer"), "{error}");
        assert_eq!(select(&["gguf".to_owned()]).unwrap()[0].name, "gguf");
        assert_eq!(select(&[]).unwrap().len(), TARGETS.len());
    }
}
