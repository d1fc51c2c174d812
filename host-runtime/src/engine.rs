//! The engine: a model on a device, with room for one or several sequences.
//!
//! Loading records and loads one program per shape; a step writes token ids and registers into shared memory
//! and sends one `Exec`. Nothing is allocated, rebuilt or re-sent per step.
//!
//! A [`Sequence`] is one text: its tokens, and its slot of caches and states on the device. An engine has as
//! many as its [settings](EngineOptions::sequences) say, one by default. Its own methods (`decode`,
//! `prefill`, ...) are those of the first one. [`Engine::step`] runs rows of several sequences at once:
//! weights are read once for all of them, and each sequence gets the bits that it would get alone.
//!
//! With speculation (see [`Rounds`]) the recurrent states may lag behind the context by the tokens that the
//! last verification kept: `n_commit` of the next step folds them. All that a step needs to know is in its
//! registers.

pub use hexflash_abi::program::Numerics;

pub use crate::runtime::copy_error::CopyError;
pub use crate::runtime::error::EngineError;
pub use crate::runtime::files::ModelFiles;
pub use crate::runtime::fit::{ChipFit, ModelFit, Remedy, SessionNeeds, estimate_fit, fit, open_device};
pub use crate::runtime::id::SequenceId;
pub use crate::runtime::kind::program_names;
pub use crate::runtime::listing::{list_program, memory_needs};
pub use crate::runtime::memory::{MemoryPlan, SpeculationMemory};
pub use crate::runtime::options::EngineOptions;
pub use crate::runtime::stats::StepStats;
pub use crate::sequence::block::DraftBlock;
pub use crate::sequence::copy::SequenceCopy;
pub use crate::sequence::engine::Engine;
pub use crate::sequence::pictures::PictureRows;
pub use crate::sequence::report::{RoundLimits, RoundReport};
pub use crate::sequence::rounds::{IdleRounds, Rounds};
pub use crate::sequence::steps::{RowKind, StepRows};
pub use crate::sequence::view::Sequence;
