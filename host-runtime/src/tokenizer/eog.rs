//! Which tokens end generation.
//!
//! Model files name at most three end tokens, and chat models end turns with others, so llama.cpp also looks
//! at token texts. This is the same set by the same rules, but for a tag of HTML: an engine that misses one
//! talks past its turn.

use std::collections::BTreeSet;

use super::SpecialIds;
use super::spec::{TokenKind, TokenizerSpec};

/// Texts that end generation in whatever vocabulary they occur.
const END_TEXTS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Fill-in-the-middle separators: beyond them lies another file, so they end generation as well.
const FILE_END_TEXTS: [&str; 11] = [
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// An end in many vocabularies. In those of Qwen and Gemma it is the HTML tag that it looks like: text by its
/// kind, while the file names another end. llama.cpp takes it for an end there, and cuts it out of prompts,
/// which published tokenizers do not.
const HTML_TAG: &str = "</s>";

/// Harmony's structure tokens, which callers need to see to tell the channels apart.
const HARMONY_SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// The set of token ids after which a model has nothing more to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EogSet {
    ids: Vec<u32>,
}

impl EogSet {
    /// Whether `id` ends generation.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// The ids, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

/// Collects the end tokens and corrects the kinds that model files are known to get wrong.
///
/// The ids in `spec` have been checked against the vocabulary; `roles` are its tokens with a role.
pub(super) fn collect(
    spec: &TokenizerSpec<'_>,
    roles: SpecialIds,
    id_of: impl Fn(&str) -> Option<u32>,
    kinds: &mut [TokenKind],
) -> EogSet {
    let named = [roles.eos, roles.eot, roles.eom].into_iter().flatten().chain(spec.extra_eog.iter().copied());
    let named: BTreeSet<u32> = named.collect();
    let mut ids = named.clone();
    for text in END_TEXTS.iter().chain(&FILE_END_TEXTS) {
        if let Some(id) = id_of(text) {
            let is_text =
                kinds[id as usize] != TokenKind::Control && !named.is_empty() && !named.contains(&id);
            if *text == HTML_TAG && is_text {
                continue;
            }
            ids.insert(id);
            kinds[id as usize] = TokenKind::Control;
        }
    }
    for text in HARMONY_SHOWN {
        if let Some(id) = id_of(text) {
            kinds[id as usize] = TokenKind::UserDefined;
        }
    }

    // In harmony `<|end|>` ends a message, not the answer: the next channel follows it.
    let has = |ids: &BTreeSet<u32>, text: &str| id_of(text).is_some_and(|id| ids.contains(&id));
    let harmony = has(&ids, "<|return|>") && (has(&ids, "<|call|>") || has(&ids, "<|calls|>"));
    let solar = has(&ids, "<|flush|>") && (has(&ids, "<|call|>") || has(&ids, "<|calls|>"));
    if let Some(id) = id_of("<|end|>")
        && (harmony || solar)
    {
        ids.remove(&id);
        kinds[id as usize] = TokenKind::UserDefined;
    }
    // Vocabularies with these markers have the tag, whatever they say of it.
    if let Some(id) = id_of(HTML_TAG)
        && (has(&ids, "<|tool_response>") || has(&ids, "<|plamo:eos|>"))
    {
        ids.remove(&id);
        kinds[id as usize] = TokenKind::Normal;
    }
    EogSet { ids: ids.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(tokens: &[&str], spec: TokenizerSpec<'_>) -> (EogSet, Vec<TokenKind>) {
        let id_of = |text: &str| tokens.iter().position(|t| *t == text).map(|i| i as u32);
        let mut kinds = vec![TokenKind::Normal; tokens.len()];
        let roles = SpecialIds { eos: spec.eos, eot: spec.eot, eom: spec.eom, ..SpecialIds::default() };
        let eog = collect(&spec, roles, id_of, &mut kinds);
        (eog, kinds)
    }

    #[test]
    fn given_ids_and_known_texts_are_joined() {
        let spec = TokenizerSpec { eos: Some(0), extra_eog: vec![1], ..Default::default() };
        let (eog, kinds) = build(&["a", "b", "<|im_end|>", "c", "<|endoftext|>", "<|file_sep|>"], spec);
        assert_eq!(eog.ids(), [0, 1, 2, 4, 5]);
        assert!(eog.contains(2) && !eog.contains(3));
        assert_eq!(kinds[2], TokenKind::Control);
        assert_eq!(kinds[3], TokenKind::Normal);
    }

    #[test]
    fn harmony_end_is_a_message_end_only() {
        let tokens = ["<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|endoftext|>"];
        let (eog, kinds) = build(&tokens, TokenizerSpec { eot: Some(2), ..Default::default() });
        assert_eq!(eog.ids(), [0, 1, 4]);
        assert_eq!(kinds[2], TokenKind::UserDefined);
        assert_eq!(kinds[3], TokenKind::UserDefined);
        let (eog, _) = build(&["<|return|>", "<|end|>"], TokenizerSpec::default());
        assert_eq!(eog.ids(), [0, 1], "without <|call|> it is another format, where <|end|> ends");
    }

    #[test]
    fn s_is_text_where_another_marker_says_so() {
        let (eog, kinds) = build(&["</s>", "<|tool_response>"], TokenizerSpec::default());
        assert_eq!(eog.ids(), [1]);
        assert_eq!(kinds[0], TokenKind::Normal);
        assert_eq!(build(&["</s>"], TokenizerSpec::default()).0.ids(), [0]);
        let (eog, kinds) =
            build(&["</s>", "<|im_end|>"], TokenizerSpec { eos: Some(1), ..Default::default() });
        assert_eq!((eog.ids(), kinds[0]), (&[1][..], TokenKind::Normal), "the file names another end");
        let (eog, kinds) = build(&["</s>", "a"], TokenizerSpec { eot: Some(0), ..Default::default() });
        assert_eq!((eog.ids(), kinds[0]), (&[0][..], TokenKind::Control), "the file names this end");
    }
}
