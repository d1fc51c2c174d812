//! Models that cannot be run, and why.

use std::path::{Path, PathBuf};

use crate::gguf::{Clean, GgmlType, GgufError};

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
    #[error("{}: architecture \"{}\" is not supported; this version runs {known}", clean(path), Clean(arch))]
    Architecture {
        /// The file.
        path: PathBuf,
        /// `general.architecture`.
        arch: String,
        /// The names of those that are.
        known: String,
    },
    /// A drafter where a target is wanted.
    #[error(
        "{}: this is {kind}, which writes no text by itself; give the target model{}",
        clean(path),
        crate::setting::Setting::Model.with()
    )]
    DraftAsTarget {
        /// The file.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// A draft that cannot be used, or not with this target.
    #[error("{}: {error}", clean(path))]
    Draft {
        /// The file.
        path: PathBuf,
        /// Why.
        error: DraftError,
    },
    /// An encoder of pictures that cannot be used, or not with this model.
    #[error("{}: {}", clean(path), Clean(reason))]
    Encoder {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
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
    /// A kind of model within an architecture that is not run.
    #[error("{}: {} is {}, but this version runs no {kind}", clean(path), Clean(key), Clean(found))]
    Kind {
        /// The file.
        path: PathBuf,
        /// The metadata key that shows it.
        key: String,
        /// What it holds.
        found: String,
        /// The kind of model, in the plural.
        kind: &'static str,
    },
    /// A model without a classifier.
    #[error(
        "{}: the model makes no scores: its pooling is not rank; take a reranker, such as Qwen3-Reranker",
        clean(path)
    )]
    NoScores {
        /// The file.
        path: PathBuf,
    },
    /// A tensor whose values the graph needs has a type that those are not stored in.
    #[error(
        "{}: tensor {} has type {found}, expected F32; convert the model again",
        clean(path),
        Clean(name)
    )]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type.
        found: GgmlType,
    },
    /// A divisor that nothing can be divided by.
    #[error(
        "{}: value {index} of tensor {} is {value}, expected a positive number; convert the model again",
        clean(path),
        Clean(name)
    )]
    Divisor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The value's place in it.
        index: usize,
        /// The value.
        value: f32,
    },
    /// The embedding has as many rows as no vocabulary.
    #[error(
        "{}: token_embd.weight has {rows} rows, one for each token, expected 1 to {limit}; convert the \
         model again",
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

/// A draft that cannot be used, or not with this target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// Another architecture.
    #[error(
        "architecture \"{}\" has no drafts that this version runs; give a file of architecture {known}{}",
        Clean(arch),
        crate::setting::Setting::DraftModel.with()
    )]
    Architecture {
        /// `general.architecture`.
        arch: String,
        /// The names of those that are.
        known: String,
    },
    /// A model without a head for drafts.
    #[error(
        "{key} is 0: the file has no MTP head; give one, or a DFlash draft, that was made for the target"
    )]
    NoHead {
        /// The key that counts such heads.
        key: String,
    },
    /// A target of which no layer has the shape of an MTP head.
    #[error("the target has no layer of attention, whose shape an MTP head has")]
    NoAttention,
    /// A later kind of draft.
    #[error("this is a {kind} draft, which is not supported yet; use a DFlash v1, DSpark or EAGLE3 draft")]
    Kind {
        /// Its name.
        kind: &'static str,
    },
    /// An older converter wrote it.
    #[error(
        "{what}: the file comes from an older converter, whose layer ids are not shifted by one; convert \
         the draft again with a current llama.cpp"
    )]
    OldConverter {
        /// What shows it.
        what: String,
    },
    /// No mask token.
    #[error(
        "neither tokenizer.ggml.mask_token_id nor dflash.mask_token_id names the mask token; convert the \
         draft again"
    )]
    NoMask,
    /// A tensor that the graph has no use for.
    #[error(
        "tensor {} is not part of {kind} as hexflash runs it; the draft would guess wrongly without it",
        Clean(name)
    )]
    Unsupported {
        /// The tensor.
        name: String,
        /// The kind of draft.
        kind: &'static str,
    },
    /// A layer of the target is not the one that the draft was made for.
    #[error(
        "the shape of layer {layer} in the draft's metadata is not that in the target's; use the draft that \
         was trained for this target"
    )]
    OtherLayer {
        /// Its number.
        layer: usize,
    },
    /// The target has no caches that a layer of the draft could read.
    #[error(
        "layer {layer} of the draft reads the caches of a layer that sees {sight}, and the target has none; \
         use the draft that was trained for this target"
    )]
    NoCaches {
        /// The draft's layer.
        layer: usize,
        /// Positions that such a layer of the target would see.
        sight: &'static str,
    },
    /// A draft that was to run on another device than its target.
    #[error("this draft reads the caches of its target: run both on one device")]
    Apart,
    /// Draft and target differ.
    #[error(
        "{what} is {draft} in the draft, {target} in the target; use the draft that was trained for this target"
    )]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// In the draft.
        draft: String,
        /// In the target.
        target: String,
    },
}
