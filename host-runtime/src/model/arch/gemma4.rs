//! Gemma 4 (text), E2B and E4B: layers that see a window have narrower heads than those that see all of the
//! context, the last layers read the caches of earlier ones, and all of them have per-layer embeddings.

use super::windows::{NEAR, flagged};
use crate::model::block::{
    Activation, Attention, Factors, Layer, Mixer, Mlp, Norms, PerLayer, Queries, Rope,
};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Of each layer, the tokens that a query sees; 0 for all.
///
/// # Errors
/// The file lacks the window, or has fewer flags than layers.
pub(in crate::model) fn windows(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<u32>, ModelError> {
    flagged(keys, n_layer)
}

/// Attention of a layer that sees so many tokens, or all of the context if that is 0, with this many heads of
/// queries, and of keys and values.
///
/// # Errors
/// A key is missing or out of range.
pub(in crate::model) fn attention(
    keys: &Keys<'_>,
    window: u32,
    heads: [u32; 2],
    (n_embd, n_ctx_train, eps): (u32, u32, f32),
) -> Result<Attention, ModelError> {
    let suffix = if window > 0 { NEAR } else { "" };
    let attention = Attention::with_widths(keys, suffix, heads, n_embd, n_ctx_train, eps)?;
    let rope = match attention.rope {
        // Positions within a window are not stretched, and nothing divides their angles.
        Some(rope) if window > 0 => Some(Rope { freq_scale: 1.0, ..rope }.in_windows(keys, 10_000.0)?),
        // Only some pairs are turned: the divisors of the others are next to infinite.
        rope => rope.map(|rope| Rope { factors: Factors::Always, ..rope }),
    };
    Ok(Attention { rope, window, scale: 1.0, value_norm: Some(eps), ..attention })
}

/// The norms of a layer.
pub(in crate::model) const fn norms(eps: f32) -> Norms {
    Norms {
        after_mixer: Some("post_attention_norm.weight"),
        after_mlp: Some("post_ffw_norm.weight"),
        ..Norms::usual(eps)
    }
}

/// The MLP of a layer, of this width inside.
pub(in crate::model) fn mlp(n_embd: u32, n_ff: u32) -> Mlp {
    Mlp { activation: Activation::Gelu, ..Mlp::new(n_embd, n_ff) }
}

/// Layers at the end that have no caches of their own.
const SHARED: &str = "attention.shared_kv_layers";

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_ctx_train, rms_eps, .. } = *common;
    keys.no_experts()?;
    common.scales.embedding = (n_embd as f32).sqrt();
    common.scales.logit_cap = keys.cap("final_logit_softcapping", 0.0)?;
    common.per_layer = Some(PerLayer::read(keys, n_embd, n_layer, rms_eps)?);
    let windows = windows(keys, n_layer)?;
    let n_head = keys.require("attention.head_count")?;
    let kv_heads = keys.per_layer("attention.head_count_kv", n_layer)?;
    let n_ff = keys.per_layer("feed_forward_length", n_layer)?;
    let n_shared = keys.meta().u32_or(&keys.key(SHARED), 0)?;
    keys.at_most(SHARED, n_shared, n_layer)?;
    let first_shared = n_layer - n_shared;
    // Of the last two layers that have caches, the first sees a window.
    let home = |i: u32| first_shared.checked_sub(if windows[i as usize] > 0 { 2 } else { 1 });
    let mixer = |i: u32| {
        let (window, n_head_kv) = (windows[i as usize], kv_heads[i as usize]);
        let queries = match home(i) {
            _ if i < first_shared => Queries::WithKeys,
            Some(home) if windows[home as usize] == window && kv_heads[home as usize] == n_head_kv => {
                Queries::Alone(home as usize)
            }
            _ => {
                let expected = format!("a number that leaves layer {i} caches of its own kind to read");
                return Err(keys.bad(SHARED, n_shared, &expected));
            }
        };
        let heads = [n_head, n_head_kv];
        let attention = attention(keys, window, heads, (n_embd, n_ctx_train, rms_eps))?;
        Ok(Mixer::Attention(Attention { queries, ..attention }))
    };
    let norms = norms(rms_eps);
    let layer = |i: u32| {
        let mlp = mlp(n_embd, n_ff[i as usize]);
        Ok(Layer { norms, ..Layer::new(n_embd, rms_eps, mixer(i)?, mlp) })
    };
    (0..n_layer).map(layer).collect()
}
