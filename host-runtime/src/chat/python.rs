//! What templates expect of the Python library they were written for.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

use super::error::Raised;
use super::guard::{pay, too_long};
use super::limits::MAX_TEXT;

/// Widest indentation of `tojson`.
const MAX_INDENT: usize = 64;
/// Blanks that `indent` puts before a line, if it is not told.
const WIDTH: usize = 4;
/// How much more making JSON of an item costs than looking at it.
const JSON_WORK: usize = 4;

/// Adds the functions and filters that Hugging Face adds.
pub(super) fn install(env: &mut Environment<'_>) {
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

/// `json.dumps` with the arguments Hugging Face passes on: unlike Jinja's own filter it escapes no HTML,
/// keeps the order of keys, and writes a blank after commas and colons, all of which models have seen in
/// training.
fn tojson(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay(state, &value, JSON_WORK)?;
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    kwargs.assert_all_used()?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());

    let mut json = serde_json::to_value(&value).map_err(failed)?;
    if sort == Some(true) {
        json.sort_all_objects();
    }
    // A text that is too long is told apart from one that has no JSON.
    let failed = |error: serde_json::Error| if error.is_io() { too_long() } else { failed(error) };
    let indent = indent.map(|width| " ".repeat(width.min(MAX_INDENT)));
    let mut python = match (separators.as_deref(), &indent) {
        (Some([item, key]), _) => Python::new(item, key),
        (Some(_), _) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two strings"));
        }
        // Behind the commas there are line breaks.
        (None, Some(_)) => Python::new(",", ": "),
        (None, None) => Python::new(", ", ": "),
    };
    python.indent = indent;
    let mut out = Capped(Vec::new());
    json.serialize(&mut Serializer::with_formatter(&mut out, python)).map_err(failed)?;
    let text = String::from_utf8_lossy(&out.0).into_owned();
    Ok(Value::from(if ascii == Some(true) { escape_non_ascii(&text) } else { text }))
}

/// A float as Python writes it: with an exponent from 1e16 on, of two digits at least.
pub(super) fn float_text(value: f64) -> String {
    // Rust begins with exponents at the same numbers.
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Jinja's `int`: what is no number gives the default.
pub(super) fn int(
    value: Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.map_or_else(|| kwargs.get("default"), |default| Ok(Some(default)))?;
    let base = base.map_or_else(|| kwargs.get("base"), |base| Ok(Some(base)))?.unwrap_or(10);
    kwargs.assert_all_used()?;
    let whole = match value.as_str() {
        Some(text) if (2..=36).contains(&base) => {
            let text = text.trim();
            i64::from_str_radix(text, base).ok().or_else(|| Some(text.parse::<f64>().ok()?.trunc() as i64))
        }
        Some(_) => None,
        None if value.kind() == ValueKind::Bool => Some(value.is_true().into()),
        None if value.is_integer() => return Ok(value),
        None => f64::try_from(value).ok().map(|value| value.trunc() as i64),
    };
    Ok(whole.map(Value::from).or(default).unwrap_or_else(|| 0.into()))
}

/// Jinja's `float`: what is no number gives the default.
pub(super) fn float(value: Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.map_or_else(|| kwargs.get("default"), |default| Ok(Some(default)))?;
    kwargs.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value).ok(),
    };
    Ok(number.map(Value::from).or(default).unwrap_or_else(|| 0.0.into()))
}

/// Jinja's `escape`, which has its own words for quotes.
pub(super) fn escape(value: Value) -> Value {
    if value.is_safe() {
        return value;
    }
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Value::from_safe_string(out)
}

/// Whether a value has a length and places in it: texts and dictionaries have, and what is not defined, too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
}

/// Python's `title`: a letter behind anything else than a letter is a capital one, also behind an apostrophe.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        in_word = c.is_alphabetic();
    }
    out
}

/// Whether a loop can go over a value.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Jinja's `indent`: unlike the engine's, it keeps a line break at the end, and takes a text for a width.
pub(super) fn indent(
    text: String,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = width.map_or_else(|| kwargs.get::<Option<Value>>("width"), |width| Ok(Some(width)))?;
    let first = first.map_or_else(|| kwargs.get("first"), |first| Ok(Some(first)))?.unwrap_or(false);
    let blank = blank.map_or_else(|| kwargs.get("blank"), |blank| Ok(Some(blank)))?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let before = match width {
        None => " ".repeat(WIDTH),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(width)?),
        },
    };
    let mut out = String::new();
    for (i, line) in lines(&text).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push_str(&before);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Lines as Python splits them, with an empty one behind a line break at the end.
pub(super) fn lines(text: &str) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        lines.push(&rest[..at]);
        let length = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        rest = &rest[at + length..];
    }
    lines.push(rest);
    lines
}

/// Collects up to [`MAX_TEXT`] bytes.
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0.len() + data.len() > MAX_TEXT {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes JSON with the given separators: on one line, or with an item on each.
struct Python {
    item: String,
    key: String,
    /// Blanks for each level, where items are on lines of their own.
    indent: Option<String>,
    level: usize,
    /// Whether the list or object that ends has an item.
    has_items: bool,
}

impl Python {
    fn new(item: &str, key: &str) -> Self {
        Self { item: item.to_owned(), key: key.to_owned(), indent: None, level: 0, has_items: false }
    }

    /// The beginning of a line, where there are lines.
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        (0..self.level).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }

    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if self.has_items {
            self.line(writer)?;
        }
        self.has_items = true;
        writer.write_all(bracket)
    }
}

impl Formatter for Python {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float_text(value).as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.line(writer)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end_array_value(writer)
    }
}

fn escape_non_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Replaces the `generation` block tags, which mark answers for training and have no effect here, by an `if`
/// that always holds: it keeps whitespace control and scopes as they are.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = &tag[..end];
        match inner.trim_matches(['-', '+']).trim() {
            "generation" => out.push_str(&inner.replace("generation", "if true")),
            "endgeneration" => out.push_str(&inner.replace("endgeneration", "endif")),
            _ => out.push_str(inner),
        }
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}
