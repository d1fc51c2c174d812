//! Blocks: what layers are made of. Each file has all four sides of one block: its hyper-parameters as a GGUF
//! has them, its weights, what it keeps from step to step, and its graph.

mod attention;
mod conv;
mod delta_net;
mod feed_forward;
mod kv;
mod layer;
mod mix;
mod mixer;
mod mlp;
mod moe;
mod per_layer;
mod previous;
mod rope;
mod short_conv;

pub use attention::{Attention, Biases, Gate, Queries};
pub use delta_net::DeltaNet;
pub use feed_forward::FeedForward;
pub use kv::KvCache;
pub use layer::{Layer, Norms};
pub use mix::Mix;
pub use mixer::Mixer;
pub use mlp::{Activation, Mlp};
pub use moe::{Moe, Router};
pub use per_layer::PerLayer;
pub(in crate::model) use previous::Previous;
pub use rope::{Factors, Rope};
pub use short_conv::ShortConv;
