//! Statistics in llama.cpp's terms.

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// What speculation did in a generation. Its JSON also has the shares and the mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecStats {
    /// Blocks that were verified.
    pub rounds: usize,
    /// Plain steps between verified blocks.
    pub steps: usize,
    /// Rounds whose drafts came from a drafter on the host, where there is a draft model as well.
    pub host_rounds: usize,
    /// Drafted tokens that were verified.
    pub drafted: usize,
    /// Verified drafts that the target chose, too.
    pub accepted: usize,
    /// Accepted drafts of each round.
    pub accepted_per_round: Vec<usize>,
    /// How often a draft stood at each position of a block.
    pub drafted_at: Vec<usize>,
    /// How often a draft at each position of a block was accepted.
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

    /// Mean number of tokens per round: the accepted drafts and one token of the target's own.
    pub fn mean_accepted_length(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { 1.0 + self.accepted as f64 / self.rounds as f64 }
    }

    /// Share of drafts that were accepted.
    pub fn acceptance(&self) -> f64 {
        if self.drafted == 0 { 0.0 } else { self.accepted as f64 / self.drafted as f64 }
    }

    /// Share of drafts that were accepted, at each position of a block.
    pub fn acceptance_at(&self) -> impl Iterator<Item = f64> + '_ {
        let share = |(&drafted, &accepted): (&usize, &usize)| accepted as f64 / drafted.max(1) as f64;
        self.drafted_at.iter().zip(&self.accepted_at).map(share)
    }
}

impl Serialize for SpecStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("SpecStats", 11)?;
        out.serialize_field("rounds", &self.rounds)?;
        out.serialize_field("steps", &self.steps)?;
        out.serialize_field("host_rounds", &self.host_rounds)?;
        out.serialize_field("drafted", &self.drafted)?;
        out.serialize_field("accepted", &self.accepted)?;
        out.serialize_field("acceptance", &self.acceptance())?;
        out.serialize_field("mean_accepted_length", &self.mean_accepted_length())?;
        out.serialize_field("acceptance_at", &self.acceptance_at().collect::<Vec<_>>())?;
        out.serialize_field("drafted_at", &self.drafted_at)?;
        out.serialize_field("accepted_at", &self.accepted_at)?;
        out.serialize_field("accepted_per_round", &self.accepted_per_round)?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_means() {
        let mut stats = SpecStats::default();
        assert_eq!((stats.mean_accepted_length(), stats.acceptance()), (0.0, 0.0));
        stats.round(3, 3);
        stats.round(3, 1);
        stats.round(2, 0);
        assert_eq!(stats.mean_accepted_length(), 1.0 + 4.0 / 3.0);
        assert_eq!(stats.acceptance(), 0.5);
        assert_eq!(stats.drafted_at, [3, 3, 2]);
        assert_eq!(stats.accepted_at, [2, 1, 1]);
        let json = serde_json::to_value(&stats).unwrap();
        assert_eq!(json["accepted_per_round"], serde_json::json!([3, 1, 0]));
        assert_eq!(json["acceptance_at"][2], 0.5);
        assert_eq!(json["acceptance"], 0.5);
        assert!(json["mean_accepted_length"].as_f64().unwrap() > 2.3);
    }
}
