//! Finding special tokens in text before it is split into words.
//!
//! Longer tokens win over shorter ones wherever they stand, and among equals the one further left: the order
//! in which llama.cpp cuts the text token by token, done here in one pass over the text.

use super::spec::TokenKind;

/// A stretch of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Ordinary text, still to be split.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

struct Special {
    text: Box<[u8]>,
    id: u32,
    hidden: bool,
}

/// All special tokens of a vocabulary, sorted by text so that prefixes can be narrowed byte by byte.
pub(super) struct SpecialMatcher {
    sorted: Vec<Special>,
    starts: [bool; 256],
}

#[derive(Debug, Clone, Copy)]
struct Match {
    start: usize,
    len: usize,
    id: u32,
}

impl SpecialMatcher {
    /// Takes the special ones among `(text, kind)` listed by id; empty texts can never match.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a str, TokenKind)>) -> Self {
        let mut sorted: Vec<Special> = (0..)
            .zip(tokens)
            .filter(|(_, (text, kind))| kind.is_special() && !text.is_empty())
            .map(|(id, (text, kind))| Special { text: text.as_bytes().into(), id, hidden: kind.is_hidden() })
            .collect();
        sorted.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        let mut starts = [false; 256];
        for special in &sorted {
            starts[usize::from(special.text[0])] = true;
        }
        Self { sorted, starts }
    }

    /// Cuts `text`; without `parse_special` control and unknown tokens remain text.
    pub(super) fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let mut found = Vec::new();
        for start in 0..text.len() {
            if self.starts[usize::from(text.as_bytes()[start])] {
                self.matches_at(text.as_bytes(), start, parse_special, &mut found);
            }
        }
        // The sort is stable: equal lengths with the same id stay in text order.
        found.sort_by_key(|m| (std::cmp::Reverse(m.len), m.id));
        let mut taken: std::collections::BTreeMap<usize, Match> = std::collections::BTreeMap::new();
        for m in found {
            let left_free =
                taken.range(..=m.start).next_back().is_none_or(|(_, l)| l.start + l.len <= m.start);
            let right_free = taken.range(m.start..).next().is_none_or(|(&start, _)| start >= m.start + m.len);
            if left_free && right_free {
                taken.insert(m.start, m);
            }
        }
        let mut fragments = Vec::with_capacity(2 * taken.len() + 1);
        let mut end = 0;
        for m in taken.into_values() {
            if m.start > end {
                fragments.push(Fragment::Text(&text[end..m.start]));
            }
            fragments.push(Fragment::Token(m.id));
            end = m.start + m.len;
        }
        if end < text.len() {
            fragments.push(Fragment::Text(&text[end..]));
        }
        fragments
    }

    /// Adds every special token that stands at `start`, narrowing the candidates by one byte at a time.
    fn matches_at(&self, text: &[u8], start: usize, parse_special: bool, found: &mut Vec<Match>) {
        let mut range = &self.sorted[..];
        let mut len = 0;
        while let Some(&byte) = text.get(start + len) {
            // A text that ends here sorts before those that go on, and was recorded in the last round.
            let rest = &range[range.partition_point(|s| s.text.get(len).is_none_or(|&b| b < byte))..];
            range = &rest[..rest.partition_point(|s| s.text[len] == byte)];
            len += 1;
            match range.first() {
                None => return,
                Some(s) if s.text.len() == len && (parse_special || !s.hidden) => {
                    found.push(Match { start, len, id: s.id });
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: [(&str, TokenKind); 7] = [
        ("<|a|>", TokenKind::Control),
        ("<|a", TokenKind::UserDefined),
        ("aa", TokenKind::UserDefined),
        ("x", TokenKind::Normal),
        ("|><", TokenKind::Control),
        ("<|a|><", TokenKind::Unknown),
        ("a<", TokenKind::UserDefined),
    ];

    /// The same rules as token-by-token cutting of a fragment list.
    fn naive(text: &str, parse_special: bool) -> Vec<Fragment<'_>> {
        let mut order: Vec<u32> =
            (0..TEXTS.len() as u32).filter(|&i| TEXTS[i as usize].1.is_special()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(TEXTS[i as usize].0.len()));
        let mut fragments = if text.is_empty() { vec![] } else { vec![Fragment::Text(text)] };
        for id in order {
            let (special, kind) = TEXTS[id as usize];
            if kind.is_hidden() && !parse_special {
                continue;
            }
            fragments = fragments
                .into_iter()
                .flat_map(|fragment| {
                    let Fragment::Text(mut rest) = fragment else { return vec![fragment] };
                    let mut cut = Vec::new();
                    while let Some(at) = rest.find(special) {
                        if at > 0 {
                            cut.push(Fragment::Text(&rest[..at]));
                        }
                        cut.push(Fragment::Token(id));
                        rest = &rest[at + special.len()..];
                    }
                    if !rest.is_empty() {
                        cut.push(Fragment::Text(rest));
                    }
                    cut
                })
                .collect();
        }
        fragments
    }

    #[test]
    fn hidden_tokens_need_parse_special() {
        let matcher = SpecialMatcher::new(TEXTS.into_iter());
        assert_eq!(
            matcher.split("é<|a|>é", true),
            [Fragment::Text("é"), Fragment::Token(0), Fragment::Text("é")]
        );
        assert_eq!(
            matcher.split("é<|a|>é", false),
            [Fragment::Text("é"), Fragment::Token(1), Fragment::Text("|>é")]
        );
        assert_eq!(matcher.split("", true), []);
    }

    proptest! {
        #[test]
        fn equals_cutting_token_by_token(text in "[<|a>xé]{0,24}", parse_special: bool) {
            let matcher = SpecialMatcher::new(TEXTS.into_iter());
            prop_assert_eq!(matcher.split(&text, parse_special), naive(&text, parse_special));
        }
    }
}
