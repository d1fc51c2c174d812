//! Text from tokens one at a time, never showing half a character.
//!
//! A byte-level token may end inside a UTF-8 sequence; the rest comes with a later token, or never.

use super::{Tokenizer, TokenizerError};

/// Turns byte chunks into text: incomplete sequences wait for their rest, invalid ones become U+FFFD.
///
/// However the bytes are cut, the text is what [`String::from_utf8_lossy`] makes of the whole.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// At most three bytes of a sequence that may still become valid.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes the next bytes and appends what is complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = &self.pending[..];
        let mut keep = 0;
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    break;
                }
                Err(error) => {
                    let (valid, tail) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(valid));
                    let Some(invalid) = error.error_len() else {
                        keep = tail.len();
                        break;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &tail[invalid..];
                }
            }
        }
        self.pending.drain(..self.pending.len() - keep);
    }

    /// Ends the text: an incomplete sequence becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
    }
}

/// Decodes generated tokens as they come.
#[derive(Debug, Clone)]
pub struct TokenStream<'t> {
    tokenizer: &'t Tokenizer,
    skip_control: bool,
    utf8: Utf8Stream,
}

impl<'t> TokenStream<'t> {
    /// A stream that has seen nothing; `skip_control` hides control tokens such as turn ends.
    pub fn new(tokenizer: &'t Tokenizer, skip_control: bool) -> Self {
        Self { tokenizer, skip_control, utf8: Utf8Stream::default() }
    }

    /// Takes the next token and returns the text that is now complete, which may be empty.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let mut out = String::new();
        self.push_into(id, &mut out)?;
        Ok(out)
    }

    /// Like [`push`](Self::push), appending to `out`.
    pub fn push_into(&mut self, id: u32, out: &mut String) -> Result<(), TokenizerError> {
        self.utf8.push(self.tokenizer.shown_bytes(id, self.skip_control)?, out);
        Ok(())
    }

    /// Ends the stream and returns what was held back, replaced if it never became a character.
    pub fn finish(mut self) -> String {
        let mut out = String::new();
        self.utf8.finish(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(bytes: &[u8], cuts: &[usize]) -> String {
        let mut ends: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).chain([bytes.len()]).collect();
        ends.sort_unstable();
        let (mut stream, mut out, mut start) = (Utf8Stream::default(), String::new(), 0);
        for end in ends {
            stream.push(&bytes[start..end], &mut out);
            start = end;
        }
        stream.finish(&mut out);
        out
    }

    #[test]
    fn half_a_character_waits() {
        let (mut stream, mut out) = (Utf8Stream::default(), String::new());
        stream.push(&"a🦀".as_bytes()[..4], &mut out);
        assert_eq!(out, "a");
        stream.push(&"a🦀".as_bytes()[4..], &mut out);
        assert_eq!(out, "a🦀");
    }

    #[test]
    fn a_broken_character_does_not_hold_back_what_follows() {
        let (mut stream, mut out) = (Utf8Stream::default(), String::new());
        stream.push(&[0xf0, 0x9f, b'x'], &mut out);
        assert_eq!(out, "\u{fffd}x");
    }

    proptest! {
        #[test]
        fn any_cut_of_text_gives_the_text(text: String, cuts: Vec<usize>) {
            prop_assert_eq!(stream(text.as_bytes(), &cuts), text);
        }

        #[test]
        fn any_cut_of_bytes_gives_the_lossy_text(bytes: Vec<u8>, cuts: Vec<usize>) {
            prop_assert_eq!(stream(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_cut_of_nearly_text_gives_the_lossy_text(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just(&b"\xf0\x9f"[..]),
                    Just(&b"\xa6\x80"[..]),
                    Just(&b"a"[..]),
                    Just(&b"\xe4\xbd"[..]),
                ],
                0..8,
            ),
            cuts: Vec<usize>,
        ) {
            let bytes = parts.concat();
            prop_assert_eq!(stream(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }
    }
}
