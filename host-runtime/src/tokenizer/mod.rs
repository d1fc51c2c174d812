//! Text to tokens and back, for the vocabularies of model files.
//!
//! Special tokens are cut out first. In vocabularies with merges the rest is split into words by the model's
//! pre-tokenizer, and each word's bytes, or characters, are merged by rank; in those of SentencePiece the
//! characters of the rest are merged by score. Ids equal those of the tokenizers that models were published
//! with, and with few exceptions llama.cpp's. Everything a vocabulary claims is checked when it is loaded:
//! model files come from strangers.

mod blanks;
mod bpe;
mod byte_tokens;
mod bytes;
mod eog;
mod error;
mod infill;
mod merge;
mod pre;
mod ranks;
mod spec;
mod specials;
mod spm;
mod stream;
mod words;

use std::collections::HashMap;

pub use self::eog::EogSet;
pub use self::error::TokenizerError;
pub use self::infill::InfillIds;
pub use self::pre::PreTokenizer;
pub use self::spec::{TokenKind, TokenizerSpec};
pub use self::stream::{TokenStream, Utf8Stream};

use self::bpe::MergeBpe;
use self::specials::{Fragment, SpecialMatcher};
use self::spm::Spm;

/// Largest accepted vocabulary, some sixty times that of today's largest.
const MAX_TOKENS: usize = 1 << 24;
/// Characters of a word shown in a message.
const SHOWN_CHARS: usize = 20;

/// Ids of tokens by their texts.
type Vocab = HashMap<String, u32>;

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
    /// Marks of a text with a gap, if the model fills gaps.
    pub infill: Option<InfillIds>,
}

/// How text between special tokens becomes ids.
enum Algorithm {
    Merges(Box<MergeBpe>),
    SentencePiece(Box<Spm>),
}

impl Algorithm {
    fn id_of(&self, text: &str) -> Option<u32> {
        match self {
            Self::Merges(bpe) => bpe.id_of(text),
            Self::SentencePiece(spm) => spm.id_of(text),
        }
    }

    /// Appends the ids of `text`; `first` if nothing or a special token is before it.
    fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        match self {
            Self::Merges(bpe) => bpe.encode(text, out),
            Self::SentencePiece(spm) => spm.encode(text, first, out),
        }
    }
}

/// What the names in a model file choose.
enum Kind {
    Merges(PreTokenizer),
    SentencePiece,
}

impl Kind {
    fn of(spec: &TokenizerSpec<'_>) -> Result<Self, TokenizerError> {
        match spec.model {
            "gpt2" => Ok(Self::Merges(PreTokenizer::from_name(spec.pre)?)),
            "gemma4" => Ok(Self::Merges(pre::GEMMA4)),
            "llama" => Ok(Self::SentencePiece),
            model => Err(TokenizerError::UnsupportedModel { model: model.to_owned() }),
        }
    }

    /// Whether BOS is added, by what the model file says.
    fn adds_bos(&self, said: Option<bool>) -> bool {
        match self {
            // Early files say no, by mistake.
            Self::Merges(pre::GEMMA4) => true,
            Self::Merges(pre) => said.unwrap_or(pre.adds_bos),
            Self::SentencePiece => said.unwrap_or(true),
        }
    }

    /// The ids of tokens with a role that the file does not name: SentencePiece has three by custom.
    fn usual_ids(&self, vocab: usize) -> SpecialIds {
        match self {
            Self::Merges(_) => SpecialIds::default(),
            Self::SentencePiece => {
                let id = |id: u32| Some(id).filter(|&id| (id as usize) < vocab);
                SpecialIds { unk: id(0), bos: id(1), eos: id(2), ..SpecialIds::default() }
            }
        }
    }

    fn algorithm(&self, spec: &TokenizerSpec<'_>, vocab: Vocab) -> Result<Algorithm, TokenizerError> {
        Ok(match self {
            Self::Merges(pre) => Algorithm::Merges(Box::new(MergeBpe::new(vocab, &spec.merges, *pre)?)),
            Self::SentencePiece => {
                let (tokens, blank_first) = (spec.tokens.len(), spec.add_space_prefix.unwrap_or(true));
                Algorithm::SentencePiece(Box::new(Spm::new(vocab, &spec.scores, tokens, blank_first)?))
            }
        })
    }

    /// Appends the bytes that a token of ordinary text stands for.
    fn unspell(&self, text: &str, out: &mut Vec<u8>) {
        match self {
            Self::Merges(pre) if pre.spells_bytes() => bytes::unspell(text, out),
            Self::Merges(_) | Self::SentencePiece => blanks::unspell(text, out),
        }
    }
}

/// A loaded vocabulary. Shared freely between threads, as nothing in it changes.
pub struct Tokenizer {
    algorithm: Algorithm,
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
        f.debug_struct("Tokenizer").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Checks `spec` and builds the tokenizer.
    pub fn new(spec: &TokenizerSpec<'_>) -> Result<Self, TokenizerError> {
        let kind = Kind::of(spec)?;
        let mut kinds = check_kinds(spec)?;
        let mut ids = check_ids(spec, kind.usual_ids(spec.tokens.len()))?;
        let add_bos = kind.adds_bos(spec.add_bos);
        for (role, add, id) in [("bos", add_bos, ids.bos), ("eos", spec.add_eos, ids.eos)] {
            if add && id.is_none() {
                return Err(TokenizerError::MissingSpecial { role });
            }
        }

        let vocab = collect_vocab(&spec.tokens)?;
        let eog = eog::collect(spec, ids, |text| vocab.get(text).copied(), &mut kinds);
        ids.infill = InfillIds::find(spec, |text| vocab.get(text).copied());
        let algorithm = kind.algorithm(spec, vocab)?;

        let mut bytes = Vec::with_capacity(8 * spec.tokens.len());
        let mut ends = Vec::with_capacity(spec.tokens.len());
        for (text, &token) in spec.tokens.iter().zip(&kinds) {
            decode_token(text, token, &kind, &mut bytes);
            ends.push(bytes.len());
        }
        let specials = SpecialMatcher::new(spec.tokens.iter().copied().zip(kinds.iter().copied()));
        Ok(Self { algorithm, specials, kinds, bytes, ends, ids, add_bos, add_eos: spec.add_eos, eog })
    }

    /// Turns text into ids. Text of a SentencePiece vocabulary may come back from [`decode`](Self::decode)
    /// with a blank before it, which such vocabularies begin with.
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
        let mut first = true;
        for fragment in self.specials.split(text, parse_special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => self.algorithm.encode(text, first, &mut out)?,
            }
            first = matches!(fragment, Fragment::Token(_));
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
        self.algorithm.id_of(text)
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

    /// Whether the model wants EOS at the end.
    pub fn adds_eos(&self) -> bool {
        self.add_eos
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

fn check_ids(spec: &TokenizerSpec<'_>, usual: SpecialIds) -> Result<SpecialIds, TokenizerError> {
    let vocab = spec.tokens.len();
    let roles = [
        ("bos", spec.bos),
        ("eos", spec.eos),
        ("eot", spec.eot),
        ("eom", spec.eom),
        ("unknown", spec.unk),
        ("padding", spec.pad),
        ("mask", spec.mask),
        ("fim_pre", spec.fim_pre),
        ("fim_suf", spec.fim_suf),
        ("fim_mid", spec.fim_mid),
        ("fim_rep", spec.fim_rep),
        ("fim_sep", spec.fim_sep),
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
    let (bos, eos, unk) = (bos.or(usual.bos), eos.or(usual.eos), unk.or(usual.unk));
    Ok(SpecialIds { bos, eos, eot, eom, unk, pad, mask, infill: None })
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

/// The beginning of a word, for messages.
fn shown(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).collect()
}

fn decode_token(text: &str, token: TokenKind, kind: &Kind, out: &mut Vec<u8>) {
    match token {
        TokenKind::Normal => kind.unspell(text, out),
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => {
            out.extend_from_slice(text.as_bytes());
        }
        TokenKind::Byte => match blanks::byte_of(text) {
            Some(byte) => out.push(byte),
            None => kind.unspell(text, out),
        },
        TokenKind::Unused => {}
    }
}
