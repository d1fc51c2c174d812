//! Statistics in llama.cpp's terms.

/// What speculation did in a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpecStats {
    /// Blocks that were verified.
    pub rounds: usize,
    /// Plain steps between them.
    pub steps: usize,
    /// Drafted tokens that were verified.
    pub drafted: usize,
    /// Of these, the ones that the target chose as well.
    pub accepted: usize,
    /// Accepted drafts of each round.
    pub accepted_per_round: Vec<usize>,
    /// How often a draft stood at each position of a block.
    pub drafted_at: Vec<usize>,
    /// How often it was accepted there.
    pub accepted_at: Vec<usize>,
}

impl SpecStats {
    pub(super) fn round(&mut self, drafted: usize, accepted: usize) {
        self.rounds += 1;
        self.drafted += drafted;
        self.accepted += accepted;
        self.accepted_per_round.push(accepted);
        if self.drafted_at.len() < drafted {
            self.drafted_at.resize(drafted, 0);
            self.accepted_at.resize(drafted, 0);
        }
        self.drafted_at.iter_mut().take(drafted).for_each(|n| *n += 1);
        self.accepted_at.iter_mut().take(accepted).for_each(|n| *n += 1);
    }

    /// Tokens per round: the accepted drafts and one of the target's own.
    pub fn mean_accepted_length(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { 1.0 + self.accepted as f64 / self.rounds as f64 }
    }

    /// Share of drafts that were accepted.
    pub fn acceptance(&self) -> f64 {
        if self.drafted == 0 { 0.0 } else { self.accepted as f64 / self.drafted as f64 }
    }

    /// The same at each position of a block.
    pub fn acceptance_at(&self) -> impl Iterator<Item = f64> + '_ {
        let share = |(&drafted, &accepted): (&usize, &usize)| accepted as f64 / drafted.max(1) as f64;
        self.drafted_at.iter().zip(&self.accepted_at).map(share)
    }
}
