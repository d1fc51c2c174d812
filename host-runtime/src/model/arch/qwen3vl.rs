//! Qwen3-VL (text): Qwen3, whose positions have rows for time, height and width. Those of text are equal, so
//! that the sections make no difference, and images, which some of its layers would add to, there are none.

use super::qwen3;
use crate::model::block::Layer;
use crate::model::decoder::Common;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Pairs that each row of positions turns.
const SECTIONS: &str = "rope.dimension_sections";

/// Reads and checks the layers.
pub(super) fn layers(keys: &Keys<'_>, common: &mut Common) -> Result<Vec<Layer>, ModelError> {
    let sections = keys.meta().array_i32(&keys.key(SECTIONS))?.ok_or_else(|| keys.missing(SECTIONS))?;
    let sound = sections.len() == 4 && sections.iter().all(|&n| n >= 0) && sections.iter().any(|&n| n > 0);
    if !sound {
        return Err(keys.bad(SECTIONS, format!("{sections:?}"), "four counts, not all of them 0"));
    }
    qwen3::layers(keys, common)
}
