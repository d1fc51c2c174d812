//! Spark X2.5 (`spark2_5`): layers that see a window and layers that see all of the context, which may differ
//! in heads and in how much of a head is turned; a gate for each head, and an MLP with GELU.

use super::windows::{NEAR, flagged};
use crate::model::block::{Activation, Attention, Gate, Layer, Mixer, Mlp};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_ctx_train, rms_eps, .. } = *common;
    keys.no_experts()?;
    // The width of a head must not follow from how many heads a layer has.
    keys.require("attention.key_length")?;
    let windows = flagged(keys, n_layer)?;
    let heads = keys.per_layer("attention.head_count", n_layer)?;
    let kv_heads = keys.per_layer("attention.head_count_kv", n_layer)?;
    let mlp = Mlp { activation: Activation::Gelu, ..Mlp::read(keys, n_embd)? };
    let layer = |(window, heads): (u32, [u32; 2])| {
        let suffix = if window > 0 { NEAR } else { "" };
        let attention = Attention::with_widths(keys, suffix, heads, n_embd, n_ctx_train, rms_eps)?;
        attention.require_equal_widths(keys)?;
        let rope = match attention.rope {
            Some(rope) if window > 0 => {
                let base = rope.freq_base;
                Some(rope.in_windows(keys, base)?)
            }
            far => far,
        };
        let attention = Attention { rope, window, norm: None, gate: Gate::OfHeads, ..attention };
        Ok(Layer::new(n_embd, rms_eps, Mixer::Attention(attention), mlp.clone()))
    };
    let heads = heads.into_iter().zip(kv_heads).map(|(n_head, n_head_kv)| [n_head, n_head_kv]);
    windows.into_iter().zip(heads).map(layer).collect()
}
