//! What templates expect of the Python library they were written for.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

use super::error::Raised;
use super::guard::{pay, too_long};
use super::limits::MAX_TEXT;

/// Widest indentation of `tojson`.
const MAX_INDENT: usize = 64;
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
    let indent = " ".repeat(indent.unwrap_or(0).min(MAX_INDENT));
    let python = match separators.as_deref() {
        Some([item, key]) => Python { item: item.clone(), key: key.clone() },
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two strings")),
        None => Python { item: ", ".to_owned(), key: ": ".to_owned() },
    };
    let mut out = Capped(Vec::new());
    if indent.is_empty() {
        json.serialize(&mut Serializer::with_formatter(&mut out, python)).map_err(failed)?;
    } else {
        let pretty = PrettyFormatter::with_indent(indent.as_bytes());
        json.serialize(&mut Serializer::with_formatter(&mut out, pretty)).map_err(failed)?;
    }
    let text = String::from_utf8_lossy(&out.0).into_owned();
    Ok(Value::from(if ascii == Some(true) { escape_non_ascii(&text) } else { text }))
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

/// Writes JSON on one line with the given separators.
struct Python {
    item: String,
    key: String,
}

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(self.item.as_bytes()) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
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
