//! What a program refers to: weights, kept tensors, inputs and outputs, and the buffers that hold them.

use hexflash_abi::BufferId;

use crate::model::io::IoLayout;
use crate::model::kept::KeptLayout;
use crate::model::split::Split;
use crate::model::tensors::WeightMap;
use crate::record::MAX_SESSIONS;

/// Buffers that programs refer to.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Caches and states, by session.
    pub state: [BufferId; MAX_SESSIONS],
    /// Inputs and outputs.
    pub io: BufferId,
    /// What speculation adds.
    pub spec: BufferId,
}

/// All that a program's tensors are looked up in.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Weights of the target, and of the draft if there is one.
    pub weights: &'a WeightMap,
    /// What outlives a step.
    pub kept: &'a KeptLayout,
    /// Inputs and outputs.
    pub io: &'a IoLayout,
    /// The sessions of the target's layers.
    pub split: &'a Split,
    /// Where all that lies.
    pub buffers: Buffers,
}

/// What a step does with the tapes of recurrent blocks, which hold the tokens that the last step may have to
/// take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tapes {
    /// The tokens on the tapes that count enter the states, and the step's own tokens after them.
    Fold,
    /// The tokens on the tapes that count enter the states; the step's own tokens go onto the tapes.
    Defer,
    /// Nothing is on the tapes, and the step's activations may lie where convolutions have theirs.
    Unused,
}

/// Parts of a round, whose times the device tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The target's trunk.
    Verify = 0,
    /// The target's LM head.
    LmHead = 1,
    /// Accepting, and advancing the registers.
    Accept = 2,
    /// Features into the draft's caches.
    Inject = 3,
    /// The draft's layers.
    DraftBlock = 4,
    /// The draft's LM head.
    DraftHead = 5,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; hexflash_abi::program::PARTS] =
        [Self::Verify, Self::LmHead, Self::Accept, Self::Inject, Self::DraftBlock, Self::DraftHead];
}
