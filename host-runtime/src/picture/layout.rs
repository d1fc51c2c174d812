//! How a picture is cut into tiles, and what stands around them in a prompt.

use super::decode::Picture;
use super::error::PictureError;
use super::tile::{Part, Tile};
use super::{idefics3, lfm2};
use crate::model::{Encoder, Projector};

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
    /// [`PictureError::TooNarrow`].
    pub fn new(picture: &Picture, encoder: &Encoder) -> Result<Self, PictureError> {
        let parts = match encoder.projector {
            Projector::Idefics3 => idefics3::parts(picture, encoder),
            Projector::Lfm2 { .. } => lfm2::parts(picture, encoder),
        };
        let tiles = parts.iter().filter_map(|part| match part {
            Part::Tile(tile) => Some(tile.picture.size.pixels()),
            Part::Text(_) => None,
        });
        let most = u64::from(Encoder::MAX_PATCHES) * u64::from(encoder.patch) * u64::from(encoder.patch);
        if parts.len() > MAX_PARTS || tiles.into_iter().any(|pixels| pixels > most) {
            let (width, height) = (picture.size.width, picture.size.height);
            return Err(PictureError::TooNarrow { width, height });
        }
        Ok(Self { parts })
    }

    /// The tiles, in order.
    pub fn tiles(&self) -> impl Iterator<Item = &Tile> {
        self.parts.iter().filter_map(|part| match part {
            Part::Tile(tile) => Some(tile),
            Part::Text(_) => None,
        })
    }
}

/// Most parts: some hundred tiles, of which each takes as long as a prompt.
const MAX_PARTS: usize = 256;
