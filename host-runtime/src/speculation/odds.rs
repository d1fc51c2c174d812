//! How likely drafts are to be accepted.
//!
//! A draft that stands where all before it were right is right with probability
//!
//! sigmoid(base + per_margin * min(margin, most_margin) + recall * ln((r + doubt) / (w + doubt)))
//!
//! with the constants of [`TUNING`]. The margin is how far its logit is above all others. r and w count how
//! often the same token, drafted after the same token, was right and wrong in this text: what a draft model
//! does not know, it does not know the next time either. How good drafts are in this text is in `base`, which
//! follows what becomes of them by steps of logistic regression. A draft need not be verified for that: the
//! text goes on, and shows what was right.

use super::hashed_history::HashedHistory;
use super::tuning::TUNING;
use crate::model::MAX_VERIFY;

const LENGTHS: usize = MAX_VERIFY as usize;

/// How often a token that was drafted after another was right and wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    right: u32,
    wrong: u32,
}

impl Past {
    fn log_odds(self) -> f64 {
        ((f64::from(self.right) + TUNING.doubt) / (f64::from(self.wrong) + TUNING.doubt)).ln()
    }
}

/// The last block of drafts.
#[derive(Clone, Copy, Debug, Default)]
struct DraftBlock {
    /// The anchor and the drafts after it.
    ids: [u32; LENGTHS],
    /// Log odds of each draft without `base`.
    scores: [f64; LENGTHS],
    /// Drafts that the text has shown to be right.
    right: usize,
    /// Drafts that the text has not shown to be wrong.
    n: usize,
}

/// The odds in a text.
#[derive(Clone, Debug)]
pub(super) struct Odds {
    base: f64,
    past: HashedHistory<Past>,
    last: [u32; 2],
    block: DraftBlock,
}

impl Default for Odds {
    fn default() -> Self {
        Self {
            base: TUNING.base,
            past: HashedHistory::default(),
            last: [u32::MAX; 2],
            block: DraftBlock::default(),
        }
    }
}

impl Odds {
    /// Chances that the first 1, 2, .. of these `drafts` after the token `anchor` are all right. `margins`
    /// says how far each one's logit is above all others, where that is known.
    pub(super) fn of(&mut self, anchor: u32, drafts: &[u32], margins: Option<&[f32]>) -> [f64; LENGTHS] {
        let n = drafts.len().min(LENGTHS - 1);
        // The first token of a text comes from the prompt.
        self.last[1] = anchor;
        let block = &mut self.block;
        *block = DraftBlock { n, ..DraftBlock::default() };
        block.ids[0] = anchor;
        block.ids[1..=n].copy_from_slice(&drafts[..n]);
        let (mut all_right, mut chances) = (1.0, [0.0; LENGTHS]);
        for i in 0..n {
            let margin = margins.map_or(TUNING.unknown_margin, |margins| f64::from(margins[i]));
            let past = self.past.get(&block.ids[i..i + 2]).unwrap_or_default();
            block.scores[i] =
                TUNING.per_margin * margin.min(TUNING.most_margin) + TUNING.recall * past.log_odds();
            all_right *= sigmoid(self.base + block.scores[i]);
            chances[i] = all_right;
        }
        chances
    }

    /// The last two tokens.
    pub(super) fn last_two(&self) -> [u32; 2] {
        self.last
    }

    /// How many drafts of the last block the text has shown to be right.
    pub(super) fn right(&self) -> usize {
        self.block.right
    }

    /// The text goes on with `token`.
    pub(super) fn push(&mut self, token: u32) {
        self.last = [self.last[1], token];
        let block = &mut self.block;
        let i = block.right;
        if i == block.n {
            return;
        }
        let right = block.ids[i + 1] == token;
        let past = self.past.entry(&block.ids[i..i + 2]);
        let error = f64::from(u8::from(right)) - sigmoid(self.base + block.scores[i]);
        self.base += TUNING.base_gain * error;
        if right {
            past.right += 1;
            block.right += 1;
        } else {
            past.wrong += 1;
            block.n = block.right;
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chance of the first of `drafts` after the token 1, without margins.
    fn first(odds: &mut Odds, drafts: &[u32]) -> f64 {
        odds.of(1, drafts, None)[0]
    }

    #[test]
    fn margins_tell_good_drafts_from_bad() {
        let mut odds = Odds::default();
        let [sure, unsure] = [4.0, 0.1].map(|margin| odds.of(1, &[2], Some(&[margin]))[0]);
        assert!(sure > 0.85 && (0.3..0.7).contains(&unsure), "{sure} {unsure}");
        assert!(odds.of(1, &[2], Some(&[f32::INFINITY]))[0] < 1.0);
    }

    /// Drafts that are right up to the second, however sure the draft is.
    #[test]
    fn what_became_of_a_draft_is_remembered() {
        let mut odds = Odds::default();
        let margins = Some(&[1.0; 3][..]);
        for _ in 0..3 {
            odds.of(1, &[2, 3, 4], margins);
            [2, 3, 9].into_iter().for_each(|token| odds.push(token));
            assert_eq!(odds.right(), 2);
        }
        let reach = odds.of(1, &[2, 3, 4], margins);
        assert!(reach[1] > 0.8 && reach[2] < 0.1, "{reach:?}");
        // Elsewhere the same token may be right.
        let elsewhere = odds.of(7, &[4], margins)[0];
        assert!(elsewhere > 0.3, "{elsewhere}");
        // Once it was right more often than wrong, it is likely.
        for _ in 0..5 {
            odds.of(3, &[4], margins);
            odds.push(4);
        }
        assert!(odds.of(3, &[4], margins)[0] > 0.7);
    }

    /// What comes after the first wrong draft says nothing of later ones, nor does text after the block.
    #[test]
    fn a_block_ends_with_its_first_wrong_draft() {
        let mut odds = Odds::default();
        odds.of(1, &[2, 3], None);
        [9, 3, 3].into_iter().for_each(|token| odds.push(token));
        assert_eq!(odds.right(), 0);
        odds.of(1, &[2], None);
        [2, 2, 2].into_iter().for_each(|token| odds.push(token));
        assert_eq!(odds.right(), 1);
    }

    /// Drafts that were never seen before are judged by what became of the others in this text.
    #[test]
    fn bad_texts_and_good_texts_are_learned() {
        let mut odds = Odds::default();
        let new = first(&mut odds, &[1000]);
        for draft in 2..12 {
            odds.of(1, &[draft], None);
            odds.push(0);
        }
        let bad = first(&mut odds, &[1001]);
        assert!(bad < 0.8 * new, "{bad} of {new}");
        for draft in 20..40 {
            odds.of(1, &[draft], None);
            odds.push(draft);
        }
        let good = first(&mut odds, &[1002]);
        assert!(good > 1.2 * new, "{good} of {new}");
    }
}
