//! Speculation: where drafts come from, how many to make, and statistics of what became of them.

mod auto;
mod cost;
mod hashed_history;
mod length;
mod ngram;
mod odds;
mod shared;
mod stats;
mod tuning;

use std::time::Duration;

pub use length::{Choice, DraftLength, Lengths};
pub use ngram::NGram;
pub use stats::SpecStats;

/// Guesses tokens without a model. It is `Send`, because its generation may be stepped on any thread.
pub trait Drafter: Send {
    /// Appends to `out` up to `most` tokens that may follow `text`, which is the prompt and all tokens
    /// generated so far.
    fn draft(&mut self, text: &[u32], most: usize, out: &mut Vec<u32>);
}

/// Where drafts come from.
pub enum DraftSource {
    /// There are no drafts: plain decoding.
    None,
    /// The engine's draft model.
    Model,
    /// A drafter on the host.
    Host(Box<dyn Drafter>),
}

/// The state of speculation over one generation or several.
pub struct Speculation {
    source: DraftSource,
    lengths: Lengths,
    stats: SpecStats,
    text: Vec<u32>,
}

impl Speculation {
    /// No speculation.
    pub fn off() -> Self {
        Self::new(DraftSource::None, DraftLength::Fixed(0))
    }

    /// Drafts from `source`, `length` tokens at a time.
    pub fn new(source: DraftSource, length: DraftLength) -> Self {
        Self { source, lengths: Lengths::new(length), stats: SpecStats::default(), text: Vec::new() }
    }

    /// Whether anything is drafted at all.
    pub fn is_on(&self) -> bool {
        !matches!(self.source, DraftSource::None)
    }

    /// What speculation did in the last generation.
    pub fn stats(&self) -> &SpecStats {
        &self.stats
    }

    pub(crate) fn is_model(&self) -> bool {
        matches!(self.source, DraftSource::Model)
    }

    /// Whether the length changes from round to round.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.lengths.is_auto()
    }

    /// Another prompt comes, at the beginning of a `fresh` context or after what was there. `chain` says
    /// whether the engine's draft model [makes drafts one after the
    /// other](crate::model::DraftModel::is_chain).
    pub(crate) fn begin(&mut self, prompt: &[u32], fresh: bool, chain: bool) {
        self.stats = SpecStats::default();
        if fresh {
            self.text.clear();
            self.lengths.begin_with(chain && self.is_model());
        }
        if matches!(self.source, DraftSource::Host(_)) {
            self.text.extend_from_slice(prompt);
        }
    }

    /// Tokens that the context has already, and that this speculation was not told of: what follows them may
    /// follow them again.
    pub fn remember(&mut self, tokens: &[u32]) {
        if matches!(self.source, DraftSource::Host(_)) {
            self.text.extend_from_slice(tokens);
        }
    }

    /// What the drafter on the host guesses.
    pub(crate) fn guess(&mut self, most: usize, out: &mut Vec<u32>) {
        if let DraftSource::Host(drafter) = &mut self.source {
            drafter.draft(&self.text, most, out);
        }
    }

    pub(crate) fn push(&mut self, token: u32) {
        if matches!(self.source, DraftSource::Host(_)) {
            self.text.push(token);
        }
    }

    /// So many texts are in the next step.
    pub(crate) fn share(&mut self, texts: usize) {
        self.lengths.share(texts);
    }

    /// Takes note of a step of several texts, this one among them, that had so many rows.
    pub(crate) fn shared_step(&mut self, rows: usize, time: Duration) {
        self.lengths.shared_step(rows, time);
    }

    /// What to do next, with `most` drafts at most.
    pub(crate) fn choose(&self, most: u32) -> Choice {
        if self.is_on() { self.lengths.choose(most) } else { Choice::Plain }
    }

    /// How many of the `drafts` at hand after the token `anchor` to verify.
    pub(crate) fn take(&mut self, anchor: u32, drafts: &[u32], margins: Option<&[f32]>) -> u32 {
        self.lengths.take(anchor, drafts, margins)
    }

    /// Drafts that the block after the one at hand should have.
    pub(crate) fn next_block(&self) -> u32 {
        self.lengths.next_block()
    }

    pub(crate) fn stepped(&mut self, token: u32, time: Duration) {
        self.stats.steps += 1;
        self.lengths.stepped(token, time);
    }

    pub(crate) fn drafted(&mut self, time: Duration) {
        self.lengths.drafted(time);
    }

    pub(crate) fn rounded(&mut self, drafted: u32, tokens: &[u32], time: Duration) {
        self.lengths.rounded(drafted, tokens, time);
    }

    /// Puts a round into the statistics: `accepted` of its drafts became text.
    pub(crate) fn count(&mut self, drafted: u32, accepted: usize) {
        self.stats.round(drafted as usize, accepted);
    }
}
