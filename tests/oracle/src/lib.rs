//! The reference: ggml and llama.cpp on the CPU, behind a safe interface.
//!
//! - [`ops`] computes one ggml operation on any tensors, in ggml's reference mode.
//! - [`llama`] runs a GGUF through llama.cpp: logits, greedy ids, perplexity, speed, DFlash.
//! - [`cases`] is the catalogue of conformance cases: shapes, parameters, deterministic inputs, tolerances.
//!
//! # Building
//! The crate compiles llama.cpp (about three minutes on two cores) and needs, on Debian:
//! `apt-get install cmake g++ libclang-dev`. It has a workspace of its own, with `tests/conformance`, so
//! nothing else in the repository does. Run cargo **in this folder**: `.cargo/config.toml` here sets
//! `target-cpu=native`, from which the build of ggml takes `GGML_NATIVE`; without it ggml is built for
//! baseline x86-64 (SSE2) or ARMv8.0 and is several times slower. A binary therefore runs on the machine that
//! built it, and perhaps on no other. The dev profile is optimised and has CMake's Release for llama.cpp:
//! there is no need for `--release`, which would compile it all again. Build with `--workspace` or
//! `-p hexflash-conformance`: this crate alone unifies other features, and llama.cpp is compiled again.
//! OpenMP is off: with ggml's own pool generation is some 8 % faster on two cores, prompts the same.

pub mod cases;
pub mod llama;
pub mod ops;
mod tensor;

pub use tensor::{Error, GgmlType, Tensor, View, contiguous_nb, nmse};
