//! How many tokens to draft: as asked, or as pays.

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

/// Rounds and steps that count: older ones fade.
const FADE: f64 = 0.85;
/// What a draft's acceptance is taken for before it is known, and how many observations that weighs.
const PRIOR: (f64, f64) = (0.7, 1.0);
/// Plain steps at the start, which show what one costs.
const FIRST_STEPS: u32 = 2;
/// Plain steps before the next attempt, at first and at most.
const PAUSE: (u32, u32) = (16, 128);
/// How much better speculation must look to be tried.
const MARGIN: f64 = 1.03;

/// A mean in which old values fade.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn push(&mut self, value: f64) {
        self.sum = self.sum * FADE + value;
        self.weight = self.weight * FADE + 1.0;
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
    /// Plain steps so far without a round between them.
    steps: u32,
    /// Plain steps before the next attempt.
    pause: u32,
}

impl Controller {
    pub(super) fn new(length: DraftLength) -> Self {
        let none = [Mean::default(); MAX_VERIFY as usize];
        Self { length, step: Mean::default(), rounds: none, accepted: none, steps: 0, pause: FIRST_STEPS }
    }

    pub(super) fn is_auto(&self) -> bool {
        self.length == DraftLength::Auto
    }

    pub(super) fn length(&mut self, most: u32) -> u32 {
        if let DraftLength::Fixed(n) = self.length {
            return n.min(most);
        }
        if self.steps < self.pause && (self.pause != FIRST_STEPS || self.step.get().is_none()) {
            return 0;
        }
        let Some(step) = self.step.get() else { return 0 };
        let (mut best, mut gain) = (0, MARGIN);
        let mut likely = 1.0;
        let mut tokens = 1.0;
        for n in 1..=most {
            let rate = self.accepted[n as usize - 1];
            likely *= (rate.sum + PRIOR.0 * PRIOR.1) / (rate.weight + PRIOR.1);
            tokens += likely;
            let Some(cost) = self.cost(n as usize) else { return most };
            let speedup = tokens * step / cost;
            if speedup > gain {
                (best, gain) = (n, speedup);
            }
        }
        if best == 0 {
            // One look now and then: text changes.
            self.pause = (2 * self.pause).clamp(PAUSE.0, PAUSE.1);
            self.steps = 0;
        }
        best
    }

    /// Seconds of a round with `n` drafts: as measured, or along a line through the measured ones.
    fn cost(&self, n: usize) -> Option<f64> {
        if let Some(cost) = self.rounds[n].get() {
            return Some(cost);
        }
        let known = || self.rounds.iter().enumerate().filter_map(|(n, mean)| Some((n as f64, mean.get()?)));
        let count = known().count() as f64;
        let (x, y) = known().fold((0.0, 0.0), |(x, y), (n, cost)| (x + n / count, y + cost / count));
        if count == 0.0 {
            return None;
        }
        let spread: f64 = known().map(|(n, _)| (n - x) * (n - x)).sum();
        let slope = if spread > 0.0 {
            known().map(|(n, cost)| (n - x) * (cost - y)).sum::<f64>() / spread
        } else {
            // One point: a round with drafts costs a part that does not depend on their number.
            y / (x + 6.0)
        };
        Some((y + slope.max(0.0) * (n as f64 - x)).max(y / 4.0))
    }

    pub(super) fn stepped(&mut self, time: Duration) {
        self.step.push(time.as_secs_f64());
        self.steps = self.steps.saturating_add(1);
    }

    pub(super) fn rounded(&mut self, drafted: usize, accepted: usize, time: Duration) {
        self.rounds[drafted].push(time.as_secs_f64());
        for (i, mean) in self.accepted.iter_mut().enumerate().take(drafted.min(accepted + 1)) {
            mean.push(f64::from(u8::from(i < accepted)));
        }
        self.steps = 0;
        if accepted > 0 {
            self.pause = FIRST_STEPS;
        }
    }
}
