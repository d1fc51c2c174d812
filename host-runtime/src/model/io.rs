//! Inputs and outputs: the buffer that host and device share.

use hexflash_abi::accept::SLOTS;
use hexflash_abi::registers::StepRegisters;

use super::limits::{MAX_STOPS, MAX_VERIFY, ROUND_WORDS};

/// The buffer that host and device hand inputs and outputs over in; byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLayout {
    /// Token ids, I32 `{max_tokens}`.
    pub tokens: u64,
    /// Row of the step whose logits are wanted, I32 `{1}`, where a program gives only one row.
    pub row: u64,
    /// Best token per row of logits, I32 `{rows}`.
    pub argmax: u64,
    /// Logits, F32 `{n_vocab, rows}`.
    pub logits: u64,
    /// Residual stream at the taps, F32 `{n_embd, max_tokens}` each.
    pub taps: u64,
    /// Ids that end a generation, I32 `{MAX_STOPS}`, padded with -1.
    pub stops: u64,
    /// How sure a draft is of each token, F32 `{MAX_VERIFY}`: how far its logit is above all others.
    pub margins: u64,
    /// What rounds tell, I32 `{ROUND_WORDS, SLOTS}` (see [`hexflash_abi::accept`]).
    pub rounds: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl IoLayout {
    /// Registers lie at the start.
    pub const REGISTERS: u64 = 0;

    /// A layout for a model of width `n_embd`, and for steps of up to `max_tokens` tokens with `taps` taps.
    pub fn new(n_embd: u32, n_vocab: u32, max_tokens: u32, taps: usize) -> Self {
        let mut at = size_of::<StepRegisters>() as u64;
        let mut place = |bytes: u64| {
            let start = at.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
            at = start + bytes;
            start
        };
        let tokens = place(4 * u64::from(max_tokens));
        let row = place(4);
        let argmax = place(4 * u64::from(MAX_VERIFY));
        let logits = place(4 * u64::from(MAX_VERIFY) * u64::from(n_vocab));
        let taps = place(4 * u64::from(n_embd) * u64::from(max_tokens) * taps as u64);
        let stops = place(4 * u64::from(MAX_STOPS));
        let rounds = place(4 * u64::from(ROUND_WORDS) * SLOTS as u64);
        let margins = place(4 * u64::from(MAX_VERIFY));
        Self { tokens, row, argmax, logits, taps, stops, margins, rounds, bytes: at }
    }
}
