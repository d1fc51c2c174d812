//! Names of repositories on the Hugging Face Hub, as `-hf` takes them.

use std::fmt;

/// Quantization that is meant where none is named, as in llama.cpp.
pub(crate) const DEFAULT_QUANT: &str = "Q4_K_M";
/// Longest owner or name on the Hub, in bytes.
const MAX_NAME: usize = 96;

/// A repository: `owner/name`. Both are safe as parts of a path and of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RepoId {
    owner: String,
    name: String,
}

impl RepoId {
    /// Reads `owner/name`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (owner, name) = text.split_once('/')?;
        (is_name(owner) && is_name(name)).then(|| Self { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// The repository that has this folder in a cache: `models--owner--name`.
    pub(super) fn of_folder(folder: &str) -> Option<Self> {
        let (owner, name) = folder.strip_prefix("models--")?.split_once("--")?;
        Self::parse(&format!("{owner}/{name}"))
    }

    /// Its folder in a cache.
    pub(super) fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.name)
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Letters, digits, `.`, `_` and `-`, as the Hub allows them: no `..`, no `--`, and neither `.` nor `-`
/// first.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(allowed)
        && !text.starts_with(['.', '-'])
        && !text.contains("..")
        && !text.contains("--")
}

/// A model of the Hub: a repository, and which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubModel {
    pub(crate) repo: RepoId,
    /// Part of the name of the file, such as `Q8_0`; `None` for [`DEFAULT_QUANT`] or else the first file.
    pub(crate) quant: Option<String>,
}

/// Parses `-hf`: `owner/name`, or `owner/name:QUANT`.
pub(crate) fn model(text: &str) -> Result<HubModel, String> {
    let advice = "give owner/name, or owner/name:QUANT such as ggml-org/SmolLM3-3B-GGUF:Q8_0";
    let (repo, quant) = match text.split_once(':') {
        None => (text, None),
        // What llama.cpp and others write for "any".
        Some((repo, quant)) if quant.eq_ignore_ascii_case("latest") => (repo, None),
        Some((repo, quant)) => (repo, Some(quant)),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if quant.is_some_and(|quant| quant.is_empty() || !quant.chars().all(allowed)) {
        return Err(format!("what follows the colon is no quantization; {advice}"));
    }
    let repo = RepoId::parse(repo).ok_or_else(|| advice.to_owned())?;
    Ok(HubModel { repo, quant: quant.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_with_and_without_a_quantization() {
        let parsed = model("ggml-org/gemma-3-1b-it-GGUF:q8_0").unwrap();
        assert_eq!(parsed.repo.to_string(), "ggml-org/gemma-3-1b-it-GGUF");
        assert_eq!(parsed.quant.as_deref(), Some("q8_0"));
        assert_eq!(model("a/b").unwrap().quant, None);
        assert_eq!(model("a/b:latest").unwrap().quant, None);
    }

    /// No name leads out of the cache's folder, or to another address.
    #[test]
    fn what_is_no_repository() {
        let long = format!("a/{}", "b".repeat(97));
        for bad in [
            "", "a", "/", "a/", "/b", "a/b/c", "../b", "a/..", "a/.b", "a b/c", "a/b:", "a/b:x/y", "a/b?c",
            "a/b#c", "a--b/c", "a\\b/c", "ä/b", "a/b:Q4 K", "-a/b", &long,
        ] {
            assert!(model(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn folders_of_a_cache_lead_back() {
        for text in ["a/b", "ggml-org/SmolLM3-3B-GGUF", "o_w.n/x-1.5_b"] {
            let repo = RepoId::parse(text).unwrap();
            assert_eq!(RepoId::of_folder(&repo.folder()), Some(repo));
        }
        for other in ["datasets--a--b", "models--a", "models--a--b--c", "version.txt", "models----"] {
            assert_eq!(RepoId::of_folder(other), None, "{other}");
        }
    }
}
