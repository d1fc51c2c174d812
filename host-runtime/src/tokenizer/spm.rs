//! SentencePiece's BPE: the characters of a text are merged, and what no token expresses becomes bytes.
//! Blanks are written U+2581, so that they can be parts of tokens.
//!
//! In model files with `tokenizer.ggml.model` "llama" the scores of the tokens that merges give decide which
//! goes first. The `tokenizers` library has no such algorithm. It needs a list of merges, which these files
//! do not have: here any two neighbours merge whose texts together are a token, even where one of them is
//! none, and of equal scores the leftmost goes first.
//!
//! Files with "gemma4" have a list of merges, and nothing else merges. Runs of line breaks are apart from the
//! rest; one that is a token is taken whole.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::error::TokenizerError;
use super::shown;

/// What stands for a blank in the texts of tokens.
const BLANK: &str = "\u{2581}";

/// Which neighbours merge, and which of them first.
enum Order {
    /// Those that are a token together, by its score, the higher the earlier: by id; no -0.
    Scores(Vec<f32>),
    /// Those in a list, the first of it the earliest: "left right", with its place.
    Merges(HashMap<String, usize>),
}

/// A vocabulary with scores or merges.
pub(super) struct Spm {
    ids: HashMap<String, u32>,
    order: Order,
    /// The tokens of bytes, where there are some.
    bytes: [Option<u32>; 256],
    /// Whether text begins with a blank that is not in it.
    blank_first: bool,
}

/// A run of characters; the first of those that were merged stands for all.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// Bytes; 0 once it belongs to another symbol.
    len: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that may merge.
#[derive(Clone, Copy, PartialEq)]
struct Pair {
    score: f64,
    left: usize,
    right: usize,
    /// Bytes of both when they were found; another sum means that one of them has changed.
    len: usize,
}

impl Eq for Pair {}

impl Ord for Pair {
    /// The greatest pair is merged first: that with the highest score, of equal ones the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left)).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Spm {
    /// Checks the scores, one per token, and builds the algorithm. With `blank_first` text begins with a
    /// blank, at its start and after special tokens.
    pub(super) fn new(
        ids: HashMap<String, u32>,
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
        // 0 for -0: they are equal scores.
        let scores = scores.iter().map(|score| score + 0.0).collect();
        Ok(Self::of(ids, Order::Scores(scores), blank_first))
    }

    /// The algorithm with a list of merges, "left right", best first.
    pub(super) fn with_merges(ids: HashMap<String, u32>, merges: &[&str]) -> Self {
        let mut places = HashMap::with_capacity(merges.len());
        for (place, merge) in merges.iter().enumerate() {
            places.entry((*merge).to_owned()).or_insert(place);
        }
        Self::of(ids, Order::Merges(places), false)
    }

    fn of(ids: HashMap<String, u32>, order: Order, blank_first: bool) -> Self {
        let bytes = std::array::from_fn(|byte| ids.get(&format!("<0x{byte:02X}>")).copied());
        Self { ids, order, bytes, blank_first }
    }

    /// The id of a token by its text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Appends the ids of `text`; `first` if nothing or a special token is before it.
    pub(super) fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let blank = if first && self.blank_first { BLANK } else { "" };
        let spelled = format!("{blank}{}", text.replace(' ', BLANK));
        match self.order {
            Order::Scores(_) => self.encode_word(&spelled, out),
            Order::Merges(_) => lines(&spelled).try_for_each(|word| match self.ids.get(word) {
                Some(&id) if word.starts_with('\n') => {
                    out.push(id);
                    Ok(())
                }
                _ => self.encode_word(word, out),
            }),
        }
    }

    fn encode_word(&self, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for part in self.merge(word) {
            match self.ids.get(part) {
                Some(&id) => out.push(id),
                None => {
                    for byte in part.bytes() {
                        let unencodable = || TokenizerError::Unencodable { byte, word: shown(part) };
                        out.push(self.bytes[usize::from(byte)].ok_or_else(unencodable)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The parts of `text`, in order: tokens, and characters that are none.
    fn merge<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (i, (start, c)) in text.char_indices().enumerate() {
            symbols.push(Symbol {
                start,
                len: c.len_utf8(),
                previous: i.checked_sub(1),
                next: Some(i + 1).filter(|_| start + c.len_utf8() < text.len()),
            });
        }
        let mut pairs = BinaryHeap::with_capacity(symbols.len());
        for right in 1..symbols.len() {
            pairs.extend(self.pair(text, &symbols, Some(right - 1), Some(right)));
        }
        while let Some(Pair { left, right, len, .. }) = pairs.pop() {
            let (first, second) = (symbols[left], symbols[right]);
            if first.len == 0 || second.len == 0 || first.len + second.len != len {
                continue;
            }
            symbols[left] = Symbol { len, next: second.next, ..first };
            symbols[right].len = 0;
            if let Some(next) = second.next {
                symbols[next].previous = Some(left);
            }
            pairs.extend(self.pair(text, &symbols, first.previous, Some(left)));
            pairs.extend(self.pair(text, &symbols, Some(left), second.next));
        }
        // Merged symbols have no length, and the others follow each other.
        symbols.into_iter().filter(|s| s.len > 0).map(|s| &text[s.start..s.start + s.len])
    }

    /// Two neighbours, if there are two and they may merge.
    fn pair(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: Option<usize>,
        right: Option<usize>,
    ) -> Option<Pair> {
        let (left, right) = (left?, right?);
        let len = symbols[left].len + symbols[right].len;
        let start = symbols[left].start;
        let score = match &self.order {
            Order::Scores(scores) => scores[*self.ids.get(&text[start..start + len])? as usize].into(),
            Order::Merges(places) => {
                let (first, second) = text[start..start + len].split_at(symbols[left].len);
                -(*places.get(&format!("{first} {second}"))? as f64)
            }
        };
        Some(Pair { score, left, right, len })
    }
}

/// Runs of line breaks, and what is between them, in order.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.as_bytes().chunk_by(|a, b| (*a == b'\n') == (*b == b'\n')).scan(0, |at, run| {
        let start = *at;
        *at += run.len();
        Some(&text[start..*at])
    })
}

/// Appends the text of a token with blanks for what stands for them.
pub(super) fn unspell(token: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(token.replace(BLANK, " ").as_bytes());
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
        spm.merge(text).collect()
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

    #[test]
    fn a_list_of_merges_is_all_that_merges() {
        let tokens = ["a", "b", "ab", "abb", "\n", "\n\n", "\u{2581}", "bb", "<0xC3>", "<0xA9>"];
        let ids = || (0..).zip(tokens).map(|(id, text)| (text.to_owned(), id)).collect();
        let encode = |merges: &[&str], text: &str| {
            let mut out = Vec::new();
            Spm::with_merges(ids(), merges).encode(text, true, &mut out).map(|()| out)
        };
        assert_eq!(encode(&[], "ab b").unwrap(), [0, 1, 6, 1]);
        assert_eq!(encode(&["a b", "ab b"], "abb").unwrap(), [3]);
        assert_eq!(encode(&["ab b", "a b"], "abb").unwrap(), [3], "of the first list the second comes first");
        assert_eq!(encode(&["b b", "a b"], "abb").unwrap(), [0, 7]);
        assert_eq!(encode(&["a b", "b b", "a b"], "abb").unwrap(), [2, 1]);
        // Two breaks are a token, three are not and have no merges.
        assert_eq!(encode(&["a b"], "ab\n\nab\n\n\n").unwrap(), [2, 5, 2, 4, 4, 4]);
        assert_eq!(encode(&[], "é").unwrap(), [8, 9]);
        assert!(encode(&[], "ß").is_err());
    }

    /// The same rule, written without a queue.
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
