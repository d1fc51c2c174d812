//! LLM inference on the Qualcomm Hexagon NPU, host side: models, devices, speculation and the command line.

pub mod chat;
pub mod device;
pub mod engine;
pub mod gguf;
pub mod model;
pub mod record;
pub mod sampler;
pub mod tokenizer;
