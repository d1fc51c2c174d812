//! How a picture is cut into tiles, and what stands around them in a prompt.

use super::decode::Picture;
use super::error::PictureError;
use super::size::Size;
use super::tile::{Part, Tile};
use super::{gemma3, gemma4, idefics3, lfm2};
use crate::model::{Encoder, Projector};

/// Most tiles of a picture: each takes as long as a prompt. Published models make no more than 17 of one.
const MAX_TILES: usize = 128;

/// Stand-in for a picture in a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Texts and tiles, in order.
    pub parts: Vec<Part>,
}

impl Layout {
    /// Cuts a picture for an encoder.
    ///
    /// # Errors
    /// [`PictureError::TooNarrow`], [`PictureError::TooManyTiles`].
    pub fn new(picture: &Picture, encoder: &Encoder) -> Result<Self, PictureError> {
        let parts = match encoder.projector {
            Projector::Gemma3 => gemma3::parts(picture, encoder),
            Projector::Gemma4 => gemma4::parts(picture, encoder),
            Projector::Idefics3 => idefics3::parts(picture, encoder),
            Projector::Lfm2 { .. } => lfm2::parts(picture, encoder),
        };
        let layout = Self { parts };
        let tiles = layout.tiles().count();
        if tiles > MAX_TILES {
            return Err(PictureError::TooManyTiles { tiles, most: MAX_TILES });
        }
        let most = u64::from(encoder.max_patches()) * u64::from(encoder.patch) * u64::from(encoder.patch);
        let side = u64::from(encoder.max_side()) * u64::from(encoder.patch);
        let fits = |tile: &Tile| {
            let size = tile.picture().size();
            size.pixels() <= most && u64::from(size.width.max(size.height)) <= side
        };
        if !layout.tiles().all(fits) {
            let Size { width, height } = picture.size();
            return Err(PictureError::TooNarrow { width, height });
        }
        Ok(layout)
    }

    /// The tiles, in order.
    pub fn tiles(&self) -> impl Iterator<Item = &Tile> {
        self.parts.iter().filter_map(|part| match part {
            Part::Tile(tile) => Some(tile),
            Part::Text(_) => None,
        })
    }
}
