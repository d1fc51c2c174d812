//! What can be wrong with the weights of a model.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::tiles;
use crate::cancel::Cancelled;
use crate::gguf::{GgmlType, GgufError};

/// Reasons that weights cannot be loaded; every message is one line with the cause and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// A tensor is missing from the model.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor's type has no form on the device.
    #[error("tensor {tensor:?} has type {ggml_type}, which is not supported here; {}", Remedy(*.plain))]
    UnsupportedType {
        /// Name of the GGUF tensor.
        tensor: String,
        /// Its type.
        ggml_type: GgmlType,
        /// Whether plain F32 was wanted, rather than tiles.
        plain: bool,
    },
    /// Tensors to be joined differ in type or row length.
    #[error(
        "tensors {first:?} ({}) and {second:?} ({}) cannot be joined; use a conversion that keeps them alike",
        Brief(.kinds.0),
        Brief(.kinds.1)
    )]
    CannotJoin {
        /// First tensor of the weight.
        first: String,
        /// The tensor that differs from it.
        second: String,
        /// Type and row length of both.
        kinds: ((GgmlType, u64), (GgmlType, u64)),
    },
    /// A tensor has too many dimensions for what is asked of it.
    #[error("tensor {tensor:?} has dimensions {ne:?}, but {wanted} needs a matrix; convert the model again")]
    NotAMatrix {
        /// Name of the GGUF tensor.
        tensor: String,
        /// Its dimensions.
        ne: [u64; 4],
        /// What needs a matrix.
        wanted: &'static str,
    },
    /// A dimension or a stride does not fit a tensor descriptor.
    #[error("weight {label:?} of dimensions {ne:?} is too large for a device tensor; use a smaller model")]
    TooLarge {
        /// Label of the weight.
        label: String,
        /// Its dimensions.
        ne: [u64; 4],
    },
    /// Two weights share a label.
    #[error("two weights are labelled {label:?}; this is a bug in the model's graph, report it")]
    DuplicateLabel {
        /// The label.
        label: String,
    },
    /// A weight without values.
    #[error("weight {label:?} has no values; this is a bug in the model's graph, report it")]
    Empty {
        /// The label.
        label: String,
    },
    /// A weight that no computation could use.
    #[error(
        "tensor {tensor:?} has a value that is infinite or not a number ({what} {at}), so the file is damaged; \
         download or convert it again"
    )]
    NotFinite {
        /// Name of the GGUF tensor.
        tensor: String,
        /// What `at` counts: rows, or values.
        what: &'static str,
        /// The first such, from 0.
        at: usize,
    },
    /// No memory for the image.
    #[error("cannot get {bytes} bytes of memory for the weights: {io}; free memory or use a smaller model")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said.
        io: io::Error,
    },
    /// No threads to make the image.
    #[error(
        "cannot start threads that pack the weights ({io}); end other programs, or raise the limit (ulimit -u)"
    )]
    Threads {
        /// What the system said.
        io: io::Error,
    },
    /// Somebody has asked for the end, by [`ImageOptions::cancel`](super::ImageOptions::cancel).
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// A cache is no longer what it was when it was verified.
    #[error("weight cache {} was changed while it was in use ({why}); start again", .path.display())]
    Changed {
        /// The cache file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// What to do about a type that plain F32, or tiles, cannot be made of.
struct Remedy(bool);

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0 {
            return f.write_str("convert the original with llama-quantize to Q4_K_M or Q8_0");
        }
        f.write_str("use a conversion with ")?;
        for (i, t) in tiles::PLAIN.iter().enumerate() {
            let separator = match i {
                0 => "",
                _ if i + 1 == tiles::PLAIN.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}{t}")?;
        }
        Ok(())
    }
}

/// Type and row length in a message.
struct Brief((GgmlType, u64));

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, rows of {}", self.0.0, self.0.1)
    }
}
