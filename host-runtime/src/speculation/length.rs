//! How many tokens to draft and to verify: a fixed number, or as many as [pay](super::auto).

use std::time::Duration;

use super::auto::Auto;

/// The number of tokens to draft per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLength {
    /// This number of tokens; 0 is plain decoding.
    Fixed(u32),
    /// As many as the measured acceptance and the measured costs say, or none.
    Auto,
}

/// What to do next while there are no drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A plain step.
    Plain,
    /// Draft this many tokens. [`Lengths::take`] then says how many of them to verify.
    Draft(u32),
}

/// Chooses lengths over a session.
#[derive(Clone, Debug)]
pub struct Lengths(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Fixed(u32),
    Auto(Box<Auto>),
}

impl Lengths {
    /// A session in which nothing is known yet.
    pub fn new(length: DraftLength) -> Self {
        Self(match length {
            DraftLength::Fixed(n) => Kind::Fixed(n),
            DraftLength::Auto => Kind::Auto(Box::new(Auto::new())),
        })
    }

    /// Whether lengths change from block to block.
    pub fn is_auto(&self) -> bool {
        matches!(self.0, Kind::Auto(_))
    }

    /// Begins a new text. What was learned of costs is kept.
    pub fn begin(&mut self) {
        self.begin_with(false);
    }

    /// As [`begin`](Self::begin); `chain` says that drafts are made one after the other, so that a block with
    /// more of them costs more.
    pub fn begin_with(&mut self, chain: bool) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.begin(chain);
        }
    }

    /// So many texts are in the next step: all of them wait for the drafts of each.
    pub fn share(&mut self, texts: usize) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.share(texts);
        }
    }

    /// Takes note of a step of several texts that had so many rows. What each text got follows.
    pub fn shared_step(&mut self, rows: usize, time: Duration) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.shared_step(rows, time);
        }
    }

    /// Says what to do next, with `most` drafts at most.
    pub fn choose(&self, most: u32) -> Choice {
        match &self.0 {
            _ if most == 0 => Choice::Plain,
            Kind::Fixed(0) => Choice::Plain,
            Kind::Fixed(n) => Choice::Draft(most.min(*n)),
            Kind::Auto(auto) => auto.choose(most),
        }
    }

    /// The number of drafts that the block after the present one should have, at least 1.
    pub fn next_block(&self) -> u32 {
        match &self.0 {
            Kind::Fixed(n) => (*n).max(1),
            Kind::Auto(auto) => auto.next_block(),
        }
    }

    /// Says how many of `drafts`, which follow the token `anchor`, to verify; 0 means a plain step instead.
    /// `margins` are the distances of each draft's logit from the second-best one, where they are known.
    pub fn take(&mut self, anchor: u32, drafts: &[u32], margins: Option<&[f32]>) -> u32 {
        match &mut self.0 {
            Kind::Fixed(_) => drafts.len() as u32,
            Kind::Auto(auto) => auto.take(anchor, drafts, margins),
        }
    }

    /// Takes note of a plain step, which took `time` and gave `token`.
    pub fn stepped(&mut self, token: u32, time: Duration) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.stepped(token, time);
        }
    }

    /// Takes note of drafts without a round, which took `time`.
    pub fn drafted(&mut self, time: Duration) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.drafted(time);
        }
    }

    /// Takes note of a round of `n` drafts, which took `time`, the next drafts included. It gave `tokens`:
    /// the drafts that were right, and one more. `n` is what [`take`](Self::take) had said.
    pub fn rounded(&mut self, n: u32, tokens: &[u32], time: Duration) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.rounded(n, tokens, time);
        }
    }
}
