//! Grammars in GBNF, llama.cpp's notation, translated to the one that `llguidance` reads.
//!
//! GBNF speaks of characters. `llguidance` first cuts a text into lexemes, each as long as it can be, and
//! then parses those. One lexeme for each character would be exact and slow. So the parts of a grammar that
//! are regular become lexemes of many characters, where the longest match is the only one: [`lexemes`] finds
//! out.

mod automaton;
mod lexemes;
mod parse;
mod runs;
mod write;

#[cfg(test)]
mod tests;

/// Why a grammar cannot be used, in words, and where in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub(crate) struct GbnfError {
    pub(crate) line: usize,
    /// In characters.
    pub(crate) column: usize,
    pub(crate) reason: String,
}

/// The number of a node.
type NodeId = usize;

/// A part of a grammar.
#[derive(Debug)]
enum Node {
    /// One character of these.
    One(Chars),
    /// A token of the vocabulary.
    Token(String),
    /// What the rule of this number gives.
    Rule(usize),
    Sequence(Vec<NodeId>),
    Choice(Vec<NodeId>),
    Repeat {
        of: NodeId,
        least: u32,
        most: Option<u32>,
    },
}

/// A grammar.
#[derive(Debug)]
struct Grammar {
    nodes: Vec<Node>,
    /// The node of each rule.
    rules: Vec<NodeId>,
    root: NodeId,
}

/// Characters, as ranges of code points that ascend and do not touch. They may have surrogates, which no text
/// has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chars(Vec<(u32, u32)>);

/// The last code point.
const LAST: u32 = char::MAX as u32;

impl Chars {
    fn any() -> Self {
        Self(vec![(0, LAST)])
    }

    fn of(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut all: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match all.last_mut() {
                Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
                _ => all.push((from, to)),
            }
        }
        Self(all)
    }

    /// All others.
    fn others(&self) -> Self {
        let mut all = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(from, to) in &self.0 {
            if from > next {
                all.push((next, from - 1));
            }
            next = to + 1;
        }
        if next <= LAST {
            all.push((next, LAST));
        }
        Self(all)
    }
}

/// Translates a grammar to `llguidance`'s notation.
///
/// # Errors
/// It is none, is too large, or names tokens that the vocabulary does not have; `token` gives a token by its
/// text.
pub(crate) fn translate(text: &str, token: impl Fn(&str) -> Option<u32>) -> Result<String, GbnfError> {
    let mut grammar = parse::parse(text, &token)?;
    runs::separate(&mut grammar);
    let too_complex = || GbnfError {
        line: 1,
        column: 1,
        reason: "the rules refer to each other too often; simplify them".to_owned(),
    };
    let lexemes = lexemes::choose(&grammar).ok_or_else(too_complex)?;
    write::write(&grammar, &lexemes).ok_or_else(too_complex)
}
