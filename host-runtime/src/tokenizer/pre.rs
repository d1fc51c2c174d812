//! Pre-tokenizers: the rules that cut text into words before byte-pair merging.
//!
//! A pattern is part of a model: a word boundary in another place gives other ids, and the model then reads
//! text unlike any it was trained on. Hence names are matched exactly and an unknown one is an error.

use tokenizers::utils::SysRegex;

use super::TokenizerError;

/// English contractions in both cases, as the first alternative of most patterns.
const CONTRACTIONS: &str = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
/// Line breaks and runs of blanks: a run leaves its last blank to the word that follows.
const BLANKS: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";

/// Splitting rules named by `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreTokenizer {
    /// Qwen3.5: combining marks belong to the letters they follow; digits one by one.
    Qwen35,
    /// Qwen2, Qwen2.5 and Qwen3: letters only; digits one by one.
    Qwen2,
    /// Llama 3: like Qwen2 with digits in groups of up to three.
    LlamaBpe,
    /// GPT-4o and gpt-oss: words also end where lower case meets upper case.
    Gpt4o,
}

/// Every accepted name; the first of each kind is the canonical one.
const NAMES: [(&str, PreTokenizer); 7] = [
    ("qwen35", PreTokenizer::Qwen35),
    ("qwen2", PreTokenizer::Qwen2),
    ("deepseek-r1-qwen", PreTokenizer::Qwen2),
    ("llama-bpe", PreTokenizer::LlamaBpe),
    ("llama3", PreTokenizer::LlamaBpe),
    ("llama-v3", PreTokenizer::LlamaBpe),
    ("gpt-4o", PreTokenizer::Gpt4o),
];

impl PreTokenizer {
    /// Looks up the value of `tokenizer.ggml.pre`.
    pub fn from_name(name: &str) -> Result<Self, TokenizerError> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, pre)| pre)
            .ok_or_else(|| TokenizerError::UnsupportedPre { pre: name.to_owned() })
    }

    /// The accepted names, comma separated, for messages.
    pub fn supported() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// Whether a word that is itself a token skips merging.
    pub(super) fn ignores_merges(self) -> bool {
        self == Self::LlamaBpe
    }

    /// Whether BOS is added when the model file does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == Self::LlamaBpe
    }

    fn pattern(self) -> String {
        // Without marks the third alternative takes them as punctuation, apart from their letters.
        let words = |letter: &str, mark: &str, digits: &str| {
            format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|\p{{N}}{digits}| ?[^\s\p{{L}}{mark}\p{{N}}]+[\r\n]*|{BLANKS}"
            )
        };
        match self {
            Self::Qwen35 => words(r"[\p{L}\p{M}]", r"\p{M}", ""),
            Self::Qwen2 => words(r"\p{L}", "", ""),
            Self::LlamaBpe => words(r"\p{L}", "", "{1,3}"),
            Self::Gpt4o => {
                let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
                let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
                let lead = r"[^\r\n\p{L}\p{N}]?";
                format!(
                    r"{lead}{upper}*{lower}+{CONTRACTIONS}?|{lead}{upper}+{lower}*{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
                )
            }
        }
    }

    /// Compiles the rules.
    #[expect(
        clippy::expect_used,
        reason = "the pattern is no property of the file, which only chooses one by name"
    )]
    pub(super) fn splitter(self) -> Splitter {
        // The patterns are constants, and a test compiles each.
        Splitter { regex: SysRegex::new(&self.pattern()).expect("constant pattern compiles") }
    }
}

/// Compiled splitting rules.
pub(super) struct Splitter {
    regex: SysRegex,
}

impl Splitter {
    /// Calls `word` for each word of `text`, in order.
    pub(super) fn for_each_word<'t>(
        &self,
        text: &'t str,
        mut word: impl FnMut(&'t str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        let mut end = 0;
        for (start, stop) in self.regex.find_iter(text) {
            if start != end {
                return Err(TokenizerError::Split { offset: end });
            }
            word(&text[start..stop])?;
            end = stop;
        }
        // Every character is matched by some alternative. The library ends its iterator silently when the
        // matcher runs into its limits, so a gap is that, and the rest would be lost or be one huge word.
        if end == text.len() { Ok(()) } else { Err(TokenizerError::Split { offset: end }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pre: PreTokenizer, text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        pre.splitter()
            .for_each_word(text, |w| {
                words.push(w);
                Ok(())
            })
            .unwrap();
        words
    }

    const ALL: [PreTokenizer; 4] =
        [PreTokenizer::Qwen35, PreTokenizer::Qwen2, PreTokenizer::LlamaBpe, PreTokenizer::Gpt4o];

    #[test]
    fn contractions_are_words_except_in_gpt4o_where_they_stay_attached() {
        for pre in &ALL[..3] {
            assert_eq!(split(*pre, "I'LL we've it's"), ["I", "'LL", " we", "'ve", " it", "'s"], "{pre:?}");
        }
        assert_eq!(split(PreTokenizer::Gpt4o, "I'LL we've it's"), ["I'LL", " we've", " it's"]);
    }

    #[test]
    fn digits_are_single_or_in_threes() {
        for pre in &ALL[..2] {
            assert_eq!(split(*pre, "a12345"), ["a", "1", "2", "3", "4", "5"], "{pre:?}");
        }
        for pre in &ALL[2..] {
            assert_eq!(split(*pre, "a12345"), ["a", "123", "45"], "{pre:?}");
        }
    }

    #[test]
    fn a_blank_run_leaves_its_last_blank_to_the_next_word() {
        for pre in ALL {
            assert_eq!(split(pre, "a   b  "), ["a", "  ", " b", "  "], "{pre:?}");
            assert_eq!(split(pre, "a \n\n  b\r\n"), ["a", " \n\n", " ", " b", "\r\n"], "{pre:?}");
            assert_eq!(split(pre, "x;\n\n\ty"), ["x", ";\n\n", "\ty"], "{pre:?}");
        }
    }

    #[test]
    fn cjk_is_letters() {
        for pre in ALL {
            assert_eq!(split(pre, "你好，世界 东"), ["你好", "，世界", " 东"], "{pre:?}");
        }
    }

    #[test]
    fn combining_marks_tell_qwen35_from_qwen2() {
        let text = "e\u{301}a นี้";
        assert_eq!(split(PreTokenizer::Qwen35, text), ["e\u{301}a", " นี้"]);
        // Thai vowel and tone signs are marks too: qwen2 cuts inside the syllable.
        assert_eq!(split(PreTokenizer::Qwen2, text), ["e", "\u{301}a", " น", "\u{e35}\u{e49}"]);
        assert_eq!(split(PreTokenizer::Gpt4o, text), ["e\u{301}a", " นี้"]);
    }

    #[test]
    fn gpt4o_splits_at_case_changes_and_keeps_slashes_with_punctuation() {
        assert_eq!(split(PreTokenizer::Gpt4o, "parseHTTPServer"), ["parse", "HTTPServer"]);
        assert_eq!(split(PreTokenizer::Gpt4o, "a ://\n/b"), ["a", " ://\n/", "b"]);
    }

    #[test]
    fn a_run_beyond_the_matchers_limits_is_an_error() {
        let text = format!("a{}b", " ".repeat(1_200_000));
        let result = PreTokenizer::Qwen35.splitter().for_each_word(&text, |_| Ok(()));
        assert_eq!(result, Err(TokenizerError::Split { offset: 1 }));
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let message = PreTokenizer::from_name("smollm").unwrap_err().to_string();
        assert!(
            message.contains("\"smollm\"") && message.contains("qwen35, qwen2, deepseek-r1-qwen"),
            "{message}"
        );
    }
}
