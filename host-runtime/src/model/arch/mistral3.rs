//! Ministral 3 (`mistral3`): as Llama, with YaRN of bounds and a magnitude that the file names, and queries
//! that grow with their position.

use super::llama;
use crate::model::block::{Attention, Layer};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let attention = llama::attention(keys, common)?;
    let rope = attention.rope.map(|rope| rope.with_yarn(keys)).transpose()?;
    let temperature = keys.scale("attention.temperature_scale", 0.0)?;
    llama::with(keys, common, &Attention { rope, temperature, ..attention })
}
