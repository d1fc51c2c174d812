//! Inputs and outputs: the buffer that host and device share.

use hexflash_abi::accept::REPORTS;
use hexflash_abi::registers::StepRegisters;

use super::limits::{MAX_SHARED, MAX_STOPS, MAX_VERIFY, ROUND_WORDS};

/// The buffer that host and device hand inputs and outputs over in; byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLayout {
    /// Token ids, I32 `{max_tokens}`.
    pub tokens: u64,
    /// Rows of the step whose logits are wanted, I32 `{rows}`, where a program does not give all of them.
    pub row: u64,
    /// Best token per row of logits, I32 `{rows}`.
    pub argmax: u64,
    /// Logits, F32 `{n_vocab, rows}`.
    pub logits: u64,
    /// Residual stream at the probes, F32 `{n_embd, max_tokens}` each.
    pub probes: u64,
    /// Ids that end a generation, I32 `{MAX_STOPS}`, padded with -1.
    pub stops: u64,
    /// How sure a draft is of each token, F32 `{2 * MAX_VERIFY}`: how far its logit is above all others. The
    /// token axis can begin at any draft.
    pub margins: u64,
    /// What rounds tell, I32 `{ROUND_WORDS, REPORTS}` (see [`hexflash_abi::accept`]).
    pub rounds: u64,
    /// Patches of a tile of a picture, F32 `{patch values, patches}`.
    pub patches: u64,
    /// Sums that are added to the rows of patches, F32 `{width of the encoder, patches}`.
    pub positions: u64,
    /// Columns of patches, and their lines, I32 `{patches}` each, where the encoder reads them.
    pub places: [u64; 2],
    /// Rows of a picture, F32 `{n_embd, rows}`: those that the encoder gives, and those that a step takes in
    /// place of tokens.
    pub picture: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// How wide steps can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Tokens of the longest step.
    pub max_tokens: u32,
    /// Rows of logits of the step that has most.
    pub rows: u32,
    /// Sequences of a step.
    pub n_slots: u32,
}

/// Largest sizes of tiles of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileWidths {
    /// Values of a patch.
    pub patch_values: u32,
    /// Width of the encoder's stream.
    pub n_embd: u32,
    /// Patches of a tile.
    pub patches: u32,
    /// Width of the rows that it becomes, the text model's.
    pub n_out: u32,
    /// Rows of a tile, or of a step that takes rows in place of tokens.
    pub rows: u32,
}

impl Widths {
    /// Those of an engine with prompt pieces of `batch` tokens.
    pub fn new(batch: u32, n_slots: u32) -> Self {
        let rows = if n_slots > 1 { MAX_SHARED } else { MAX_VERIFY };
        Self { max_tokens: batch.max(rows), rows, n_slots }
    }
}

impl IoLayout {
    /// The row table lies at the start: a block of registers per sequence of a step.
    pub const REGISTERS: u64 = 0;

    /// A layout for a model of width `n_embd`, for steps of these widths with `probes` probes.
    pub fn new(n_embd: u32, n_vocab: u32, widths: Widths, probes: usize) -> Self {
        let Widths { max_tokens, rows, n_slots } = widths;
        let mut at = size_of::<StepRegisters>() as u64 * u64::from(n_slots);
        let mut place = |bytes: u64| {
            let start = at.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            at = start + bytes;
            start
        };
        let tokens = place(4 * u64::from(max_tokens));
        let row = place(4 * u64::from(rows));
        let argmax = place(4 * u64::from(rows));
        let logits = place(4 * u64::from(rows) * u64::from(n_vocab));
        let probes = place(4 * u64::from(n_embd) * u64::from(max_tokens) * probes as u64);
        let stops = place(4 * u64::from(MAX_STOPS));
        let rounds = place(4 * u64::from(ROUND_WORDS) * REPORTS as u64);
        let margins = place(4 * 2 * u64::from(MAX_VERIFY));
        Self {
            tokens,
            row,
            argmax,
            logits,
            probes,
            stops,
            margins,
            rounds,
            patches: at,
            positions: at,
            places: [at; 2],
            picture: at,
            bytes: at,
        }
    }

    /// This layout, with room for tiles of pictures.
    #[must_use]
    pub fn with_tiles(self, widths: TileWidths) -> Self {
        let mut at = self.bytes;
        let mut place = |[width, n]: [u32; 2]| {
            let start = at.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            at = start + 4 * u64::from(width) * u64::from(n);
            start
        };
        let TileWidths { patch_values, n_embd, patches, n_out, rows } = widths;
        let places = [(); 2].map(|()| place([1, patches]));
        let [patches, positions] = [patch_values, n_embd].map(|width| place([width, patches]));
        let picture = place([n_out, rows]);
        Self { patches, positions, places, picture, bytes: at, ..self }
    }
}
