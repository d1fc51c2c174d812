//! Texts on a device that has a model: their tokens, tapes, snapshots, copies and rounds.
//!
//! From the ground up: `state` is what the host knows of each sequence; `pending`, `under_way`, `snapshots`
//! and `placed` are what is on its way for some of them, and `pictures` what stands for tokens in some;
//! `engine` has all of it; `view` is one sequence of an engine, whose steps it runs; `rounds`, `steps`,
//! `recovery` and `copies` are what is built of that.

pub(crate) mod block;
mod copies;
pub(crate) mod copy;
mod copy_bytes;
pub(crate) mod engine;
mod pending;
pub(crate) mod pictures;
mod placed;
mod recovery;
pub(crate) mod report;
pub(crate) mod rounds;
mod snapshots;
mod state;
pub(crate) mod steps;
mod under_way;
pub(crate) mod view;
