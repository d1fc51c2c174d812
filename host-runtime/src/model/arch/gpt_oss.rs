//! gpt-oss: attention with sinks and biases, in a window in every other layer, and a mixture of experts with
//! biases and a clamped gate.

use hexflash_abi::op::params::Gating;

use super::windows::windows;
use crate::model::block::{Activation, Attention, Biases, Layer, Mixer, Moe, Norms, Rope, Router};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one that sees all of the context to the next, where the file does not say.
const PERIOD: u32 = 2;
/// The weights of a token's experts are the softmax of their logits, and as such 1 together.
const ROUTER: Router = Router { gating: Gating::SoftmaxOfChosen, normalize: false, ..Router::SOFTMAX };

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let Common { n_embd, n_layer, n_ctx_train, rms_eps, .. } = *common;
    common.never_tied = true;
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_whole_heads(keys)?;
    let attention = Attention { norm: None, bias: Biases::ALL, sinks: true, ..attention };
    let near = |rope: &Rope| rope.clone().in_windows(keys, rope.freq_base);
    let near = attention.rope.as_ref().map(near).transpose()?;
    let moe = Moe::read(keys, n_embd, ROUTER)?;
    let moe = Moe { activation: Activation::ClampedSilu, biases: true, ..moe };
    let norms = Norms { before_mlp: "post_attention_norm.weight", ..Norms::usual(rms_eps) };
    let layer = |window| {
        let rope = if window == 0 { attention.rope.clone() } else { near.clone() };
        let mixer = Mixer::Attention(Attention { rope, window, ..attention.clone() });
        Layer { norms, ..Layer::new(n_embd, rms_eps, mixer, moe.clone()) }
    };
    let window = keys.require("attention.sliding_window")?;
    Ok(windows(keys, n_layer, window, PERIOD)?.into_iter().map(layer).collect())
}
