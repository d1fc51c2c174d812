//! What a device makes of float instructions and of small kernels, compared with words that were computed by
//! definitions.
//!
//! The [`Table`] comes from `cargo xtask vectors`: IEEE arithmetic of the processor that ran it, published
//! descriptions of qfloat, ggml's definitions in double precision. Nothing of it was computed by the code
//! that it is compared with. What has no such words is asked for: how a matrix unit adds ([`sums`]), in which
//! order transfers are done and what packets take ([`questions`]).

pub mod forms;
pub mod kernels;
pub mod questions;
pub mod sums;
mod table;

pub use forms::{FormAnswer, OtherLane};
pub use kernels::{OpAnswer, Speed};
pub use questions::{Absence, LoopCost, TransferOrder};
pub use sums::Study;
pub use table::{FormVectors, Lane, OpVectors, Table};
