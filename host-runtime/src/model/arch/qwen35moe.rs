//! Qwen3.5 with a mixture of experts in every layer, and an expert beside it that all tokens share.

use super::qwen35;
use crate::model::block::{Layer, Mlp, Moe, Router};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Width of the shared expert.
const SHARED: &str = "expert_shared_feed_forward_length";

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let n_embd = common.n_embd;
    let n_ff = match keys.meta().u32_or(&keys.key(SHARED), 0)? {
        // As llama.cpp has it for files that do not say.
        0 => keys.require("feed_forward_length")?,
        _ => keys.require(SHARED)?,
    };
    let shared = Some(Mlp::new(n_embd, n_ff));
    let moe = Moe { shared, ..Moe::read(keys, n_embd, Router::SOFTMAX)? };
    qwen35::with(keys, common, &moe.into())
}
