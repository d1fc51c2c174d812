//! Phi 3, 3.5 and 4 mini (`phi3`): attention without norms, whose heads may be turned in part; queries, keys
//! and values are one tensor, and so are gate and up. Windows that some files name are not used, as in
//! llama.cpp.

use crate::model::block::{Attention, Layer, Mixer, Mlp};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_ctx_train, rms_eps, .. } = *common;
    keys.no_experts()?;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_equal_widths(keys)?;
    let rope = attention.rope.map(|rope| rope.with_factors(keys));
    let attention = Attention { rope, norm: None, ..attention };
    let mlp = Mlp { fused: true, ..Mlp::read(keys, n_embd)? };
    let layer = Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp);
    Ok(vec![layer; n_layer as usize])
}
