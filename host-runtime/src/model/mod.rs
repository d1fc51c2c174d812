//! Models: what a GGUF says of them, which weights they need, and how they become programs.

mod config;
mod error;
mod graph;
mod layout;
mod qwen35;
mod tensors;

pub use config::{AttentionConfig, Config, LinearConfig, Mixer, RopeConfig};
pub use error::ModelError;
pub use layout::{IoLayout, LayerState, MAX_VERIFY, StateLayout};
pub use qwen35::{Buffers, Rows, Shape, record};
pub use tensors::{Projection, WeightMap, WeightPlan};
