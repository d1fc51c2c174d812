//! Answers of a form: JSON by a schema, or a grammar.
//!
//! `llguidance` computes, token by token, which tokens keep a text inside its grammar. It bounds what it
//! spends on building a grammar and on each token, and what exceeds that is an error.

use std::sync::Arc;

use hexflash::sampler::{Constraint, SamplerError};
use hexflash::tokenizer::{TokenKind, Tokenizer};
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// Makes grammars for the tokens of a model.
pub(crate) struct Grammars {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
    /// A token that ends texts, for the library, which knows of one; there may be more.
    end: u32,
}

impl Grammars {
    /// The grammars for a tokenizer. Takes a moment: all tokens go into a tree.
    ///
    /// # Errors
    /// In words. Without a token that ends a text, an answer could not end where its grammar does.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, String> {
        let ends = tokenizer.eog().ids();
        let end = *ends.first().ok_or("the model has no token that ends a text")?;
        // The vocabulary has fewer than 2^24 tokens.
        let n = tokenizer.vocab_size() as u32;
        let words: Vec<Vec<u8>> = (0..n).map(|id| word(&tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(n, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|error| error.to_string())?;
        factory.quiet();
        // Errors go to clients, in one line.
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, tokenizer, end })
    }

    /// A grammar, compiled.
    ///
    /// # Errors
    /// In words: it makes no sense, or is too large.
    pub(crate) fn compile(&self, grammar: TopLevelGrammar) -> Result<Grammar, String> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(error.lines().next().unwrap_or_default().to_owned()),
            None => Ok(Grammar { matcher, tokenizer: Arc::clone(&self.tokenizer), end: self.end }),
        }
    }
}

/// What a token stands for in a grammar. Control tokens are no text, and a mark says so.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    match tokenizer.kind(id) {
        Some(TokenKind::Normal | TokenKind::Byte | TokenKind::UserDefined) => bytes.to_vec(),
        Some(TokenKind::Control | TokenKind::Unknown) => {
            let mark = std::iter::once(TokTrie::SPECIAL_TOKEN_MARKER);
            mark.chain(bytes.iter().copied()).collect()
        }
        Some(TokenKind::Unused) | None => Vec::new(),
    }
}

/// Where a text is in its grammar.
pub(crate) struct Grammar {
    matcher: Matcher,
    tokenizer: Arc<Tokenizer>,
    end: u32,
}

impl Grammar {
    /// The same grammar for another text.
    pub(crate) fn another(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), tokenizer: Arc::clone(&self.tokenizer), end: self.end }
    }
}

fn failed(error: impl std::fmt::Display) -> SamplerError {
    let cause = error.to_string().lines().next().unwrap_or_default().to_owned();
    SamplerError::Constraint { cause }
}

impl Constraint for Grammar {
    fn forbid(&mut self, logits: &mut [f32]) -> Result<(), SamplerError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(failed)?;
        let may_end = mask.is_allowed(self.end);
        let eog = self.tokenizer.eog();
        // A model may have more rows than its vocabulary has tokens.
        let known = mask.len();
        for (id, logit) in (0..).zip(logits.iter_mut()) {
            let allowed =
                if eog.contains(id) { may_end } else { (id as usize) < known && mask.is_allowed(id) };
            if !allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), SamplerError> {
        // A token that ends the text has nothing after it.
        if self.tokenizer.eog().contains(token) {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(failed)
    }
}
