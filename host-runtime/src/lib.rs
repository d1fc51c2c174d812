//! LLM inference on the Qualcomm Hexagon NPU, host side: models, devices, speculation and the command line.

pub mod chat;
pub mod gguf;
pub mod sampler;
pub mod tokenizer;
pub mod weights;
