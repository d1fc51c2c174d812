//! Pictures that cannot be used.

use crate::error::Error;

/// A picture that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// Bytes of no format that is known.
    #[error("this is no picture that hexflash can read; use a PNG, JPEG, WebP, GIF or BMP file")]
    Format,
    /// Bytes of a known format that are damaged, or cut short.
    #[error("the picture is damaged ({reason})")]
    Damaged {
        /// Reason that the decoder gives, in a line.
        reason: String,
    },
    /// More pixels than are worth the memory.
    #[error(
        "the picture has {width} x {height} pixels; use one of at most {} megapixels",
        super::MAX_PIXELS / 1_000_000
    )]
    TooLarge {
        /// Pixels in a line.
        width: u32,
        /// Lines.
        height: u32,
    },
    /// A picture of which one side is too short for the other one.
    #[error(
        "the picture has {width} x {height} pixels, which is too narrow for the encoder; cut it into parts"
    )]
    TooNarrow {
        /// Pixels in a line.
        width: u32,
        /// Lines.
        height: u32,
    },
    /// A picture of more tiles than are worth the time.
    #[error("the picture would become {tiles} tiles, of which a prompt may have {most}; make it smaller")]
    TooManyTiles {
        /// Its tiles.
        tiles: usize,
        /// Most that there may be.
        most: usize,
    },
    /// A text with another number of markers than there are pictures.
    #[error(
        "the text has {markers} places for pictures ({}), and there are {pictures} pictures",
        super::MARKER
    )]
    Markers {
        /// Markers in it.
        markers: usize,
        /// The pictures.
        pictures: usize,
    },
}

impl From<PictureError> for Error {
    fn from(error: PictureError) -> Self {
        Self::Picture { reason: error.to_string() }
    }
}
