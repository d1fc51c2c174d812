//! Models that cannot be run, and why.

use std::path::PathBuf;

use crate::gguf::GgufError;

/// A model that hexflash cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file itself is at fault, or lacks a key.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Another architecture.
    #[error("{}: architecture \"{arch}\" is not supported; this version runs qwen35", path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// `general.architecture`.
        arch: String,
    },
    /// A drafter where a target is wanted.
    #[error(
        "{}: this is a DFlash draft model, which writes no text by itself; give the target model with -m",
        path.display()
    )]
    DraftAsTarget {
        /// The file.
        path: PathBuf,
    },
    /// A draft that cannot be used, or not with this target.
    #[error("{}: {error}", path.display())]
    Draft {
        /// The file.
        path: PathBuf,
        /// Why.
        error: super::DraftError,
    },
    /// A hyper-parameter is out of range.
    #[error("{}: {key} is {found}, expected {expected}; convert the model again", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The metadata key.
        key: String,
        /// What it holds.
        found: String,
        /// What it may hold.
        expected: String,
    },
    /// A tensor has another shape than the hyper-parameters say.
    #[error("{}: tensor {name} has shape {found:?}, expected {expected:?}; convert the model again", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape, `ne0` first.
        found: Vec<u64>,
        /// The shape that the hyper-parameters imply.
        expected: Vec<u64>,
    },
}
