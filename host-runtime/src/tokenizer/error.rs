//! What can be wrong with a vocabulary, a text or a token id.

use super::pre::PreTokenizer;

/// Reasons a tokenizer cannot be built or used; every message is one line with the cause and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.ggml.model` names another algorithm.
    #[error("tokenizer model {model:?} is not supported; use a model file with one of: gpt2, gemma4, llama")]
    UnsupportedModel {
        /// The name found.
        model: String,
    },
    /// `tokenizer.ggml.pre` names splitting rules that are not implemented.
    #[error(
        "pre-tokenizer {pre:?} is not supported; use a model file with one of: {}",
        PreTokenizer::names().collect::<Vec<_>>().join(", ")
    )]
    UnsupportedPre {
        /// The name found.
        pre: String,
    },
    /// There are no tokens at all.
    #[error("the vocabulary is empty; convert the model again with its tokenizer files present")]
    EmptyVocabulary,
    /// More tokens than a model can have.
    #[error(
        "the vocabulary has {tokens} tokens, more than {limit}; the model file is damaged, fetch it again"
    )]
    TooManyTokens {
        /// Tokens found.
        tokens: usize,
        /// Largest accepted number.
        limit: usize,
    },
    /// `token_type` has another length than `tokens`.
    #[error("{types} token types for {tokens} tokens; the model file is damaged, convert it again")]
    TypeCount {
        /// Entries of the type list.
        types: usize,
        /// Entries of the token list.
        tokens: usize,
    },
    /// `scores` has another length than `tokens`, or is missing.
    #[error("{scores} token scores for {tokens} tokens; convert the model again, each token needs one")]
    ScoreCount {
        /// Entries of the score list.
        scores: usize,
        /// Entries of the token list.
        tokens: usize,
    },
    /// A score that nothing can be compared with.
    #[error("token {id} has score {found}; convert the model again, scores must be finite")]
    Score {
        /// Token concerned.
        id: u32,
        /// Value found.
        found: String,
    },
    /// A token type outside the GGUF enumeration.
    #[error("token {id} has unknown type {found}; convert the model again (types are 0 to 6)")]
    TokenType {
        /// Token concerned.
        id: u32,
        /// Value found.
        found: i32,
    },
    /// Two ids share one text, so encoding would be ambiguous.
    #[error("tokens {first} and {second} are both {text:?}; convert the model again, texts must be unique")]
    DuplicateToken {
        /// The shared text.
        text: String,
        /// Lower id.
        first: u32,
        /// Higher id.
        second: u32,
    },
    /// A merge rule without two parts.
    #[error("merge {index} ({text:?}) is not two tokens separated by one space; convert the model again")]
    MalformedMerge {
        /// Position in the merge list.
        index: usize,
        /// The rule found.
        text: String,
    },
    /// A merge rule whose parts or result are not in the vocabulary.
    #[error("a merge needs token {token:?}, which the vocabulary lacks; convert the model again")]
    UnknownMergeToken {
        /// The missing text.
        token: String,
    },
    /// A special token id beyond the vocabulary.
    #[error("{role} token id {id} is outside the vocabulary of {vocab}; fix tokenizer.ggml.{role}_token_id")]
    SpecialOutOfRange {
        /// Metadata name of the token's role (`bos`, `eos`, …).
        role: &'static str,
        /// The id found.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// BOS or EOS shall be added, but no id is given.
    #[error(
        "add_{role}_token is set without a {role} token; set tokenizer.ggml.{role}_token_id or clear the flag"
    )]
    MissingSpecial {
        /// `bos` or `eos`.
        role: &'static str,
    },
    /// An id given to decode is not a token.
    #[error("token id {id} is outside the vocabulary of {vocab}; use ids of this model only")]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The vocabulary has no token for some byte of the text.
    #[error("no token can express byte 0x{byte:02x} of {word:?}; remove it from the text")]
    Unencodable {
        /// The first byte without a token.
        byte: u8,
        /// The word it stands in, shortened.
        word: String,
    },
    /// The splitting rules gave up, which takes a run of about a million equal characters.
    #[error("the text cannot be split at byte {offset}; shorten the very long run of characters there")]
    Split {
        /// Where splitting stopped.
        offset: usize,
    },
}
