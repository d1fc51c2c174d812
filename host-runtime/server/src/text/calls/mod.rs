//! Calls of tools in what a model writes, read while it comes, each by the way of its
//! [`Family`](super::family::Family). What looks like a call and is none stays text.

mod fence;
mod gemma;
mod harmony;
mod json;
mod llama;
mod mistral;
pub(super) mod python;
pub(crate) mod reader;
mod tagged;
mod taken;

#[cfg(test)]
mod tests;
