//! How likely drafts are to be accepted.
//!
//! A draft that stands where all before it were right is right with probability
//!
//! sigmoid(b + u\[i\] + [`SLOPE`] * min(margin, [`MOST`]))
//!
//! i being its position and the margin how far its logit is above all others. The two constants and the prior of b were
//! fitted to the drafts that ship with hexflash (64,000 drafts on ten texts and four pairs of files; with margins alone
//! the log loss is 0.305 per draft, with probabilities 0.301, without either 0.451). How good drafts are in a text, and
//! at which positions, is learned as it goes, in b and u: one step of Newton's method per round, under a prior.

use crate::model::MAX_VERIFY;

const LENGTHS: usize = MAX_VERIFY as usize;

/// Log odds per unit of margin.
const SLOPE: f64 = 1.4;
/// Margins beyond that say no more.
const MOST: f64 = 3.0;
/// Log odds of a draft without any margin, before anything is known.
const BASE: f64 = -0.25;
/// The margin that stands for drafts of which none is known.
const UNKNOWN: f64 = 0.7;
/// Weight of the prior of b and of each u: a draft of even odds weighs a quarter.
const PRIOR: (f64, f64) = (5.0, 1.0);
/// Weight of what was seen after the next round.
const FADE: f64 = 0.97;
/// Share of the way back to the prior per plain step: texts change while nobody looks.
const FORGET: f64 = 0.01;

/// The odds in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds {
    base: f64,
    place: [f64; LENGTHS],
    weight: (f64, [f64; LENGTHS]),
    /// Chances of the drafts at hand.
    chances: [f64; LENGTHS],
}

impl Default for Odds {
    fn default() -> Self {
        let none = [0.0; LENGTHS];
        Self { base: BASE, place: none, weight: (0.0, none), chances: none }
    }
}

impl Odds {
    /// Chances of `n` drafts, each if all before it are right.
    pub(super) fn of(&mut self, n: usize, margins: Option<&[f32]>) -> &[f64] {
        for (i, chance) in self.chances.iter_mut().enumerate().take(n) {
            let margin = margins.map_or(UNKNOWN, |margins| f64::from(margins[i]).min(MOST));
            *chance = 1.0 / (1.0 + (-(self.base + self.place[i] + SLOPE * margin)).exp());
        }
        &self.chances[..n]
    }

    /// Of `n` drafts at hand the first `accepted` were right, and the next one, if there is one, was not.
    pub(super) fn saw(&mut self, n: usize, accepted: usize) {
        let (all, each) = &mut self.weight;
        *all *= FADE;
        each.iter_mut().for_each(|weight| *weight *= FADE);
        let mut surprise = 0.0;
        let seen = self.chances.iter().zip(&mut self.place).zip(each).take(n.min(accepted + 1));
        for (i, ((chance, place), each)) in seen.enumerate() {
            let (error, weight) = (f64::from(u8::from(i < accepted)) - chance, chance * (1.0 - chance));
            surprise += error;
            *all += weight;
            *each += weight;
            *place += error / (PRIOR.1 + *each);
        }
        self.base += surprise / (PRIOR.0 + *all);
    }

    /// A token passed without drafts.
    pub(super) fn passed(&mut self) {
        self.base += FORGET * (BASE - self.base);
        self.place.iter_mut().for_each(|place| *place -= FORGET * *place);
    }
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
        let chances = odds.of(4, Some(&[1.0; 7]));
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
