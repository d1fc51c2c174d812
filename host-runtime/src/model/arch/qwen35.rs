//! Qwen3.5: layers of Gated DeltaNet, some of gated attention, each followed by an MLP. (`qwen35moe.rs` puts
//! experts in its place.)

use crate::model::block::{Attention, DeltaNet, FeedForward, Gate, Layer, Mixer, Mlp, Norms};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one with attention to the next, where the file does not say.
const INTERVAL: u32 = 4;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    with(keys, common, &Mlp::read(keys, common.n_embd)?.into())
}

/// Reads and checks the layers, with this after what mixes tokens.
pub(super) fn with(keys: &Keys<'_>, common: &Common, mlp: &FeedForward) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_ctx_train, rms_eps, .. } = *common;
    let delta_net = DeltaNet::read(keys, n_embd, rms_eps)?;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    let attention = Attention { gate: Gate::PerHead, ..attention };
    let norms = Norms { before_mlp: "post_attention_norm.weight", ..Norms::usual(rms_eps) };
    let layer = |recurrent| {
        let mixer = match recurrent {
            true => Mixer::DeltaNet(delta_net.clone()),
            false => Mixer::Attention(attention.clone()),
        };
        Layer { norms, ..Layer::new(n_embd, rms_eps, mixer, mlp.clone()) }
    };
    Ok(recurrent(keys, common.n_layer)?.into_iter().map(layer).collect())
}

/// Of each layer, whether it is a recurrent one.
fn recurrent(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<bool>, ModelError> {
    let meta = keys.meta();
    if let Some(mut flags) = meta.array_bool(&keys.key("attention.recurrent_layers"))? {
        if (flags.len() as u64) < u64::from(n_layer) {
            let found = format!("{} entries", flags.len());
            return Err(keys.bad("attention.recurrent_layers", found, &n_layer.to_string()));
        }
        flags.truncate(n_layer as usize);
        return Ok(flags);
    }
    let interval = meta.u32_or(&keys.key("full_attention_interval"), INTERVAL)?.max(1);
    Ok((1..=n_layer).map(|n| !n.is_multiple_of(interval)).collect())
}
