//! A text to a grammar.

use std::collections::HashMap;

use super::{Chars, GbnfError, Grammar, LAST, Node, NodeId};

/// Largest grammar, in bytes, and in parts: a character in quotes is one.
const MAX_BYTES: usize = 256 << 10;
const MAX_NODES: usize = 20_000;
/// Most groups within each other.
const MAX_GROUPS: usize = 64;
/// Most repetitions that can be counted, as llama.cpp has it.
const MAX_COUNT: u32 = 2000;

const ROOT: &str = "root";

/// What a text is parsed by.
struct Parser<'t, F> {
    text: &'t str,
    /// Bytes that were read.
    at: usize,
    groups: usize,
    nodes: Vec<Node>,
    names: HashMap<&'t str, usize>,
    /// Of each rule, where it was first named, and its node, once it is defined.
    rules: Vec<(usize, Option<NodeId>)>,
    token: F,
}

pub(super) fn parse(text: &str, token: impl Fn(&str) -> Option<u32>) -> Result<Grammar, GbnfError> {
    let mut parser =
        Parser { text, at: 0, groups: 0, nodes: Vec::new(), names: HashMap::new(), rules: Vec::new(), token };
    if text.len() > MAX_BYTES {
        return Err(parser.wrong(0, format!("the grammar has more than {MAX_BYTES} bytes")));
    }
    parser.skip(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    let root = parser.names.get(ROOT).and_then(|&rule| parser.rules[rule].1);
    let root =
        root.ok_or_else(|| parser.wrong(0, format!("there is no rule {ROOT}, with which texts begin")))?;
    let mut rules = Vec::with_capacity(parser.rules.len());
    for &(first, node) in &parser.rules {
        rules.push(node.ok_or_else(|| parser.wrong(first, "there is no rule of this name".to_owned()))?);
    }
    Ok(Grammar { nodes: parser.nodes, rules, root })
}

impl<'t, F: Fn(&str) -> Option<u32>> Parser<'t, F> {
    fn wrong(&self, at: usize, reason: String) -> GbnfError {
        let before = &self.text[..at];
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        GbnfError { line, column, reason }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn expect(&mut self, wanted: &str) -> Result<(), GbnfError> {
        match self.eat(wanted) {
            true => Ok(()),
            false => Err(self.wrong(self.at, format!("{wanted} is missing"))),
        }
    }

    /// Skips blanks and comments, and the ends of lines where they mean nothing.
    fn skip(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\r' | '\n') if lines => self.at += 1,
                Some('#') => self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    fn add(&mut self, node: Node) -> Result<NodeId, GbnfError> {
        if self.nodes.len() == MAX_NODES {
            return Err(self.wrong(self.at, format!("the grammar has more than {MAX_NODES} parts")));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// A word, if one is next.
    fn word(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    /// The number of the rule that a word at `at` names.
    fn named(&mut self, word: &'t str, at: usize) -> usize {
        let next = self.rules.len();
        let number = *self.names.entry(word).or_insert(next);
        if number == next {
            self.rules.push((at, None));
        }
        number
    }

    fn rule(&mut self) -> Result<(), GbnfError> {
        let at = self.at;
        let name = self.word().ok_or_else(|| self.wrong(at, "the name of a rule is missing".to_owned()))?;
        let number = self.named(name, at);
        if self.rules[number].1.is_some() {
            return Err(self.wrong(at, format!("the rule {name} was defined before")));
        }
        self.skip(false);
        self.expect("::=")?;
        self.skip(true);
        let node = self.choice(false)?;
        self.rules[number].1 = Some(node);
        match self.peek() {
            None | Some('\r' | '\n') => self.skip(true),
            Some(other) => return Err(self.wrong(self.at, format!("{other:?} has no meaning here"))),
        }
        Ok(())
    }

    /// Sequences, one of which is to come. Within a group, lines may end anywhere.
    fn choice(&mut self, in_group: bool) -> Result<NodeId, GbnfError> {
        let mut all = vec![self.sequence(in_group)?];
        while self.eat("|") {
            self.skip(true);
            all.push(self.sequence(in_group)?);
        }
        match all[..] {
            [one] => Ok(one),
            _ => self.add(Node::Choice(all)),
        }
    }

    fn sequence(&mut self, in_group: bool) -> Result<NodeId, GbnfError> {
        let mut all = Vec::new();
        while let Some(item) = self.item()? {
            let item = self.repeated(item, in_group)?;
            all.push(item);
        }
        match all[..] {
            [one] => Ok(one),
            _ => self.add(Node::Sequence(all)),
        }
    }

    /// What may be repeated, if it is next.
    fn item(&mut self) -> Result<Option<NodeId>, GbnfError> {
        let at = self.at;
        let Some(next) = self.peek() else { return Ok(None) };
        let item = match next {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.at += 1;
                self.add(Node::One(Chars::any()))?
            }
            '(' => {
                self.groups += 1;
                if self.groups > MAX_GROUPS {
                    return Err(
                        self.wrong(at, format!("more than {MAX_GROUPS} groups are within each other"))
                    );
                }
                self.at += 1;
                self.skip(true);
                let inner = self.choice(true)?;
                self.expect(")")?;
                self.groups -= 1;
                inner
            }
            '<' | '!' => self.token()?,
            _ => match self.word() {
                None => return Ok(None),
                Some(word) => {
                    let rule = self.named(word, at);
                    self.add(Node::Rule(rule))?
                }
            },
        };
        Ok(Some(item))
    }

    /// An item with what says how often it comes.
    fn repeated(&mut self, mut item: NodeId, in_group: bool) -> Result<NodeId, GbnfError> {
        loop {
            self.skip(in_group);
            let at = self.at;
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    self.skip(in_group);
                    let least = self.count()?.unwrap_or(0);
                    self.skip(in_group);
                    let most = if self.eat(",") {
                        self.skip(in_group);
                        self.count()?
                    } else {
                        Some(least)
                    };
                    self.skip(in_group);
                    if self.peek() != Some('}') {
                        return Err(self.wrong(self.at, "} is missing".to_owned()));
                    }
                    (least, most)
                }
                _ => return Ok(item),
            };
            self.at += 1;
            if most.is_some_and(|most| most < least) {
                return Err(self.wrong(at, "the first number is the larger one".to_owned()));
            }
            item = match (least, most) {
                (1, Some(1)) => item,
                (_, Some(0)) => self.add(Node::Sequence(Vec::new()))?,
                _ => self.add(Node::Repeat { of: item, least, most })?,
            };
        }
    }

    fn count(&mut self) -> Result<Option<u32>, GbnfError> {
        let (at, rest) = (self.at, self.rest());
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        if end == 0 {
            return Ok(None);
        }
        match rest[..end].parse() {
            Ok(count) if count <= MAX_COUNT => Ok(Some(count)),
            _ => Err(self.wrong(at, format!("at most {MAX_COUNT} repetitions can be counted"))),
        }
    }

    /// Characters in quotes.
    fn literal(&mut self) -> Result<NodeId, GbnfError> {
        let begin = self.at;
        self.at += 1;
        let mut all = Vec::new();
        loop {
            let at = self.at;
            match self.peek() {
                None => return Err(self.wrong(begin, "the quotation mark is not closed".to_owned())),
                Some('"') => {
                    self.at += 1;
                    return match all[..] {
                        [one] => Ok(one),
                        _ => self.add(Node::Sequence(all)),
                    };
                }
                Some(_) => {
                    let code = self.character()?;
                    if char::from_u32(code).is_none() {
                        return Err(self.wrong(at, format!("U+{code:04X} is no character")));
                    }
                    let node = self.add(Node::One(Chars::of([(code, code)])))?;
                    all.push(node);
                }
            }
        }
    }

    /// A class of characters.
    fn class(&mut self) -> Result<NodeId, GbnfError> {
        let begin = self.at;
        self.at += 1;
        let others = self.eat("^");
        let mut ranges = Vec::new();
        loop {
            let at = self.at;
            match self.peek() {
                None => return Err(self.wrong(begin, "the class is not closed".to_owned())),
                Some(']') => break,
                Some(_) => {
                    let from = self.character()?;
                    let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
                    let to = if is_range {
                        self.at += 1;
                        if self.peek().is_none() {
                            return Err(self.wrong(begin, "the class is not closed".to_owned()));
                        }
                        self.character()?
                    } else {
                        from
                    };
                    if to < from {
                        return Err(self.wrong(at, "the range ends before it begins".to_owned()));
                    }
                    ranges.push((from, to));
                }
            }
        }
        self.at += 1;
        let chars = Chars::of(ranges);
        let chars = if others { chars.others() } else { chars };
        let has_text =
            chars.0.iter().any(|&(from, to)| (from..=to).any(|code| char::from_u32(code).is_some()));
        if !has_text {
            return Err(self.wrong(begin, "the class has no characters, so that nothing fits it".to_owned()));
        }
        self.add(Node::One(chars))
    }

    /// A code point, which may be written with a backslash.
    fn character(&mut self) -> Result<u32, GbnfError> {
        let at = self.at;
        let mut characters = self.rest().chars();
        let wrong = |this: &Self| this.wrong(at, "what follows the backslash has no meaning".to_owned());
        match characters.next() {
            Some('\\') => {}
            Some(c) => {
                self.at += c.len_utf8();
                return Ok(u32::from(c));
            }
            None => return Err(wrong(self)),
        }
        let Some(escaped) = characters.next() else { return Err(wrong(self)) };
        let digits = match escaped {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' | 'r' | 'n' | '\\' | '"' | '[' | ']' | '-' | '^' => 0,
            _ => return Err(wrong(self)),
        };
        self.at += 2;
        if digits == 0 {
            return Ok(u32::from(match escaped {
                't' => '\t',
                'r' => '\r',
                'n' => '\n',
                other => other,
            }));
        }
        let hex = self.rest().get(..digits).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).filter(|&code| code <= LAST);
        let code =
            code.ok_or_else(|| self.wrong(at, format!("\\{escaped} needs {digits} digits of a character")))?;
        self.at += digits;
        Ok(code)
    }

    /// `<[ID]>` or `<text>`, or with `!` before it, any other token.
    fn token(&mut self) -> Result<NodeId, GbnfError> {
        let begin = self.at;
        let others = if self.eat("!") { "^" } else { "" };
        if !self.rest().starts_with('<') {
            return Err(self.wrong(self.at, "a token in < and > is missing".to_owned()));
        }
        let rest = self.rest();
        let end = rest.find('>').ok_or_else(|| self.wrong(begin, "the token is not closed".to_owned()))?;
        let text = &rest[..=end];
        self.at += text.len();
        let number = text.strip_prefix("<[").and_then(|text| text.strip_suffix("]>"));
        let id = match number {
            Some(digits) => digits.parse().ok(),
            None => (self.token)(text),
        };
        let id = id.ok_or_else(|| self.wrong(begin, format!("{text} is no token of the vocabulary")))?;
        self.add(Node::Token(format!("<[{others}{id}]>")))
    }
}
