//! Llama (dense): attention without norms of queries and keys, each followed by an MLP. Llama 2 to 3.2,
//! SmolLM, SmolLM2 and Mistral's first models are of this architecture.

use hexflash_abi::op::params::RopeMode;

use crate::model::block::{Attention, Biases, Layer, Mixer, Mlp, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    with(keys, common, &attention(keys, common)?)
}

/// Reads and checks the attention of all layers, but for its biases.
pub(super) fn attention(keys: &Keys<'_>, common: &Common) -> Result<Attention, ModelError> {
    let attention = Attention::read(keys, common.n_embd, common.n_ctx_train, common.rms_eps)?;
    attention.require_whole_heads(keys)?;
    let rope = attention.rope.map(|rope| Rope { pairs: RopeMode::Norm, ..rope.with_factors(keys) });
    Ok(Attention { rope, norm: None, ..attention })
}

/// Reads and checks the layers, with this attention and the biases that the file has.
pub(super) fn with(
    keys: &Keys<'_>,
    common: &Common,
    attention: &Attention,
) -> Result<Vec<Layer>, ModelError> {
    keys.no_experts()?;
    let mlp = Mlp::read(keys, common.n_embd)?;
    let layer = |i| {
        let attention = Attention { bias: Biases::of(keys, i), ..attention.clone() };
        Layer::new(common.n_embd, common.rms_eps, Mixer::Attention(attention), mlp.clone())
    };
    Ok((0..common.n_layer as usize).map(layer).collect())
}
