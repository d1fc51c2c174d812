//! Pre-tokenizers: the rules that cut text into words before byte-pair merging.
//!
//! A pattern is part of a model: a word boundary in another place gives other ids, and the model then reads
//! text unlike any it was trained on. Hence names are matched exactly and an unknown one is an error.

use super::TokenizerError;
use super::words::{Splitter, Words};

/// Splitting rules named by `tokenizer.ggml.pre`, and what else that name says of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreTokenizer {
    words: Words,
    /// Whether a word that is itself a token skips merging.
    pub(super) ignores_merges: bool,
    /// Whether BOS is added when the model file does not say.
    pub(super) adds_bos: bool,
}

/// Words as a name asks for them; whether words that are tokens skip merging, and whether BOS is added when
/// the file does not say.
const fn rules(words: Words, ignores_merges: bool, adds_bos: bool) -> PreTokenizer {
    PreTokenizer { words, ignores_merges, adds_bos }
}

/// Every accepted name. Rules are those of llama.cpp for the same name, which models are tested with.
const NAMES: &[(PreTokenizer, &[&str])] = &[
    (rules(Words::Qwen35, false, false), &["qwen35"]),
    (
        rules(Words::Qwen2, false, false),
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "f2llmv2",
            "grok-2",
            "hunyuan",
            "kormo",
            "megrez",
            "solar-open",
            "stablelm2",
        ],
    ),
    (rules(Words::SeedCoder, false, false), &["seed-coder"]),
    (rules(Words::BailingMoe, false, false), &["bailingmoe", "bailingmoe2", "llada-moe"]),
    (
        rules(Words::Llama3, true, true),
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "pixtral"],
    ),
    (rules(Words::Llama3, true, false), &["glm4", "glm5"]),
    (rules(Words::Llama3, false, false), &["chatglm-bpe", "dbrx", "smaug-bpe"]),
    (rules(Words::MiniCpm5, true, false), &["minicpm5"]),
    (rules(Words::Gpt4o, false, false), &["gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"]),
    (rules(Words::Tekken, true, true), &["tekken"]),
    (
        rules(Words::Gpt2, false, false),
        &[
            "gpt-2",
            "a.x-4.0",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "mellum",
            "mpt",
            "olmo",
            "phi-2",
            "trillion",
        ],
    ),
    (
        rules(Words::SmolLm, false, false),
        &["smollm", "codeshell", "command-r", "exaone", "mellum2", "minerva-7b", "refact", "starcoder"],
    ),
    (rules(Words::Falcon, false, false), &["falcon"]),
    (rules(Words::Default, false, false), &["default"]),
    (rules(Words::DeepSeekCoder, false, false), &["deepseek-coder"]),
    (rules(Words::DeepSeek3, false, false), &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"]),
    (rules(Words::Spark, false, false), &["spark2_5"]),
    (rules(Words::Bloom, false, false), &["bloom", "gpt3-finnish", "poro-chat"]),
    (rules(Words::Viking, false, false), &["viking"]),
    (GEMMA4, &["gemma4"]),
];

/// Gemma 4's rules, which its files name as the model.
pub(super) const GEMMA4: PreTokenizer = rules(Words::Lines, false, true);

impl PreTokenizer {
    /// Looks up the value of `tokenizer.ggml.pre`.
    pub fn from_name(name: &str) -> Result<Self, TokenizerError> {
        let found = NAMES.iter().find(|(_, names)| names.contains(&name));
        let unknown = || TokenizerError::UnsupportedPre { pre: name.to_owned() };
        found.map(|(rules, _)| *rules).ok_or_else(unknown)
    }

    /// The accepted names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().flat_map(|(_, names)| *names).copied()
    }

    /// Whether tokens are written in the alphabet for bytes. Otherwise they are plain text, with U+2581 for
    /// blanks, as SentencePiece writes them.
    pub(super) fn spells_bytes(self) -> bool {
        self.words != Words::Lines
    }

    /// Compiles the rules.
    pub(super) fn splitter(self) -> Splitter {
        self.words.splitter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<_> = PreTokenizer::names().collect();
        assert_eq!(names.len(), PreTokenizer::names().count());
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let message = PreTokenizer::from_name("youtu").unwrap_err().to_string();
        assert!(
            message.contains("\"youtu\"") && message.contains("qwen35, qwen2, deepseek-r1-qwen"),
            "{message}"
        );
    }
}
