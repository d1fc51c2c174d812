//! What can be done next, and by whom.

/// What to do next while there are no drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A plain step.
    Plain,
    /// Draft this many tokens with the draft model. [`Lengths::take`](super::length::Lengths::take) then says
    /// how many of them to verify; where that was asked, it is this number.
    Draft(u32),
    /// Verify so many tokens that a drafter on the host has guessed.
    Guess(u32),
}

/// Who made the drafts of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The engine's draft model.
    Model,
    /// A drafter on the host.
    Host,
}

/// The most drafts that can be of use now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DraftRoom {
    /// From the engine's draft model.
    pub model: u32,
    /// From drafters on the host.
    pub hosts: u32,
}
