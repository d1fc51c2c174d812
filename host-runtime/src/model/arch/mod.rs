//! Architectures: how a GGUF's metadata become layers. Each is one file and a line in the table.

mod qwen3;
mod qwen35;

use super::block::Layer;
use super::decoder::{Common, Decoder};
use super::error::ModelError;
use super::keys::Keys;
use crate::gguf::Gguf;

/// Reads and checks the layers of the trunk, `n_layer` of them.
type Layers = fn(&Keys<'_>, &Common) -> Result<Vec<Layer>, ModelError>;

/// The architectures that this version runs: the value of `general.architecture`, and what reads their layers.
const ARCHITECTURES: &[(&str, Layers)] = &[("qwen35", qwen35::layers), ("qwen3", qwen3::layers)];

/// Reads and checks a model; `None` if its architecture is not in the table.
///
/// # Errors
/// A key is missing, or its value is one that no kernel supports.
pub(super) fn read(gguf: &Gguf, keys: &Keys<'_>) -> Result<Option<Decoder>, ModelError> {
    let Some((arch, layers)) = ARCHITECTURES.iter().find(|(arch, _)| *arch == keys.arch()) else {
        return Ok(None);
    };
    let common = Common::read(keys)?;
    Decoder::new(gguf, arch, common, layers(keys, &common)?).map(Some)
}

/// The names of all architectures, for messages.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ")
}
