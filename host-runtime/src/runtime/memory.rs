//! The memory that a model takes.

use std::fmt;

use crate::model::{Decoder, KeptLayout, MAX_VERIFY, Purpose};

/// Bytes of memory that a loaded model takes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Weights as the device reads them.
    pub weights: u64,
    /// KV caches.
    pub kv: u64,
    /// Recurrent state and convolution rings.
    pub recurrent: u64,
    /// Snapshots of recurrent states.
    pub snapshots: u64,
    /// Activations, shared by all programs.
    pub activations: u64,
    /// What activations would take without reuse.
    pub activations_unshared: u64,
    /// Activations that sessions hand over.
    pub handed_over: u64,
    /// Sessions of the device that layers and states are split over.
    pub sessions: u32,
    /// Inputs and outputs.
    pub io: u64,
    /// Weights of the encoder of pictures, and what it keeps of a tile; 0 without one.
    pub encoder: u64,
    /// Memory that speculation takes in addition; `None` without speculation.
    pub speculation: Option<SpeculationMemory>,
    /// Blocks of programs.
    pub programs: u64,
    /// VTCM of the device.
    pub vtcm: u64,
    /// Positions of the caches of each sequence.
    pub n_ctx: u32,
    /// Sequences that there is room for.
    pub sequences: u32,
}

impl fmt::Display for MemoryPlan {
    /// The parts that take memory, in MiB, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speculation = self.speculation.as_ref().map_or(0, |speculation| {
            let SpeculationMemory { tape, conv_rows, draft_kv, draft_weights, other, .. } = speculation;
            tape + conv_rows + draft_kv + draft_weights + other
        });
        let parts = [
            ("weights", self.weights),
            ("caches", self.kv),
            ("recurrent state", self.recurrent),
            ("snapshots", self.snapshots),
            ("activations", self.activations + self.handed_over),
            ("inputs and outputs", self.io),
            ("encoder", self.encoder),
            ("speculation", speculation),
            ("programs", self.programs),
        ];
        for (name, bytes) in parts.iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, "{name} {:.1} MiB, ", *bytes as f64 / f64::from(1 << 20))?;
        }
        let Self { n_ctx, sequences, sessions, .. } = self;
        write!(f, "for {sequences} sequences of {n_ctx} tokens in {sessions} sessions")
    }
}

/// Bytes of memory that speculation takes in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpeculationMemory {
    /// Factor tapes of the recurrent layers.
    pub tape: u64,
    /// Rows of convolutions that may be taken back, as far as they do not lie in memory that prefill needs
    /// anyway.
    pub conv_rows: u64,
    /// KV cache of the draft.
    pub draft_kv: u64,
    /// Weights of the draft.
    pub draft_weights: u64,
    /// Blocks of tokens, kept features, rows of the target, and tables.
    pub other: u64,
    /// What a copy of every state per token of a block would take instead (llama.cpp's scheme), for
    /// comparison.
    pub state_copies: u64,
}

impl SpeculationMemory {
    pub(super) fn new(target: &Decoder, kept: &KeptLayout, conv_rows: u64, draft_weights: u64) -> Self {
        Self {
            tape: kept.bytes(Purpose::Tape),
            conv_rows,
            draft_kv: kept.bytes(Purpose::DraftKv),
            draft_weights,
            other: kept.bytes(Purpose::Rounds) + kept.bytes(Purpose::DraftRows),
            state_copies: u64::from(kept.n_slots) * u64::from(MAX_VERIFY) * target.state_bytes(),
        }
    }

    /// Bytes that it takes to keep rejected tokens out of the states, to compare with [`Self::state_copies`].
    pub fn rollback(&self) -> u64 {
        self.tape + self.conv_rows
    }
}
