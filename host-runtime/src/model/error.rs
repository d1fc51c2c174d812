//! Models that cannot be run, and why.

use std::path::{Path, PathBuf};

use crate::gguf::{Clean, GgufError};

/// A path, on one line.
fn clean(path: &Path) -> String {
    Clean(&path.to_string_lossy()).to_string()
}

/// A model that hexflash cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file itself is at fault, or lacks a key.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Another architecture.
    #[error("{}: architecture \"{}\" is not supported; this version runs qwen35", clean(path), Clean(arch))]
    Architecture {
        /// The file.
        path: PathBuf,
        /// `general.architecture`.
        arch: String,
    },
    /// A drafter where a target is wanted.
    #[error(
        "{}: this is a DFlash draft model, which writes no text by itself; give the target model{}",
        clean(path),
        crate::setting::Setting::Model.with()
    )]
    DraftAsTarget {
        /// The file.
        path: PathBuf,
    },
    /// A draft that cannot be used, or not with this target.
    #[error("{}: {error}", clean(path))]
    Draft {
        /// The file.
        path: PathBuf,
        /// Why.
        error: super::DraftError,
    },
    /// A hyper-parameter is out of range.
    #[error(
        "{}: {} is {}, expected {expected}; convert the model again",
        clean(path),
        Clean(key),
        Clean(found)
    )]
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
    /// The embedding has as many rows as no vocabulary.
    #[error(
        "{}: token_embd.weight has {rows} rows, one for each token, expected 1 to {limit}; convert the model again",
        clean(path)
    )]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// Its rows.
        rows: u64,
        /// Most rows.
        limit: u32,
    },
    /// A layer behind those that the hyper-parameters count.
    #[error(
        "{}: tensor {} belongs to a layer behind the {layers} of {}; convert the model again",
        clean(path),
        Clean(name),
        Clean(key)
    )]
    SuperfluousLayer {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The metadata key that counts layers.
        key: String,
        /// Its value.
        layers: usize,
    },
    /// A tensor that the graph has no use for.
    #[error(
        "{}: tensor {} is not part of the model as hexflash runs it, and the text would be wrong without it; \
         convert the model again with a current llama.cpp",
        clean(path),
        Clean(name)
    )]
    Superfluous {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor has another shape than the hyper-parameters say.
    #[error(
        "{}: tensor {} has shape {found:?}, expected {expected:?}; convert the model again",
        clean(path),
        Clean(name)
    )]
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
