//! Gemma 3 (text): layers that see a window of the context, some that see all of it; norms before and after
//! everything that a layer adds, and a gated MLP with GELU.

use crate::gguf::Value;
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
    match keys.finite("final_logit_softcapping", 0.0)? {
        0.0 => {}
        cap => return Err(keys.unsupported("final_logit_softcapping", cap, "caps of logits")),
    }
    common.embedding_scale = (n_embd as f32).sqrt();
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let width = if n_layer == LAYERS_27B { n_embd / attention.n_head } else { attention.key_dim };
    let attention = Attention { scale: 1.0 / (width as f32).sqrt(), ..attention };
    // Positions within a window are not stretched.
    let freq_base = keys.finite("rope.freq_base_swa", 10_000.0)?;
    if freq_base <= 0.0 {
        return Err(keys.bad("rope.freq_base_swa", freq_base, "more than 0"));
    }
    let near = attention.rope.clone().map(|rope| Rope { freq_base, freq_scale: 1.0, ..rope });
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
    Ok(windows(keys, n_layer)?.into_iter().enumerate().map(layer).collect())
}

/// Of each layer, the tokens that a query sees; 0 for all.
fn windows(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<u32>, ModelError> {
    let (meta, name) = (keys.meta(), "attention.sliding_window_pattern");
    let window = meta.u32_or(&keys.key("attention.sliding_window"), 0)?;
    let windowed: Vec<bool> = match meta.get(&keys.key(name)) {
        Some(Value::Array(_)) => {
            let flags = meta.array_bool(&keys.key(name))?.unwrap_or_default();
            if (flags.len() as u64) < u64::from(n_layer) {
                return Err(keys.bad(name, format!("{} flags", flags.len()), &n_layer.to_string()));
            }
            flags
        }
        _ => match meta.u32_or(&keys.key(name), PERIOD)? {
            0 => vec![true; n_layer as usize],
            period => (1..=n_layer).map(|n| !n.is_multiple_of(period)).collect(),
        },
    };
    Ok(windowed.into_iter().take(n_layer as usize).map(|near| if near { window } else { 0 }).collect())
}
