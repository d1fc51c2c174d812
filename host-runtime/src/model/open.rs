//! From a file to a model: finds the reader of its architecture.

use super::arch;
use super::decoder::Decoder;
use super::draft;
use super::error::ModelError;
use super::keys::Keys;
use super::vision;
use crate::gguf::Gguf;

/// Reads and checks the hyper-parameters of a model that writes text.
///
/// # Errors
/// A draft or another architecture than this version runs, a missing key, or a value that no kernel supports.
pub fn read(gguf: &Gguf) -> Result<Decoder, ModelError> {
    let keys = Keys::new(gguf)?;
    let path = || gguf.path().to_path_buf();
    let kind = match keys.arch() {
        vision::ARCH => Some("an encoder of pictures (mmproj)"),
        _ => draft::kind_of(gguf, &keys),
    };
    if let Some(kind) = kind {
        return Err(ModelError::DraftAsTarget { path: path(), kind });
    }
    let unknown =
        || ModelError::Architecture { path: path(), arch: keys.arch().to_owned(), known: arch::names() };
    arch::read(gguf, &keys)?.ok_or_else(unknown)
}
