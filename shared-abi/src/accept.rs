//! What ACCEPT tells the host: one row of I32 per round, in turn, so that a round may run while the host
//! still reads the row of the one before.
//!
//! ```text
//! round | drafted | emitted | halt | token x max_tokens
//! ```

use crate::wire::Fingerprint;

/// Words before the tokens.
pub const HEAD: usize = 4;

/// Rows: round `r` writes row `r % REPORTS`. So many rounds may be in flight.
pub const REPORTS: usize = 2;

/// Word of the round's number, as the register `round` had it.
pub const ROUND: usize = 0;
/// Word of the number of drafted tokens that were verified.
pub const DRAFTED: usize = 1;
/// Word of the number of tokens emitted: the drafts kept, and the target's next token.
pub const EMITTED: usize = 2;
/// Word of the [`Halt`](crate::registers::Halt) after the round.
pub const HALT: usize = 3;

/// The words of a row.
pub(crate) const FINGERPRINT: Fingerprint = Fingerprint::new("accept")
    .value("head", HEAD as u64)
    .value("slots", REPORTS as u64)
    .value("round", ROUND as u64)
    .value("drafted", DRAFTED as u64)
    .value("emitted", EMITTED as u64)
    .value("halt", HALT as u64);
