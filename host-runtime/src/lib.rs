//! LLM inference on the Qualcomm Hexagon NPU, host side: models, devices, speculation.

// No property of a file or of an option may end the process: what can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
// The macros of the standard library panic where the output cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cancel;
pub mod chat;
pub mod device;
pub mod engine;
mod error;
pub mod generate;
pub mod gguf;
pub mod model;
mod positioned;
pub mod record;
pub mod sampler;
pub mod setting;
pub mod speculation;
pub mod text;
pub mod tokenizer;
pub mod weights;

pub use error::{Blame, Error};
