//! EmbeddingGemma (`gemma-embedding`): layers of Gemma 3 whose tokens see later ones, too, in windows that
//! lie around them. It gives vectors, and writes no text.

use hexflash_abi::op::params::Visibility;

use super::gemma3;
use super::windows::windows;
use crate::model::block::{Attention, Layer};
use crate::model::decoder::{Common, DENSE};
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one that sees all of the text to the next, where the file does not say.
const PERIOD: u32 = 6;

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    if DENSE.iter().any(|name| keys.has_tensor(name)) {
        common.dense = Some(keys.require("dense_2_feat_out")?);
    }
    // No model of it is scaled by the width of its stream.
    let attention = gemma3::attention(keys, common, 0)?;
    let attention = Attention { visibility: Visibility::Around, ..attention };
    let near = gemma3::near(keys, &attention)?;
    let width = keys.require("attention.sliding_window")?;
    // A token sees half of the window on each side, and itself.
    let reach = |width: u32| if width == 0 { 0 } else { width / 2 + 1 };
    let windows = windows(keys, common.n_layer, width, PERIOD)?.into_iter().map(reach).collect();
    gemma3::with(keys, common, &attention, near.as_ref(), windows)
}
