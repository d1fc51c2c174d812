//! From tokens to text: pieces as they come, stop texts, and when to end.

use std::sync::Arc;

use super::{Finish, GenerateError, Generated, Limits, Stats, TokenOrigin};
use crate::model::MAX_STOPS;
use crate::tokenizer::{Tokenizer, Utf8Stream};

/// Tokens that there is room for from the beginning, if so many are asked for.
const RESERVED: usize = 1 << 16;
/// Bytes of text that a token usually has, at most.
const TOKEN_BYTES: usize = 8;

/// Takes the tokens of a generation and keeps them and their text.
pub(super) struct Emitter {
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    utf8: Utf8Stream,
    finder: StopFinder,
    tokens: Vec<u32>,
    /// Where each of the tokens came from.
    origins: Vec<TokenOrigin>,
    text: String,
    /// Bytes of `text` that were shown in earlier steps.
    shown: usize,
    /// Ids that end the text, as many as the device can look for, and whether nothing but them and the budget
    /// can end it.
    stops: Vec<u32>,
    stops_are_all: bool,
    cancelled: bool,
}

impl Emitter {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, limits: Limits) -> Self {
        let ids = if limits.ignore_eos { &[] } else { tokenizer.eog().ids() };
        let stops: Vec<u32> = ids.iter().copied().take(MAX_STOPS as usize).collect();
        let stops_are_all = stops.len() == ids.len() && limits.stop.is_empty();
        Self {
            finder: StopFinder { stops: limits.stop.clone(), held: String::new(), found: None },
            tokenizer,
            limits,
            utf8: Utf8Stream::default(),
            tokens: Vec::new(),
            origins: Vec::new(),
            text: String::new(),
            shown: 0,
            stops,
            stops_are_all,
            cancelled: false,
        }
    }

    /// Makes room for all tokens that can come in a context of `n_ctx`, so that none of them allocates; gives
    /// how many that may be.
    pub(super) fn reserve(&mut self, n_ctx: u32) -> usize {
        let room = self.limits.max_tokens.unwrap_or(usize::MAX).min(n_ctx as usize).min(RESERVED);
        self.tokens.reserve(room);
        self.origins.reserve(room);
        self.text.reserve(TOKEN_BYTES * room);
        self.finder.held.reserve(TOKEN_BYTES);
        room
    }

    /// A step begins: what is shown from here on is new.
    pub(super) fn begin_step(&mut self) {
        self.shown = self.text.len();
    }

    /// The text of this step.
    pub(super) fn new_text(&self) -> &str {
        self.text.get(self.shown..).unwrap_or_default()
    }

    /// The next token of the text; whether the generation ends with it.
    pub(super) fn push(&mut self, token: u32) -> Result<Option<Finish>, GenerateError> {
        self.tokens.push(token);
        self.origins.push(TokenOrigin::default());
        if !self.limits.ignore_eos && self.tokenizer.eog().contains(token) {
            return Ok(Some(Finish::Eog));
        }
        let hides_control = !self.limits.shown.contains(&token);
        self.utf8.push(self.tokenizer.shown_bytes(token, hides_control)?, &mut self.finder.held);
        let stopped = self.finder.release(&mut self.text);
        Ok(if stopped {
            Some(Finish::Stop)
        } else if self.left() == Some(0) {
            Some(Finish::Length)
        } else {
            None
        })
    }

    /// Asks for the end.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// Whether the end was asked for.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled || self.limits.cancel.is_cancelled()
    }

    /// The tokens so far.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Where each of them came from.
    pub(super) fn origins(&self) -> &[TokenOrigin] {
        &self.origins
    }

    /// The last token was a draft.
    pub(super) fn was_drafted(&mut self) {
        if let Some(origin) = self.origins.last_mut() {
            origin.drafted = true;
        }
    }

    /// The last token stands in place of the first of `drafts` that were wrong.
    pub(super) fn replaces(&mut self, drafts: u32) {
        if let Some(origin) = self.origins.last_mut() {
            origin.rejected = drafts;
        }
    }

    /// Their text, as far as it is shown.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Tokens that may still come, if that is limited.
    pub(super) fn left(&self) -> Option<usize> {
        self.limits.max_tokens.map(|max| max.saturating_sub(self.tokens.len()))
    }

    /// The ids that end the text.
    pub(super) fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Whether the device can see every end but that of the host's patience.
    pub(super) fn device_sees_all_ends(&self) -> bool {
        self.stops_are_all
    }

    /// The text ends: what was held back was no stop text after all, and what is left of the last character
    /// is shown.
    pub(super) fn end(&mut self, finish: Finish) {
        if finish != Finish::Stop {
            self.utf8.finish(&mut self.finder.held);
            self.finder.release(&mut self.text);
        }
        self.text.push_str(&std::mem::take(&mut self.finder.held));
    }

    /// Tokens and text as a result; they are gone from here.
    pub(super) fn take(&mut self, finish_reason: Finish, stats: Stats) -> Generated {
        self.shown = 0;
        let (tokens, text) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.text));
        let stop = self.finder.found.take().filter(|_| finish_reason == Finish::Stop);
        Generated { tokens, text, finish_reason, stop, stats }
    }
}

/// Finds stop texts in a stream, holding back text that may be the beginning of one.
struct StopFinder {
    stops: Vec<String>,
    /// Text that was not released yet.
    held: String,
    /// The stop text that was found.
    found: Option<String>,
}

impl StopFinder {
    /// Moves what is safe to show from `held` to `out`; whether a stop text was found. That and what follows
    /// it is dropped.
    fn release(&mut self, out: &mut String) -> bool {
        let places = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = places.min_by_key(|&(at, _)| at) {
            out.push_str(&self.held[..at]);
            self.found = Some(stop.clone());
            self.held.clear();
            return true;
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let safe = self.held.len() - keep;
        out.push_str(&self.held[..safe]);
        self.held.drain(..safe);
        false
    }
}

/// Bytes at the end of `text` that are a proper beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let starts = stop.char_indices().map(|(i, _)| i).skip(1).filter(|&n| n <= text.len());
    starts.filter(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut finder = StopFinder { stops, held: String::new(), found: None };
        let mut out = String::new();
        for piece in pieces {
            finder.held.push_str(piece);
            if finder.release(&mut out) {
                return (out, true);
            }
        }
        (out + &finder.held, false)
    }

    #[test]
    fn a_stop_text_is_found_across_pieces_and_not_printed() {
        assert_eq!(run(&["\n\n"], &["a\n", "\nb"]), ("a".to_owned(), true));
        assert_eq!(run(&["END", "\n"], &["xE", "N", "D"]), ("x".to_owned(), true));
        assert_eq!(run(&["abc"], &["ab", "ab", "c"]), ("ab".to_owned(), true));
    }

    #[test]
    fn what_only_looked_like_a_stop_text_is_printed() {
        assert_eq!(run(&["END"], &["E", "N", "x"]), ("ENx".to_owned(), false));
        assert_eq!(run(&["END"], &["EN"]), ("EN".to_owned(), false));
        assert_eq!(run(&["é!"], &["é", "é"]), ("éé".to_owned(), false));
        assert_eq!(run(&[], &["a", "b"]), ("ab".to_owned(), false));
    }
}
