//! Models: what a GGUF says of them, which weights they need, and how they become programs.

mod config;
mod dflash;
mod draft;
mod error;
mod graph;
mod keys;
mod layout;
mod programs;
mod qwen35;
mod split;
mod tensors;

pub use config::{AttentionConfig, Config, LinearConfig, Mixer, RopeConfig};
pub(crate) use draft::PREFIX as DRAFT_PREFIX;
pub use draft::{DraftConfig, DraftError};
pub use error::ModelError;
pub use layout::{
    DraftPlaces, IoLayout, LayerState, MAX_PENDING, MAX_STOPS, MAX_VERIFY, ROUND_WORDS, SpecLayout,
    StateLayout, TapePlace,
};
pub use programs::{Buffers, Drafter, Features, Model, Part, Rows, Shape};
pub use split::Split;
pub use tensors::{Projection, WeightMap, WeightPlan};
