//! The GPT-2 byte alphabet: every byte has a printable character, so vocabularies are plain text.
//!
//! Printable Latin-1 bytes stand for themselves; the other 68 bytes, in order, are U+0100 onwards.

use std::sync::LazyLock;

struct Alphabet {
    chars: [char; 256],
    /// Byte of each character below U+0144, where the alphabet ends.
    bytes: [Option<u8>; 0x144],
}

static ALPHABET: LazyLock<Alphabet> = LazyLock::new(|| {
    let mut alphabet = Alphabet { chars: ['\0'; 256], bytes: [None; 0x144] };
    let mut next = 0x100;
    for byte in 0..=255u8 {
        let code = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
            _ => {
                next += 1;
                next - 1
            }
        };
        alphabet.chars[usize::from(byte)] = char::from_u32(code).unwrap_or_default();
        alphabet.bytes[code as usize] = Some(byte);
    }
    alphabet
});

/// The character that stands for `byte`.
pub(super) fn to_char(byte: u8) -> char {
    ALPHABET.chars[usize::from(byte)]
}

/// The byte `c` stands for, if it is in the alphabet.
pub(super) fn to_byte(c: char) -> Option<u8> {
    ALPHABET.bytes.get(c as usize).copied().flatten()
}

/// Appends `text` spelled in the alphabet.
pub(super) fn spell(text: &str, out: &mut String) {
    out.extend(text.bytes().map(to_char));
}

/// Appends the bytes of a spelled token; text outside the alphabet is taken as it is, since converters store
/// some added tokens that way.
pub(super) fn unspell(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match to_byte(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        for (byte, c) in
            [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'!', '!'), (b'\t', 'ĉ'), (0xad, '\u{143}'), (0x00, 'Ā')]
        {
            assert_eq!(to_char(byte), c);
        }
    }

    #[test]
    fn every_byte_round_trips() {
        for byte in 0..=255 {
            assert_eq!(to_byte(to_char(byte)), Some(byte));
        }
    }

    #[test]
    fn text_outside_the_alphabet_is_kept() {
        let mut out = Vec::new();
        unspell("Ġ你", &mut out);
        assert_eq!(out, "Ġ你".as_bytes());
    }
}
