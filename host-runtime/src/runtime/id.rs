//! Names of sequences.

use std::fmt;

/// A sequence of an engine, by number. It is good for every engine that has so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u32);

impl SequenceId {
    /// The sequence that every engine has.
    pub const FIRST: Self = Self(0);

    /// Sequence number `n`, from 0.
    pub const fn new(n: u32) -> Self {
        Self(n)
    }

    /// The first `n` sequences.
    pub(crate) fn first(n: usize) -> impl ExactSizeIterator<Item = Self> {
        // An engine has no more than MAX_SLOTS.
        (0..n as u32).map(Self)
    }

    /// Slot of the sequence on the device.
    pub(crate) const fn slot(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}", self.0)
    }
}
