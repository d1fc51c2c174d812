//! Pictures for Gemma 4: one tile of about the picture's shape.
//!
//! Formulas: llama.cpp's `tools/mtmd/mtmd-image.cpp`.

use super::decode::Picture;
use super::lfm2::fitting;
use super::resize::{Filter, padded};
use super::tile::{Part, Tile};
use crate::model::Encoder;

const BEGIN: &str = "<|image>";
const END: &str = "<image|>";
/// Fewest rows of a tile.
const FEWEST: u32 = 70;

/// The tile of a picture, and the texts around it.
pub(super) fn parts(picture: &Picture, encoder: &Encoder) -> Vec<Part> {
    let align = encoder.patch * encoder.merge;
    let limits = [FEWEST, encoder.max_rows()].map(|rows| rows * align * align);
    let tile = padded(picture, fitting(picture.size, align, limits), Filter::Bicubic);
    let text = |text: &str| Part::Text(text.to_owned());
    vec![text(BEGIN), Part::Tile(Tile { picture: tile }), text(END)]
}
