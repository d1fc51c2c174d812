//! From tokens to text: pieces as they come, stop texts, and when to end.

use super::{Finish, GenerateError, Limits};
use crate::cancel::Cancel;
use crate::tokenizer::{TokenStream, Tokenizer};

/// Tokens that there is room for from the beginning, if so many are asked for.
const RESERVED: usize = 1 << 16;

/// Takes the tokens of a generation.
pub(super) struct Emitter<'a, F> {
    tokenizer: &'a Tokenizer,
    limits: &'a Limits,
    stream: TokenStream<'a>,
    finder: StopFinder<'a>,
    tokens: Vec<u32>,
    text: String,
    on_text: F,
}

impl<'a, F: FnMut(&str) -> bool> Emitter<'a, F> {
    pub(super) fn new(tokenizer: &'a Tokenizer, limits: &'a Limits, n_ctx: u32, on_text: F) -> Self {
        let room = limits.max_tokens.unwrap_or(0).min(n_ctx as usize).min(RESERVED);
        Self {
            tokenizer,
            limits,
            stream: TokenStream::new(tokenizer, true),
            finder: StopFinder { stops: &limits.stop, held: String::new() },
            tokens: Vec::with_capacity(room),
            text: String::new(),
            on_text,
        }
    }

    /// The next token of the text; whether the generation ends with it.
    pub(super) fn push(&mut self, token: u32) -> Result<Option<Finish>, GenerateError> {
        self.tokens.push(token);
        if !self.limits.ignore_eos && self.tokenizer.eog().contains(token) {
            return Ok(Some(Finish::Eog));
        }
        let (piece, stopped) = self.finder.push(&self.stream.push(token)?);
        let go_on = self.show(&piece);
        Ok(if stopped {
            Some(Finish::Stop)
        } else if self.left() == Some(0) {
            Some(Finish::Length)
        } else if !go_on || self.cancel().is_cancelled() {
            Some(Finish::Interrupted)
        } else {
            None
        })
    }

    fn show(&mut self, piece: &str) -> bool {
        self.text.push_str(piece);
        piece.is_empty() || (self.on_text)(piece)
    }

    /// Asks for the end of the generation.
    pub(super) fn cancel(&self) -> &'a Cancel {
        &self.limits.cancel
    }

    /// Tokens so far.
    pub(super) fn count(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens that may still come, if that is limited.
    pub(super) fn left(&self) -> Option<usize> {
        self.limits.max_tokens.map(|max| max.saturating_sub(self.tokens.len()))
    }

    /// The ids that end the text, and whether nothing but them and the budget can.
    pub(super) fn stops(&self, most: usize) -> (Vec<u32>, bool) {
        let ids = if self.limits.ignore_eos { Vec::new() } else { self.tokenizer.eog().ids().to_vec() };
        let all = ids.len() <= most && self.limits.stop.is_empty();
        (ids.into_iter().take(most).collect(), all)
    }

    /// The tokens, and the whole text.
    pub(super) fn end(self, finish: Finish) -> (Vec<u32>, String) {
        let Self { stream, mut finder, tokens, mut text, mut on_text, .. } = self;
        if finish != Finish::Stop {
            // What was held back was no stop text after all, and what is left of the last character.
            let (piece, _) = finder.push(&stream.finish());
            let rest = piece + &finder.held;
            if !rest.is_empty() {
                text.push_str(&rest);
                on_text(&rest);
            }
        }
        (tokens, text)
    }
}

/// Finds stop texts in a stream, holding back text that may be the beginning of one.
struct StopFinder<'s> {
    stops: &'s [String],
    held: String,
}

impl StopFinder<'_> {
    /// Takes text; gives what is safe to print, and whether a stop text was found.
    fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
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
        let mut finder = StopFinder { stops: &stops, held: String::new() };
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = finder.push(piece);
            out.push_str(&text);
            if stopped {
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
