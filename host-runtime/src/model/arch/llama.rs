//! Llama (dense): attention without norms of queries and keys, each followed by an MLP. Llama 2 to 3.2,
//! SmolLM, SmolLM2 and Mistral's first models are of this architecture.

use hexflash_abi::op::params::RopeMode;

use crate::model::block::{Attention, Biases, Layer, Mixer, Mlp, Norms, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_ctx_train, rms_eps, .. } = *common;
    keys.no_experts()?;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let rope = attention.rope.map(|rope| Rope { pairs: RopeMode::Norm, ..rope.with_factors(keys) });
    let attention = Attention { rope, norm: None, ..attention };
    let mlp = Mlp::read(keys, n_embd)?;
    let layer = |i| Layer {
        n_embd,
        norms: Norms::usual(rms_eps),
        mixer: Mixer::Attention(Attention { bias: Biases::of(keys, i), ..attention.clone() }),
        mlp: mlp.clone().into(),
    };
    Ok((0..common.n_layer as usize).map(layer).collect())
}
