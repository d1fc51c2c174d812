//! SentencePiece's way of writing tokens: plain text with U+2581 for blanks, and single bytes as `<0xHH>`.

/// What stands for a blank in the texts of tokens.
pub(super) const BLANK: &str = "\u{2581}";

/// Text as tokens have it.
pub(super) fn spell(text: &str) -> String {
    text.replace(' ', BLANK)
}

/// Appends the text of a token with blanks for what stands for them.
pub(super) fn unspell(token: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(token.replace(BLANK, " ").as_bytes());
}

/// The name of the token for a byte.
pub(super) fn byte_name(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The byte whose token has this name.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_are_marked_and_come_back() {
        let mut out = Vec::new();
        assert_eq!(spell(" a  b"), "\u{2581}a\u{2581}\u{2581}b");
        unspell(&spell(" a  b"), &mut out);
        assert_eq!(out, b" a  b");
    }

    #[test]
    fn every_byte_has_a_name() {
        for byte in 0..=255 {
            assert_eq!(byte_of(&byte_name(byte)), Some(byte));
        }
        for other in ["<0x>", "<0x100>", "0x41", "<0xGG>", "<0x41", ""] {
            assert_eq!(byte_of(other), None, "{other}");
        }
    }
}
