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
/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Digits one by one, and what is between them.
const SINGLE_DIGITS: &str = r"\p{N}|\P{N}+";

/// Splitting rules named by `tokenizer.ggml.pre`, and what else that name says of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreTokenizer {
    words: Words,
    /// Whether a word that is itself a token skips merging.
    pub(super) ignores_merges: bool,
    /// Whether BOS is added when the model file does not say.
    pub(super) adds_bos: bool,
}

/// Where words begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    /// Qwen3.5: combining marks belong to the letters they follow; digits one by one.
    Qwen35,
    /// Qwen2, Qwen2.5 and Qwen3: letters only; digits one by one.
    Qwen2,
    /// Llama 3: like Qwen2 with digits in groups of up to three.
    Llama3,
    /// GPT-4o and gpt-oss: words also end where lower case meets upper case.
    Gpt4o,
    /// Mistral's Tekken: as GPT-4o, with digits one by one and contractions cut at the apostrophe.
    Tekken,
    /// GPT-2: runs of letters, digits or other characters, each with a blank before it; contractions in lower
    /// case only.
    Gpt2,
    /// SmolLM and StarCoder: digits one by one, what is between them as in GPT-2.
    SmolLm,
}

/// Every accepted name; the first of each kind is the canonical one. The flags say whether words that are
/// tokens skip merging, and whether BOS is added when the file does not say.
const NAMES: [(&str, Words, bool, bool); 39] = [
    ("qwen35", Words::Qwen35, false, false),
    ("qwen2", Words::Qwen2, false, false),
    ("deepseek-r1-qwen", Words::Qwen2, false, false),
    ("kormo", Words::Qwen2, false, false),
    ("megrez", Words::Qwen2, false, false),
    ("stablelm2", Words::Qwen2, false, false),
    ("hunyuan", Words::Qwen2, false, false),
    ("solar-open", Words::Qwen2, false, false),
    ("llama-bpe", Words::Llama3, true, true),
    ("llama3", Words::Llama3, true, true),
    ("llama-v3", Words::Llama3, true, true),
    ("falcon3", Words::Llama3, true, true),
    ("falcon-h1", Words::Llama3, true, true),
    ("pixtral", Words::Llama3, true, true),
    ("midm-2.0", Words::Llama3, true, true),
    ("lfm2", Words::Llama3, true, true),
    ("glm4", Words::Llama3, true, false),
    ("dbrx", Words::Llama3, false, false),
    ("smaug-bpe", Words::Llama3, false, false),
    ("gpt-4o", Words::Gpt4o, false, false),
    ("llama4", Words::Gpt4o, false, false),
    ("kanana2", Words::Gpt4o, false, false),
    ("tekken", Words::Tekken, true, true),
    ("smollm", Words::SmolLm, false, false),
    ("starcoder", Words::SmolLm, false, false),
    ("refact", Words::SmolLm, false, false),
    ("command-r", Words::SmolLm, false, false),
    ("codeshell", Words::SmolLm, false, false),
    ("exaone", Words::SmolLm, false, false),
    ("minerva-7b", Words::SmolLm, false, false),
    ("gpt-2", Words::Gpt2, false, false),
    ("phi-2", Words::Gpt2, false, false),
    ("mpt", Words::Gpt2, false, false),
    ("olmo", Words::Gpt2, false, false),
    ("gigachat", Words::Gpt2, false, false),
    ("exaone4", Words::Gpt2, false, false),
    ("trillion", Words::Gpt2, false, false),
    ("granite-docling", Words::Gpt2, false, false),
    ("mellum", Words::Gpt2, false, false),
];

impl PreTokenizer {
    /// Looks up the value of `tokenizer.ggml.pre`.
    pub fn from_name(name: &str) -> Result<Self, TokenizerError> {
        let found = NAMES.iter().find(|(known, ..)| *known == name);
        let &(_, words, ignores_merges, adds_bos) =
            found.ok_or_else(|| TokenizerError::UnsupportedPre { pre: name.to_owned() })?;
        Ok(Self { words, ignores_merges, adds_bos })
    }

    /// The accepted names, comma separated, for messages.
    pub fn supported() -> String {
        NAMES.map(|(name, ..)| name).join(", ")
    }

    /// Compiles the rules.
    pub(super) fn splitter(self) -> Splitter {
        self.words.splitter()
    }
}

impl Words {
    /// The patterns, each of which cuts what the one before it has cut. Every character of a text is in a
    /// match of each.
    fn patterns(self) -> Vec<String> {
        // Without marks the third alternative takes them as punctuation, apart from their letters.
        let words = |letter: &str, mark: &str, digits: &str| {
            format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|\p{{N}}{digits}| ?[^\s\p{{L}}{mark}\p{{N}}]+[\r\n]*|{BLANKS}"
            )
        };
        let cased = |end: &str, digits: &str| {
            let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
            let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
            let lead = r"[^\r\n\p{L}\p{N}]?";
            format!(
                r"{lead}{upper}*{lower}+{end}|{lead}{upper}+{lower}*{end}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
            )
        };
        match self {
            Self::Qwen35 => vec![words(r"[\p{L}\p{M}]", r"\p{M}", "")],
            Self::Qwen2 => vec![words(r"\p{L}", "", "")],
            Self::Llama3 => vec![words(r"\p{L}", "", "{1,3}")],
            Self::Gpt4o => vec![cased(&format!("{CONTRACTIONS}?"), "{1,3}")],
            Self::Tekken => vec![cased("", "")],
            Self::Gpt2 => vec![GPT2.to_owned()],
            Self::SmolLm => vec![SINGLE_DIGITS.to_owned(), GPT2.to_owned()],
        }
    }

    /// Compiles the rules.
    #[expect(
        clippy::expect_used,
        reason = "the pattern is no property of the file, which only chooses one by name"
    )]
    fn splitter(self) -> Splitter {
        // The patterns are constants, and a test compiles each.
        let compile = |pattern: String| SysRegex::new(&pattern).expect("constant pattern compiles");
        Splitter { stages: self.patterns().into_iter().map(compile).collect() }
    }
}

/// Compiled splitting rules.
pub(super) struct Splitter {
    stages: Vec<SysRegex>,
}

impl Splitter {
    /// Calls `word` for each word of `text`, in order.
    pub(super) fn for_each_word<'t>(
        &self,
        text: &'t str,
        mut word: impl FnMut(&'t str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        cut(&self.stages, text, 0, &mut word)
    }
}

/// Cuts `text`, which begins at byte `at`, by one stage after the other.
fn cut<'t>(
    stages: &[SysRegex],
    text: &'t str,
    at: usize,
    word: &mut dyn FnMut(&'t str) -> Result<(), TokenizerError>,
) -> Result<(), TokenizerError> {
    let Some((regex, later)) = stages.split_first() else { return word(text) };
    let mut end = 0;
    for (start, stop) in regex.find_iter(text) {
        if start != end {
            return Err(TokenizerError::Split { offset: at + end });
        }
        cut(later, &text[start..stop], at + start, word)?;
        end = stop;
    }
    // Every character is matched by some alternative. The library ends its iterator silently when the matcher
    // runs into its limits, so a gap is that, and the rest would be lost or be one huge word.
    if end == text.len() { Ok(()) } else { Err(TokenizerError::Split { offset: at + end }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pre: Words, text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        pre.splitter()
            .for_each_word(text, |w| {
                words.push(w);
                Ok(())
            })
            .unwrap();
        words
    }

    const ALL: [Words; 4] = [Words::Qwen35, Words::Qwen2, Words::Llama3, Words::Gpt4o];

    #[test]
    fn contractions_are_words_except_in_gpt4o_where_they_stay_attached() {
        for pre in &ALL[..3] {
            assert_eq!(split(*pre, "I'LL we've it's"), ["I", "'LL", " we", "'ve", " it", "'s"], "{pre:?}");
        }
        assert_eq!(split(Words::Gpt4o, "I'LL we've it's"), ["I'LL", " we've", " it's"]);
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
        assert_eq!(split(Words::Qwen35, text), ["e\u{301}a", " นี้"]);
        // Thai vowel and tone signs are marks too: qwen2 cuts inside the syllable.
        assert_eq!(split(Words::Qwen2, text), ["e", "\u{301}a", " น", "\u{e35}\u{e49}"]);
        assert_eq!(split(Words::Gpt4o, text), ["e\u{301}a", " นี้"]);
    }

    #[test]
    fn gpt4o_splits_at_case_changes_and_keeps_slashes_with_punctuation() {
        assert_eq!(split(Words::Gpt4o, "parseHTTPServer"), ["parse", "HTTPServer"]);
        assert_eq!(split(Words::Gpt4o, "a ://\n/b"), ["a", " ://\n/", "b"]);
    }

    #[test]
    fn tekken_cuts_contractions_and_digits() {
        assert_eq!(split(Words::Tekken, "it's 12ab"), ["it", "'s", " ", "1", "2", "ab"]);
        assert_eq!(split(Words::Tekken, "parseHTTP //\n/b"), ["parse", "HTTP", " //\n/", "b"]);
    }

    #[test]
    fn gpt2_takes_runs_of_a_kind_with_the_blank_before_them() {
        let text = "I'll SAY'LL  12345;\n\n  x \n";
        let words = ["I", "'ll", " SAY", "'", "LL", " ", " 12345", ";", "\n\n ", " x", " \n"];
        assert_eq!(split(Words::Gpt2, text), words);
        assert_eq!(split(Words::Gpt2, "a\nb"), ["a", "\n", "b"], "a line break is no part of a word");
    }

    #[test]
    fn smollm_cuts_at_digits_before_anything_else() {
        let words = ["a", " ", "1", "2", "x", "  ", "3", "\n"];
        assert_eq!(split(Words::SmolLm, "a 12x  3\n"), words);
        assert_eq!(split(Words::SmolLm, "x  y"), ["x", " ", " y"]);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<_> = NAMES.iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), NAMES.len());
    }

    #[test]
    fn a_run_beyond_the_matchers_limits_is_an_error() {
        let text = format!("a{}b", " ".repeat(1_200_000));
        let result = Words::Qwen35.splitter().for_each_word(&text, |_| Ok(()));
        assert_eq!(result, Err(TokenizerError::Split { offset: 1 }));
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let message = PreTokenizer::from_name("viking").unwrap_err().to_string();
        assert!(
            message.contains("\"viking\"") && message.contains("qwen35, qwen2, deepseek-r1-qwen"),
            "{message}"
        );
    }
}
