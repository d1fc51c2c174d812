//! Taps: the layers of the target whose input a draft reads.

use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Layers of the target that a draft taps, as its file has them: rising.
///
/// # Errors
/// The file has no such list.
pub(super) fn read(keys: &Keys<'_>) -> Result<Vec<u32>, ModelError> {
    let name = "target_layers";
    let Some(layers) = keys.meta().array_i32(&keys.key(name))? else {
        return Err(keys.missing(name));
    };
    let rising = layers.windows(2).all(|pair| pair[0] < pair[1]);
    let taps: Option<Vec<u32>> = layers.iter().map(|&l| u32::try_from(l).ok()).collect();
    match taps {
        Some(taps) if rising && !taps.is_empty() => Ok(taps),
        _ => Err(keys.bad(name, format!("{layers:?}"), "a rising list of at least one layer")),
    }
}
