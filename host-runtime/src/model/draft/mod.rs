//! Draft models. Each kind is one file or folder behind the trait [`DraftModel`], and a line in the table.

mod dflash;
mod kind;

use super::decoder::Decoder;
use super::error::{DraftError, ModelError};
use super::keys::Keys;
use crate::gguf::Gguf;

pub use kind::{BLOCK, DraftModel, PENDING, keep, tap_width};

/// Reads a draft and checks that it was made for the target.
type Reader = fn(&Gguf, &Keys<'_>, &Decoder) -> Result<Box<dyn DraftModel>, ModelError>;

/// The kinds of drafts that this version runs: the value of `general.architecture`, and what reads them.
const DRAFTS: &[(&str, Reader)] = &[("dflash", dflash::read)];

/// Whether files of architecture `arch` are drafts.
pub(super) fn is_draft(arch: &str) -> bool {
    DRAFTS.iter().any(|(known, _)| *known == arch)
}

/// Reads a draft and checks that it was made for `target`.
///
/// # Errors
/// Not a draft of a known kind, a missing key, or a draft for another target.
pub fn read(gguf: &Gguf, target: &Decoder) -> Result<Box<dyn DraftModel>, ModelError> {
    let keys = Keys::new(gguf)?;
    match DRAFTS.iter().find(|(arch, _)| *arch == keys.arch()) {
        Some((_, read)) => read(gguf, &keys, target),
        None => {
            let known = DRAFTS.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ");
            let error = DraftError::Architecture { arch: keys.arch().to_owned(), known };
            Err(ModelError::Draft { path: gguf.path().to_path_buf(), error })
        }
    }
}
