//! Gemma 3 (text): layers that see a window of the context, some that see all of it; norms before and after
//! everything that a layer adds, and a gated MLP with GELU. (`gemma2.rs` has the same layers around another
//! attention.)

use super::windows::windows;
use crate::model::block::{Activation, Attention, Biases, Layer, Mixer, Mlp, Norms, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one that sees all of the context to the next, where the file does not say.
const PERIOD: u32 = 6;
/// Layers of the 27B.
const LAYERS_27B: u32 = 62;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    common.scales.logit_cap = keys.cap("final_logit_softcapping", 0.0)?;
    let attention = attention(keys, common, LAYERS_27B)?;
    let near = near(keys, &attention)?;
    let window = keys.meta().u32_or(&keys.key("attention.sliding_window"), 0)?;
    with(keys, common, &attention, near.as_ref(), windows(keys, common.n_layer, window, PERIOD)?)
}

/// Reads and checks the attention of layers that see all of the context. A model of `layers_27b` layers is
/// the 27B, which scales attention by another width than that of a head.
pub(super) fn attention(keys: &Keys<'_>, common: &Common, layers_27b: u32) -> Result<Attention, ModelError> {
    let attention = Attention::read(keys, common.n_embd, common.n_ctx_train, common.rms_eps)?;
    attention.require_whole_heads(keys)?;
    let wide = common.n_layer == layers_27b;
    let width = if wide { common.n_embd / attention.n_head } else { attention.key_dim };
    Ok(Attention { scale: 1.0 / (width as f32).sqrt(), ..attention })
}

/// Reads the rotary embedding of layers that see a window: positions within it are not stretched.
pub(super) fn near(keys: &Keys<'_>, attention: &Attention) -> Result<Option<Rope>, ModelError> {
    let near = |rope| Rope { freq_scale: 1.0, ..rope }.in_windows(keys, 10_000.0);
    attention.rope.clone().map(near).transpose()
}

/// Reads and checks the layers, with this attention. Those that have a window have the rotary embedding
/// `near`.
pub(super) fn with(
    keys: &Keys<'_>,
    common: &mut Common,
    attention: &Attention,
    near: Option<&Rope>,
    windows: Vec<u32>,
) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, rms_eps, .. } = *common;
    common.scales.embedding = (n_embd as f32).sqrt();
    let mlp = Mlp { activation: Activation::Gelu, ..Mlp::read(keys, n_embd)? };
    let norms = Norms {
        after_mixer: Some("post_attention_norm.weight"),
        after_mlp: Some("post_ffw_norm.weight"),
        ..Norms::usual(rms_eps)
    };
    let layer = |(i, window): (usize, u32)| {
        let rope = if window == 0 { attention.rope.as_ref() } else { near };
        let (rope, bias) = (rope.cloned(), Biases::of(keys, i));
        let attention = Attention { rope, window, bias, ..attention.clone() };
        Layer { norms, ..Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp.clone()) }
    };
    Ok(windows.into_iter().enumerate().map(layer).collect())
}
