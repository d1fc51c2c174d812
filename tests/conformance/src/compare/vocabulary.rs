//! Vocabularies of files that are made here.
//!
//! The smallest takes any text: a token per byte, one that ends a text, and unused ones up to the size that
//! was asked for.

use hexflash::gguf::Value;
use hexflash::gguf::writer::GgufWriter;

/// Tokens that every vocabulary has: one per byte, and the end of a text behind them.
pub const VOCAB_MIN: u32 = 256 + 1;

/// What a file says of its tokenizer.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// Algorithm: `gpt2`, `gemma4` or `llama`.
    pub model: &'static str,
    /// The rules that cut text into words.
    pub pre: &'static str,
    /// Texts by id.
    pub tokens: Vec<String>,
    /// llama.cpp's types by id.
    pub types: Vec<i32>,
    /// Merge rules, best first, where there are no scores.
    pub merges: Vec<String>,
    /// Scores by id, for `llama`.
    pub scores: Vec<f32>,
    /// Other keys: the name without `tokenizer.ggml.`, and the value.
    pub more: Vec<(&'static str, Value)>,
}

/// llama.cpp's type of tokens that are text.
pub const NORMAL: i32 = 1;
/// Its type of the token for text that has none.
pub const UNKNOWN: i32 = 2;
/// Its type of tokens that steer a model.
pub const CONTROL: i32 = 3;
/// Its type of tokens that are never split, and text otherwise.
pub const USER_DEFINED: i32 = 4;
/// Its type of tokens that nothing gives.
pub const UNUSED: i32 = 5;
/// Its type of tokens that are single bytes.
pub const BYTE: i32 = 6;

impl Vocabulary {
    /// A byte-level BPE vocabulary without merges: every byte is a token, so that any text can be split.
    /// llama.cpp loads such a file; without a vocabulary it would end the process when it is given a text.
    pub fn smallest(pre: &'static str, vocab: u32) -> Self {
        let end = VOCAB_MIN - 1;
        let text = |id: u32| match u8::try_from(id) {
            Ok(byte) => byte_char(byte).to_string(),
            Err(_) if id == end => "<|endoftext|>".to_owned(),
            Err(_) => format!("[PAD{id}]"),
        };
        let kind = |id: u32| match id {
            _ if id < end => NORMAL,
            _ if id == end => CONTROL,
            _ => UNUSED,
        };
        Self {
            model: "gpt2",
            pre,
            tokens: (0..vocab).map(text).collect(),
            types: (0..vocab).map(kind).collect(),
            more: vec![
                ("eos_token_id", end.into()),
                ("padding_token_id", end.into()),
                ("add_bos_token", false.into()),
            ],
            ..Self::default()
        }
    }

    /// Writes the keys of the tokenizer.
    pub fn put(&self, w: &mut GgufWriter<'_>) {
        w.kv("tokenizer.ggml.model", self.model)
            .kv("tokenizer.ggml.pre", self.pre)
            .kv("tokenizer.ggml.tokens", self.tokens.clone())
            .kv("tokenizer.ggml.token_type", self.types.clone());
        match self.scores.as_slice() {
            [] => w.kv("tokenizer.ggml.merges", self.merges.clone()),
            _ => w.kv("tokenizer.ggml.scores", self.scores.clone()),
        };
        for (key, value) in &self.more {
            w.kv(&format!("tokenizer.ggml.{key}"), value.clone());
        }
    }
}

/// The character that stands for a byte in GPT-2's vocabularies: itself where it can be printed, else, in
/// order, one from U+0100 on.
pub fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    let code = if printable(byte) { u32::from(byte) } else { 0x100 + before };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}
