//! Finds templates that nest too deeply before they are parsed.
//!
//! The parser limits brackets and blocks, but it follows chains of operators (`not not not x`, `a ~ b ~ c`,
//! `x|f|g`, `a.b.c`, `elif` after `elif`) by recursion without a limit, and what it makes of them is compiled
//! and dropped by recursion.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::limits::MAX_CHAIN;

/// The line of the first expression or `if` that is too deep. Text that has no tokens is the parser's to
/// refuse.
pub(super) fn too_deep(source: &str, syntax: &SyntaxConfig) -> Option<usize> {
    let mut conditions = Levels::default();
    let mut expression = Levels::default();
    let mut first = false;
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token.ok()?;
        match token {
            Token::VariableStart | Token::BlockStart => expression = Levels::default(),
            Token::Ident("if") if first => conditions.open(),
            Token::Ident("elif") if first => conditions.deeper(),
            Token::Ident("endif") if first => conditions.close(),
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => expression.open(),
            Token::BracketClose | Token::ParenClose | Token::BraceClose => expression.close(),
            // What follows is the next item, at the level of the bracket.
            Token::Comma | Token::Colon => expression.next(),
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::FloorDiv
            | Token::Pow
            | Token::Mod
            | Token::Dot
            | Token::Tilde
            | Token::Pipe
            | Token::Eq
            | Token::Ne
            | Token::Gt
            | Token::Gte
            | Token::Lt
            | Token::Lte
            | Token::Ident("not" | "and" | "or" | "if" | "else" | "is" | "in") => expression.deeper(),
            Token::TemplateData(_)
            | Token::VariableEnd
            | Token::BlockEnd
            | Token::Assign
            | Token::Ident(_)
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_) => {}
        }
        if expression.sum > MAX_CHAIN || conditions.sum > MAX_CHAIN {
            return Some(usize::from(span.start_line));
        }
        first = matches!(token, Token::BlockStart);
    }
    None
}

/// Counts levels: brackets, and what follows one another inside of each that is open.
#[derive(Default)]
struct Levels {
    /// For each open bracket, the count of what is around it.
    outer: Vec<usize>,
    /// The count of the innermost.
    inner: usize,
    /// Of all that are open.
    sum: usize,
}

impl Levels {
    fn deeper(&mut self) {
        self.inner += 1;
        self.sum += 1;
    }

    fn open(&mut self) {
        self.deeper();
        self.outer.push(std::mem::take(&mut self.inner));
    }

    fn next(&mut self) {
        self.sum -= self.inner;
        self.inner = 0;
    }

    /// The level of the bracket itself stays: what is in it is part of the chain around it.
    fn close(&mut self) {
        if let Some(outer) = self.outer.pop() {
            self.next();
            self.inner = outer;
        }
    }
}
