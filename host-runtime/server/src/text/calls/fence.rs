//! Blocks of code, into which some models put their calls.

use crate::text::thoughts::overlap;

/// What stands behind such a block, and what before it.
pub(super) const FENCE: &str = "```";
const OPENING: &str = "```json";

/// A text without the fences around it, if they are there.
pub(super) fn without(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix(FENCE).and_then(|inside| {
        let inside = inside.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        inside.starts_with(['\n', '\r', ' ']).then(|| inside.strip_suffix(FENCE).unwrap_or(inside).trim())
    });
    inside.unwrap_or(text)
}

/// Bytes of a text before the blanks at its end, and before a fence that opens there: both are no text where
/// a call follows.
pub(super) fn before(text: &str) -> usize {
    let text = text.trim_end();
    text.strip_suffix(OPENING).map_or(text, str::trim_end).len()
}

/// Bytes at the end of a text that may become a fence.
pub(super) fn held(text: &str) -> usize {
    overlap(text, OPENING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_go_in_pairs() {
        for (text, inside) in [
            ("```json\n{}\n```", "{}"),
            ("```\n{}\n```\n", "{}"),
            ("```json\n{}", "{}"),
            ("{}", "{}"),
            ("```{}```", "```{}```"),
        ] {
            assert_eq!(without(text), inside, "{text}");
        }
        assert_eq!(before("So: \n```json\n"), 3);
        assert_eq!(before("So: ``` \n"), 7);
        assert_eq!(held("So: ```js"), 5);
    }
}
