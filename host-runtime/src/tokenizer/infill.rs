//! Tokens that mark the parts of a text whose middle is to be written.

use super::spec::TokenizerSpec;

/// Ids of the tokens that mark the parts of a text with a gap, for models that were trained to fill it (FIM,
/// fill in the middle).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfillIds {
    /// Mark of the text before the gap.
    pub prefix: u32,
    /// Mark of the text behind the gap.
    pub suffix: u32,
    /// Mark behind which the model writes what belongs into the gap.
    pub middle: u32,
    /// Mark of a repository's name, if the model knows one.
    pub repository: Option<u32>,
    /// Mark of a file's name, which its text follows, if the model knows one.
    pub file: Option<u32>,
}

/// Texts of the marks, in vocabularies whose files do not name them. They are those that llama.cpp knows.
const PREFIX: &[&str] =
    &["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"];
const SUFFIX: &[&str] =
    &["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"];
const MIDDLE: &[&str] =
    &["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"];
const REPOSITORY: &[&str] = &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FILE: &[&str] = &["<|file_sep|>"];

impl InfillIds {
    /// Ids that the file names or whose texts are known; `None` where one of the three that it takes is
    /// missing. The ids in `spec` have been checked against the vocabulary.
    pub(super) fn find(spec: &TokenizerSpec<'_>, id_of: impl Fn(&str) -> Option<u32>) -> Option<Self> {
        let find = |named: Option<u32>, texts: &[&str]| named.or_else(|| texts.iter().find_map(|t| id_of(t)));
        Some(Self {
            prefix: find(spec.fim_pre, PREFIX)?,
            suffix: find(spec.fim_suf, SUFFIX)?,
            middle: find(spec.fim_mid, MIDDLE)?,
            repository: find(spec.fim_rep, REPOSITORY),
            file: find(spec.fim_sep, FILE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_ids_come_before_known_texts() {
        let vocab = ["a", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>"];
        let id_of = |text: &str| vocab.iter().position(|t| *t == text).map(|i| i as u32);
        let ids = InfillIds::find(&TokenizerSpec::default(), id_of).unwrap();
        let all = (ids.prefix, ids.suffix, ids.middle, ids.repository, ids.file);
        assert_eq!(all, (1, 2, 3, Some(4), None));
        let named = TokenizerSpec { fim_mid: Some(0), ..TokenizerSpec::default() };
        assert_eq!(InfillIds::find(&named, id_of).unwrap().middle, 0);
        assert_eq!(InfillIds::find(&named, |text| id_of(text).filter(|id| *id != 2)), None);
    }
}
