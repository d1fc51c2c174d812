//! Byte-level BPE: text is cut into words, and the bytes of each word are merged by rank.

use std::collections::HashSet;

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Error as BpeError, Merges, Vocab};

use super::error::TokenizerError;
use super::pre::{PreTokenizer, Splitter};
use super::{bytes, shown};

/// The merges of a vocabulary, and the rules that cut text into words before them.
pub(super) struct ByteBpe {
    bpe: BPE,
    splitter: Splitter,
}

impl ByteBpe {
    /// Checks the merge rules, `left right`, best first, and builds the algorithm.
    pub(super) fn new(vocab: Vocab, merges: &[&str], pre: PreTokenizer) -> Result<Self, TokenizerError> {
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, collect_merges(merges)?)
            .ignore_merges(pre.ignores_merges)
            .build()
            .map_err(|error| match error.downcast_ref() {
                Some(BpeError::MergeTokenOutOfVocabulary(token)) => {
                    TokenizerError::UnknownMergeToken { token: token.clone() }
                }
                _ => bpe_error(&error),
            })?;
        Ok(Self { bpe, splitter: pre.splitter() })
    }

    /// The id of a token by its text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.bpe.token_to_id(text)
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut spelled = String::new();
        self.splitter.for_each_word(text, |word| {
            spelled.clear();
            bytes::spell(word, &mut spelled);
            self.encode_word(word, &spelled, out)
        })
    }

    fn encode_word(&self, word: &str, spelled: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = self.bpe.tokenize(spelled).map_err(|error| bpe_error(&error))?;
        // Characters without a token are left out by the library, so count what came back.
        if tokens.iter().map(|token| token.value.len()).sum::<usize>() != spelled.len() {
            let missing = |byte: &u8| self.id_of(bytes::to_char(*byte).encode_utf8(&mut [0; 4])).is_none();
            let byte = word.bytes().find(missing).unwrap_or_default();
            return Err(TokenizerError::Unencodable { byte, word: shown(word) });
        }
        out.extend(tokens.into_iter().map(|token| token.id));
        Ok(())
    }
}

fn collect_merges(rules: &[&str]) -> Result<Merges, TokenizerError> {
    let mut seen = HashSet::with_capacity(rules.len());
    let mut merges = Merges::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        match rule.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                // The best rank counts, as in llama.cpp; the library would let the worst one win.
                if seen.insert(*rule) {
                    merges.push((left.to_owned(), right.to_owned()));
                }
            }
            _ => return Err(TokenizerError::MalformedMerge { index, text: (*rule).to_owned() }),
        }
    }
    Ok(merges)
}

fn bpe_error(error: &tokenizers::Error) -> TokenizerError {
    TokenizerError::Bpe { cause: error.to_string().replace('\n', " ") }
}
