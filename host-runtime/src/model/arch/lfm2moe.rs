//! LFM2 with mixtures of experts behind some layers that have an MLP.

use hexflash_abi::op::params::Gating;

use super::lfm2;
use crate::model::block::{FeedForward, Layer, Mlp, Moe, Router};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers with an MLP, which come first.
const DENSE: &str = "leading_dense_block_count";
/// How the logits of the router become weights: llama.cpp's number.
const GATING: &str = "expert_gating_func";

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let (n_embd, n_layer, meta) = (common.n_embd, common.n_layer, keys.meta());
    let gating = match meta.require_u32(&keys.key(GATING))? {
        1 => Gating::Softmax,
        2 => Gating::Sigmoid,
        3 => Gating::SoftmaxOfChosen,
        n => {
            return Err(keys.bad(GATING, n, "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)"));
        }
    };
    let n_dense = meta.u32_or(&keys.key(DENSE), 0)?;
    keys.at_most(DENSE, n_dense, n_layer)?;
    let dense = match n_dense {
        0 => None,
        _ => Some(FeedForward::from(Mlp::read(keys, n_embd)?)),
    };
    let moe = Moe::read(keys, n_embd, Router { gating, bias: true, ..Router::SOFTMAX })?.into();
    lfm2::with(keys, common, |i| dense.as_ref().filter(|_| i < n_dense).unwrap_or(&moe))
}
