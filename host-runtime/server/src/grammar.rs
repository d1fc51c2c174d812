//! Answers of a form: JSON by a schema, or a grammar.
//!
//! `llguidance` computes, token by token, which tokens keep a text inside its grammar. It bounds what it
//! spends on building a grammar and on each token, and what exceeds that is an error.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use hexflash::sampler::{Constraint, SamplerError};
use hexflash::tokenizer::{TokenKind, Tokenizer};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// Most levels of a grammar, counted as [`levels`] does.
const MAX_LEVELS: usize = 4096;
/// Bytes of the stack on which grammars are compiled. A level takes up to 30 kB in a build without
/// optimisation. Pages that are not touched cost nothing.
const STACK: usize = 256 << 20;

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
        if grammar.grammars.iter().any(|part| levels(part) > MAX_LEVELS) {
            return Err("it is nested too deeply, or has too many references; simplify it".to_owned());
        }
        let compile = || Matcher::new(self.factory.create_parser(grammar));
        let matcher = thread::scope(|scope| {
            let compiler = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile);
            compiler.map_err(|error| error.to_string())?.join().map_err(|_| "its compiler failed".to_owned())
        })?;
        match matcher.get_error() {
            Some(error) => Err(error.lines().next().unwrap_or_default().to_owned()),
            None => Ok(Grammar { matcher, tokenizer: Arc::clone(&self.tokenizer), end: self.end }),
        }
    }
}

/// How deep the library's compiler can get in a grammar: it goes on below a reference, once for each that
/// differs.
fn levels(part: &GrammarWithLexer) -> usize {
    let mut references = HashSet::new();
    let deepest = match (&part.json_schema, &part.lark_grammar) {
        (Some(schema), _) => depth(schema, &mut references),
        (None, Some(text)) => {
            // References are those of schemas within. What stands in quotes counts, too, and does no harm.
            references.extend(text.split("$ref").skip(1));
            text_depth(text)
        }
        (None, None) => 0,
    };
    deepest * (references.len() + 1)
}

/// Levels of a JSON value, which are limited where it was read.
fn depth<'v>(value: &'v Value, references: &mut HashSet<&'v str>) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(|item| depth(item, references)).max().unwrap_or(0),
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str));
            1 + fields.values().map(|field| depth(field, references)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

/// Levels of brackets in a text.
fn text_depth(text: &str) -> usize {
    let (mut now, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => now += 1,
            b')' | b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(now);
    }
    deepest
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
