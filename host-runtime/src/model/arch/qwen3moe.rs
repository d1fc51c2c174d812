//! Qwen3 with a mixture of experts in every layer.

use super::qwen3;
use crate::model::block::{Layer, Moe, Router};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    qwen3::with(keys, common, Moe::read(keys, common.n_embd, Router::SOFTMAX)?.into())
}
