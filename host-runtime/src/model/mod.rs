//! Models: what a GGUF says of them, which weights they need, what they keep, and how they become programs.
//!
//! Each of these uses those above it, and never the other way round:
//!
//! * `graph` builds programs out of ops and knows no architecture;
//! * `block` has what layers are made of, one file for each block with all that belongs to it;
//! * `decoder` has a model: an embedding, layers and an LM head;
//! * `arch` reads the layers of each architecture from metadata, and `draft` has the kinds of draft models;
//! * `vision` has encoders of pictures;
//! * `programs` has the recipes for programs, over a target, a draft and an encoder.
//!
//! Weights and kept tensors go by label: what a block plans or declares under a label, its graph finds under
//! it.

mod arch;
mod block;
mod cache_types;
mod classifier;
mod decoder;
mod draft;
mod error;
mod graph;
mod io;
mod kept;
mod keys;
mod limits;
mod open;
mod programs;
mod scales;
mod scope;
mod split;
mod tensors;
mod vision;

pub use block::{
    Attention, DeltaNet, FeedForward, Gate, KvCache, Layer, Mix, Mixer, Mlp, Moe, Norms, Queries, Rope,
    Router,
};
pub use cache_types::{CacheType, CacheTypes, UnknownCacheType};
pub(crate) use classifier::{CLASSIFIER, CLASSIFIER_BIAS, makes_scores};
pub use decoder::Decoder;
pub use draft::{
    BLOCK as DRAFT_BLOCK, DraftModel, has_head as has_mtp_head, keep as keep_draft, read as read_draft,
    tap_width as draft_tap_width,
};
pub use error::{DraftError, ModelError};
pub use graph::{Buffers, Context, Part, Tapes};
pub use io::{IoLayout, TileWidths, Widths};
pub use kept::{Kept, KeptLayout, KeptPlanner, Purpose, Region, Rollback};
pub use limits::{
    FIRST_PICTURE_ROW, MAX_PENDING, MAX_SHARED, MAX_STOPS, MAX_VERIFY, ROUND_WORDS, is_picture_row,
};
pub use open::read;
pub use programs::{Features, Recipes, Rows, StepInput, StepShape};
pub use scales::Scales;
pub use scope::Scope;
pub(crate) use scope::{DRAFT_PREFIX, layer_of};
pub use split::{EmbeddingReaders, Split};
pub use tensors::{Projection, WeightMap, WeightPlan};
pub use vision::{Encoder, PatchGrid, Positions, Projector};
