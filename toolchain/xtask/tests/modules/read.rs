//! Reads a file of Rust: which modules it declares, what it names, and whose methods it holds. It goes by
//! tokens, so that paths in expressions and in calls of macros are seen as those in `use` are. What only
//! tests compile is left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written, name by name.
pub type Names = Vec<String>;

/// One module: a file, or `mod name { ... }` in one.
#[derive(Debug, Default)]
pub struct Module {
    /// Modules in it by name. Those without a body are files.
    pub children: BTreeMap<String, Child>,
    /// Names that `use` brings in, and the paths that they stand for.
    pub bound: BTreeMap<String, Names>,
    /// Modules of which `use` brings in all names.
    pub globs: Vec<Names>,
    /// Items that it defines.
    pub defined: BTreeSet<String>,
    /// All paths of more than one name.
    pub paths: Vec<Names>,
    /// Types for which it has a block of methods that belong to no trait.
    pub methods_of: Vec<Names>,
}

/// A module that another one declares.
#[derive(Debug)]
pub enum Child {
    /// `mod name;`, with the file that an attribute `path` names.
    File(Option<String>),
    /// `mod name { ... }`.
    Inline(Module),
}

/// The module that a text of Rust is, or the reason why it is none.
pub fn module(text: &str) -> Result<Module, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let mut module = Module::default();
    module.items(tokens, true);
    Ok(module)
}

impl Module {
    /// Adds what is between two braces, or in a file. Items define names only `outside` of blocks.
    fn items(&mut self, tokens: TokenStream, outside: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut at, mut path_of_file) = (0, None);
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += if let Some(attribute) = attribute(rest) {
                if is_of_tests(&attribute) {
                    let is_inner = is_punct(rest.get(1), '!');
                    if is_inner { rest.len() } else { 2 + item_length(&rest[2..]) }
                } else {
                    path_of_file = path_of_file.or(literal(&attribute, "path"));
                    2
                }
            } else {
                self.item(rest, &tokens[..at], outside, &mut path_of_file)
            };
        }
    }

    /// Adds what begins with the first of some tokens, and returns how many of them that was.
    fn item(
        &mut self,
        rest: &[TokenTree],
        before: &[TokenTree],
        outside: bool,
        path_of_file: &mut Option<String>,
    ) -> usize {
        let name = match &rest[0] {
            TokenTree::Group(group) => {
                self.items(group.stream(), false);
                return 1;
            }
            TokenTree::Ident(name) => name.to_string(),
            _ => return 1,
        };
        let next = rest.get(1).and_then(ident);
        match (name.as_str(), next) {
            ("use", _) if !is_punct(rest.get(1), '<') => {
                let end = rest.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(rest.len());
                self.tree(&[], &rest[1..end]);
                return end;
            }
            // Who may see an item is no use of it.
            ("pub", None) if rest.get(1).is_some_and(is_parentheses) => return 2,
            ("mod", Some(child)) => {
                let inner = match rest.get(2) {
                    Some(TokenTree::Group(body)) => {
                        let mut inner = Self::default();
                        inner.items(body.stream(), true);
                        Child::Inline(inner)
                    }
                    _ => Child::File(path_of_file.take()),
                };
                self.children.insert(child, inner);
                return 3;
            }
            ("impl", _) if begins_item(before.last()) => self.methods_of.extend(owner_of_methods(&rest[1..])),
            ("struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static", Some(item))
                if outside =>
            {
                self.defined.insert(item);
            }
            ("macro_rules", None) if outside => self.defined.extend(rest.get(2).and_then(ident)),
            _ => {}
        }
        let (names, length) = path(rest);
        let follows_another =
            matches!(before, [.., a, b] if is_punct(Some(a), ':') && is_punct(Some(b), ':'));
        if names.len() > 1 && !follows_another {
            self.paths.push(names);
        }
        length
    }

    /// Adds the tree of a `use`, below some names.
    fn tree(&mut self, above: &[String], tokens: &[TokenTree]) {
        let (names, length) = path(tokens);
        let names: Names = above.iter().cloned().chain(names).collect();
        match tokens.get(length..).unwrap_or_default() {
            [.., TokenTree::Group(group)] => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                inner.split(|token| is_punct(Some(token), ',')).for_each(|part| self.tree(&names, part));
            }
            [.., TokenTree::Punct(star)] if star.as_char() == '*' => {
                self.paths.push(names.clone());
                self.globs.push(names);
            }
            rest => {
                let names = if names.last().is_some_and(|name| name == "self") && names.len() > 1 {
                    names[..names.len() - 1].to_vec()
                } else {
                    names
                };
                let alias = rest.get(1).and_then(ident);
                if let Some(name) = alias.or(names.last().cloned()) {
                    self.paths.push(names.clone());
                    self.bound.insert(name, names);
                }
            }
        }
    }
}

fn ident(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == sign)
}

fn is_parentheses(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

fn is_braces(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// The names of the path that some tokens begin with, and how many tokens those are: at least one of both.
fn path(tokens: &[TokenTree]) -> (Names, usize) {
    let Some(first) = tokens.first().and_then(ident) else { return (Vec::new(), 0) };
    let (mut names, mut length) = (vec![first], 1);
    while is_punct(tokens.get(length), ':') && is_punct(tokens.get(length + 1), ':') {
        let Some(name) = tokens.get(length + 2).and_then(ident) else { break };
        names.push(name);
        length += 3;
    }
    (names, length)
}

/// What is in the brackets of the attribute that some tokens begin with.
fn attribute(tokens: &[TokenTree]) -> Option<TokenStream> {
    let at = 1 + usize::from(is_punct(tokens.get(1), '!'));
    match (is_punct(tokens.first(), '#'), tokens.get(at)) {
        (true, Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Bracket => {
            Some(group.stream())
        }
        _ => None,
    }
}

/// Whether an attribute says that only tests compile what follows.
fn is_of_tests(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The text that an attribute gives to a name.
fn literal(attribute: &TokenStream, name: &str) -> Option<String> {
    let text = attribute.to_string();
    let value = text.strip_prefix(name)?.trim_start().strip_prefix('=')?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// How many of these tokens are the item, the field or the arm that they begin with.
fn item_length(tokens: &[TokenTree]) -> usize {
    if attribute(tokens).is_some() {
        return 2 + item_length(&tokens[2..]);
    }
    let keyword = tokens.first().and_then(ident).unwrap_or_default();
    let ends_with_comma = !matches!(
        keyword.as_str(),
        "pub"
            | "fn"
            | "mod"
            | "impl"
            | "use"
            | "struct"
            | "enum"
            | "trait"
            | "type"
            | "const"
            | "static"
            | "unsafe"
    );
    let ends_item = |token: &TokenTree| {
        is_punct(Some(token), ';')
            || ends_with_comma && is_punct(Some(token), ',')
            || keyword != "use" && is_braces(token)
    };
    tokens.iter().position(ends_item).map_or(tokens.len(), |at| at + 1)
}

/// Whether an item, rather than a type, begins behind this token.
fn begins_item(before: Option<&TokenTree>) -> bool {
    match before {
        None => true,
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(TokenTree::Ident(name)) => name == "unsafe",
        Some(token) => is_punct(Some(token), ';'),
    }
}

/// The type whose methods follow the word `impl`, unless they are those of a trait.
fn owner_of_methods(tokens: &[TokenTree]) -> Option<Names> {
    let (mut depth, mut owner) = (0_usize, None);
    for (at, token) in tokens.iter().enumerate() {
        let is_arrow = at > 0 && is_punct(tokens.get(at - 1), '-');
        match token {
            TokenTree::Punct(sign) if sign.as_char() == '<' => depth += 1,
            TokenTree::Punct(sign) if sign.as_char() == '>' && !is_arrow => depth = depth.saturating_sub(1),
            TokenTree::Ident(name) if depth == 0 && name == "for" => return None,
            TokenTree::Ident(name) if depth == 0 && name == "where" => return owner,
            TokenTree::Ident(_) if depth == 0 && owner.is_none() => owner = Some(path(&tokens[at..]).0),
            token if is_braces(token) => return owner,
            _ => {}
        }
    }
    None
}
