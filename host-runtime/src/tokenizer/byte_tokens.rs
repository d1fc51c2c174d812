//! The tokens of single bytes, which stand for text that no other token expresses.

use super::error::TokenizerError;
use super::shown;

/// The token of each byte that has one.
pub(super) struct ByteTokens([Option<u32>; 256]);

impl ByteTokens {
    /// Collects what `id_of` finds.
    pub(super) fn new(id_of: impl Fn(u8) -> Option<u32>) -> Self {
        Self(std::array::from_fn(|byte| id_of(byte as u8)))
    }

    /// The token of `byte`, which stands in `word`.
    pub(super) fn id(&self, byte: u8, word: &str) -> Result<u32, TokenizerError> {
        self.0[usize::from(byte)].ok_or_else(|| TokenizerError::Unencodable { byte, word: shown(word) })
    }

    /// Appends the tokens of the bytes of `part`.
    pub(super) fn append(&self, part: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for byte in part.bytes() {
            out.push(self.id(byte, part)?);
        }
        Ok(())
    }
}
