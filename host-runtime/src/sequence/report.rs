//! What rounds are asked for, and what they say.

use hexflash_abi::registers::Halt;

use super::block::DraftBlock;

/// The limits of a series of rounds.
#[derive(Clone, Copy, Debug)]
pub struct RoundLimits<'a> {
    /// Tokens to draft per round, at least 1. The draft model's block less one is the most that is used.
    pub draft_max: u32,
    /// Tokens to emit in all; at least 1.
    pub tokens: u32,
    /// Ids that end the generation.
    pub stops: &'a [u32],
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundReport {
    /// Drafts that were verified.
    pub drafted: u32,
    /// Tokens emitted: the drafts accepted, and the target's next one.
    pub tokens: DraftBlock,
    /// Whether there can be more rounds.
    pub halt: Halt,
}
