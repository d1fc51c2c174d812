//! What steps, drafts and rounds cost, in times that are measured as generations go.

use std::time::Duration;

use crate::model::MAX_VERIFY;

/// Lengths of a block's drafts, from 0.
const LENGTHS: usize = MAX_VERIFY as usize;

/// A cost: the logarithm of a time, as it is when the machine is as fast as usual.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    log: f64,
    count: u32,
}

impl Cost {
    fn get(self) -> f64 {
        self.log.exp()
    }
}

/// The costs of a session: they outlive texts. Only their ratios matter.
///
/// Other work slows a machine down, for moments and for seconds, and clocks change. What slows down everything alike is
/// kept apart, as the machine's *pace* of late: a step that was measured in a slow minute and a round that was measured
/// in a fast one can be compared all the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    /// Logarithm of the pace.
    pace: f64,
    step: Cost,
    draft: Cost,
    /// By number of drafts.
    rounds: [Cost; LENGTHS],
}

impl Costs {
    /// Plain steps that show what one costs.
    const FIRST_STEPS: u32 = 2;
    /// Rounds that show what rounds cost: a single one may have been interrupted, and would never be tried again.
    const FIRST_ROUNDS: u32 = 3;
    /// Times of which the shortest counts.
    const FIRST: u32 = 4;
    /// How fast the pace follows, and in the long run a cost.
    const PACE: f64 = 0.5;
    const FOLLOW: f64 = 0.03;
    /// The most that a single time can tell, as a logarithm: a time that is longer by more is that of something else.
    const MOST: f64 = 0.3;

    fn push(&mut self, time: Duration, cost: impl Fn(&mut Self) -> &mut Cost) {
        let log = time.as_secs_f64().max(1e-9).ln() - self.pace;
        let cost = cost(self);
        cost.count = cost.count.saturating_add(1);
        if cost.count == 1 {
            cost.log = log;
            return;
        }
        let found = log - cost.log;
        if cost.count <= Self::FIRST && found < 0.0 {
            // The times before were those of cold caches, or interrupted.
            cost.log = log;
            return;
        }
        let found = found.clamp(-Self::MOST, Self::MOST);
        cost.log += (1.0 / f64::from(cost.count)).max(Self::FOLLOW) * found;
        if cost.count > Self::FIRST {
            self.pace += Self::PACE * found;
        }
    }

    pub(super) fn stepped(&mut self, time: Duration) {
        self.push(time, |costs| &mut costs.step);
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        self.push(time, |costs| &mut costs.draft);
    }

    pub(super) fn rounded(&mut self, drafts: usize, time: Duration) {
        self.push(time, |costs| &mut costs.rounds[drafts]);
    }

    /// Whether it is known what a plain step costs.
    pub(super) fn know_steps(&self) -> bool {
        self.step.count >= Self::FIRST_STEPS
    }

    /// A block of drafts, in plain steps.
    pub(super) fn draft(&self) -> f64 {
        if self.draft.count == 0 { 0.0 } else { self.draft.get() / self.step.get() }
    }

    /// A round with `n` drafts, the next block of drafts included, in plain steps.
    pub(super) fn round(&self, n: usize) -> f64 {
        if self.rounds.iter().fold(0, |sum: u32, cost| sum.saturating_add(cost.count)) < Self::FIRST_ROUNDS {
            // With nothing to go by a round is taken for cheap, and tried.
            return 1.0 + self.draft() + n as f64 / 16.0;
        }
        let (known, step) = (self.rounds[n], self.step.get());
        let line = || self.line(n).unwrap_or(f64::INFINITY);
        let cost = match known.count {
            0 => line(),
            // Rows go by groups, so that lengths may be far off the line; only what seems dear is doubted.
            1..Self::FIRST => line().min(known.get()),
            _ => known.get(),
        };
        cost / step
    }

    /// Seconds of a round with `n` drafts along a line through those of the other lengths.
    fn line(&self, n: usize) -> Option<f64> {
        let known = || {
            let all = self.rounds.iter().enumerate();
            all.filter(|&(other, cost)| other != n && cost.count > 0).map(|(n, cost)| (n as f64, cost.get()))
        };
        let count = known().count() as f64;
        if count == 0.0 {
            return None;
        }
        let (x, y) = known().fold((0.0, 0.0), |(x, y), (n, cost)| (x + n / count, y + cost / count));
        let spread: f64 = known().map(|(n, _)| (n - x) * (n - x)).sum();
        let slope = if spread > 0.0 {
            known().map(|(n, cost)| (n - x) * (cost - y)).sum::<f64>() / spread
        } else {
            // One point only: most of a round does not depend on the drafts.
            y / (x + 8.0)
        };
        Some((y + slope.max(0.0) * (n as f64 - x)).max(y / 4.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: f64) -> Duration {
        Duration::from_secs_f64(us / 1e6)
    }

    /// One step in five takes half as long again, and some ten times as long.
    #[test]
    fn interruptions_do_not_count() {
        let mut costs = Costs::default();
        for i in 0..400 {
            let slow = if i % 50 == 7 { 10.0 } else { [1.0, 1.03, 1.5, 1.01, 0.99][i % 5] };
            costs.stepped(micros(100.0 * slow));
            costs.rounded(3, micros(230.0 * slow));
        }
        assert!((costs.round(3) - 2.3).abs() < 0.1, "{}", costs.round(3));
    }

    /// Steps in the one half of the time and rounds in the other, when the machine is half as fast.
    #[test]
    fn what_slows_everything_down_does_not_count() {
        let mut costs = Costs::default();
        for _ in 0..20 {
            costs.stepped(micros(100.0));
            costs.rounded(3, micros(230.0));
        }
        (0..5).for_each(|_| costs.rounded(7, micros(320.0)));
        // No plain step for a while.
        for _ in 0..60 {
            costs.rounded(3, micros(460.0));
            costs.rounded(7, micros(640.0));
        }
        for (n, cost) in [(3, 2.3), (7, 3.2)] {
            assert!((costs.round(n) / cost - 1.0).abs() < 0.1, "{n}: {}", costs.round(n));
        }
    }

    /// Longer contexts make rounds dearer, and steps less so.
    #[test]
    fn ratios_that_change_are_followed() {
        let mut costs = Costs::default();
        for dear in [2.3, 2.9] {
            for _ in 0..150 {
                costs.stepped(micros(100.0));
                costs.rounded(3, micros(100.0 * dear));
            }
        }
        assert!((costs.round(3) - 2.9).abs() < 0.1, "{}", costs.round(3));
    }

    /// What was not tried follows from what was.
    #[test]
    fn unknown_lengths() {
        let mut costs = Costs::default();
        assert!(!costs.know_steps());
        (0..2).for_each(|_| costs.stepped(micros(100.0)));
        assert!(costs.know_steps());
        costs.drafted(micros(40.0));
        assert!((costs.round(8) - 1.9).abs() < 1e-9);
        costs.rounded(3, micros(9000.0));
        assert!(costs.round(3) < 2.0, "one round says nothing");
        (0..2).for_each(|_| costs.rounded(3, micros(220.0)));
        assert!(costs.round(7) > 2.2 && costs.round(7) < 3.3 && costs.round(1) < 2.2);
        costs.rounded(7, micros(300.0));
        assert!((costs.round(5) - 2.6).abs() < 1e-9, "{}", costs.round(5));
        // Measured often enough, it counts as it is.
        (0..4).for_each(|_| costs.rounded(5, micros(350.0)));
        assert!((costs.round(5) - 3.5).abs() < 1e-9, "{}", costs.round(5));
    }
}
