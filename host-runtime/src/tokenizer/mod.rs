//! Text to tokens and back, for byte-level BPE vocabularies out of model files.
//!
//! Encoding goes in three steps: special tokens are cut out, the rest is split into words by the model's
//! pre-tokenizer, and each word's bytes are merged by rank. Ids equal llama.cpp's, which models are tested
//! with. Everything a vocabulary claims is checked when it is loaded: model files come from strangers.

mod bytes;
mod eog;
mod error;
mod pre;
mod spec;
mod specials;
mod stream;

use std::collections::HashSet;

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Error as BpeError, Merges, Vocab};

pub use self::eog::EogSet;
pub use self::error::TokenizerError;
pub use self::pre::PreTokenizer;
pub use self::spec::{TokenKind, TokenizerSpec};
pub use self::stream::{TokenStream, Utf8Stream};

use self::pre::Splitter;
use self::specials::{Fragment, SpecialMatcher};

/// Largest accepted vocabulary, some sixty times that of today's largest.
const MAX_TOKENS: usize = 1 << 24;
/// Characters of a word shown in a message.
const SHOWN_CHARS: usize = 20;

/// Ids of the tokens with a role, as far as the model has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Placeholder for positions a draft model fills.
    pub mask: Option<u32>,
}

/// A loaded vocabulary. Shared freely between threads; encoding keeps a cache of words behind a lock.
pub struct Tokenizer {
    bpe: BPE,
    splitter: Splitter,
    specials: SpecialMatcher,
    kinds: Vec<TokenKind>,
    /// What each token stands for, back to back; `ends[id]` is where token `id` ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    ids: SpecialIds,
    add_bos: bool,
    add_eos: bool,
    eog: EogSet,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("bpe", &self.bpe).field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Checks `spec` and builds the tokenizer.
    pub fn new(spec: &TokenizerSpec<'_>) -> Result<Self, TokenizerError> {
        if spec.model != "gpt2" {
            return Err(TokenizerError::UnsupportedModel { model: spec.model.to_owned() });
        }
        let pre = PreTokenizer::from_name(spec.pre)?;
        let mut kinds = check_kinds(spec)?;
        let ids = check_ids(spec)?;
        let add_bos = spec.add_bos.unwrap_or(pre.adds_bos());
        for (role, add, id) in [("bos", add_bos, ids.bos), ("eos", spec.add_eos, ids.eos)] {
            if add && id.is_none() {
                return Err(TokenizerError::MissingSpecial { role });
            }
        }

        let vocab = collect_vocab(&spec.tokens)?;
        let eog = eog::collect(spec, |text| vocab.get(text).copied(), &mut kinds);
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, collect_merges(&spec.merges)?)
            .ignore_merges(pre.ignores_merges())
            .build()
            .map_err(|error| match error.downcast_ref() {
                Some(BpeError::MergeTokenOutOfVocabulary(token)) => {
                    TokenizerError::UnknownMergeToken { token: token.clone() }
                }
                _ => bpe_error(&error),
            })?;

        let mut bytes = Vec::with_capacity(8 * spec.tokens.len());
        let mut ends = Vec::with_capacity(spec.tokens.len());
        for (text, kind) in spec.tokens.iter().zip(&kinds) {
            decode_token(text, *kind, &mut bytes);
            ends.push(bytes.len());
        }
        let specials = SpecialMatcher::new(spec.tokens.iter().copied().zip(kinds.iter().copied()));
        Ok(Self {
            bpe,
            splitter: pre.splitter(),
            specials,
            kinds,
            bytes,
            ends,
            ids,
            add_bos,
            add_eos: spec.add_eos,
            eog,
        })
    }

    /// Turns text into ids.
    ///
    /// `add_special` adds BOS and EOS where the model wants them. `parse_special` recognises control tokens
    /// written in the text; without it they are ordinary characters, as text from strangers should be.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.add_bos {
            out.extend(self.ids.bos);
        }
        let mut spelled = String::new();
        for fragment in self.specials.split(text, parse_special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => self.splitter.for_each_word(text, |word| {
                    spelled.clear();
                    bytes::spell(word, &mut spelled);
                    self.encode_word(word, &spelled, &mut out)
                })?,
            }
        }
        if add_special && self.add_eos {
            out.extend(self.ids.eos);
        }
        Ok(out)
    }

    /// Encodes a prompt that a chat template has rendered: control tokens are parsed, and BOS is added only
    /// if the model wants one and the template has not written it. EOS is never added, the answer is to come.
    pub fn encode_prompt(&self, rendered: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(rendered, false, true)?;
        if self.add_bos && ids.first().copied() != self.ids.bos {
            ids.splice(..0, self.ids.bos);
        }
        Ok(ids)
    }

    fn encode_word(&self, word: &str, spelled: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = self.bpe.tokenize(spelled).map_err(|error| bpe_error(&error))?;
        // Characters without a token are left out by the library, so count what came back.
        if tokens.iter().map(|token| token.value.len()).sum::<usize>() != spelled.len() {
            let missing = |byte: &u8| self.id_of(bytes::to_char(*byte).encode_utf8(&mut [0; 4])).is_none();
            let byte = word.bytes().find(missing).unwrap_or_default();
            let word = word.chars().take(SHOWN_CHARS).collect();
            return Err(TokenizerError::Unencodable { byte, word });
        }
        out.extend(tokens.into_iter().map(|token| token.id));
        Ok(())
    }

    /// Turns ids into text; what is not UTF-8 becomes U+FFFD. `skip_control` hides control tokens.
    pub fn decode(&self, ids: &[u32], skip_control: bool) -> Result<String, TokenizerError> {
        let mut stream = TokenStream::new(self, skip_control);
        let mut text = String::with_capacity(4 * ids.len());
        for &id in ids {
            stream.push_into(id, &mut text)?;
        }
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// The bytes a token stands for, which need not be whole characters.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        let index = id as usize;
        let end =
            *self.ends.get(index).ok_or(TokenizerError::IdOutOfRange { id, vocab: self.vocab_size() })?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Ok(&self.bytes[start..end])
    }

    /// The bytes of a token, or none for a control token that is to be skipped.
    pub(crate) fn shown_bytes(&self, id: u32, skip_control: bool) -> Result<&[u8], TokenizerError> {
        let bytes = self.token_bytes(id)?;
        Ok(if skip_control && self.kinds[id as usize].is_hidden() { &[] } else { bytes })
    }

    /// The id of a token by its text as the vocabulary spells it.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.bpe.token_to_id(text)
    }

    /// What a token is for.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }

    /// The tokens with a role.
    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// Whether the model wants BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens that end generation.
    pub fn eog(&self) -> &EogSet {
        &self.eog
    }
}

fn check_kinds(spec: &TokenizerSpec<'_>) -> Result<Vec<TokenKind>, TokenizerError> {
    let tokens = spec.tokens.len();
    let types = spec.token_types.len();
    match tokens {
        0 => Err(TokenizerError::EmptyVocabulary),
        _ if tokens > MAX_TOKENS => Err(TokenizerError::TooManyTokens { tokens, limit: MAX_TOKENS }),
        _ if types == 0 => Ok(vec![TokenKind::Normal; tokens]),
        _ if types != tokens => Err(TokenizerError::TypeCount { types, tokens }),
        _ => (0..).zip(&spec.token_types).map(|(id, &value)| TokenKind::from_gguf(id, value)).collect(),
    }
}

fn check_ids(spec: &TokenizerSpec<'_>) -> Result<SpecialIds, TokenizerError> {
    let vocab = spec.tokens.len();
    let roles = [
        ("bos", spec.bos),
        ("eos", spec.eos),
        ("eot", spec.eot),
        ("eom", spec.eom),
        ("unknown", spec.unk),
        ("padding", spec.pad),
        ("mask", spec.mask),
    ];
    let extra = spec.extra_eog.iter().map(|&id| ("eog", Some(id)));
    for (role, id) in roles.into_iter().chain(extra) {
        if let Some(id) = id
            && id as usize >= vocab
        {
            return Err(TokenizerError::SpecialOutOfRange { role, id, vocab });
        }
    }
    let &TokenizerSpec { bos, eos, eot, eom, unk, pad, mask, .. } = spec;
    Ok(SpecialIds { bos, eos, eot, eom, unk, pad, mask })
}

fn collect_vocab(tokens: &[&str]) -> Result<Vocab, TokenizerError> {
    let mut vocab = Vocab::with_capacity(tokens.len());
    for (id, text) in (0..).zip(tokens) {
        // Converters leave reserved ids empty; they have no text to find them by.
        if text.is_empty() {
            continue;
        }
        if let Some(first) = vocab.insert((*text).to_owned(), id) {
            return Err(TokenizerError::DuplicateToken { text: (*text).to_owned(), first, second: id });
        }
    }
    Ok(vocab)
}

fn collect_merges(rules: &[&str]) -> Result<Merges, TokenizerError> {
    let mut seen = HashSet::with_capacity(rules.len());
    let mut merges = Merges::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        match rule.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                // The best rank counts, as in llama.cpp; the library would let the worst one win.
                if seen.insert(*rule) {
                    merges.push((left.to_owned(), right.to_owned()));
                }
            }
            _ => return Err(TokenizerError::MalformedMerge { index, text: (*rule).to_owned() }),
        }
    }
    Ok(merges)
}

fn decode_token(text: &str, kind: TokenKind, out: &mut Vec<u8>) {
    match kind {
        TokenKind::Normal => bytes::unspell(text, out),
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => {
            out.extend_from_slice(text.as_bytes());
        }
        TokenKind::Byte => {
            let hex = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
            match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => out.push(byte),
                None => bytes::unspell(text, out),
            }
        }
        TokenKind::Unused => {}
    }
}

fn bpe_error(error: &tokenizers::Error) -> TokenizerError {
    TokenizerError::Bpe { cause: error.to_string().replace('\n', " ") }
}
