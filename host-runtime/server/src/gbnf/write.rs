//! A grammar to a text in `llguidance`'s notation.

use std::fmt::Write;

use super::lexemes::Lexemes;
use super::{Chars, Grammar, Node, NodeId};

/// Longest text, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Code points that no text has.
const SURROGATES: (u32, u32) = (0xd800, 0xdfff);

/// The text; `None` if it is too long.
pub(super) fn write(grammar: &Grammar, lexemes: &Lexemes) -> Option<String> {
    let mut writer = Writer { grammar, lexemes, out: String::from("%llguidance {}\nstart: ") };
    writer.rule(grammar.root);
    writer.out.push('\n');
    for &part in &lexemes.used {
        if lexemes.is_lexeme(part) {
            writer.lexeme(part);
        }
    }
    for &part in &grammar.rules {
        if lexemes.used.binary_search(&part).is_ok() && !lexemes.is_lexeme(part) {
            // Writing to a text does not fail.
            let _ = write!(writer.out, "r{part}: ");
            writer.part(part);
            writer.out.push('\n');
        }
        if writer.out.len() > MAX_BYTES {
            return None;
        }
    }
    Some(writer.out)
}

struct Writer<'g> {
    grammar: &'g Grammar,
    lexemes: &'g Lexemes,
    out: String,
}

impl Writer<'_> {
    /// Names the lexeme or the rule of which `part` is the whole.
    fn rule(&mut self, part: NodeId) {
        if self.lexemes.is_lexeme(part) {
            return self.part(part);
        }
        // Writing to a text does not fail.
        let _ = write!(self.out, "r{part}");
    }

    /// A part as it stands in a rule.
    fn part(&mut self, part: NodeId) {
        if self.lexemes.is_lexeme(part) {
            // Lexemes are not empty.
            let optional = if self.lexemes.nullable[part] { "?" } else { "" };
            let _ = write!(self.out, "L{part}{optional}");
            return;
        }
        match &self.grammar.nodes[part] {
            // These are lexemes, unless they were refused.
            Node::One(_) => {}
            Node::Token(token) => self.out.push_str(token),
            Node::Rule(rule) => self.rule(self.grammar.rules[*rule]),
            Node::Sequence(parts) if parts.is_empty() => self.out.push_str("\"\""),
            Node::Sequence(parts) => {
                self.out.push('(');
                for (i, &part) in parts.iter().enumerate() {
                    self.out.push_str(if i > 0 { " " } else { "" });
                    self.part(part);
                }
                self.out.push(')');
            }
            Node::Choice(parts) => {
                self.out.push('(');
                for (i, &part) in parts.iter().enumerate() {
                    self.out.push_str(if i > 0 { " | " } else { "" });
                    self.part(part);
                }
                self.out.push(')');
            }
            &Node::Repeat { of, least, most } => {
                self.out.push('(');
                self.part(of);
                self.out.push(')');
                self.out.push_str(&count(least, most));
            }
        }
    }

    /// Defines a lexeme.
    fn lexeme(&mut self, part: NodeId) {
        let _ = write!(self.out, "L{part}: /");
        self.regex(part);
        self.out.push('/');
        if self.lexemes.nullable[part] {
            // The same but for the empty text.
            self.out.push_str(r" & /[\x{0}-\x{10ffff}]+/");
        }
        self.out.push('\n');
    }

    /// A regular part as a regular expression.
    fn regex(&mut self, part: NodeId) {
        match &self.grammar.nodes[part] {
            Node::One(chars) => class(chars, &mut self.out),
            // These are no lexemes.
            Node::Token(_) => {}
            Node::Rule(rule) => self.regex(self.grammar.rules[*rule]),
            Node::Sequence(parts) => parts.iter().for_each(|&part| self.regex(part)),
            Node::Choice(parts) => {
                self.out.push_str("(?:");
                for (i, &part) in parts.iter().enumerate() {
                    self.out.push_str(if i > 0 { "|" } else { "" });
                    self.regex(part);
                }
                self.out.push(')');
            }
            &Node::Repeat { of, least, most } => {
                self.out.push_str("(?:");
                self.regex(of);
                self.out.push(')');
                self.out.push_str(&count(least, most));
            }
        }
    }
}

fn count(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// Characters as a regular expression.
fn class(chars: &Chars, out: &mut String) {
    let (low, high) = SURROGATES;
    if let [(from, to)] = chars.0[..]
        && from == to
    {
        return code(from, out);
    }
    out.push('[');
    for &(from, to) in &chars.0 {
        for (from, to) in [(from, to.min(low - 1)), (from.max(high + 1), to)] {
            if from <= to {
                code(from, out);
                if from < to {
                    out.push('-');
                    code(to, out);
                }
            }
        }
    }
    out.push(']');
}

fn code(code: u32, out: &mut String) {
    match char::from_u32(code).filter(char::is_ascii_alphanumeric) {
        Some(c) => out.push(c),
        None => {
            let _ = write!(out, "\\x{{{code:x}}}");
        }
    }
}
