//! HTTP: routes, and the interfaces that they speak.
//!
//! `table` has the routes, `router` makes them answer. Each has a file of its own or shares one with its like
//! (`info`, `tokens`), or a folder where an interface needs more. What they have in common is below them:
//! `dialogue` and `order` make orders of fields, `answer` and `shape` make answers of texts.

mod answer;
pub(crate) mod app;
mod auth;
mod chat;
mod completions;
mod conversation;
mod dialogue;
mod embeddings;
pub(crate) mod error;
pub(crate) mod fields;
mod form;
mod infill;
pub(crate) mod info;
pub(crate) mod json;
mod logprobs;
mod messages;
mod native;
mod offer;
pub(crate) mod ollama;
mod order;
mod origin;
mod page;
mod parts;
mod pictures;
mod rerank;
mod responses;
pub(crate) mod router;
pub(crate) mod shape;
mod slots;
pub(crate) mod table;
mod tokens;
mod unsupported;
