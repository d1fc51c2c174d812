//! LFM2: layers of gated short convolutions, some of attention, each followed by an MLP. (`lfm2moe.rs` puts
//! experts in its place.)

use crate::model::block::{Attention, FeedForward, Layer, Mixer, Mlp, ShortConv};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// The norm before the LM head: a misnomer that files keep.
const OUTPUT_NORM: &str = "token_embd_norm.weight";

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    keys.no_experts()?;
    let mlp = FeedForward::from(Mlp::read(keys, common.n_embd)?);
    with(keys, common, |_| &mlp)
}

/// Reads and checks the layers, with what `mlp` gives for each after what mixes tokens: those without heads
/// of keys are convolutions.
pub(super) fn with<'m>(
    keys: &Keys<'_>,
    common: &mut Common,
    mlp: impl Fn(u32) -> &'m FeedForward,
) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_mtp, n_ctx_train, rms_eps, .. } = *common;
    common.output_norm = OUTPUT_NORM;
    let (meta, name) = (keys.meta(), "attention.head_count_kv");
    let heads = meta.u32_per_layer(&keys.key(name), (n_layer + n_mtp) as usize)?;
    let heads = heads.ok_or_else(|| keys.missing(name))?;
    let window = meta.u32_or(&keys.key("attention.sliding_window"), 0)?;
    let n_head = keys.require("attention.head_count")?;
    let conv = ShortConv::read(keys, n_embd)?;
    let layer = |(i, n_head_kv): (u32, u32)| {
        let mixer = match n_head_kv {
            0 => Mixer::ShortConv(conv.clone()),
            _ => {
                let attention =
                    Attention::with_heads(keys, [n_head, n_head_kv], n_embd, n_ctx_train, rms_eps)?;
                attention.require_whole_heads(keys)?;
                Mixer::Attention(Attention { window, ..attention })
            }
        };
        Ok(Layer::new(n_embd, rms_eps, mixer, mlp(i).clone()))
    };
    (0..n_layer).zip(heads).map(layer).collect()
}
