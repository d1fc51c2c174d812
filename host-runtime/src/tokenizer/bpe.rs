//! BPE by rank: text is cut into words, and the bytes or characters of each word are merged.

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Error as BpeError, Merges, Vocab};
use tokenizers::{Model, Token};

use super::error::TokenizerError;
use super::pre::PreTokenizer;
use super::words::Splitter;
use super::{blanks, bytes, shown};

/// The merges of a vocabulary, and the rules that cut text into words before them.
pub(super) struct MergeBpe {
    bpe: BPE,
    splitter: Splitter,
    spells_bytes: bool,
}

impl MergeBpe {
    /// Checks the merge rules, `left right`, best first, and builds the algorithm.
    pub(super) fn new(vocab: Vocab, merges: &[&str], pre: PreTokenizer) -> Result<Self, TokenizerError> {
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, collect_merges(merges)?)
            .ignore_merges(pre.ignores_merges)
            .byte_fallback(!pre.spells_bytes())
            .build()
            .map_err(|error| match error.downcast_ref() {
                Some(BpeError::MergeTokenOutOfVocabulary(token)) => {
                    TokenizerError::UnknownMergeToken { token: token.clone() }
                }
                _ => bpe_error(&error),
            })?;
        Ok(Self { bpe, splitter: pre.splitter(), spells_bytes: pre.spells_bytes() })
    }

    /// The id of a token by its text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.bpe.token_to_id(text)
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.spells_bytes {
            let mut spelled = String::new();
            return self.splitter.for_each_word(text, |word| {
                spelled.clear();
                bytes::spell(word, &mut spelled);
                self.encode_word(&spelled, word, out)
            });
        }
        self.splitter.for_each_word(&blanks::spell(text), |line| match self.id_of(line) {
            // As in llama.cpp, a run of line breaks is its token if it has one, whatever the merges say.
            Some(id) if line.starts_with('\n') => {
                out.push(id);
                Ok(())
            }
            _ => self.encode_word(line, line, out),
        })
    }

    fn encode_word(&self, spelled: &str, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = self.bpe.tokenize(spelled).map_err(|error| bpe_error(&error))?;
        // Characters without a token are left out by the library, so count what came back.
        if tokens.iter().map(|token| self.spelled_len(token)).sum::<usize>() != spelled.len() {
            let byte = word.bytes().find(|byte| self.id_of(&self.byte_name(*byte)).is_none());
            return Err(TokenizerError::Unencodable { byte: byte.unwrap_or_default(), word: shown(word) });
        }
        out.extend(tokens.into_iter().map(|token| token.id));
        Ok(())
    }

    /// Bytes of a spelled word that a token stands for.
    fn spelled_len(&self, token: &Token) -> usize {
        let is_byte = !self.spells_bytes && blanks::byte_of(&token.value).is_some();
        if is_byte { 1 } else { token.value.len() }
    }

    /// The token that stands for a byte where nothing longer does.
    fn byte_name(&self, byte: u8) -> String {
        if self.spells_bytes { bytes::to_char(byte).to_string() } else { blanks::byte_name(byte) }
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
