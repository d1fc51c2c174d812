//! Which layers see a window of the context, as files of several architectures say it.

use crate::gguf::Value;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// End of the keys of layers that see a window, where a file has others for them.
pub(super) const NEAR: &str = "_swa";
/// Key of a flag for each layer, or of a period.
const PATTERN: &str = "attention.sliding_window_pattern";

/// Of each layer, the tokens that a query sees; 0 for all. The file has a flag for each layer, or the layers
/// from one that sees all of the context to the next, which are `period` where it has neither.
///
/// # Errors
/// There are fewer flags than layers.
pub(super) fn windows(
    keys: &Keys<'_>,
    n_layer: u32,
    window: u32,
    period: u32,
) -> Result<Vec<u32>, ModelError> {
    let (meta, name) = (keys.meta(), PATTERN);
    let windowed: Vec<bool> = match meta.get(&keys.key(name)) {
        Some(Value::Array(_)) => {
            let flags = meta.array_bool(&keys.key(name))?.unwrap_or_default();
            if (flags.len() as u64) < u64::from(n_layer) {
                return Err(keys.bad(name, format!("{} flags", flags.len()), &n_layer.to_string()));
            }
            flags
        }
        _ => match meta.u32_or(&keys.key(name), period)? {
            0 => vec![true; n_layer as usize],
            period => (1..=n_layer).map(|n| !n.is_multiple_of(period)).collect(),
        },
    };
    Ok(windowed.into_iter().take(n_layer as usize).map(|near| if near { window } else { 0 }).collect())
}

/// Windows of an architecture whose files must have one, and a flag for each layer: see [`windows`].
///
/// # Errors
/// The file lacks one of the two, or has fewer flags than layers.
pub(super) fn flagged(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<u32>, ModelError> {
    let window = keys.require("attention.sliding_window")?;
    if !matches!(keys.meta().get(&keys.key(PATTERN)), Some(Value::Array(_))) {
        return Err(keys.missing(PATTERN));
    }
    // With flags there is no period.
    windows(keys, n_layer, window, 0)
}
