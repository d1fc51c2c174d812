//! Qwen2 and Qwen2.5 (dense): attention with biases of queries, keys and values, each followed by an MLP.

use crate::model::block::{Attention, Biases, Layer, Mixer, Mlp};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_ctx_train, rms_eps, .. } = *common;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let attention = Attention { norm: None, ..attention };
    let mlp = Mlp::read(keys, n_embd)?;
    let layer = |i| {
        let attention = Attention { bias: Biases::of(keys, i), ..attention.clone() };
        Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp.clone())
    };
    Ok((0..common.n_layer as usize).map(layer).collect())
}
