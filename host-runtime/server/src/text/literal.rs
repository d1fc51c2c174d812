//! Values in the notations of Python, of Gemma, and of JSON as models write it: with line breaks in strings,
//! Python's words, and without the last brackets.
//!
//! What a value may lack, or have too much of, is decided here for the calls of all families.

use serde_json::{Map, Number, Value};

/// Most levels of lists and objects in a value; serde_json has as many for JSON.
const MAX_DEPTH: usize = 128;

/// What is left of a text that is read.
pub(super) struct Text<'t> {
    pub(super) rest: &'t str,
    depth: usize,
    /// Whether brackets that are open where the text ends count as closed.
    may_lack_ends: bool,
}

/// How values differ.
pub(super) trait Notation {
    /// Whether round brackets stand around lists, too.
    const TUPLES: bool = false;

    /// A string, if one is next.
    fn string(text: &mut Text<'_>) -> Option<String>;

    /// The key of an object, up to its colon.
    fn key(text: &mut Text<'_>) -> Option<String>;

    /// The value that a word stands for.
    fn word(word: &str) -> Option<Value> {
        match word {
            "true" | "True" => Some(true.into()),
            "false" | "False" => Some(false.into()),
            "null" | "None" => Some(Value::Null),
            _ => None,
        }
    }

    /// A string that has no quotes, if the notation has such.
    fn bare(_text: &mut Text<'_>) -> Option<String> {
        None
    }
}

/// JSON as models write it.
pub(super) struct Json;

impl Notation for Json {
    fn string(text: &mut Text<'_>) -> Option<String> {
        text.quoted(&["\"", "'"])
    }

    fn key(text: &mut Text<'_>) -> Option<String> {
        text.skip_blanks();
        Self::string(text)
    }
}

impl<'t> Text<'t> {
    /// A text whose last brackets may be missing if `may_lack_ends` says so.
    pub(super) fn new(rest: &'t str, may_lack_ends: bool) -> Self {
        Self { rest, depth: 0, may_lack_ends }
    }

    /// Whether nothing is left but brackets that close what is not open.
    pub(super) fn is_over(&self) -> bool {
        self.rest.trim_start_matches(|c: char| c.is_whitespace() || "}])".contains(c)).is_empty()
    }

    /// Takes a string between two of the first of `quotes` that is next, with backslashes in it.
    pub(super) fn quoted(&mut self, quotes: &[&str]) -> Option<String> {
        let quote = quotes.iter().find(|quote| self.rest.starts_with(**quote))?;
        let mut rest = &self.rest[quote.len()..];
        let mut out = String::new();
        loop {
            if let Some(after) = rest.strip_prefix(quote) {
                self.rest = after;
                return Some(out);
            }
            let mut characters = rest.chars();
            match characters.next()? {
                '\\' => rest = escape(characters.as_str(), &mut out)?,
                c => {
                    out.push(c);
                    rest = characters.as_str();
                }
            }
        }
    }

    pub(super) fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `wanted`, with blanks before it, if it is next.
    pub(super) fn eat(&mut self, wanted: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(wanted)?;
        Some(())
    }

    /// Takes characters as long as they are part of it.
    pub(super) fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes what stands between two brackets: items with commas between them, and perhaps one behind them.
    pub(super) fn items(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.eat(open)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        while self.eat(close).is_none() {
            item(self)?;
            if self.eat(",").is_none() {
                let lacks_end = self.may_lack_ends && self.rest.trim_start().is_empty();
                if !lacks_end {
                    self.eat(close)?;
                }
                break;
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Takes a value.
    pub(super) fn value<N: Notation>(&mut self) -> Option<Value> {
        self.skip_blanks();
        if let Some(text) = N::string(self) {
            return Some(Value::String(text));
        }
        match self.rest.chars().next()? {
            '[' => {
                let mut list = Vec::new();
                self.items("[", "]", |text| {
                    list.push(text.value::<N>()?);
                    Some(())
                })?;
                Some(Value::Array(list))
            }
            '{' => {
                let mut map = Map::new();
                self.items("{", "}", |text| {
                    let key = N::key(text)?;
                    text.eat(":")?;
                    map.insert(key, text.value::<N>()?);
                    Some(())
                })?;
                Some(Value::Object(map))
            }
            '(' if N::TUPLES => self.tuple::<N>(),
            c => {
                let begin = self.rest;
                let value = if c.is_alphabetic() {
                    N::word(self.take_while(|c| c.is_alphanumeric() || c == '_'))
                } else {
                    number(self.take_while(|c| c.is_ascii_alphanumeric() || "+-._".contains(c)))
                        .map(Value::Number)
                };
                value.or_else(|| {
                    self.rest = begin;
                    N::bare(self).map(Value::String)
                })
            }
        }
    }

    /// Takes a tuple. Round brackets around one value make it none, unless a comma follows it.
    fn tuple<N: Notation>(&mut self) -> Option<Value> {
        let begin = self.rest;
        let mut list = Vec::new();
        self.items("(", ")", |text| {
            list.push(text.value::<N>()?);
            Some(())
        })?;
        let taken = begin[..begin.len() - self.rest.len()].trim_end_matches(')').trim_end();
        (list.len() != 1 || taken.ends_with(',')).then_some(Value::Array(list))
    }
}

/// Reads what follows a backslash; what follows that. JSON's escapes are Python's, too. Two that are the
/// halves of one character are that character, and a half alone is the mark for what cannot be read.
fn escape<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let mut characters = text.chars();
    let first = characters.next()?;
    let rest = characters.as_str();
    let digits = match first {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        '\n' => return Some(rest),
        _ => {
            match first {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                'b' => out.push('\u{8}'),
                'f' => out.push('\u{c}'),
                '\\' | '\'' | '"' | '/' => out.push(first),
                // Python keeps the backslash before all others.
                _ => out.extend(['\\', first]),
            }
            return Some(rest);
        }
    };
    let (code, rest) = code(rest, digits)?;
    if let Some(c) = char::from_u32(code) {
        out.push(c);
        return Some(rest);
    }
    let second = rest.strip_prefix("\\u").and_then(|rest| self::code(rest, 4));
    let pair = second.and_then(|(second, rest)| {
        let pair = [u16::try_from(code).ok()?, u16::try_from(second).ok()?];
        Some((char::decode_utf16(pair).next()?.ok()?, rest))
    });
    let (c, rest) = pair.unwrap_or((char::REPLACEMENT_CHARACTER, rest));
    out.push(c);
    Some(rest)
}

/// The code that so many digits are, and what follows them.
fn code(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(digits)?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

/// A number in JSON's notation, or with what Python allows beside it: a sign, `_` between digits, nothing
/// before or behind the point.
fn number(text: &str) -> Option<Number> {
    let text = text.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    let digits = match digits.strip_prefix('.') {
        Some(rest) => format!("0.{rest}"),
        None => digits.strip_suffix('.').map_or_else(|| digits.to_owned(), |whole| format!("{whole}.0")),
    };
    serde_json::from_str(&format!("{sign}{digits}")).ok()
}
