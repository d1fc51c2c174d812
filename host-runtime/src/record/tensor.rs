//! What is known of a tensor while its program is recorded.

use hexflash_abi::program::TensorDesc;
use hexflash_abi::{BufferId, DType};

/// A tensor of the program under construction: shape and strides as recorded, memory decided later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor(pub(super) usize);

/// Where a tensor's bytes come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Home {
    /// A persistent buffer.
    Buffer(BufferId),
    /// Activation number, by order of creation; offsets are relative to it.
    Activation(usize),
    /// The activations' buffer, behind the activations.
    Kept,
}

/// What the recorder knows of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) home: Home,
    pub(super) desc: TensorDesc,
    pub(super) dtype: DType,
}
