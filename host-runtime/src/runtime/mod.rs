//! A device with the programs and weights of a model. It knows slots of caches and states, and nothing of the
//! texts in them.
//!
//! [`plan`] says, without a device, what lies where and which programs there are. [`loaded`] does what it
//! says, and runs the programs; [`listing`] and [`fit`] tell users of it. A program is recorded once for each
//! shape of a step: a step writes token ids and registers into shared memory and sends one `Exec`. Nothing is
//! allocated, rebuilt or sent again for it.

pub(crate) mod copy_error;
mod encoder;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod fit;
pub(crate) mod id;
mod identity;
pub(crate) mod kind;
mod layouts;
pub(crate) mod listing;
pub(crate) mod loaded;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod pieces;
mod plan;
mod programs;
mod sharing;
mod stage;
pub(crate) mod stats;
mod weights;
