//! Architectures: how a GGUF's metadata become layers. Each is one file and a line in the table.

mod gemma2;
mod gemma3;
pub(super) mod gemma4;
mod gemma_embedding;
mod gpt_oss;
mod granite;
mod lfm2;
mod lfm2moe;
mod llama;
mod mistral3;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod qwen3vl;
mod smollm3;
mod spark2_5;
mod windows;

use super::block::Layer;
use super::decoder::{Common, Decoder};
use super::error::ModelError;
use super::keys::Keys;
use crate::gguf::Gguf;

/// Reads and checks the layers of the trunk, `n_layer` of them, and sets what the architecture has otherwise
/// than others.
type Layers = fn(&Keys<'_>, &mut Common) -> Result<Vec<Layer>, ModelError>;

/// The architectures that this version runs: the value of `general.architecture`, and what reads their
/// layers.
const ARCHITECTURES: &[(&str, Layers)] = &[
    ("qwen35", qwen35::layers),
    ("qwen3", qwen3::layers),
    ("llama", llama::layers),
    ("qwen2", qwen2::layers),
    ("smollm3", smollm3::layers),
    ("gemma3", gemma3::layers),
    ("lfm2", lfm2::layers),
    ("qwen3moe", qwen3moe::layers),
    ("qwen35moe", qwen35moe::layers),
    ("lfm2moe", lfm2moe::layers),
    ("gpt-oss", gpt_oss::layers),
    ("gemma4", gemma4::layers),
    ("granite", granite::layers),
    ("gemma2", gemma2::layers),
    ("phi3", phi3::layers),
    ("mistral3", mistral3::layers),
    ("qwen3vl", qwen3vl::layers),
    ("spark2_5", spark2_5::layers),
    ("gemma-embedding", gemma_embedding::layers),
];

/// Reads and checks a model; `None` if its architecture is not in the table.
///
/// # Errors
/// A key is missing, or its value is one that no kernel supports.
pub(super) fn read(gguf: &Gguf, keys: &Keys<'_>) -> Result<Option<Decoder>, ModelError> {
    let Some((arch, layers)) = ARCHITECTURES.iter().find(|(arch, _)| *arch == keys.arch()) else {
        return Ok(None);
    };
    let mut common = Common::read(keys)?;
    let layers = layers(keys, &mut common)?;
    Decoder::new(gguf, arch, common, layers).map(Some)
}

/// The names of all architectures, for messages.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
