//! `auto`: as many drafts as pay.
//!
//! It decides for every block from three things: what steps, drafts and rounds [cost](super::cost); the
//! [odds](super::odds) of each draft; and the *rate* of the text so far, in tokens per plain step, which is
//! what time is worth. With time in plain steps, n drafts of which the first i are all right with the chance
//! c_i give
//!
//! 1 + c_1 + c_2 + .. + c_n tokens for the time of a round, `value = tokens - rate * time`
//!
//! and the length of the largest value wins. A plain step stands among them: it gives one token, after which
//! drafts must be paid for again. Where plain steps win, a *look* (a block of drafts without a round) comes
//! after a pause, which grows with every look that gained nothing. Where drafts paid the last time after the
//! same two tokens, a look comes at once.
//!
//! Drafters on the host guess for nothing, and as often as they are asked. Their best block stands among the
//! others with its own value: against what blocks of the draft model have been worth lately, or, where the
//! draft model's drafts are at hand, against these. Verified on its own it costs less than a round, but the
//! draft model must draft anew after it, as after a plain step.
//!
//! In a step that several texts share, all of them wait for the drafts of one, and for the rows that verify
//! them. With k texts, time is worth at least k tokens a step: a block pays if the tokens that it adds are
//! more than k times the time that it adds. So speculation yields to throughput as texts become more, sooner
//! where drafts are dear or seldom right.

use std::time::Duration;

use super::choice::{By, Choice};
use super::cost::Costs;
use super::hashed_history::HashedHistory;
use super::hosts::Offer;
use super::odds::Odds;
use super::shared::SharedCosts;
use super::tuning::TUNING;
use crate::model::MAX_VERIFY;

/// Tokens that blocks of a shared step can have gained or lost: more is forgotten, so that a change of the
/// text is seen soon.
const MEMORY: f64 = 8.0;

/// What blocks of the draft model gave lately: sums over blocks, with fading weights.
#[derive(Clone, Copy, Debug)]
struct Recent {
    weight: f64,
    /// Tokens of a block.
    tokens: f64,
    /// Time that it took beyond that of a plain step, in plain steps.
    added: f64,
}

impl Recent {
    /// What is left of the weight of a block after the next one: about ten blocks count.
    const FADE: f64 = 0.9;

    /// What is expected of a text, which counts for little.
    fn expected() -> Self {
        let (weight, added) = (TUNING.first_rate_weight, TUNING.usual_draft);
        Self { weight, tokens: weight * TUNING.first_rate * (1.0 + added), added: weight * added }
    }

    fn add(&mut self, tokens: f64, added: f64) {
        let fade = |sum: &mut f64, value: f64| *sum = *sum * Self::FADE + value;
        fade(&mut self.weight, 1.0);
        fade(&mut self.tokens, tokens);
        fade(&mut self.added, added);
    }
}

/// What is known of a session's costs, and of its present text.
#[derive(Clone, Debug)]
pub(super) struct Auto {
    costs: Costs,
    /// Of blocks that drafters on the host have guessed: only their steps and rounds are used.
    blocks: Costs,
    shared: SharedCosts,
    /// What blocks of the draft model gave lately.
    recent: Recent,
    /// Texts in the present step.
    texts: usize,
    odds: Odds,
    /// Tokens of the text, and the time that they took, in plain steps.
    tokens: f64,
    time: f64,
    /// Whether the draft model's last drafts were verified, so that it goes on. Blocks of drafters on the
    /// host that came since leave that as it was.
    at_hand: bool,
    /// What drafts have gained since the last look, in plain steps.
    gain: f64,
    /// How many drafts after two tokens were right, the last time.
    rights: HashedHistory<usize>,
    /// The two tokens before the last block.
    before: [u32; 2],
    /// Plain steps since the last block.
    steps: u32,
    /// Plain steps before the next look, per cost of a block.
    pause: f64,
    /// The most drafts that were verified in recent blocks; it fades. Of a chain, those of the last block.
    longest: f64,
    /// Whether each draft costs as much as the one before it. Drafts that are not verified are a loss then,
    /// and a block has few of them.
    chain: bool,
}

impl Auto {
    /// The state at the beginning of a text, in a session with these costs. Nothing else is kept from earlier
    /// texts: what drafts were worth there says little.
    fn with([costs, blocks]: [Costs; 2], shared: SharedCosts, chain: bool) -> Self {
        Self {
            costs,
            blocks,
            shared,
            recent: Recent::expected(),
            texts: 1,
            odds: Odds::default(),
            tokens: TUNING.first_rate * TUNING.first_rate_weight,
            time: TUNING.first_rate_weight,
            at_hand: false,
            gain: 0.0,
            rights: HashedHistory::default(),
            before: [0; 2],
            steps: u32::MAX,
            pause: TUNING.pause,
            longest: if chain { TUNING.least_chain } else { f64::from(MAX_VERIFY) },
            chain,
        }
    }

    /// A session in which nothing is known yet.
    pub(super) fn new() -> Self {
        Self::with(Default::default(), SharedCosts::default(), false)
    }

    pub(super) fn begin(&mut self, chain: bool) {
        *self = Self::with([self.costs.clone(), self.blocks.clone()], self.shared.clone(), chain);
    }

    /// So many texts are in the next step.
    pub(super) fn share(&mut self, texts: usize) {
        self.texts = texts.max(1);
    }

    /// A step of several texts had so many rows.
    pub(super) fn shared_step(&mut self, rows: usize, time: Duration) {
        self.shared.stepped(rows, time);
    }

    /// Whether other texts wait for the drafts of this one.
    fn is_shared(&self) -> bool {
        self.texts > 1
    }

    fn know_steps(&self) -> bool {
        if self.is_shared() { self.shared.is_known() } else { self.costs.know_steps() }
    }

    /// What a block of drafts is worth in tokens, before any of it is verified.
    fn draft(&self) -> f64 {
        if self.is_shared() { self.texts as f64 * self.shared.draft(self.texts) } else { self.costs.draft() }
    }

    /// What a round gains that verifies `n` drafts and gives so many tokens: those that it adds, less those
    /// that all texts would have got in the time that it adds.
    fn surplus(&self, n: usize, tokens: f64) -> f64 {
        tokens - 1.0 - self.texts as f64 * self.added(n)
    }

    /// Time that a round with `n` drafts adds to that of a plain step, in plain steps.
    fn added(&self, n: usize) -> f64 {
        match self.is_shared() {
            true => self.shared.draft(self.texts) + n as f64 * self.shared.row(self.texts),
            false => self.costs.round(n) - 1.0,
        }
    }

    pub(super) fn choose(&self, most: u32, offer: Option<Offer>) -> Choice {
        let draft = most > 0 && self.know_steps() && (self.at_hand || self.is_time_to_look());
        match offer {
            Some(offer) if !draft || offer.value > self.worth_of_model() => Choice::Guess(offer.n),
            _ if draft => Choice::Draft(self.next_block().min(most)),
            _ => Choice::Plain,
        }
    }

    /// What time is worth, in tokens a step: the rate of the text, or that of plain steps, which are always
    /// possible.
    fn rate(&self) -> f64 {
        (self.tokens / self.time).max(1.0)
    }

    /// What a block of the draft model is worth by those that came before it.
    fn worth_of_model(&self) -> f64 {
        let Recent { weight, tokens, added } = self.recent;
        let (tokens, added) = (tokens / weight, added / weight);
        match self.is_shared() {
            true => tokens - 1.0 - self.texts as f64 * added,
            false => tokens - self.rate() * (1.0 + added),
        }
    }

    /// How many tokens that were guessed on the host to verify, and their worth in the same unit. `None` if a
    /// plain step is worth more.
    pub(super) fn worth_of_host(&self, chances: &[f64]) -> Option<(u32, f64)> {
        if !self.know_steps() {
            return None;
        }
        let (n, value) = match self.is_shared() {
            true => worth_sharing(chances, self.texts as f64 * self.shared.row(self.texts)),
            false => worthwhile(&self.blocks, chances, self.rate(), 1.0 - self.rate()),
        };
        (n > 0).then_some((n, value))
    }

    fn is_time_to_look(&self) -> bool {
        let draft = self.draft();
        let paid_here = |right| self.gain_of(right) > TUNING.worth * draft;
        self.rights.get(&self.odds.last_two()).is_some_and(paid_here)
            || f64::from(self.steps) >= self.pause * draft
    }

    /// Tokens that a round with as many drafts as are right gives beyond plain steps.
    fn gain_of(&self, right: usize) -> f64 {
        if right == 0 { 0.0 } else { self.surplus(right, 1.0 + right as f64) }
    }

    pub(super) fn next_block(&self) -> u32 {
        ((self.longest + TUNING.block_spare) as u32).clamp(1, MAX_VERIFY - 1)
    }

    pub(super) fn take(
        &mut self,
        anchor: u32,
        drafts: &[u32],
        margins: Option<&[f32]>,
        offer: Option<Offer>,
    ) -> Choice {
        let guess = |offer: Option<Offer>| offer.map_or(Choice::Plain, |offer| Choice::Guess(offer.n));
        if drafts.is_empty() {
            return guess(offer);
        }
        let chances = self.odds.of(anchor, drafts, margins);
        let chances = &chances[..drafts.len()];
        if self.is_shared() {
            let row = self.texts as f64 * self.shared.row(self.texts);
            // That the drafts were made cannot be changed.
            let (best, value) = worth_sharing(chances, row);
            if let Some(offer) = offer.filter(|offer| offer.value > value) {
                return Choice::Guess(offer.n);
            }
            return self.taken(best, drafts.len());
        }
        let [stops, goes_on] = TUNING.going;
        let going = ((self.tokens / self.time - stops) / (goes_on - stops)).clamp(0.0, 1.0);
        let rate = self.rate();
        // Of everything after which the draft model must draft anew.
        let loss = rate * going * TUNING.loss * self.costs.draft();
        let step_value = 1.0 - rate - loss;
        let (best, value) = worthwhile(&self.costs, chances, rate, step_value);
        if let Some(offer) = offer.filter(|offer| offer.value - loss > value) {
            return Choice::Guess(offer.n);
        }
        self.taken(best, drafts.len())
    }

    /// So many of the drafts are verified, or none and a plain step comes.
    fn taken(&mut self, best: u32, drafts: usize) -> Choice {
        self.before = self.odds.last_two();
        self.longest = match self.chain {
            // It grows if all drafts that there were are worth it.
            true => {
                let cut = if (best as usize) < drafts { 1.0 } else { 0.0 };
                (f64::from(best) - cut).max(TUNING.least_chain)
            }
            false => f64::from(best).max(TUNING.block_fade * self.longest.min(drafts as f64)),
        };
        if best == 0 {
            self.rest();
            return Choice::Plain;
        }
        Choice::Draft(best)
    }

    /// Plain steps come next. The pause is the longer the less the drafts before have gained.
    fn rest(&mut self) {
        let longer = (self.pause * TUNING.pause_growth).min(TUNING.longest_pause);
        self.pause = if self.gain > 0.0 { TUNING.pause } else { longer };
        (self.steps, self.at_hand) = (0, false);
    }

    pub(super) fn stepped(&mut self, token: u32, time: Duration) {
        // The first one after a round or a look finds the caches full of other things.
        if self.steps > 0 && !self.is_shared() {
            self.costs.stepped(time);
            self.blocks.stepped(time);
        }
        (self.tokens, self.time) = (self.tokens + 1.0, self.time + 1.0);
        (self.steps, self.at_hand) = (self.steps.saturating_add(1), false);
        self.push(token);
        // Drafts that were not verified, though it would have paid, are as good a reason to look again as
        // drafts that paid.
        if self.gain_of(self.odds.right()) > 0.0 {
            self.pause = TUNING.pause;
        }
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        match self.is_shared() {
            true => self.shared.drafted(time),
            false => self.costs.drafted(time),
        }
        if !self.at_hand {
            self.gain = -self.draft();
        }
    }

    pub(super) fn rounded(&mut self, by: By, n: u32, tokens: &[u32], time: Duration) {
        match by {
            By::Model => self.rounded_by_model(n, tokens, time),
            By::Host => self.rounded_by_host(n, tokens, time),
        }
    }

    fn rounded_by_host(&mut self, n: u32, tokens: &[u32], time: Duration) {
        let us = time.as_micros() as u64;
        tracing::debug!(drafts = n, tokens = tokens.len(), us, rate = self.tokens / self.time, "guesses");
        let cost = match self.is_shared() {
            true => 1.0 + f64::from(n) * self.shared.row(self.texts),
            false => {
                self.blocks.rounded(n as usize, time);
                self.blocks.round(n as usize)
            }
        };
        (self.tokens, self.time) = (self.tokens + tokens.len() as f64, self.time + cost);
        tokens.iter().for_each(|&token| self.push(token));
    }

    fn rounded_by_model(&mut self, n: u32, tokens: &[u32], time: Duration) {
        let us = time.as_micros() as u64;
        tracing::debug!(drafts = n, tokens = tokens.len(), us, rate = self.tokens / self.time, "round");
        let gained = tokens.len() as f64;
        if !self.is_shared() {
            self.costs.rounded(n as usize, time);
        }
        let added = self.added(n as usize);
        (self.tokens, self.time) = (self.tokens + gained, self.time + 1.0 + added);
        self.gain += self.surplus(n as usize, gained);
        self.recent.add(gained, added);
        tokens.iter().for_each(|&token| self.push(token));
        self.at_hand = true;
        if self.is_shared() {
            // Each block of a shared step is drafted anew: whether that goes on is decided by what it gains.
            self.gain = self.gain.clamp(-MEMORY, MEMORY);
            if self.gain < 0.0 {
                self.rest();
            }
        }
    }

    fn push(&mut self, token: u32) {
        self.odds.push(token);
        *self.rights.entry(&self.before) = self.odds.right();
    }
}

/// How many drafts to verify, of which the first 1, 2, .. are all right by these `chances`, where time is
/// worth `rate` tokens a step, and what that is worth; none if that is worth no more than a plain step.
fn worthwhile(costs: &Costs, chances: &[f64], rate: f64, step_value: f64) -> (u32, f64) {
    let (mut best, mut value, mut tokens) = (0, step_value, 1.0);
    for (i, chance) in chances.iter().enumerate() {
        tokens += chance;
        let worth = tokens - rate * costs.round(i + 1);
        if worth > value {
            (best, value) = (i as u32 + 1, worth);
        }
    }
    (best, value)
}

/// How many drafts of a shared step to verify, and what that is worth: as many as add more tokens than the
/// time of their rows is worth, which is `row` for each.
fn worth_sharing(chances: &[f64], row: f64) -> (u32, f64) {
    let (mut best, mut value, mut worth) = (0, 0.0, 0.0);
    for (i, chance) in chances.iter().enumerate() {
        worth += chance - row;
        if worth > value {
            (best, value) = (i as u32 + 1, worth);
        }
    }
    (best, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::{DraftLength, Lengths};

    /// Milliseconds of a plain step, of drafts, and of a round with n drafts.
    const STEP: f64 = 1.0;
    const DRAFT: f64 = 0.5;

    fn verify(n: u32) -> f64 {
        1.2 + 0.1 * f64::from(n)
    }

    /// Milliseconds of `n` drafts of a whole block, or of a chain.
    fn drafting(n: u32, chain: bool) -> f64 {
        if chain { 0.25 * f64::from(n) } else { DRAFT }
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

    /// Runs 400 tokens' worth of text in which drafts are right up to `right(token)` of them; gives
    /// milliseconds.
    fn time(lengths: &mut Lengths, margins: Margins, right: impl Fn(usize) -> u32) -> f64 {
        lengths.begin();
        time_of(lengths, false, margins, right)
    }

    /// The same, from a text that was begun, with drafts of a chain or not.
    fn time_of(lengths: &mut Lengths, chain: bool, margins: Margins, right: impl Fn(usize) -> u32) -> f64 {
        let (mut tokens, mut time) = (0, 0.0);
        let ms = |x: f64| Duration::from_secs_f64(x / 1000.0);
        while tokens < 400 {
            if let Choice::Draft(mut n) = lengths.choose(7) {
                lengths.drafted(ms(drafting(n, chain)));
                time += drafting(n, chain);
                loop {
                    let drafts = &block(tokens, right(tokens))[..n as usize];
                    let taken = lengths.take(id(tokens), drafts, Some(&margins.of(tokens, right(tokens))));
                    if taken == 0 {
                        break;
                    }
                    let accepted = right(tokens).min(taken) as usize;
                    let next: Vec<u32> = (tokens + 1..tokens + 2 + accepted).map(id).collect();
                    n = lengths.next_block().min(7);
                    let round = verify(taken) + drafting(n, chain);
                    lengths.rounded(taken, &next, ms(round));
                    (tokens, time) = (tokens + next.len(), time + round);
                    if tokens >= 400 {
                        return time;
                    }
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

    /// Milliseconds for 300 tokens of each of `texts` texts that share steps, where a step takes a
    /// millisecond and `per_row` for each row, and the drafts of each block `draft`, one text after the
    /// other.
    fn time_shared(texts: usize, length: DraftLength, right: u32, draft: f64, per_row: f64) -> f64 {
        let ms = |x: f64| Duration::from_secs_f64(x / 1000.0);
        let mut all = vec![Lengths::new(length); texts];
        let mut tokens = vec![0; texts];
        let mut time = 0.0;
        while tokens.iter().any(|&n| n < 300) {
            let mut taken = vec![0; texts];
            for ((lengths, &at), taken) in all.iter_mut().zip(&tokens).zip(&mut taken) {
                lengths.share(texts);
                if let Choice::Draft(n) = lengths.choose(7) {
                    lengths.drafted(ms(draft));
                    time += draft;
                    let margins = Margins::Fair.of(at, right);
                    *taken = lengths.take(id(at), &block(at, right)[..n as usize], Some(&margins));
                }
            }
            let rows = texts as u32 + taken.iter().sum::<u32>();
            let step = 1.0 + per_row * f64::from(rows);
            time += step;
            for ((lengths, at), taken) in all.iter_mut().zip(&mut tokens).zip(taken) {
                lengths.shared_step(rows as usize, ms(step));
                let next: Vec<u32> = (*at + 1..*at + 2 + right.min(taken) as usize).map(id).collect();
                match taken {
                    0 => lengths.stepped(next[0], ms(step)),
                    n => lengths.rounded(n, &next, ms(draft + step)),
                }
                *at += next.len();
            }
        }
        time
    }

    /// As many texts become active, drafts that pay for one of them do not pay for all: then `auto` is nearly
    /// as fast as plain steps; and where they still pay, it is nearly as fast as the best fixed length.
    #[test]
    fn speculation_yields_to_throughput() {
        for texts in [2, 4, 8, 16] {
            for (right, draft, per_row) in [
                (1, 0.3, 0.02),
                (3, 0.3, 0.02),
                (6, 0.3, 0.02),
                (6, 0.05, 0.02),
                (6, 0.3, 0.2),
                (0, 0.3, 0.02),
            ] {
                let time = |length| time_shared(texts, length, right, draft, per_row);
                let best = (0..=7).map(|n| time(DraftLength::Fixed(n))).fold(f64::MAX, f64::min);
                let found = time(DraftLength::Auto) / best;
                assert!(found < 1.15, "{texts} texts, {right} right, {draft} {per_row}: {found:.3}");
            }
        }
    }

    /// Drafts of a chain are paid for one by one: those that are not verified are a loss.
    #[test]
    fn chains_are_no_longer_than_they_pay() {
        let (mut sum, mut of_blocks, mut worst) = (0.0, 0.0, 0.0f64);
        for right in [0, 1, 2, 3, 5, 7] {
            let right = |token: usize| if token.is_multiple_of(3) { right / 2 } else { right };
            let fixed = (1..=7).map(|n| {
                let lengths = &mut Lengths::new(DraftLength::Fixed(n));
                time_of(lengths, true, Margins::Fair, right)
            });
            let best = fixed.fold(400.0 * STEP, f64::min);
            let [chain, block] = [true, false].map(|known| {
                let mut lengths = Lengths::new(DraftLength::Auto);
                lengths.begin_with(known);
                time_of(&mut lengths, true, Margins::Fair, |token| (token % 8) as u32);
                lengths.begin_with(known);
                time_of(&mut lengths, true, Margins::Fair, right)
            });
            eprintln!("{best:.0} ms at best, {chain:.0} ms; {block:.0} ms as if a block cost the same");
            worst = worst.max(chain / best);
            (sum, of_blocks) = (sum + chain, of_blocks + block);
        }
        assert!(worst < 1.2, "{worst}");
        assert!(sum < of_blocks, "{sum} ms, {of_blocks} ms as if a block cost the same");
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
