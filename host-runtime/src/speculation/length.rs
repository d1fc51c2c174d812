//! How many tokens to draft and to verify: as asked, or as pays.
//!
//! `auto` decides anew for every block, from three things: what steps, drafts and rounds [cost](super::cost), which
//! holds for a session; the [odds](super::odds) of each draft, from how sure the draft model is of it and from how good
//! its drafts were in this text; and the *rate*, tokens per time of late, which is what time is worth. With time in
//! plain steps, n drafts of which the first i are all right with the chance c_i give
//!
//! 1 + c_1 + c_2 + .. + c_n tokens for the time of a round, `value = tokens - rate * time`
//!
//! and the length of the largest value wins. A plain step stands among them: one token, after which drafts must be paid
//! for again. After that there are plain steps, and a look (drafts alone, without a round) when three times its price
//! has passed, after twice as long if nothing was gained, and so on.

use std::time::Duration;

use super::cost::Costs;
use super::odds::Odds;
use crate::model::MAX_VERIFY;

/// The number of tokens to draft per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLength {
    /// So many; none is plain decoding.
    Fixed(u32),
    /// As many as the measured acceptance and the measured costs say, or none.
    Auto,
}

/// What to do next, where no drafts are at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A plain step.
    Plain,
    /// So many drafts. [`Lengths::take`] says how many of them to verify.
    Draft(u32),
}

/// Plain steps before a look, for each plain step that drafts cost: after drafts that paid, times what after others, and
/// at most.
const PAUSE: (f64, f64, f64) = (3.0, 2.0, 180.0);
/// Share of a block's price that a plain step loses, which comes between it and the next block.
const LOSS: f64 = 0.78;

/// Tokens per time of late, in plain steps.
#[derive(Clone, Copy, Debug)]
struct Rate {
    tokens: f64,
    time: f64,
}

impl Rate {
    /// Weight of a token after the next one.
    const FADE: f64 = 0.915;
    /// The first rounds of a text get the benefit of the doubt: rate and weight in plain steps.
    const FIRST: (f64, f64) = (2.2, 2.2);

    fn new() -> Self {
        Self { tokens: Self::FIRST.0 * Self::FIRST.1, time: Self::FIRST.1 }
    }

    fn push(&mut self, tokens: usize, time: f64) {
        let old = Self::FADE.powi(tokens as i32);
        (self.tokens, self.time) = (old * self.tokens + tokens as f64, old * self.time + time);
    }

    /// At least that of plain steps, which can always be had.
    fn get(&self) -> f64 {
        (self.tokens / self.time).max(1.0)
    }
}

/// Chooses lengths over a session: costs are kept from text to text.
#[derive(Clone, Debug)]
pub struct Lengths {
    length: DraftLength,
    costs: Costs,
    odds: Odds,
    rate: Rate,
    /// The last thing was a round, so that drafts are at hand or come next.
    at_hand: bool,
    /// What drafts have gained since the last look, in plain steps.
    gain: f64,
    /// Plain steps since the last block, and before the next look for each step that drafts cost.
    steps: u32,
    pause: f64,
    /// Drafts of the next block.
    cap: u32,
}

impl Lengths {
    /// A session in which nothing is known yet.
    pub fn new(length: DraftLength) -> Self {
        let mut new = Self {
            length,
            costs: Costs::default(),
            odds: Odds::default(),
            rate: Rate::new(),
            at_hand: false,
            gain: 0.0,
            steps: 0,
            pause: 0.0,
            cap: 0,
        };
        new.begin();
        new
    }

    /// Whether lengths change from block to block.
    pub fn is_auto(&self) -> bool {
        self.length == DraftLength::Auto
    }

    /// A new text: what drafts were worth in the last one says little.
    pub fn begin(&mut self) {
        (self.odds, self.rate, self.at_hand) = (Odds::default(), Rate::new(), false);
        (self.steps, self.pause, self.cap) = (u32::MAX, PAUSE.0, MAX_VERIFY - 1);
    }

    /// What to do next, with `most` drafts at most.
    pub fn choose(&self, most: u32) -> Choice {
        match self.length {
            _ if most == 0 || self.length == DraftLength::Fixed(0) => Choice::Plain,
            DraftLength::Fixed(n) => Choice::Draft(n.min(most)),
            DraftLength::Auto if !self.costs.know_steps() => Choice::Plain,
            DraftLength::Auto if !self.at_hand && f64::from(self.steps) < self.pause * self.costs.draft() => {
                Choice::Plain
            }
            DraftLength::Auto => Choice::Draft(self.cap.min(most)),
        }
    }

    /// Drafts that the block after the one at hand should have, at least 1.
    pub fn next_block(&self) -> u32 {
        match self.length {
            DraftLength::Fixed(n) => n.max(1),
            DraftLength::Auto => self.cap,
        }
    }

    /// How many of `n` drafts at hand to verify; 0 for a plain step instead. `margins` says how far each draft's logit is
    /// above all others, where that is known.
    pub fn take(&mut self, n: u32, margins: Option<&[f32]>) -> u32 {
        if !self.is_auto() {
            return n;
        }
        let rate = self.rate.get();
        let least = 1.0 - rate * (1.0 + LOSS * self.costs.draft());
        let best = worthwhile(&self.costs, self.odds.of(n as usize, margins), rate, least);
        if best > 0 {
            // As many as would be verified if the draft were sure of them: each costs a row of the LM head.
            let sure = &self.odds.of_sure()[..MAX_VERIFY as usize - 1];
            self.cap = worthwhile(&self.costs, sure, rate, f64::MIN).max(best);
        } else {
            self.pause = if self.gain > 0.0 { PAUSE.0 } else { (self.pause * PAUSE.1).min(PAUSE.2) };
            (self.steps, self.at_hand) = (0, false);
        }
        best
    }

    /// A plain step took `time`.
    pub fn stepped(&mut self, time: Duration) {
        if !self.is_auto() {
            return;
        }
        self.costs.stepped(time);
        self.rate.push(1, 1.0);
        self.odds.passed();
        (self.steps, self.at_hand) = (self.steps.saturating_add(1), false);
    }

    /// Drafts alone took `time`.
    pub fn drafted(&mut self, time: Duration) {
        if !self.is_auto() {
            return;
        }
        self.costs.drafted(time);
        if !self.at_hand {
            self.gain = -self.costs.draft();
        }
    }

    /// A round took `time`, drafts included: of `n` drafts, which [`take`](Self::take) had said, `accepted` were right.
    pub fn rounded(&mut self, n: u32, accepted: usize, time: Duration) {
        if !self.is_auto() {
            return;
        }
        let n = n as usize;
        tracing::debug!(drafts = n, accepted, us = time.as_micros() as u64, rate = self.rate.get(), "round");
        self.costs.rounded(n, time);
        self.rate.push(1 + accepted, self.costs.round(n));
        self.gain += 1.0 + accepted as f64 - self.costs.round(n);
        self.odds.saw(n, accepted);
        self.at_hand = true;
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
                    let taken = lengths.take(n, Some(&margins.of(tokens, right(tokens))));
                    if taken == 0 {
                        break;
                    }
                    let accepted = right(tokens).min(taken) as usize;
                    lengths.rounded(taken, accepted, ms(round(taken)));
                    (tokens, time) = (tokens + 1 + accepted, time + round(taken));
                    if tokens >= 400 {
                        return time;
                    }
                    n = lengths.next_block().min(7);
                }
            }
            lengths.stepped(ms(STEP));
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
        time(&mut lengths, margins, right) / best
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
        let mut taken = |margins: [f32; 7]| lengths.clone().take(7, Some(&margins));
        let [none, few, all] = [[0.0; 7], [3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0], [3.0; 7]].map(&mut taken);
        assert!(none < few && few < all && all >= 6, "{none} {few} {all}");
    }
}
