//! LLM inference on the Qualcomm Hexagon NPU, host side: models, devices, speculation and the command line.

pub mod chat;
pub mod cli;
pub mod device;
pub mod engine;
pub mod generate;
pub mod gguf;
pub mod model;
mod positioned;
pub mod record;
pub mod sampler;
pub mod speculation;
pub mod text;
pub mod tokenizer;
pub mod weights;
