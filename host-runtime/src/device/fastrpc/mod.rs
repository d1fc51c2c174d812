//! FastRPC in words: its codes, its calls and their errors, and instructions that a DSP refuses.

pub mod aee;
pub mod error;
pub mod forms;
