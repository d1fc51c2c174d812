//! SmolLM3 (dense): as Llama, but that every fourth layer does without rotary embedding.

use hexflash_abi::op::params::RopeMode;

use crate::model::block::{Attention, Biases, Layer, Mixer, Mlp, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one without rotary embedding to the next; no key of the file has it.
const UNTURNED: usize = 4;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_ctx_train, rms_eps, .. } = *common;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let rope = attention.rope.clone().map(|rope| Rope { pairs: RopeMode::Norm, ..rope });
    let attention = Attention { norm: None, ..attention };
    let mlp = Mlp::read(keys, n_embd)?;
    let layer = |i: usize| {
        let rope = rope.clone().filter(|_| !(i + 1).is_multiple_of(UNTURNED));
        let attention = Attention { rope, bias: Biases::of(keys, i), ..attention.clone() };
        Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp.clone())
    };
    Ok((0..common.n_layer as usize).map(layer).collect())
}
