//! Encoders of pictures: what an *mmproj* file has. A vision transformer makes rows of patches, and a
//! *projector* makes rows of these that enter the text model in place of embeddings of tokens. Each projector
//! is one file.
//!
//! Attention of such an encoder sees all patches of a tile, and the order of these is of no account to it. So
//! the host sends the patches that are merged to one row next to each other, and the merging, which graphs
//! for pictures of rows and columns need several copies for, is no op at all.
//!
//! Formulas: llama.cpp's `tools/mtmd/clip.cpp` and `models/siglip.cpp`.

mod clamps;
mod encoder;
mod gemma3;
mod gemma4;
mod grid;
mod idefics3;
mod layer;
mod lfm2;
mod norm;
mod positions;

pub(super) use encoder::ARCH;
pub use encoder::{Encoder, Projector};
pub use grid::PatchGrid;
pub use positions::Positions;
