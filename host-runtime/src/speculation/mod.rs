//! Speculation: where drafts come from, how many to make, and statistics of what became of them.

mod auto;
mod choice;
mod cost;
mod drafter;
mod guess;
mod hashed_history;
mod hosts;
mod length;
mod ngram;
mod ngram_mod;
mod odds;
mod shared;
mod stats;
mod tuning;

use std::time::Duration;

pub use choice::Choice;
pub(crate) use choice::{By, DraftRoom};
pub use drafter::{DraftSource, Drafter};
pub use guess::Guess;
use hosts::{HostDrafters, Offer};
pub use length::{DraftLength, Lengths};
pub use ngram::NGram;
pub use ngram_mod::{NGramMod, NGramPool};
pub use stats::SpecStats;

/// The state of speculation over one generation or several.
pub struct Speculation {
    /// Whether the engine's draft model drafts.
    model: bool,
    hosts: HostDrafters,
    lengths: Lengths,
    /// The most drafts of a block, where the choice is among several drafters.
    most: u32,
    stats: SpecStats,
}

impl Speculation {
    /// No speculation.
    pub fn off() -> Self {
        Self::new(DraftSource::None, DraftLength::Fixed(0))
    }

    /// Drafts from `source`, `length` tokens at a time. Where there are several drafters, a fixed length is
    /// the most that any of them drafts: how many it is depends on who it is.
    pub fn new(source: DraftSource, length: DraftLength) -> Self {
        let (model, hosts) = source.parties();
        let is_choice = usize::from(model) + hosts.len() > 1;
        let (length, most) = match length {
            DraftLength::Fixed(most) if is_choice && most > 0 => (DraftLength::Auto, most),
            length => (length, u32::MAX),
        };
        Self {
            model,
            hosts: HostDrafters::new(hosts),
            lengths: Lengths::new(length),
            most,
            stats: SpecStats::default(),
        }
    }

    /// Lets others of the same kinds draft from now on, who know nothing of earlier texts. What was learned
    /// of costs is kept: for measurements that run the same text again and again.
    pub fn replace_drafters(&mut self, source: DraftSource) {
        let (model, hosts) = source.parties();
        (self.model, self.hosts) = (model, HostDrafters::new(hosts));
    }

    /// Whether anything is drafted at all.
    pub fn is_on(&self) -> bool {
        self.model || !self.hosts.is_empty()
    }

    /// What speculation did in the last generation.
    pub fn stats(&self) -> &SpecStats {
        &self.stats
    }

    pub(crate) fn is_model(&self) -> bool {
        self.model
    }

    /// Whether the length changes from round to round.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.lengths.is_auto()
    }

    /// Another prompt comes, at the beginning of a `fresh` context or after what was there. `chain` says
    /// whether the engine's draft model [makes drafts one after the
    /// other](crate::model::DraftModel::is_chain). At most `tokens` follow.
    pub(crate) fn begin(&mut self, prompt: &[u32], fresh: bool, chain: bool, tokens: usize) {
        self.stats = SpecStats::default();
        if self.is_on() {
            self.stats.accepted_per_round.reserve(tokens);
        }
        if fresh {
            self.hosts.begin();
            self.lengths.begin_with(chain && self.model);
        }
        self.hosts.read(prompt);
    }

    /// Tokens that the context has already, and that this speculation was not told of: what follows them may
    /// follow them again.
    pub fn remember(&mut self, tokens: &[u32]) {
        self.hosts.read(tokens);
    }

    /// The text goes on with `token`.
    pub(crate) fn push(&mut self, token: u32) {
        self.hosts.read(&[token]);
    }

    /// The text has ended.
    pub(crate) fn end(&mut self) {
        self.hosts.learn();
    }

    /// So many texts are in the next step.
    pub(crate) fn share(&mut self, texts: usize) {
        self.lengths.share(texts);
    }

    /// Takes note of a step of several texts, this one among them, that had so many rows.
    pub(crate) fn shared_step(&mut self, rows: usize, time: Duration) {
        self.lengths.shared_step(rows, time);
    }

    /// What to do next, where there is room for so many drafts.
    pub(crate) fn choose(&mut self, room: DraftRoom) -> Choice {
        let offer = self.offer(&[], room.hosts);
        let model = if self.model { room.model.min(self.most) } else { 0 };
        self.lengths.choose_among(model, offer)
    }

    /// The best that drafters on the host guess after the text and `unseen` tokens that are yet to become
    /// text.
    fn offer(&mut self, unseen: &[u32], most: u32) -> Option<Offer> {
        let lengths = &self.lengths;
        let most = lengths.most_of_hosts(most.min(self.most));
        self.hosts.guess(unseen, most as usize, |chances| lengths.worth_of_host(chances))
    }

    /// The first `n` tokens of what was chosen of the guesses.
    pub(crate) fn guess(&self, n: u32) -> &[u32] {
        self.hosts.best(n)
    }

    /// What to do with the `drafts` of the draft model that are at hand after the token `anchor`: how many of
    /// them to verify, or what else. The last `unseen` tokens before them are yet to become text, and there
    /// would be room for so many drafts of the host.
    pub(crate) fn take(
        &mut self,
        (anchor, unseen): (u32, &[u32]),
        drafts: &[u32],
        margins: Option<&[f32]>,
        room: DraftRoom,
    ) -> Choice {
        let offer = if self.is_adaptive() { self.offer(unseen, room.hosts) } else { None };
        self.lengths.take_or(anchor, drafts, margins, offer)
    }

    /// Drafts that the block after the one at hand should have.
    pub(crate) fn next_block(&self) -> u32 {
        self.lengths.next_block().min(self.most)
    }

    pub(crate) fn stepped(&mut self, token: u32, time: Duration) {
        self.stats.steps += 1;
        self.hosts.show(&[token]);
        self.lengths.stepped(token, time);
    }

    pub(crate) fn drafted(&mut self, time: Duration) {
        self.lengths.drafted(time);
    }

    pub(crate) fn rounded(&mut self, by: By, drafted: u32, tokens: &[u32], time: Duration) {
        self.hosts.show(tokens);
        self.lengths.rounded_by(by, drafted, tokens, time);
    }

    /// Puts a round into the statistics: `accepted` of its drafts became text.
    pub(crate) fn count(&mut self, by: By, drafted: u32, accepted: usize) {
        self.stats.round(drafted as usize, accepted);
        if by == By::Host && self.model {
            self.stats.host_rounds += 1;
        }
    }
}
