//! The builder of programs. It knows tensors, ops and places in memory, and no architecture.

mod context;
mod ops;
mod program;

pub use context::{Buffers, Context, Part, Tapes};
pub use program::Graph;
