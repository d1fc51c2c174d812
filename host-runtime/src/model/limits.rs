//! Sizes that programs, memory and drivers of rounds agree on.

use hexflash_abi::accept::HEAD;

/// Tokens of the widest step that may later be taken back in part (verify).
pub const MAX_VERIFY: u32 = 16;

/// Ids that may end a generation on the device.
pub use hexflash_abi::op::MAX_STOPS;

/// The first of the ids that stand for rows of pictures where a text has no token. No vocabulary is as large.
pub const FIRST_PICTURE_ROW: u32 = 1 << 31;

/// Whether an id stands for a row of a picture.
pub const fn is_picture_row(id: u32) -> bool {
    id >= FIRST_PICTURE_ROW
}

/// Words of a round's report.
pub const ROUND_WORDS: u32 = HEAD as u32 + MAX_VERIFY;

/// Rows of the widest step that several sequences share. More would gain little, as weights are read once in
/// any case, and each row takes memory for its logits: a megabyte with a vocabulary of a quarter of a
/// million.
pub const MAX_SHARED: u32 = 64;

/// Tokens of plain steps whose features may wait for the draft.
pub const MAX_PENDING: u32 = 32;
