//! Qwen3: attention with normed queries and keys, turned whole, each followed by an MLP. (`qwen3moe.rs` puts
//! experts in its place.)

use crate::model::block::{Attention, FeedForward, Layer, Mixer, Mlp};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    with(keys, common, Mlp::read(keys, common.n_embd)?.into())
}

/// Reads and checks the layers, with this after attention.
pub(super) fn with(keys: &Keys<'_>, common: &Common, mlp: FeedForward) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_ctx_train, rms_eps, .. } = *common;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let layer = Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp);
    Ok(vec![layer; common.n_layer as usize])
}
