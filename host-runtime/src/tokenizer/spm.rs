//! SentencePiece's BPE, as model files with `tokenizer.ggml.model` "llama" have it: the characters of a text
//! are merged by the scores of the tokens that they give, and what no token expresses becomes bytes.
//!
//! Such files have no list of merges: any two neighbours merge whose texts together are a token, even where
//! one of them is none, and of equal scores the leftmost goes first. Blanks are written U+2581, so that they
//! can be parts of tokens.

use std::cmp::Ordering;

use super::byte_tokens::ByteTokens;
use super::error::TokenizerError;
use super::merge::{Merger, Symbol};
use super::{Vocab, blanks};

/// A vocabulary with scores.
pub(super) struct Spm {
    ids: Vocab,
    /// By id, the higher the earlier; no -0.
    scores: Vec<f32>,
    bytes: ByteTokens,
    /// Whether text begins with a blank that is not in it.
    blank_first: bool,
}

/// The score of a token; pairs with higher ones merge first.
#[derive(Clone, Copy)]
struct Score(f32);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl Spm {
    /// Checks the scores, one per token, and builds the algorithm. With `blank_first` text begins with a
    /// blank, at its start and after special tokens.
    pub(super) fn new(
        ids: Vocab,
        scores: &[f32],
        tokens: usize,
        blank_first: bool,
    ) -> Result<Self, TokenizerError> {
        if scores.len() != tokens {
            return Err(TokenizerError::ScoreCount { scores: scores.len(), tokens });
        }
        if let Some((id, &found)) = (0..).zip(scores).find(|(_, score)| !score.is_finite()) {
            return Err(TokenizerError::Score { id, found: found.to_string() });
        }
        let bytes = ByteTokens::new(|byte| ids.get(&blanks::byte_name(byte)).copied());
        // 0 for -0: they are equal scores.
        let scores = scores.iter().map(|score| score + 0.0).collect();
        Ok(Self { ids, scores, bytes, blank_first })
    }

    /// The id of a token by its text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Appends the ids of `text`; `first` if nothing or a special token is before it.
    pub(super) fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let blank = if first && self.blank_first { blanks::BLANK } else { "" };
        let spelled = format!("{blank}{}", blanks::spell(text));
        for symbol in self.merge(&spelled).symbols() {
            let part = symbol.of(&spelled);
            match symbol.id.or_else(|| self.id_of(part)) {
                Some(id) => out.push(id),
                None => self.bytes.append(part, out)?,
            }
        }
        Ok(())
    }

    /// The symbols of `text`: tokens, and characters that are none or have not merged.
    fn merge(&self, text: &str) -> Merger<Score> {
        let mut merger = Merger::new();
        text.chars().for_each(|c| merger.push(c.len_utf8(), None));
        merger.merge(|left, right| self.rule(text, left, right));
        merger
    }

    /// Score and token of two neighbours that are a token together.
    fn rule(&self, text: &str, left: &Symbol, right: &Symbol) -> Option<(Score, u32)> {
        let id = self.id_of(left.with(right, text))?;
        Some((Score(self.scores[id as usize]), id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens with their scores.
    fn spm(tokens: &[(&str, f32)], blank_first: bool) -> Spm {
        let ids = (0..).zip(tokens).map(|(id, (text, _))| ((*text).to_owned(), id)).collect();
        let scores: Vec<f32> = tokens.iter().map(|(_, score)| *score).collect();
        Spm::new(ids, &scores, tokens.len(), blank_first).unwrap()
    }

    fn parts<'t>(spm: &Spm, text: &'t str) -> Vec<&'t str> {
        spm.merge(text).symbols().map(|symbol| symbol.of(text)).collect()
    }

    #[test]
    fn higher_scores_merge_first_and_of_equal_ones_the_leftmost() {
        let tokens = [("a", 0.0), ("b", 0.0), ("c", 0.0), ("ab", -2.0), ("bc", -1.0), ("aa", -3.0)];
        assert_eq!(parts(&spm(&tokens, false), "abc"), ["a", "bc"]);
        assert_eq!(parts(&spm(&tokens, false), "aaa"), ["aa", "a"]);
        assert_eq!(parts(&spm(&tokens, false), "aaaa"), ["aa", "aa"]);
        let equal = [("ab", -1.0), ("bc", -1.0)];
        assert_eq!(parts(&spm(&equal, false), "abc"), ["ab", "c"], "with parts that are no tokens");
        assert_eq!(parts(&spm(&[("ab", -0.0), ("bc", 0.0)], false), "abc"), ["ab", "c"]);
    }

    #[test]
    fn merges_that_come_too_late_are_dropped() {
        let tokens = [("ab", -1.0), ("bc", -2.0), ("abc", -9.0), ("cd", -3.0), ("abcd", -1.0), ("bcd", 0.0)];
        assert_eq!(parts(&spm(&tokens, false), "abcd"), ["abcd"]);
        assert_eq!(parts(&spm(&tokens, false), "bcd"), ["bcd"]);
        assert_eq!(parts(&spm(&tokens, false), ""), [""; 0]);
    }

    #[test]
    fn characters_without_a_token_become_bytes() {
        let spm = spm(&[("a", 0.0), ("<0xC3>", 0.0), ("<0xA9>", 0.0), ("\u{2581}a", -1.0)], true);
        let mut ids = Vec::new();
        spm.encode("aéa", true, &mut ids).unwrap();
        assert_eq!(ids, [3, 1, 2, 0]);
        let error = spm.encode("aß", true, &mut ids).unwrap_err();
        assert_eq!(error, TokenizerError::Unencodable { byte: 0x9f, word: "ß".to_owned() });
    }

    #[test]
    fn text_begins_with_a_blank_where_the_vocabulary_says_so() {
        let tokens = [("\u{2581}", 0.0), ("a", 0.0), ("\u{2581}a", -1.0)];
        let encode = |blank_first: bool, first: bool| {
            let mut ids = Vec::new();
            spm(&tokens, blank_first).encode("a a", first, &mut ids).unwrap();
            ids
        };
        assert_eq!(encode(true, true), [2, 2]);
        assert_eq!(encode(true, false), [1, 2]);
        assert_eq!(encode(false, true), [1, 2]);
    }

    /// Merging by score, written without a queue.
    fn naive(tokens: &[(&str, f32)], text: &str) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 1..parts.len() {
                let joined = format!("{}{}", parts[i - 1], parts[i]);
                if let Some((_, score)) = tokens.iter().find(|(text, _)| *text == joined)
                    && best.is_none_or(|(top, _)| *score > top)
                {
                    best = Some((*score, i));
                }
            }
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i);
            parts[i - 1].push_str(&right);
        }
    }

    proptest::proptest! {
        #[test]
        fn the_queue_merges_as_searching_all_pairs_would(text in "[abcé]{0,40}", scores: [i8; 12]) {
            let texts = ["ab", "bc", "ca", "aa", "abc", "aab", "bcé", "aaaa", "éé", "cab", "abab", "éaa"];
            let tokens: Vec<(&str, f32)> =
                texts.iter().zip(scores).map(|(text, score)| (*text, f32::from(score / 16))).collect();
            proptest::prop_assert_eq!(parts(&spm(&tokens, false), &text), naive(&tokens, &text));
        }
    }
}
