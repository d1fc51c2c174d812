//! How many tokens to draft: as asked, or as pays.
//!
//! `auto` compares tokens per second of plain steps with those of rounds with n drafts. The times are measured as the
//! generation goes; the tokens follow from the acceptance at each position of a block, measured likewise, in which old
//! rounds fade because text changes. Where no length pays there are plain steps, and now and then a single block to see
//! whether that is still so.

use std::time::Duration;

use crate::model::MAX_VERIFY;

/// The number of tokens to draft per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLength {
    /// So many.
    Fixed(u32),
    /// As many as the measured acceptance and the measured costs say, or none.
    Auto,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A plain step.
    Plain,
    /// One block of so many drafts, to see what comes of it.
    Probe(u32),
    /// Rounds of so many drafts.
    Rounds(u32),
}

/// Weight of a time or of an acceptance after the next one of its kind.
const FADE: f64 = 0.85;
/// What the first draft's acceptance is taken for before it is known. Of the others it is that of the one before.
const PRIOR: f64 = 0.7;
/// How many observations such a guess weighs.
const PRIOR_WEIGHT: f64 = 1.0;
/// Plain steps at the start, which show what one costs. The first is not typical.
const FIRST_STEPS: u32 = 2;
/// Drafts of the first block: four rows to verify are a whole group of the matrix kernels.
const FIRST_DRAFTS: u32 = 3;
/// Plain steps between two looks, at first and at most.
const PAUSE: (u32, u32) = (4, 32);

/// A mean in which old values fade.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn fade(&mut self) {
        (self.sum, self.weight) = (self.sum * FADE, self.weight * FADE);
    }

    fn push(&mut self, value: f64) {
        self.fade();
        (self.sum, self.weight) = (self.sum + value, self.weight + 1.0);
    }

    fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Chooses lengths.
#[derive(Debug)]
pub(super) struct Controller {
    length: DraftLength,
    /// Seconds of a plain step.
    step: Mean,
    /// Seconds of a round by its drafts.
    rounds: [Mean; MAX_VERIFY as usize],
    /// Acceptance of the draft at each position, where all before it were accepted.
    accepted: [Mean; MAX_VERIFY as usize],
    /// Plain steps since the last block.
    steps: u32,
    /// Plain steps before the next one, where none pays.
    pause: u32,
}

impl Controller {
    pub(super) fn new(length: DraftLength) -> Self {
        let none = [Mean::default(); MAX_VERIFY as usize];
        Self { length, step: Mean::default(), rounds: none, accepted: none, steps: 0, pause: PAUSE.0 }
    }

    pub(super) fn is_auto(&self) -> bool {
        self.length == DraftLength::Auto
    }

    /// A new text: what drafts were worth in the last one says little.
    pub(super) fn begin(&mut self) {
        self.accepted = Default::default();
        self.pause = PAUSE.0;
    }

    pub(super) fn choose(&self, most: u32) -> Choice {
        let step = match (self.length, self.step.get()) {
            (_, _) if most == 0 => return Choice::Plain,
            (DraftLength::Fixed(n), _) => return Choice::Rounds(n.min(most)),
            (DraftLength::Auto, Some(step)) if self.steps >= FIRST_STEPS || self.known() => step,
            (DraftLength::Auto, _) => return Choice::Plain,
        };
        if !self.known() {
            return Choice::Probe(FIRST_DRAFTS.min(most));
        }
        let (mut best, mut gain) = (1, 0.0);
        let (mut likely, mut tokens, mut rate) = (1.0, 1.0, PRIOR);
        for n in 1..=most {
            let seen = self.accepted[n as usize - 1];
            rate = (seen.sum + rate * PRIOR_WEIGHT) / (seen.weight + PRIOR_WEIGHT);
            likely *= rate;
            tokens += likely;
            let speedup = tokens * step / self.cost(n as usize);
            if speedup > gain {
                (best, gain) = (n, speedup);
            }
        }
        if gain > 1.0 {
            Choice::Rounds(best)
        } else if self.steps >= self.pause {
            Choice::Probe(best.max(FIRST_DRAFTS).min(most))
        } else {
            Choice::Plain
        }
    }

    fn known(&self) -> bool {
        self.rounds.iter().any(|mean| mean.weight > 0.0)
    }

    /// Seconds of a round with `n` drafts: as measured, or along a line through what was measured.
    fn cost(&self, n: usize) -> f64 {
        if let Some(cost) = self.rounds[n].get() {
            return cost;
        }
        let known = || self.rounds.iter().enumerate().filter_map(|(n, mean)| Some((n as f64, mean.get()?)));
        let count = known().count().max(1) as f64;
        let (x, y) = known().fold((0.0, 0.0), |(x, y), (n, cost)| (x + n / count, y + cost / count));
        let spread: f64 = known().map(|(n, _)| (n - x) * (n - x)).sum();
        let slope = if spread > 0.0 {
            known().map(|(n, cost)| (n - x) * (cost - y)).sum::<f64>() / spread
        } else {
            // One point only: part of a round does not depend on the drafts.
            y / (x + 4.0)
        };
        (y + slope.max(0.0) * (n as f64 - x)).max(y / 4.0)
    }

    pub(super) fn stepped(&mut self, time: Duration) {
        self.step.push(time.as_secs_f64());
        self.steps = self.steps.saturating_add(1);
    }

    pub(super) fn rounded(&mut self, drafted: usize, accepted: usize, time: Duration) {
        tracing::debug!(
            drafted,
            accepted,
            us = time.as_micros() as u64,
            steps = self.steps,
            step_us = self.step.get().map(|s| s * 1e6),
            "round"
        );
        self.rounds[drafted].push(time.as_secs_f64());
        // Positions that were not drafted fade as well: what is not seen any more may have changed, and is tried again.
        for (i, mean) in self.accepted.iter_mut().enumerate() {
            if i < drafted.min(accepted + 1) {
                mean.push(f64::from(u8::from(i < accepted)));
            } else {
                mean.fade();
            }
        }
        // Each look in vain makes the next one later.
        self.pause = if accepted > 0 { PAUSE.0 } else { (2 * self.pause).min(PAUSE.1) };
        self.steps = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of a round with n drafts, where a plain step takes one.
    fn round(n: usize) -> f64 {
        1.2 + 0.3 * n as f64
    }

    /// Runs 400 tokens' worth of text in which drafts are right up to `right(token)` of them; gives milliseconds.
    fn time(controller: &mut Controller, right: impl Fn(usize) -> usize) -> f64 {
        let (mut tokens, mut time) = (0, 0.0);
        let ms = |x: f64| Duration::from_secs_f64(x / 1000.0);
        controller.begin();
        while tokens < 400 {
            match controller.choose(7) {
                Choice::Plain => {
                    controller.stepped(ms(1.0));
                    (tokens, time) = (tokens + 1, time + 1.0);
                }
                Choice::Probe(n) | Choice::Rounds(n) => {
                    let n = n as usize;
                    let accepted = right(tokens).min(n);
                    controller.rounded(n, accepted, ms(round(n)));
                    (tokens, time) = (tokens + 1 + accepted, time + round(n));
                }
            }
        }
        time * 400.0 / tokens as f64
    }

    fn auto(right: impl Fn(usize) -> usize) -> f64 {
        time(&mut Controller::new(DraftLength::Auto), right)
    }

    /// The better of plain steps and every fixed length.
    fn best(right: impl Fn(usize) -> usize) -> f64 {
        let fixed = (1..=7).map(|n| time(&mut Controller::new(DraftLength::Fixed(n)), &right));
        fixed.fold(400.0, f64::min)
    }

    #[test]
    fn drafts_that_are_always_right_or_wrong() {
        assert!(auto(|_| 7) < 1.04 * best(|_| 7), "{} {}", auto(|_| 7), best(|_| 7));
        assert!(auto(|_| 0) < 1.10 * 400.0, "{}", auto(|_| 0));
    }

    #[test]
    fn a_length_between() {
        for right in 1..7 {
            let right = |_| right;
            assert!(auto(right) < 1.06 * best(right), "{} {}", auto(right), best(right));
        }
    }

    /// Text whose second half is easy, or hard: better than anything fixed, or nearly.
    #[test]
    fn text_that_changes() {
        for hard in [0, 1] {
            let turn = move |token: usize| if (token / 200) % 2 == hard { 0 } else { 7 };
            assert!(auto(turn) < 1.05 * best(turn), "{} {}", auto(turn), best(turn));
        }
    }
}
