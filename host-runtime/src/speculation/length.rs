//! How many tokens to draft and to verify: a fixed number, or as many as [pay](super::auto).

use std::time::Duration;

use super::auto::Auto;
use super::choice::{By, Choice};
use super::hosts::Offer;

/// The number of tokens to draft per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLength {
    /// This number of tokens; 0 is plain decoding.
    Fixed(u32),
    /// As many as the measured acceptance and the measured costs say, or none.
    Auto,
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

    /// Says what to do next, with `most` drafts of a draft model at most.
    pub fn choose(&self, most: u32) -> Choice {
        self.choose_among(most, None)
    }

    /// As [`choose`](Self::choose), where drafters on the host have this to offer.
    pub(super) fn choose_among(&self, most: u32, offer: Option<Offer>) -> Choice {
        match (&self.0, offer) {
            (Kind::Auto(auto), offer) => auto.choose(most, offer),
            (Kind::Fixed(_), Some(offer)) => Choice::Guess(offer.n),
            (Kind::Fixed(n), None) if most.min(*n) > 0 => Choice::Draft(most.min(*n)),
            (Kind::Fixed(_), None) => Choice::Plain,
        }
    }

    /// Tokens that drafters on the host should guess, where there is room for `most`.
    pub(super) fn most_of_hosts(&self, most: u32) -> u32 {
        match &self.0 {
            Kind::Fixed(n) => most.min(*n),
            Kind::Auto(_) => most,
        }
    }

    /// How many tokens of a guess to verify, and what that is worth, by the chances that the first 1, 2, ..
    /// of them are all right. `None` if other things are worth more.
    pub(super) fn worth_of_host(&self, chances: &[f64]) -> Option<(u32, f64)> {
        match &self.0 {
            Kind::Fixed(_) => chances.last().map(|_| (chances.len() as u32, chances.iter().sum())),
            Kind::Auto(auto) => auto.worth_of_host(chances),
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
        match self.take_or(anchor, drafts, margins, None) {
            Choice::Draft(n) => n,
            Choice::Plain | Choice::Guess(_) => 0,
        }
    }

    /// As [`take`](Self::take), where drafters on the host have this to offer instead.
    pub(super) fn take_or(
        &mut self,
        anchor: u32,
        drafts: &[u32],
        margins: Option<&[f32]>,
        offer: Option<Offer>,
    ) -> Choice {
        match &mut self.0 {
            Kind::Fixed(_) if drafts.is_empty() => Choice::Plain,
            Kind::Fixed(_) => Choice::Draft(drafts.len() as u32),
            Kind::Auto(auto) => auto.take(anchor, drafts, margins, offer),
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
        self.rounded_by(By::Model, n, tokens, time);
    }

    /// As [`rounded`](Self::rounded), of drafts that a drafter on the host may have made.
    pub(super) fn rounded_by(&mut self, by: By, n: u32, tokens: &[u32], time: Duration) {
        if let Kind::Auto(auto) = &mut self.0 {
            auto.rounded(by, n, tokens, time);
        }
    }
}
