//! A vocabulary as plain data, as it stands in a model file's metadata.

use super::TokenizerError;

/// Everything a [`Tokenizer`](super::Tokenizer) is made of; fields are named after the `tokenizer.ggml.`
/// keys.
#[derive(Debug, Clone, Default)]
pub struct TokenizerSpec<'a> {
    /// Algorithm: `gpt2` (byte-level BPE), `llama` (SentencePiece's BPE, with scores in place of merges) or
    /// `gemma4` (SentencePiece's BPE with merges).
    pub model: &'a str,
    /// Splitting rules of `gpt2`, see [`PreTokenizer`](super::PreTokenizer).
    pub pre: &'a str,
    /// Token texts by id.
    pub tokens: Vec<&'a str>,
    /// GGUF token types by id; empty when the file has none, which makes every token normal.
    pub token_types: Vec<i32>,
    /// Merge rules, `left right`, best first.
    pub merges: Vec<&'a str>,
    /// Scores by id, for `llama`: of two merges that with the higher score goes first.
    pub scores: Vec<f32>,
    /// For `llama`, whether text begins with a blank that is not in it; `None`, when the file does not say,
    /// means that it does.
    pub add_space_prefix: Option<bool>,
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// Unknown text; byte-level vocabularies do not need it.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Placeholder for positions a draft model fills.
    pub mask: Option<u32>,
    /// Mark of the text before a gap.
    pub fim_pre: Option<u32>,
    /// Mark of the text behind a gap.
    pub fim_suf: Option<u32>,
    /// Mark behind which the text of a gap is written.
    pub fim_mid: Option<u32>,
    /// Mark of a repository's name.
    pub fim_rep: Option<u32>,
    /// Mark of a file's name.
    pub fim_sep: Option<u32>,
    /// Further ids that end generation, such as the fill-in-the-middle pad, repository and file separators.
    pub extra_eog: Vec<u32>,
    /// Whether to begin with BOS; `None` when the file does not say, which leaves it to the algorithm and the
    /// pre-tokenizer.
    pub add_bos: Option<bool>,
    /// Whether to end with EOS.
    pub add_eos: bool,
}

/// What a token is for, which decides how it is parsed and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Part of ordinary text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Steers the model: turn ends, roles, padding.
    Control,
    /// Added by the model's makers; never split, always shown.
    UserDefined,
    /// A reserved id without meaning.
    Unused,
    /// A single byte written `<0xHH>`.
    Byte,
}

impl TokenKind {
    /// From the GGUF enumeration; 0 (undefined) has no meaning either.
    pub(super) fn from_gguf(id: u32, value: i32) -> Result<Self, TokenizerError> {
        Ok(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            0 | 5 => Self::Unused,
            6 => Self::Byte,
            found => return Err(TokenizerError::TokenType { id, found }),
        })
    }

    /// Hidden when control tokens are skipped, and plain text unless special tokens are parsed.
    pub(super) fn is_hidden(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Found in text before anything else.
    pub(super) fn is_special(self) -> bool {
        self.is_hidden() || self == Self::UserDefined
    }
}
