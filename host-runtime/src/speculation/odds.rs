//! How likely drafts are to be accepted.
//!
//! A draft that stands where all before it were right is right with probability
//!
//! sigmoid(b + [`SLOPE`] * min(margin, [`MOST`]) + [`RECALL`] * ln((r + [`DOUBT`]) / (w + [`DOUBT`])) + [`REPEATED`] * s)
//!
//! The margin is how far its logit is above all others; r and w say how often the same token, drafted after the same
//! token, was right and wrong of late in this text: what a draft model does not know, it does not know the next time
//! either. s is 1 for a draft that says what came the last time after the same [`CONTEXT`] tokens, and -1 for one that says
//! something else. How good drafts are in general is in b, which has one of two values, for texts of two [kinds](KINDS): which of
//! them a text is of is told by Bayes' rule from what becomes of drafts, and may change.
//!
//! A draft need not be verified for that: the text goes on, and shows what was right of the last block.
//!
//! The constants here and in [`auto`](super::auto) are those that lose least against the best fixed length of each text:
//! 33 texts of two lengths with the drafts of four pairs of the models that ship with hexflash, at the costs of seven
//! machines and by clocks with some noise. The ten texts of `tests/data/expected` count most.

use super::recent::Recent;
use crate::model::MAX_VERIFY;

const LENGTHS: usize = MAX_VERIFY as usize;

/// Log odds per unit of margin.
const SLOPE: f64 = 1.21;
/// Margins beyond that say no more.
const MOST: f64 = 2.76;
/// The margin that stands for drafts of which none is known.
const UNKNOWN: f64 = 0.7;
/// Log odds per log odds of the past, and what is added to its counts: the past of a draft that is new says nothing.
const RECALL: f64 = 1.6;
const DOUBT: f64 = 0.414;
/// Weight of what became of a draft after the next time.
const FADE: f32 = 0.778;
/// Log odds of a draft that says again what came after these last tokens before, and how many they are.
const REPEATED: f64 = 1.0;
const CONTEXT: usize = 4;
/// Kinds of texts: log odds of a draft without margin and past, and the share of texts that are like that.
const KINDS: [(f64, f64); 2] = [(-1.33, 0.62), (0.721, 0.38)];
/// Chance that the next token begins a stretch of another kind.
const CHANGE: f64 = 0.0029;

/// What became of a token that was drafted after another.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    right: f32,
    wrong: f32,
}

impl Past {
    fn log_odds(self) -> f64 {
        ((f64::from(self.right) + DOUBT) / (f64::from(self.wrong) + DOUBT)).ln()
    }

    fn push(&mut self, right: bool) {
        let [now_right, now_wrong] = [right, !right].map(|is| f32::from(u8::from(is)));
        (self.right, self.wrong) = (FADE * self.right + now_right, FADE * self.wrong + now_wrong);
    }
}

/// The last block of drafts.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The anchor and the drafts after it.
    ids: [u32; LENGTHS],
    /// Log odds of each draft without b.
    scores: [f64; LENGTHS],
    /// Drafts that the text has shown to be right, and those that it has not shown to be wrong.
    right: usize,
    n: usize,
}

/// The odds in a text.
#[derive(Clone, Debug)]
pub(super) struct Odds {
    /// The chance that the text is of that kind.
    kinds: [f64; KINDS.len()],
    past: Recent<Past>,
    /// What came after [`CONTEXT`] tokens, the last time; and the last tokens.
    next: Recent<u32>,
    last: [u32; CONTEXT],
    block: Block,
}

impl Default for Odds {
    fn default() -> Self {
        Self {
            kinds: KINDS.map(|(_, share)| share),
            past: Recent::default(),
            next: Recent::default(),
            last: [u32::MAX; CONTEXT],
            block: Block::default(),
        }
    }
}

impl Odds {
    /// Chances that the first 1, 2, .. of these `drafts` after the token `anchor` are all right. `margins` says how far each
    /// one's logit is above all others, where that is known.
    pub(super) fn of(&mut self, anchor: u32, drafts: &[u32], margins: Option<&[f32]>) -> [f64; LENGTHS] {
        let n = drafts.len().min(LENGTHS - 1);
        // The first token of a text comes from the prompt.
        self.last[CONTEXT - 1] = anchor;
        let block = &mut self.block;
        *block = Block { n, ..Block::default() };
        block.ids[0] = anchor;
        block.ids[1..=n].copy_from_slice(&drafts[..n]);
        let (mut context, mut paths, mut reach) = (self.last, self.kinds, [0.0; LENGTHS]);
        for i in 0..n {
            let (after, draft) = (block.ids[i], block.ids[i + 1]);
            let margin = margins.map_or(UNKNOWN, |margins| f64::from(margins[i]).min(MOST));
            let past = self.past.get(&[after, draft]).unwrap_or_default();
            let repeated = match self.next.get(&context) {
                None => 0.0,
                Some(next) => REPEATED * if next == draft { 1.0 } else { -1.0 },
            };
            block.scores[i] = SLOPE * margin + RECALL * past.log_odds() + repeated;
            context = then(context, draft);
            for (path, (base, _)) in paths.iter_mut().zip(KINDS) {
                *path *= sigmoid(base + block.scores[i]);
            }
            reach[i] = paths.iter().sum();
        }
        reach
    }

    /// The last two tokens.
    pub(super) fn last_two(&self) -> [u32; 2] {
        [self.last[CONTEXT - 2], self.last[CONTEXT - 1]]
    }

    /// How many drafts of the last block the text has shown to be right.
    pub(super) fn right(&self) -> usize {
        self.block.right
    }

    /// The text goes on with `token`.
    pub(super) fn push(&mut self, token: u32) {
        for (kind, (_, share)) in self.kinds.iter_mut().zip(KINDS) {
            *kind += CHANGE * (share - *kind);
        }
        *self.next.entry(&self.last) = token;
        self.last = then(self.last, token);
        let block = &mut self.block;
        if block.right == block.n {
            return;
        }
        let (after, draft, score) =
            (block.ids[block.right], block.ids[block.right + 1], block.scores[block.right]);
        let right = draft == token;
        if right {
            block.right += 1;
        } else {
            block.n = block.right;
        }
        self.past.entry(&[after, draft]).push(right);
        for (kind, (base, _)) in self.kinds.iter_mut().zip(KINDS) {
            let chance = sigmoid(base + score);
            *kind *= if right { chance } else { 1.0 - chance };
        }
        let sum: f64 = self.kinds.iter().sum();
        self.kinds.iter_mut().for_each(|kind| *kind /= sum);
    }
}

/// The last tokens once `token` has come.
fn then([_, a, b, c]: [u32; CONTEXT], token: u32) -> [u32; CONTEXT] {
    [a, b, c, token]
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
        // Three times later it is what it has been of late.
        for _ in 0..3 {
            odds.of(3, &[4], margins);
            odds.push(4);
        }
        assert!(odds.of(3, &[4], margins)[0] > 0.7);
    }

    /// A text that says again what it has said.
    #[test]
    fn repetitions_are_expected() {
        let mut odds = Odds::default();
        [5, 6, 7, 8, 9, 2, 5, 6, 7, 8].into_iter().for_each(|token| odds.push(token));
        let [again, other] = [9, 10].map(|draft| odds.of(8, &[draft], None)[0]);
        let new = odds.of(11, &[9], None)[0];
        assert!(other < 0.8 * new && new < 0.9 * again, "{other} {new} {again}");
        // So on through the block.
        let reach = odds.of(8, &[9, 2, 5, 7], None);
        assert!(reach[2] > 0.5 * again && reach[3] < 0.5 * reach[2], "{reach:?}");
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

    #[test]
    fn bad_texts_are_learned_and_forgotten() {
        let mut odds = Odds::default();
        let new = first(&mut odds, &[1000]);
        for draft in 2..12 {
            odds.of(1, &[draft], None);
            odds.push(0);
        }
        let bad = first(&mut odds, &[1001]);
        assert!(bad < 0.8 * new, "{bad} of {new}");
        (0..2000).for_each(|_| odds.push(0));
        let later = first(&mut odds, &[1002]);
        assert!((later - new).abs() < 0.02, "{later} of {new}");
    }
}
