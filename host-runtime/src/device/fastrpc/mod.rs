//! FastRPC in words: its codes, what fails at which call, and instructions that a DSP refuses.

pub mod aee;
pub mod error;
pub mod forms;
