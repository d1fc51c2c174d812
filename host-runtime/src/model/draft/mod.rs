//! Draft models. Each kind is one file or folder behind the trait [`DraftModel`], and a line in the table.

mod assistant;
mod chain;
mod dflash;
mod eagle3;
mod kind;
mod mtp;
mod table;
mod taps;

use super::decoder::Decoder;
use super::error::{DraftError, ModelError};
use super::keys::Keys;
use crate::gguf::Gguf;

pub use kind::{BLOCK, DraftModel, PENDING, keep, tap_width};

/// Reads a draft and checks that it was made for the target.
type Reader = fn(&Gguf, &Keys<'_>, &Decoder) -> Result<Box<dyn DraftModel>, ModelError>;

/// The kinds of drafts that this version runs: the value of `general.architecture`, and what reads them.
const DRAFTS: &[(&str, Reader)] = &[
    ("dflash", dflash::read),
    ("qwen35", mtp::read),
    ("qwen35moe", mtp::read),
    (assistant::ARCH, assistant::read),
    (eagle3::ARCH, eagle3::read),
];

/// Whether the file of a model has a head that can draft for it.
pub fn has_head(gguf: &Gguf) -> bool {
    let Ok(keys) = Keys::new(gguf) else { return false };
    DRAFTS.iter().any(|(arch, _)| *arch == keys.arch()) && mtp::is_inside(gguf, &keys)
}

/// What a file is that writes no text by itself; `None` if it does, as far as these kinds know.
pub(super) fn kind_of(gguf: &Gguf, keys: &Keys<'_>) -> Option<&'static str> {
    match keys.arch() {
        "dflash" => Some("a DFlash draft model"),
        assistant::ARCH => Some("a Gemma 4 assistant"),
        eagle3::ARCH => Some("an EAGLE3 draft"),
        _ if mtp::is_alone(gguf, keys) => Some("an MTP head"),
        _ => None,
    }
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
