//! Granite (dense), 3 and 4: as Llama, with factors on embeddings, on what layers add to the stream, on the
//! logits of attention and on those of the text. Some models of Granite 4 do without rotary embedding.

use super::llama;
use crate::model::block::{Attention, Layer};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    common.scales.embedding = keys.scale("embedding_scale", 1.0)?;
    common.scales.logits = keys.inverse("logit_scale")?;
    let residual_scale = keys.scale("residual_scale", 1.0)?;
    let attention = llama::attention(keys, common)?;
    let scale = keys.scale("attention.scale", attention.scale)?;
    // The key has another meaning elsewhere; llama.cpp takes it for this one here.
    let turned = keys.meta().bool_or(&keys.key("rope.scaling.finetuned"), true)?;
    let rope = attention.rope.clone().filter(|_| turned);
    let layers = llama::with(keys, common, &Attention { scale, rope, ..attention })?;
    Ok(layers.into_iter().map(|layer| Layer { residual_scale, ..layer }).collect())
}
