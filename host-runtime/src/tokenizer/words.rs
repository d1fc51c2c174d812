//! Where words begin and end: the patterns behind the names of pre-tokenizers.
//!
//! A model has one pattern, or several, each of which cuts what those before it have left. What lies between
//! two matches of a pattern is a word as well.

use fancy_regex::Regex;

use super::TokenizerError;

/// English contractions in both cases, as the first alternative of most patterns.
const CONTRACTIONS: &str = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
/// Line breaks and runs of blanks: a run leaves its last blank to the word that follows.
const BLANKS: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// BLOOM's words: they end at blanks and at the marks that end or divide sentences.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// DeepSeek-V3's words without digits and Chinese. An ASCII punctuation mark stays with the letters after it.
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Spark's words without digits and Chinese: as DeepSeek-V3's, but no line break belongs to punctuation, and
/// each is a word.
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
);
/// Chinese characters, and the syllables that Japanese adds to them, as a class.
const HAN_AND_KANA: &str = r"\x{4e00}-\x{9fa5}\x{3040}-\x{30ff}";
/// What DeepSeek-Coder has in the place of Chinese and Korean, as a class: most scripts from U+0800 on.
const CODER_CJK: &str = r"\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}";

/// Where words begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Qwen3.5: combining marks belong to the letters they follow; digits one by one.
    Qwen35,
    /// Qwen2, Qwen2.5 and Qwen3: letters only; digits one by one.
    Qwen2,
    /// Seed-Coder: as Qwen2, but no line break belongs to the punctuation before it.
    SeedCoder,
    /// Ling: as Qwen2, but each line break ends a word.
    BailingMoe,
    /// Llama 3: like Qwen2 with digits in groups of up to three.
    Llama3,
    /// MiniCPM5: as Llama 3, but digits are cut out first, so that no blank belongs to them.
    MiniCpm5,
    /// GPT-4o and gpt-oss: words also end where lower case meets upper case.
    Gpt4o,
    /// Mistral's Tekken: as GPT-4o, with digits one by one and contractions cut at the apostrophe.
    Tekken,
    /// GPT-2: runs of letters, digits or other characters, each with a blank before it; contractions in lower
    /// case only.
    Gpt2,
    /// SmolLM and StarCoder: digits one by one, what is between them as in GPT-2.
    SmolLm,
    /// Falcon: punctuation is cut out first, then as GPT-2, then digits in groups of three from the left.
    Falcon,
    /// Files that do not say: as Falcon, where digits have no blank before them.
    Default,
    /// DeepSeek-Coder: line breaks and digits one by one, a blank belongs to letters or punctuation after it.
    DeepSeekCoder,
    /// DeepSeek-V3: digits in groups of up to three, then runs of Chinese.
    DeepSeek3,
    /// Spark: as DeepSeek-V3, with digits and line breaks one by one.
    Spark,
    /// BLOOM and Poro: sentences are cut at their punctuation, and at blanks.
    Bloom,
    /// Viking: as BLOOM, with digits one by one.
    Viking,
    /// Gemma 4: lines, and the runs of line breaks between them.
    Lines,
}

/// A pattern of Qwen2's kind.
struct Kind {
    letter: &'static str,
    /// Marks, if they are letters: without them they are punctuation, apart from their letters.
    mark: &'static str,
    /// How many digits are a word.
    digits: &'static str,
    /// What else belongs to punctuation.
    after: &'static str,
    blanks: &'static str,
}

const QWEN2: Kind = Kind { letter: r"\p{L}", mark: "", digits: "", after: r"[\r\n]*", blanks: BLANKS };

impl Kind {
    fn pattern(self) -> String {
        let Self { letter, mark, digits, after, blanks } = self;
        format!(
            r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|\p{{N}}{digits}| ?[^\s\p{{L}}{mark}\p{{N}}]+{after}|{blanks}"
        )
    }
}

/// A pattern of GPT-4o's kind: what else may end a word, and how many digits are one.
fn cased(end: &str, digits: &str) -> String {
    let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
    let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
    let lead = r"[^\r\n\p{L}\p{N}]?";
    format!(
        r"{lead}{upper}*{lower}+{end}|{lead}{upper}+{lower}*{end}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
    )
}

/// Cuts out every character of a class.
fn singles(class: &str) -> String {
    format!("[{class}]|[^{class}]+")
}

/// Cuts out every run of a class.
fn runs(class: &str) -> String {
    format!("[{class}]+|[^{class}]+")
}

/// Cuts out every match of a pattern, which need not match everywhere.
fn matches(pattern: &str) -> String {
    format!("{pattern}|(?s:(?!{pattern}).)+")
}

impl Words {
    /// The patterns, each of which cuts what the one before it has cut. Every character of a text is in a
    /// match of each.
    fn patterns(self) -> Vec<String> {
        match self {
            Self::Qwen35 => vec![Kind { letter: r"[\p{L}\p{M}]", mark: r"\p{M}", ..QWEN2 }.pattern()],
            Self::Qwen2 => vec![QWEN2.pattern()],
            Self::SeedCoder => vec![Kind { after: "", ..QWEN2 }.pattern()],
            Self::BailingMoe => {
                vec![Kind { blanks: r"\s*[\r\n]|\s+(?!\S)|\s+", ..QWEN2 }.pattern()]
            }
            Self::Llama3 => vec![Kind { digits: "{1,3}", ..QWEN2 }.pattern()],
            Self::MiniCpm5 => {
                vec![matches(r"\p{N}{1,3}"), Kind { digits: "+", ..QWEN2 }.pattern()]
            }
            Self::Gpt4o => vec![cased(&format!("{CONTRACTIONS}?"), "{1,3}")],
            Self::Tekken => vec![cased("", "")],
            Self::Gpt2 => vec![GPT2.to_owned()],
            Self::SmolLm => vec![singles(r"\p{N}"), GPT2.to_owned()],
            Self::Falcon => {
                vec![runs(r"\p{P}$+<=>^~|`"), GPT2.to_owned(), matches("[0-9][0-9][0-9]")]
            }
            Self::Default => {
                let digits = runs(r"\p{N}");
                vec![runs(r"\p{P}$+<=>\^~|"), GPT2.to_owned(), digits, matches("[0-9][0-9][0-9]")]
            }
            Self::DeepSeekCoder => vec![
                singles(r"\r\n"),
                matches(r"\s?\p{L}+"),
                matches(r"\s?\p{P}+"),
                runs(CODER_CJK),
                singles(r"\p{N}"),
            ],
            Self::DeepSeek3 => vec![matches(r"\p{N}{1,3}"), runs(HAN_AND_KANA), matches(DEEPSEEK3)],
            Self::Spark => {
                let digits = singles(r"\p{N}");
                vec![matches(r"\p{N}{1,3}"), runs(HAN_AND_KANA), matches(SPARK), digits]
            }
            Self::Bloom => vec![matches(BLOOM)],
            Self::Viking => vec![matches(BLOOM), singles(r"\p{N}")],
            Self::Lines => vec![runs(r"\n")],
        }
    }

    /// Compiles the rules.
    #[expect(
        clippy::expect_used,
        reason = "the pattern is no property of the file, which only chooses one by name"
    )]
    pub(super) fn splitter(self) -> Splitter {
        // The patterns are constants, and a test compiles each.
        let compile = |pattern: String| Regex::new(&pattern).expect("constant pattern compiles");
        Splitter { stages: self.patterns().into_iter().map(compile).collect() }
    }
}

/// Compiled splitting rules.
pub(super) struct Splitter {
    stages: Vec<Regex>,
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
    stages: &[Regex],
    text: &'t str,
    at: usize,
    word: &mut dyn FnMut(&'t str) -> Result<(), TokenizerError>,
) -> Result<(), TokenizerError> {
    let Some((regex, later)) = stages.split_first() else { return word(text) };
    let mut end = 0;
    // The matcher has limits, beyond which it gives an error instead of a match.
    for found in regex.find_iter(text).map_while(Result::ok) {
        if found.start() != end {
            return Err(TokenizerError::Split { offset: at + end });
        }
        cut(later, found.as_str(), at + end, word)?;
        end = found.end();
    }
    // Every character is matched by some alternative, so what is left is what the matcher gave up on.
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
    fn spark_cuts_digits_and_line_breaks_one_by_one() {
        let words = ["a", " ", "1", "2", "3", "!", "\n", "\n", "中文", ".b"];
        assert_eq!(split(Words::Spark, "a 123!\n\n中文.b"), words);
        assert_eq!(split(Words::DeepSeek3, "a 123!\n\nb"), ["a", " ", "123", "!\n\n", "b"]);
    }

    #[test]
    fn smollm_cuts_at_digits_before_anything_else() {
        let words = ["a", " ", "1", "2", "x", "  ", "3", "\n"];
        assert_eq!(split(Words::SmolLm, "a 12x  3\n"), words);
        assert_eq!(split(Words::SmolLm, "x  y"), ["x", " ", " y"]);
    }

    #[test]
    fn a_run_beyond_the_matchers_limits_is_an_error() {
        let text = format!("a{}b", " ".repeat(1_200_000));
        let result = Words::Qwen35.splitter().for_each_word(&text, |_| Ok(()));
        assert_eq!(result, Err(TokenizerError::Split { offset: 1 }));
    }
}
