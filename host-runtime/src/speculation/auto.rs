//! `auto`: as many drafts as pay.
//!
//! It decides anew for every block, from three things: what steps, drafts and rounds [cost](super::cost), which
//! holds for a session; the [odds](super::odds) of each draft, from how sure the draft model is of it and from what became
//! of such drafts in this text; and the *rate*, tokens per time of late, which is what time is worth. With time in
//! plain steps, n drafts of which the first i are all right with the chance c_i give
//!
//! 1 + c_1 + c_2 + .. + c_n tokens for the time of a round, `value = tokens - rate * time`
//!
//! and the length of the largest value wins. A plain step stands among them: one token, after which drafts must be paid
//! for again, if they are worth their price at all. After that there are plain steps, and looks, which are drafts alone,
//! without a round: where the text is as it was when drafts were right before; where it is not known, when a few times
//! the price of a look has passed, after longer if nothing was gained, and so on.

use std::time::Duration;

use super::cost::Costs;
use super::length::Choice;
use super::odds::Odds;
use super::recent::Recent;
use crate::model::MAX_VERIFY;

/// Plain steps before a look, for each plain step that drafts cost: after drafts that paid, times what after others, and
/// at most;
const PAUSE: (f64, f64, f64) = (3.54, 3.07, 80.0);
/// and times that, but no more either, where drafts were not worth it the last time. There they are if a round with those
/// that were right gained so much, for each plain step that drafts cost.
const DOUBTFUL: f64 = 5.96;
const WORTH: f64 = 0.649;
/// What a plain step between blocks loses, for each plain step that drafts cost (drafts are paid for again, and caches
/// filled again),
const LOSS: f64 = 1.05;
/// where drafts will go on: the rates of late, in tokens per plain step, at which they will not, and at which they will.
const GOING: (f64, f64) = (0.9, 1.22);
/// The next block has as many drafts as the longest one verified of late: weight of that after the next block, and drafts
/// more than that.
const LONGEST: (f64, f64) = (0.936, 1.14);

/// Tokens per time of late, in plain steps.
#[derive(Clone, Copy, Debug)]
struct Rate {
    tokens: f64,
    time: f64,
}

impl Rate {
    /// Weight of a token after the next one.
    const FADE: f64 = 0.91;
    /// The first rounds of a text get the benefit of the doubt: rate and weight in plain steps.
    const FIRST: (f64, f64) = (2.2, 1.97);

    fn new() -> Self {
        Self { tokens: Self::FIRST.0 * Self::FIRST.1, time: Self::FIRST.1 }
    }

    fn push(&mut self, tokens: usize, time: f64) {
        let old = Self::FADE.powi(tokens as i32);
        (self.tokens, self.time) = (old * self.tokens + tokens as f64, old * self.time + time);
    }

    fn get(&self) -> f64 {
        self.tokens / self.time
    }
}

/// What is known of a session's costs, and of its present text.
#[derive(Clone, Debug)]
pub(super) struct Auto {
    costs: Costs,
    odds: Odds,
    rate: Rate,
    /// The last thing was a round, so that drafts are at hand or come next.
    at_hand: bool,
    /// What drafts have gained since the last look, in plain steps.
    gain: f64,
    /// How many drafts after two tokens were right, the last time.
    rights: Recent<usize>,
    /// The two tokens before the last block.
    before: [u32; 2],
    /// Plain steps since the last block, and before the next look for each step that drafts cost.
    steps: u32,
    pause: f64,
    /// The most drafts that were verified of late.
    longest: f64,
}

impl Auto {
    /// A text in a session with these costs. What drafts were worth in another text says little.
    fn with(costs: Costs) -> Self {
        Self {
            costs,
            odds: Odds::default(),
            rate: Rate::new(),
            at_hand: false,
            gain: 0.0,
            rights: Recent::default(),
            before: [0; 2],
            steps: u32::MAX,
            pause: PAUSE.0,
            longest: f64::from(MAX_VERIFY),
        }
    }

    /// A session in which nothing is known yet.
    pub(super) fn new() -> Self {
        Self::with(Costs::default())
    }

    pub(super) fn begin(&mut self) {
        *self = Self::with(self.costs.clone());
    }

    pub(super) fn choose(&self, most: u32) -> Choice {
        let draft = self.costs.know_steps() && (self.at_hand || self.is_time_to_look());
        if draft { Choice::Draft(self.next_block().min(most)) } else { Choice::Plain }
    }

    fn is_time_to_look(&self) -> bool {
        let draft = self.costs.draft();
        let pause = match self.rights.get(&self.odds.last_two()) {
            Some(right) if self.gain_of(right) > WORTH * draft => 0.0,
            Some(_) => (DOUBTFUL * self.pause).min(PAUSE.2),
            None => self.pause,
        };
        f64::from(self.steps) >= pause * draft
    }

    /// Tokens that a round with as many drafts as are right gives beyond plain steps.
    fn gain_of(&self, right: usize) -> f64 {
        if right == 0 { 0.0 } else { 1.0 + right as f64 - self.costs.round(right) }
    }

    pub(super) fn next_block(&self) -> u32 {
        ((self.longest + LONGEST.1) as u32).clamp(1, MAX_VERIFY - 1)
    }

    pub(super) fn take(&mut self, anchor: u32, drafts: &[u32], margins: Option<&[f32]>) -> u32 {
        if drafts.is_empty() {
            return 0;
        }
        let rate = self.rate.get();
        let going = ((rate - GOING.0) / (GOING.1 - GOING.0)).clamp(0.0, 1.0);
        // Plain steps can always be had.
        let rate = rate.max(1.0);
        let least = 1.0 - rate * (1.0 + going * LOSS * self.costs.draft());
        let chances = self.odds.of(anchor, drafts, margins);
        let best = worthwhile(&self.costs, &chances[..drafts.len()], rate, least);
        self.before = self.odds.last_two();
        self.longest = f64::from(best).max(LONGEST.0 * self.longest.min(drafts.len() as f64));
        if best == 0 {
            self.pause = if self.gain > 0.0 { PAUSE.0 } else { (self.pause * PAUSE.1).min(PAUSE.2) };
            (self.steps, self.at_hand) = (0, false);
        }
        best
    }

    pub(super) fn stepped(&mut self, token: u32, time: Duration) {
        // The first one after a round or a look finds the caches full of other things.
        if self.steps > 0 {
            self.costs.stepped(time);
        }
        self.rate.push(1, 1.0);
        (self.steps, self.at_hand) = (self.steps.saturating_add(1), false);
        self.push(token);
        // Drafts that nobody verified, though it would have paid, are as good a reason to look again as drafts that paid.
        if self.gain_of(self.odds.right()) > 0.0 {
            self.pause = PAUSE.0;
        }
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        self.costs.drafted(time);
        if !self.at_hand {
            self.gain = -self.costs.draft();
        }
    }

    pub(super) fn rounded(&mut self, n: u32, tokens: &[u32], time: Duration) {
        let n = n as usize;
        let us = time.as_micros() as u64;
        tracing::debug!(drafts = n, tokens = tokens.len(), us, rate = self.rate.get(), "round");
        self.costs.rounded(n, time);
        let cost = self.costs.round(n);
        self.rate.push(tokens.len(), cost);
        self.gain += tokens.len() as f64 - cost;
        tokens.iter().for_each(|&token| self.push(token));
        self.at_hand = true;
    }

    fn push(&mut self, token: u32) {
        self.odds.push(token);
        *self.rights.entry(&self.before) = self.odds.right();
    }
}

/// How many drafts to verify, of which the first 1, 2, .. are all right by these `chances`, where time is worth `rate`
/// tokens a step; none if that is worth no more than `least`.
fn worthwhile(costs: &Costs, chances: &[f64], rate: f64, least: f64) -> u32 {
    let (mut best, mut value, mut tokens) = (0, least, 1.0);
    for (i, chance) in chances.iter().enumerate() {
        tokens += chance;
        let worth = tokens - rate * costs.round(i + 1);
        if worth > value {
            (best, value) = (i as u32 + 1, worth);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::{DraftLength, Lengths};

    /// Milliseconds of a plain step, of drafts, and of a round with n drafts.
    const STEP: f64 = 1.0;
    const DRAFT: f64 = 0.5;

    fn round(n: u32) -> f64 {
        1.2 + DRAFT + 0.1 * f64::from(n)
    }

    /// What a draft model knows of its drafts.
    #[derive(Clone, Copy, Debug)]
    enum Margins {
        /// Nothing: all look the same.
        Blind,
        /// Right ones look better, but not all of them.
        Fair,
    }

    impl Margins {
        fn of(self, token: usize, right: u32) -> [f32; 7] {
            let noise = |i: usize| ((token * 7 + i) * 2_654_435_761 % 1000) as f32 / 1000.0;
            std::array::from_fn(|i| match self {
                Self::Blind => 0.7,
                Self::Fair => {
                    if (i as u32) < right {
                        0.6 + 3.0 * noise(i)
                    } else {
                        0.9 * noise(i)
                    }
                }
            })
        }
    }

    /// The token at a place of the text, which says the same again and again, and a wrong guess of it.
    fn id(token: usize) -> u32 {
        (token % 50) as u32
    }

    fn wrong(token: usize) -> u32 {
        1000 + id(token)
    }

    /// A block of drafts after the token at `at`, of which the first `right` are right.
    fn block(at: usize, right: u32) -> [u32; 7] {
        std::array::from_fn(|i| if (i as u32) < right { id(at + 1 + i) } else { wrong(at + 1 + i) })
    }

    /// Runs 400 tokens' worth of text in which drafts are right up to `right(token)` of them; gives milliseconds.
    fn time(lengths: &mut Lengths, margins: Margins, right: impl Fn(usize) -> u32) -> f64 {
        let (mut tokens, mut time) = (0, 0.0);
        let ms = |x: f64| Duration::from_secs_f64(x / 1000.0);
        lengths.begin();
        while tokens < 400 {
            if let Choice::Draft(mut n) = lengths.choose(7) {
                lengths.drafted(ms(DRAFT));
                time += DRAFT;
                loop {
                    let drafts = &block(tokens, right(tokens))[..n as usize];
                    let taken = lengths.take(id(tokens), drafts, Some(&margins.of(tokens, right(tokens))));
                    if taken == 0 {
                        break;
                    }
                    let accepted = right(tokens).min(taken) as usize;
                    let next: Vec<u32> = (tokens + 1..tokens + 2 + accepted).map(id).collect();
                    lengths.rounded(taken, &next, ms(round(taken)));
                    (tokens, time) = (tokens + next.len(), time + round(taken));
                    if tokens >= 400 {
                        return time;
                    }
                    n = lengths.next_block().min(7);
                }
            }
            lengths.stepped(id(tokens + 1), ms(STEP));
            (tokens, time) = (tokens + 1, time + STEP);
        }
        time
    }

    /// Time of `auto` over the better of plain steps and every fixed length.
    fn regret(margins: Margins, right: impl Fn(usize) -> u32) -> f64 {
        let fixed = (1..=7).map(|n| time(&mut Lengths::new(DraftLength::Fixed(n)), margins, &right));
        let best = fixed.fold(400.0 * STEP, f64::min);
        // Costs are known from the text before.
        let mut lengths = Lengths::new(DraftLength::Auto);
        time(&mut lengths, margins, |token| (token % 8) as u32);
        let found = time(&mut lengths, margins, right) / best;
        eprintln!("{margins:?} {found:.3}");
        found
    }

    fn close(right: impl Fn(usize) -> u32, blind: f64, fair: f64) {
        let found = [Margins::Blind, Margins::Fair].map(|margins| regret(margins, &right));
        assert!(found[0] < blind && found[1] < fair, "{found:?}");
    }

    #[test]
    fn drafts_that_are_always_right_or_wrong() {
        close(|_| 7, 1.09, 1.04);
        close(|_| 0, 1.08, 1.04);
    }

    #[test]
    fn a_length_between() {
        for right in 1..7 {
            close(|_| right, 1.08, 1.04);
        }
    }

    /// Text whose second half is easy, or hard: better than anything fixed, or nearly.
    #[test]
    fn text_that_changes() {
        for hard in [0, 1] {
            close(move |token| if (token / 200) % 2 == hard { 0 } else { 7 }, 1.05, 0.95);
        }
    }

    /// The surer the draft is, the more of its tokens are verified.
    #[test]
    fn sure_and_unsure_drafts() {
        let mut lengths = Lengths::new(DraftLength::Auto);
        // Costs are known from another text.
        time(&mut lengths, Margins::Fair, |token| (token % 8) as u32);
        lengths.begin();
        let mut taken = |margins: [f32; 7]| lengths.clone().take(0, &block(0, 7), Some(&margins));
        let [none, few, all] = [[0.0; 7], [3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0], [3.0; 7]].map(&mut taken);
        assert!(none < few && few < all && all >= 6, "{none} {few} {all}");
    }
}
