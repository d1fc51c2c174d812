//! LLM inference on the Qualcomm Hexagon NPU, host side: models, devices, speculation and the command line.

// The macros of the standard library panic where the output cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cancel;
pub mod chat;
pub mod cli;
pub mod device;
pub mod engine;
pub mod generate;
pub mod gguf;
pub mod model;
pub mod record;
pub mod sampler;
pub mod speculation;
pub mod text;
pub mod tokenizer;
pub mod weights;
