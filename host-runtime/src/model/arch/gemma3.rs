//! Gemma 3 (text): layers that see a window of the context, some that see all of it; norms before and after
//! everything that a layer adds, and a gated MLP with GELU.

use super::windows::windows;
use crate::model::block::{Activation, Attention, Biases, Layer, Mixer, Mlp, Norms, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one that sees all of the context to the next, where the file does not say.
const PERIOD: u32 = 6;
/// Layers of the 27B, which scales attention by another width than that of a head.
const LAYERS_27B: u32 = 62;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_ctx_train, rms_eps, .. } = *common;
    common.logit_cap = keys.logit_cap()?;
    common.embedding_scale = (n_embd as f32).sqrt();
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let width = if n_layer == LAYERS_27B { n_embd / attention.n_head } else { attention.key_dim };
    let attention = Attention { scale: 1.0 / (width as f32).sqrt(), ..attention };
    // Positions within a window are not stretched.
    let near = |rope| Rope { freq_scale: 1.0, ..rope }.in_windows(keys, 10_000.0);
    let near = attention.rope.clone().map(near).transpose()?;
    let mlp = Mlp { activation: Activation::Gelu, ..Mlp::read(keys, n_embd)? };
    let norms = Norms {
        after_mixer: Some("post_attention_norm.weight"),
        after_mlp: Some("post_ffw_norm.weight"),
        ..Norms::usual(rms_eps)
    };
    let layer = |(i, window): (usize, u32)| {
        let rope = if window == 0 { attention.rope.clone() } else { near.clone() };
        let attention = Attention { rope, window, bias: Biases::of(keys, i), ..attention.clone() };
        Layer { n_embd, norms, mixer: Mixer::Attention(attention), mlp: mlp.clone().into() }
    };
    let window = keys.meta().u32_or(&keys.key("attention.sliding_window"), 0)?;
    Ok(windows(keys, n_layer, window, PERIOD)?.into_iter().enumerate().map(layer).collect())
}
