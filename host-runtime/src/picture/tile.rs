//! Tiles: pixels of a size that an encoder takes, and what they are to it.

use super::decode::Picture;
use crate::model::{Encoder, PatchGrid};

/// A part of a picture in a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A text, whose control tokens are such.
    Text(String),
    /// The rows of a tile.
    Tile(Tile),
}

/// A tile: pixels of a size that an encoder takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    pub(super) picture: Picture,
}

impl Tile {
    /// Pixels of the tile.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Patches of the tile.
    pub fn grid(&self, encoder: &Encoder) -> PatchGrid {
        let size = self.picture.size;
        PatchGrid { width: size.width / encoder.patch, height: size.height / encoder.patch }
    }

    /// The values of its patches, for [`Engine::encode`](crate::engine::Engine::encode): of each patch the
    /// reds, the greens and the blues, of 0 to 1 less the encoder's mean, divided by its deviation.
    pub fn patches(&self, encoder: &Encoder) -> Vec<f32> {
        let side = encoder.patch as usize;
        let grid = self.grid(encoder);
        let mut values = Vec::with_capacity((grid.len() * encoder.patch_values()) as usize);
        let (rgb, width) = (&self.picture.rgb, self.picture.size.width as usize);
        for (column, line) in grid.patches(encoder.merge) {
            let (x, y) = (column as usize * side, line as usize * side);
            for (colour, (mean, std)) in encoder.mean.iter().zip(encoder.std).enumerate() {
                for row in (y..y + side).map(|y| 3 * (y * width + x) + colour) {
                    let pixels = rgb[row..].iter().step_by(3).take(side);
                    values.extend(pixels.map(|&value| (f32::from(value) / 255.0 - mean) / std));
                }
            }
        }
        values
    }
}
