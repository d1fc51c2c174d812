//! Boundaries of words in patterns, `\b` and `\B`, which no grammar has. Most of those that people write are
//! there anyway, between what stands beside them, and can go. Without another one a pattern fits more texts.

/// Side that a part of a pattern shows to a boundary beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The beginning or the end of the text, or a character that is no part of a word.
    Outside,
    /// A character of a word.
    Word,
    Unknown,
}

/// A pattern without boundaries of words, and whether it fits the same texts.
pub(super) fn without_word_boundaries(pattern: &str) -> (String, bool) {
    let parts = parts(pattern);
    let is_boundary = |part: &&&str| **part == r"\b" || **part == r"\B";
    if !parts.iter().any(|part| is_boundary(&part)) {
        return (pattern.to_owned(), true);
    }
    let mut is_exact = true;
    for (i, part) in parts.iter().enumerate().filter(|(_, part)| is_boundary(part)) {
        let before = parts[..i].iter().rev().find(|part| !is_boundary(part));
        // What may be repeated or left out says nothing of the character before it.
        let before = before.map_or(Side::Unknown, |part| side(part));
        let after = parts[i + 1..].iter().position(|part| !is_boundary(&part)).map(|at| i + 1 + at);
        let may_lack = |at: usize| {
            parts.get(at + 1).is_some_and(|next| next.starts_with(['*', '?']) || next.starts_with("{0"))
        };
        let after = match after {
            Some(at) if !may_lack(at) => side(parts[at]),
            _ => Side::Unknown,
        };
        is_exact &= match (before, after) {
            (Side::Unknown, _) | (_, Side::Unknown) => false,
            (before, after) => (before != after) == (*part == r"\b"),
        };
    }
    // A choice may begin or end beside any boundary.
    is_exact &= !parts.contains(&"|");
    let rest = parts.iter().filter(|part| !is_boundary(part)).copied().collect();
    (rest, is_exact)
}

/// The characters of a pattern, with escapes and classes as one part each.
fn parts(pattern: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => class(rest),
            '{' => rest.find('}').map_or(1, |end| end + 1),
            c => c.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        parts.push(part);
        rest = behind;
    }
    parts
}

/// Bytes of the class that a pattern begins with.
fn class(pattern: &str) -> usize {
    let mut escaped = false;
    for (at, c) in pattern.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if at > 1 && &pattern[..at] != "[^" => return at + 1,
            _ => {}
        }
    }
    pattern.len()
}

fn side(part: &str) -> Side {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match part {
        "^" | "$" | r"\s" | r"\W" => Side::Outside,
        r"\w" | r"\d" => Side::Word,
        "." | "(" | ")" | "|" | "*" | "+" | "?" => Side::Unknown,
        _ => match (part.strip_prefix('['), part.strip_prefix('\\')) {
            (Some(class), _) => {
                let inside = class.strip_suffix(']').unwrap_or(class);
                let is_plain = inside.chars().all(|c| is_word(c) || c == '-') && !inside.starts_with('-');
                if is_plain && !inside.ends_with('-') { Side::Word } else { Side::Unknown }
            }
            // An escaped letter may be anything.
            (_, Some(escaped)) if escaped.chars().all(is_word) => Side::Unknown,
            (_, Some(_)) => Side::Outside,
            _ if part.starts_with('{') => Side::Unknown,
            _ if part.chars().all(is_word) => Side::Word,
            // Letters that are not ASCII are words to some.
            _ if part.is_ascii() => Side::Outside,
            _ => Side::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_that_are_there_anyway_can_go() {
        for (pattern, plain, is_exact) in [
            (r"^\bab\b$", "^ab$", true),
            (r"^a\b \bb$", "^a b$", true),
            (r"^\w\b-\d$", r"^\w-\d$", true),
            (r"^a\Bb$", "^ab$", true),
            (r"^[a-z]\b$", "^[a-z]$", true),
            (r"\bab\b", "ab", false),
            (r"^a\bb$", "^ab$", false),
            (r"^\ba*$", "^a*$", false),
            (r"^a+\b$", "^a+$", false),
            (r"^\ba|b\b$", "^a|b$", false),
            (r"^[\b]$", r"^[\b]$", true),
            (r"^\\b$", r"^\\b$", true),
        ] {
            assert_eq!(without_word_boundaries(pattern), (plain.to_owned(), is_exact), "{pattern}");
        }
    }
}
