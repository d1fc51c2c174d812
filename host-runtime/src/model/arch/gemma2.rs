//! Gemma 2: Gemma 3's layers around attention without norms of queries and keys, whose logits are bounded. A
//! window in every other layer.

use super::gemma3;
use super::windows::windows;
use crate::model::block::{Attention, Layer, Rope};
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers from one that sees all of the context to the next, where the file does not say.
const PERIOD: u32 = 2;
/// Tokens that a query sees in layers with a window, where the file does not say.
const WINDOW: u32 = 4096;
/// Layers of the 27B.
const LAYERS_27B: u32 = 46;
/// Bounds of the logits of attention and of the text, where the file does not say.
const CAPS: [f32; 2] = [50.0, 30.0];

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let softcap = keys.cap("attn_logit_softcapping", CAPS[0])?;
    common.scales.logit_cap = keys.cap("final_logit_softcapping", CAPS[1])?;
    let attention = gemma3::attention(keys, common, LAYERS_27B)?;
    let attention = Attention { norm: None, softcap, ..attention };
    let near = |rope: &Rope| rope.clone().in_windows(keys, rope.freq_base);
    let near = attention.rope.as_ref().map(near).transpose()?;
    let window = keys.or("attention.sliding_window", WINDOW)?;
    gemma3::with(keys, common, &attention, near.as_ref(), windows(keys, common.n_layer, window, PERIOD)?)
}
