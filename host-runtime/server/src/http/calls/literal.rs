//! Values in the notations of Python and of Gemma, which are both close to JSON.

use serde_json::{Map, Number, Value};

/// Most levels of lists and objects in a value; serde_json has as many for JSON.
const MAX_DEPTH: usize = 128;

/// What is left of a text that is read.
pub(super) struct Text<'t> {
    pub(super) rest: &'t str,
    depth: usize,
}

/// How values differ.
pub(super) trait Notation {
    /// A string, if one is next.
    fn string(text: &mut Text<'_>) -> Option<String>;

    /// The key of an object, up to its colon.
    fn key(text: &mut Text<'_>) -> Option<String>;

    /// The value that a word stands for.
    fn word(word: &str) -> Option<Value>;
}

impl<'t> Text<'t> {
    pub(super) fn new(rest: &'t str) -> Self {
        Self { rest, depth: 0 }
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

    /// Takes what comes before `delimiter`, and that.
    pub(super) fn until(&mut self, delimiter: &str) -> Option<&'t str> {
        let (taken, rest) = self.rest.split_once(delimiter)?;
        self.rest = rest;
        Some(taken)
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
                self.eat(close)?;
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
            c if c.is_alphabetic() => N::word(self.take_while(|c| c.is_alphanumeric() || c == '_')),
            _ => {
                let digits = self.take_while(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
                number(digits).map(Value::Number)
            }
        }
    }
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
