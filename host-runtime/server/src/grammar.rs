//! Answers of a form: JSON by a schema, or a grammar.
//!
//! `llguidance` computes, token by token, which tokens keep a text inside its grammar. It bounds what it
//! spends on building a grammar and on each token, and what exceeds that is an error.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hexflash::sampler::{Constraint, SamplerError};
use hexflash::tokenizer::{TokenKind, Tokenizer};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{CancellationHandle, Matcher, ParserFactory};
use serde_json::Value;
use toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};

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
        for schema in grammar.grammars.iter().filter_map(|part| part.json_schema.as_ref()) {
            check_bounds(schema)?;
        }
        let compile = || Matcher::new(self.factory.create_parser(grammar));
        let matcher = thread::scope(|scope| {
            let compiler = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile);
            compiler.map_err(|error| error.to_string())?.join().map_err(|_| "its compiler failed".to_owned())
        })?;
        match matcher.get_error() {
            Some(error) => Err(one_line(&error)),
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

/// Most characters of an error of the library: it may quote the whole grammar.
const MAX_ERROR: usize = 400;

/// An error of the library on one line. The first line may be but a title, and the cause below it, after a
/// line of marks that point into a copy of the text.
fn one_line(error: &str) -> String {
    let is_word = |word: &&str| !word.chars().all(|c| matches!(c, '^' | '~'));
    let words: Vec<&str> = error.split_whitespace().filter(is_word).collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_ERROR).collect()
}

/// Keywords of a schema that bound an integer.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/// Refuses integers that a schema bounds beyond 64 bits. The library would keep it within those, and forbid
/// numbers that the schema allows.
///
/// # Errors
/// In words.
fn check_bounds(schema: &Value) -> Result<(), String> {
    match schema {
        Value::Array(items) => items.iter().try_for_each(check_bounds),
        Value::Object(fields) => {
            let is_integer = |kind: &Value| match kind {
                Value::Array(kinds) => kinds.iter().any(|kind| kind == "integer"),
                kind => kind == "integer",
            };
            if fields.get("type").is_some_and(is_integer) {
                for name in BOUNDS {
                    // As a float, 2^63 is the first that is too large.
                    let is_beyond = |bound: f64| !(-(2_f64.powi(63))..2_f64.powi(63)).contains(&bound);
                    if let Some(bound) =
                        fields.get(name).filter(|bound| bound.as_f64().is_some_and(is_beyond))
                    {
                        return Err(format!(
                            "{name} is {bound}, and integers have 64 bits here; leave it out, or use number"
                        ));
                    }
                }
            }
            fields.values().try_for_each(check_bounds)
        }
        _ => Ok(()),
    }
}

fn failed(error: impl std::fmt::Display) -> SamplerError {
    SamplerError::Constraint { cause: one_line(&error.to_string()) }
}

/// The masks of a text as they are needed, from a thread of their own: one that takes seconds is waited for
/// by its own text alone.
pub(crate) struct Masks {
    tokens: mpsc::Sender<u32>,
    masks: mpsc::Receiver<Result<SimpleVob, String>>,
    /// The mask of the next token, once it was asked for.
    current: Option<SimpleVob>,
    state: Arc<MaskState>,
    /// Ends the computation when nobody waits for it any more.
    cancel: Option<CancellationHandle>,
    /// How long steps may still wait for masks in their middle.
    patience: Duration,
    tokenizer: Arc<Tokenizer>,
    end: u32,
}

/// Whether a mask is being computed.
#[derive(Default)]
pub(crate) struct MaskState(AtomicBool);

impl MaskState {
    pub(crate) fn is_ready(&self) -> bool {
        // Acquire and release: who sees that a mask is there finds it in the channel.
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, is_ready: bool) {
        self.0.store(is_ready, Ordering::Release);
    }
}

/// How long all steps of a text together may wait for masks in their middle, where drafts need several of
/// them, and how much of that each token gives back. All other texts wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_PER_TOKEN: Duration = Duration::from_millis(5);

impl Grammar {
    /// Begins a text; `wake` is called whenever a mask is ready.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn begin(self, wake: impl Fn() + Send + 'static) -> io::Result<Masks> {
        let Self { matcher, tokenizer, end } = self;
        let mut matcher = matcher.into_cancellable();
        let cancel = matcher.cancellation_handle();
        let state = Arc::new(MaskState::default());
        let (tokens, taken) = mpsc::channel::<u32>();
        let (give, masks) = mpsc::channel();
        let ready = Arc::clone(&state);
        let compute = move || {
            loop {
                let mask = matcher.compute_mask_or_eos().map_err(|error| one_line(&error.to_string()));
                let is_last = mask.is_err();
                let is_gone = give.send(mask).is_err();
                ready.set(true);
                wake();
                let Some(token) = (!is_last && !is_gone).then(|| taken.recv().ok()).flatten() else { return };
                // What is wrong with it is said by the next mask.
                let _ = matcher.consume_token(token);
            }
        };
        thread::Builder::new().name("grammar".to_owned()).spawn(compute)?;
        Ok(Masks { tokens, masks, current: None, state, cancel, patience: PATIENCE, tokenizer, end })
    }
}

impl Masks {
    /// Tells whether the next mask is there.
    pub(crate) fn state(&self) -> Arc<MaskState> {
        Arc::clone(&self.state)
    }

    /// The mask of the next token. It is there, unless a step goes over several tokens.
    fn current(&mut self) -> Result<&SimpleVob, SamplerError> {
        let mask = match self.current.take() {
            Some(mask) => mask,
            None => {
                let start = Instant::now();
                let mask = self.masks.recv_timeout(self.patience).map_err(|_| {
                    failed("the grammar takes too long for each token; make it less ambiguous")
                })?;
                self.patience = self.patience.saturating_sub(start.elapsed());
                mask.map_err(failed)?
            }
        };
        Ok(self.current.insert(mask))
    }
}

impl Drop for Masks {
    fn drop(&mut self) {
        self.cancel.iter().for_each(CancellationHandle::cancel);
    }
}

impl Constraint for Masks {
    fn forbid(&mut self, logits: &mut [f32]) -> Result<(), SamplerError> {
        let (tokenizer, end) = (Arc::clone(&self.tokenizer), self.end);
        let mask = self.current()?;
        let may_end = mask.is_allowed(end);
        let eog = tokenizer.eog();
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
        if !self.current()?.is_allowed(token) {
            return Err(failed("a token has come that the grammar does not allow"));
        }
        self.current = None;
        self.patience = (self.patience + PATIENCE_PER_TOKEN).min(PATIENCE);
        self.state.set(false);
        self.tokens.send(token).map_err(|_| failed("its computation has ended"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_are_bounded_within_64_bits() {
        let of = |bound: Value| json!({ "properties": { "a": { "type": "integer", "maximum": bound } } });
        for fine in [json!(5), json!(i64::MAX - 1024), json!(i64::MIN), json!(1.5)] {
            assert_eq!(check_bounds(&of(fine)), Ok(()));
        }
        for wrong in [json!(u64::MAX), json!(1e30), json!(-1e30)] {
            let error = check_bounds(&of(wrong)).unwrap_err();
            assert!(error.starts_with("maximum is ") && error.contains("64 bits"), "{error}");
        }
        assert_eq!(check_bounds(&json!({ "type": "number", "maximum": 1e30 })), Ok(()));
        let either = json!({ "anyOf": [{ "type": ["null", "integer"], "exclusiveMinimum": -1e19 }] });
        assert!(check_bounds(&either).is_err());
    }

    #[test]
    fn errors_keep_the_cause_below_their_title() {
        let error = "regex parse error:\n    (abc\n    ^\nerror: unclosed group";
        assert_eq!(one_line(error), "regex parse error: (abc error: unclosed group");
        assert_eq!(one_line(&"x".repeat(10_000)).len(), MAX_ERROR);
    }
}
