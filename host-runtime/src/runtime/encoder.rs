//! What the host has of an encoder of pictures.

use super::error::EngineError;
use crate::gguf::Gguf;
use crate::model::{Encoder, PatchGrid, Positions};

/// An encoder of pictures, with the table of positions that the host adds up for it.
pub(crate) struct PictureEncoder {
    model: Encoder,
    table: Positions,
    /// Sums for the patches of a tile of this shape: most tiles have that of the one before.
    sum: (PatchGrid, Vec<f32>),
}

impl PictureEncoder {
    /// Reads the table of an encoder's file.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn new(gguf: &Gguf, model: Encoder) -> Result<Self, EngineError> {
        let table = model.positions(gguf)?;
        Ok(Self { model, table, sum: (PatchGrid { width: 0, height: 0 }, Vec::new()) })
    }

    /// Hyper-parameters of the encoder.
    pub(crate) fn model(&self) -> &Encoder {
        &self.model
    }

    /// Sums of positions and bias for the patches of a tile of this shape.
    pub(super) fn positions(&mut self, grid: PatchGrid) -> &[f32] {
        if self.sum.0 != grid {
            self.table.of(grid, &mut self.sum.1);
            self.sum.0 = grid;
        }
        &self.sum.1
    }
}
