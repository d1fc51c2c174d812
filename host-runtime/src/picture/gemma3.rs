//! Pictures for Gemma 3: one square, in whose middle a picture of another shape is.
//!
//! Formulas: llama.cpp's `tools/mtmd/mtmd-image.cpp`.

use super::decode::Picture;
use super::resize::{Filter, padded};
use super::size::Size;
use super::tile::{Part, Tile};
use crate::model::Encoder;

const BEGIN: &str = "<start_of_image>";
const END: &str = "<end_of_image>";

/// The tile of a picture, and the texts around it.
pub(super) fn parts(picture: &Picture, encoder: &Encoder) -> Vec<Part> {
    let tile = padded(picture, Size::square(encoder.image_size), Filter::Bilinear);
    let text = |text: &str| Part::Text(text.to_owned());
    vec![text(BEGIN), Part::Tile(Tile { picture: tile }), text(END)]
}
