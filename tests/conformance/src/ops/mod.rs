//! Every case of the catalogue on a device, through the ABI, against ggml's result.
//!
//! A case runs in one or several *ways*: the op as the case has it, and where hexflash offers more, the same
//! result reached otherwise (rows appended to a cache first, a step that uses part of the token axis, a ring
//! that wraps). All ways must pass.

mod adapt;
mod lab;
mod plan;
mod report;
mod runner;
mod tiles;

pub use runner::{Arguments, run};
