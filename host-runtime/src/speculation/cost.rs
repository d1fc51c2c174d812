//! What steps, drafts and rounds cost, in times that are measured as generations go.

use std::time::Duration;

use crate::model::MAX_VERIFY;

/// Lengths of a block's drafts, from 0.
const LENGTHS: usize = MAX_VERIFY as usize;

/// A time that comes again and again: the shortest of late.
///
/// Whatever else the machine does, for moments or for seconds, can only make it longer; so the shortest times of a step
/// and of a round can be compared, be they of different minutes. What is slower for good (a longer context, another
/// clock) is followed by and by.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    seconds: f64,
    count: u32,
}

impl Time {
    /// Times that weigh as much as what other lengths say.
    const KNOWN: u32 = 8;
    /// Growth of what is not seen any more, per time.
    const GROWTH: f64 = 1.001;

    fn push(&mut self, time: Duration) {
        let seconds = time.as_secs_f64().max(1e-9);
        self.seconds = if self.count == 0 { seconds } else { seconds.min(Self::GROWTH * self.seconds) };
        self.count = self.count.saturating_add(1);
    }
}

/// The costs of a session: they outlive texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    step: Time,
    draft: Time,
    /// By number of drafts.
    rounds: [Time; LENGTHS],
}

impl Costs {
    /// Plain steps that show what one costs.
    const FIRST_STEPS: u32 = 2;
    /// Rounds that show what rounds cost: a single one may have been interrupted, and would never be tried again.
    const FIRST_ROUNDS: u32 = 3;
    /// Weight of the usual slope, as a sum of squared distances in drafts.
    const USUAL: f64 = 20.0;

    pub(super) fn stepped(&mut self, time: Duration) {
        self.step.push(time);
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        self.draft.push(time);
    }

    pub(super) fn rounded(&mut self, drafts: usize, time: Duration) {
        self.rounds[drafts].push(time);
    }

    /// Whether it is known what a plain step costs.
    pub(super) fn know_steps(&self) -> bool {
        self.step.count >= Self::FIRST_STEPS
    }

    /// A block of drafts, in plain steps.
    pub(super) fn draft(&self) -> f64 {
        if self.draft.count == 0 { 0.0 } else { self.draft.seconds / self.step.seconds }
    }

    /// A round with `n` drafts, the next block of drafts included, in plain steps.
    pub(super) fn round(&self, n: usize) -> f64 {
        if self.rounds.iter().fold(0, |sum: u32, cost| sum.saturating_add(cost.count)) < Self::FIRST_ROUNDS {
            // With nothing to go by a round is taken for cheap, and tried.
            return 1.0 + self.draft() + n as f64 / 16.0;
        }
        let (known, step) = (self.rounds[n], self.step.seconds);
        let Some(line) = self.line(n) else { return known.seconds / step };
        if known.count > 0 && known.seconds <= line {
            // So short it can be: rows go by groups, and lengths may be far off the line.
            return known.seconds / step;
        }
        let weight = f64::from(known.count) / f64::from(known.count + Time::KNOWN);
        (weight * known.seconds + (1.0 - weight) * line) / step
    }

    /// Seconds of a round with `n` drafts along a line through those of the other lengths.
    fn line(&self, n: usize) -> Option<f64> {
        let known = || {
            let all = self.rounds.iter().enumerate();
            all.filter(|&(other, cost)| other != n && cost.count > 0)
                .map(|(n, cost)| (n as f64, cost.seconds))
        };
        let count = known().count() as f64;
        if count == 0.0 {
            return None;
        }
        let (x, y) = known().fold((0.0, 0.0), |(x, y), (n, cost)| (x + n / count, y + cost / count));
        let spread: f64 = known().map(|(n, _)| (n - x) * (n - x)).sum();
        // Most of a round does not depend on the drafts; few times of few lengths hardly tell otherwise.
        let usual = y / (x + 8.0);
        let rise: f64 = known().map(|(n, cost)| (n - x) * (cost - y)).sum();
        let slope = (rise + Self::USUAL * usual) / (spread + Self::USUAL);
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
        assert!((costs.round(3) - 2.3).abs() < 0.05, "{}", costs.round(3));
    }

    /// Rounds alone for a while in which the machine is half as fast.
    #[test]
    fn slow_moments_do_not_count() {
        let mut costs = Costs::default();
        for _ in 0..20 {
            costs.stepped(micros(100.0));
            costs.rounded(3, micros(230.0));
        }
        (0..80).for_each(|_| costs.rounded(3, micros(460.0)));
        assert!((2.3..2.5).contains(&costs.round(3)), "{}", costs.round(3));
    }

    /// Longer contexts make rounds dearer, and steps less so.
    #[test]
    fn what_is_slower_for_good_is_followed() {
        let mut costs = Costs::default();
        for dear in [2.3, 2.9] {
            for _ in 0..300 {
                costs.stepped(micros(100.0));
                costs.rounded(3, micros(100.0 * dear));
            }
        }
        assert!((costs.round(3) - 2.9).abs() < 0.01, "{}", costs.round(3));
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
        (0..8).for_each(|_| costs.rounded(7, micros(300.0)));
        let found = costs.round(5);
        assert!((2.4..2.8).contains(&found), "{found}");
        // Measured often enough, it counts as it is.
        (0..400).for_each(|_| costs.rounded(5, micros(350.0)));
        assert!((costs.round(5) - 3.5).abs() < 0.05, "{}", costs.round(5));
    }
}
