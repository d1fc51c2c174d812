//! How likely drafts are to be accepted.
//!
//! A draft that stands where all before it were right is right with probability
//!
//! sigmoid(b + u\[i\] + [`SLOPE`] * min(margin, [`MOST`]))
//!
//! i being its position and the margin how far its logit is above all others. How good drafts are in a text is in b, which
//! has one of two values, for texts of two [kinds](KINDS): which of them a text is of is told by Bayes' rule from what is
//! accepted, and may change. Positions at which drafts of a text tend to be wrong are learned in u: one step of
//! Newton's method per round, under a prior.
//!
//! The constants here and in [`length`](super::length) are those that lose least against the best fixed length of each
//! text: ten texts of two lengths with the drafts of four pairs of the models that ship with hexflash, and drafts that are
//! right to a fixed length, at the costs of seven machines.

use crate::model::MAX_VERIFY;

const LENGTHS: usize = MAX_VERIFY as usize;

/// Log odds per unit of margin.
const SLOPE: f64 = 0.88;
/// Margins beyond that say no more.
const MOST: f64 = 3.2;
/// Kinds of texts: log odds of a draft without any margin, and the share of texts that are like that.
const KINDS: [(f64, f64); 2] = [(-0.65, 0.66), (0.6, 0.34)];
/// Chance that the next token begins a stretch of another kind.
const CHANGE: f64 = 0.002;
/// The margin that stands for drafts of which none is known.
const UNKNOWN: f64 = 0.7;
/// The margin of a draft that is sure, for blocks that are yet to come.
const HOPE: f64 = 2.0;
/// Weight of the prior of each u: a draft of even odds weighs a quarter.
const PRIOR: f64 = 0.55;
/// Weight of what was seen of a position after the next round.
const FADE: f64 = 0.88;
/// Share of the way back to the prior per plain step: positions change while nobody looks.
const FORGET: f64 = 0.04;

/// The odds in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds {
    /// The chance that the text is of that kind.
    kinds: [f64; KINDS.len()],
    place: [f64; LENGTHS],
    weight: [f64; LENGTHS],
    /// Of the drafts at hand: log odds without b, and the chances that all up to that one are right.
    scores: [f64; LENGTHS],
    reach: [f64; LENGTHS],
}

impl Default for Odds {
    fn default() -> Self {
        let none = [0.0; LENGTHS];
        Self { kinds: KINDS.map(|(_, share)| share), place: none, weight: none, scores: none, reach: none }
    }
}

impl Odds {
    /// Chances that the first 1, 2, .. `n` drafts are all right.
    pub(super) fn of(&mut self, n: usize, margins: Option<&[f32]>) -> &[f64] {
        for i in 0..n {
            let margin = margins.map_or(UNKNOWN, |margins| f64::from(margins[i]).min(MOST));
            self.scores[i] = self.place[i] + SLOPE * margin;
        }
        self.reach = self.chances(self.scores);
        &self.reach[..n]
    }

    /// The same of a block that is yet to come, if the draft is sure of it.
    pub(super) fn of_sure(&self) -> [f64; LENGTHS] {
        self.chances(self.place.map(|place| place + SLOPE * HOPE))
    }

    fn chances(&self, scores: [f64; LENGTHS]) -> [f64; LENGTHS] {
        let mut paths = self.kinds;
        scores.map(|score| {
            for (path, (base, _)) in paths.iter_mut().zip(KINDS) {
                *path *= sigmoid(base + score);
            }
            paths.iter().sum()
        })
    }

    /// Of `n` drafts at hand the first `accepted` were right, and the next one, if there is one, was not.
    pub(super) fn saw(&mut self, n: usize, accepted: usize) {
        self.weight.iter_mut().for_each(|weight| *weight *= FADE);
        let mut before = 1.0;
        for i in 0..n.min(accepted + 1) {
            let (right, chance) = (i < accepted, self.reach[i] / before);
            before = self.reach[i];
            self.weight[i] += chance * (1.0 - chance);
            self.place[i] += (f64::from(u8::from(right)) - chance) / (PRIOR + self.weight[i]);
            for (kind, (base, _)) in self.kinds.iter_mut().zip(KINDS) {
                let chance = sigmoid(base + self.scores[i]);
                *kind *= if right { chance } else { 1.0 - chance };
            }
            let sum: f64 = self.kinds.iter().sum();
            self.kinds.iter_mut().for_each(|kind| *kind /= sum);
        }
        self.pass(1 + accepted as i32);
    }

    /// A token passed without drafts.
    pub(super) fn passed(&mut self) {
        self.pass(1);
        self.place.iter_mut().for_each(|place| *place -= FORGET * *place);
    }

    fn pass(&mut self, tokens: i32) {
        let same = (1.0 - CHANGE).powi(tokens);
        for (kind, (_, share)) in self.kinds.iter_mut().zip(KINDS) {
            *kind = same * *kind + (1.0 - same) * share;
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_tell_good_drafts_from_bad() {
        let mut odds = Odds::default();
        let [sure, unsure] = [4.0, 0.1].map(|margin| odds.of(1, Some(&[margin]))[0]);
        assert!(sure > 0.9 && (0.4..0.7).contains(&unsure), "{sure} {unsure}");
        assert!(odds.of(1, Some(&[f32::INFINITY]))[0] < 1.0);
    }

    /// Drafts that are right up to the third, whatever they seem.
    #[test]
    fn places_are_learned() {
        let mut odds = Odds::default();
        for _ in 0..30 {
            odds.of(7, Some(&[1.0; 7]));
            odds.saw(7, 3);
        }
        let reach = odds.of(4, Some(&[1.0; 7]));
        let chances = [reach[0], reach[1] / reach[0], reach[2] / reach[1], reach[3] / reach[2]];
        assert!(chances[..3].iter().all(|&chance| chance > 0.8) && chances[3] < 0.3, "{chances:?}");
    }

    #[test]
    fn bad_texts_are_learned_and_forgotten() {
        let mut odds = Odds::default();
        let first = odds.of(1, None)[0];
        for _ in 0..40 {
            odds.of(3, None);
            odds.saw(3, 0);
        }
        assert!(odds.of(1, None)[0] < 0.15);
        (0..300).for_each(|_| odds.passed());
        let later = odds.of(1, None)[0];
        assert!(later > 0.2 && later < first, "{later}");
    }
}
