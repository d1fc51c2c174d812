//! BPE by rank: text is cut into words, and the bytes or characters of each word are merged.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::byte_tokens::ByteTokens;
use super::error::TokenizerError;
use super::merge::Merger;
use super::pre::PreTokenizer;
use super::ranks::Ranks;
use super::words::Splitter;
use super::{Vocab, blanks, bytes};

/// Most words whose ids are kept while a text is encoded. Each takes some 50 bytes beside the text.
const MAX_KNOWN: usize = 1 << 16;

/// The merges of a vocabulary, and the rules that cut text into words before them.
pub(super) struct MergeBpe {
    vocab: Vocab,
    ranks: Ranks,
    bytes: ByteTokens,
    splitter: Splitter,
    /// Whether a word that is itself a token skips merging.
    ignores_merges: bool,
    spells_bytes: bool,
}

impl MergeBpe {
    /// Checks the merge rules, `left right`, best first, and builds the algorithm.
    pub(super) fn new(vocab: Vocab, merges: &[&str], pre: PreTokenizer) -> Result<Self, TokenizerError> {
        let ranks = Ranks::new(&vocab, merges)?;
        let (ignores_merges, spells_bytes) = (pre.ignores_merges, pre.spells_bytes());
        let bytes = ByteTokens::new(|byte| {
            let name = if spells_bytes { bytes::to_char(byte).to_string() } else { blanks::byte_name(byte) };
            vocab.get(&name).copied()
        });
        Ok(Self { vocab, ranks, bytes, splitter: pre.splitter(), ignores_merges, spells_bytes })
    }

    /// The id of a token by its text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.vocab.get(text).copied()
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let spelled = if self.spells_bytes { Cow::Borrowed(text) } else { Cow::Owned(blanks::spell(text)) };
        let (mut alphabet, mut merger) = (String::new(), Merger::new());
        // Most words of a text are in it more than once: those seen, and where their ids are.
        let mut known: HashMap<&str, Range<usize>> = HashMap::new();
        self.splitter.for_each_word(&spelled, |word| {
            if let Some(ids) = known.get(word) {
                out.extend_from_within(ids.clone());
                return Ok(());
            }
            let start = out.len();
            if self.spells_bytes {
                self.encode_word(word, &mut alphabet, &mut merger, out)?;
            } else {
                self.encode_line(word, &mut merger, out)?;
            }
            if known.len() < MAX_KNOWN {
                known.insert(word, start..out.len());
            }
            Ok(())
        })
    }

    /// Appends the ids of a word, whose bytes are merged. The memory of `spelled` is used again.
    fn encode_word(
        &self,
        word: &str,
        spelled: &mut String,
        merger: &mut Merger<Reverse<u32>>,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if self.ignores_merges {
            spelled.clear();
            bytes::spell(word, spelled);
            if let Some(id) = self.id_of(spelled) {
                out.push(id);
                return Ok(());
            }
        }
        merger.clear();
        for byte in word.bytes() {
            merger.push(1, Some(self.bytes.id(byte, word)?));
        }
        merger.merge(|left, right| self.ranks.get(left, right));
        out.extend(merger.symbols().filter_map(|symbol| symbol.id));
        Ok(())
    }

    /// Appends the ids of a line, or of the line breaks after it: characters are merged, and those that are
    /// no tokens become bytes.
    fn encode_line(
        &self,
        line: &str,
        merger: &mut Merger<Reverse<u32>>,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        // As in llama.cpp, a run of line breaks is its token if it has one, whatever the merges say.
        if line.starts_with('\n')
            && let Some(id) = self.id_of(line)
        {
            out.push(id);
            return Ok(());
        }
        merger.clear();
        for (start, c) in line.char_indices() {
            let len = c.len_utf8();
            merger.push(len, self.id_of(&line[start..start + len]));
        }
        merger.merge(|left, right| self.ranks.get(left, right));
        for symbol in merger.symbols() {
            match symbol.id {
                Some(id) => out.push(id),
                None => self.bytes.append(symbol.of(line), out)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pre::GEMMA4;
    use super::*;
    use proptest::strategy::Strategy;

    /// All characters of `alphabet`, and what `merges` make of them.
    fn vocab(alphabet: &str, merges: &[&str]) -> Vocab {
        let joined = merges.iter().map(|merge| merge.replace(' ', ""));
        (0..).zip(alphabet.chars().map(String::from).chain(joined)).map(|(id, text)| (text, id)).collect()
    }

    fn bpe(vocab: &Vocab, merges: &[&str], pre: PreTokenizer) -> MergeBpe {
        MergeBpe::new(vocab.clone(), merges, pre).unwrap()
    }

    /// The texts of the tokens of `text`.
    fn parts(bpe: &MergeBpe, text: &str) -> Vec<String> {
        let mut ids = Vec::new();
        bpe.encode(text, &mut ids).unwrap();
        let text_of = |id| bpe.vocab.iter().find(|(_, other)| **other == id).unwrap().0.clone();
        ids.into_iter().map(text_of).collect()
    }

    #[test]
    fn of_equal_pairs_the_leftmost_merges_first() {
        let merges = ["a a", "aa aa"];
        let bpe = bpe(&vocab("a", &merges), &merges, PreTokenizer::from_name("qwen2").unwrap());
        assert_eq!(parts(&bpe, "aaa"), ["aa", "a"]);
        assert_eq!(parts(&bpe, "aaaaa"), ["aaaa", "a"]);
    }

    #[test]
    fn a_word_that_comes_again_has_the_same_tokens() {
        let merges = ["a b", "Ġ ab"];
        let bpe = bpe(&vocab("abĠ", &merges), &merges, PreTokenizer::from_name("qwen2").unwrap());
        assert_eq!(parts(&bpe, "ab aba ab aba ab"), ["ab", "Ġab", "a", "Ġab", "Ġab", "a", "Ġab"]);
    }

    #[test]
    fn characters_without_a_token_become_bytes_that_never_merge() {
        let mut vocab = vocab("a\u{2581}", &["a a"]);
        let error = bpe(&vocab, &[], GEMMA4).encode("a é", &mut Vec::new()).unwrap_err();
        assert_eq!(error, TokenizerError::Unencodable { byte: 0xc3, word: "é".to_owned() });
        for (id, name) in (100..).zip(["<0xC3>", "<0xA9>", "<0xC3><0xA9>"]) {
            vocab.insert(name.to_owned(), id);
        }
        let bpe = bpe(&vocab, &["a a", "<0xC3> <0xA9>"], GEMMA4);
        assert_eq!(parts(&bpe, "aa aé"), ["aa", "\u{2581}", "a", "<0xC3>", "<0xA9>"]);
    }

    /// Merging by rank, written without a queue.
    fn naive(merges: &[&str], text: &str) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let rank = |i: usize| {
                let rule = format!("{} {}", parts[i - 1], parts[i]);
                merges.iter().position(|merge| *merge == rule)
            };
            let best = (1..parts.len()).filter_map(|i| Some((rank(i)?, i))).min();
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i);
            parts[i - 1].push_str(&right);
        }
    }

    const MERGES: [&str; 14] = [
        "a b", "b c", "c a", "a a", "b b", "ab c", "a bc", "aa b", "aa aa", "ab ab", "a ab", "ca b", "abc a",
        "bb b",
    ];

    proptest::proptest! {
        #[test]
        fn the_queue_merges_as_searching_all_pairs_would(
            text in "[abc]{0,40}",
            merges in proptest::sample::subsequence(&MERGES[..], 0..=MERGES.len()).prop_shuffle(),
        ) {
            // A rule may come before those that make its parts.
            let bpe = bpe(&vocab("abc", &MERGES), &merges, GEMMA4);
            proptest::prop_assert_eq!(parts(&bpe, &text), naive(&merges, &text));
        }
    }
}
