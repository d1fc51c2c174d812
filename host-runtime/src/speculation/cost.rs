//! What steps, drafts and rounds cost, in times that are measured as generations go.

use std::time::Duration;

use crate::model::MAX_VERIFY;

/// Lengths of a block's drafts, from 0.
const LENGTHS: usize = MAX_VERIFY as usize;

/// A time that comes again and again. Whatever else the machine does can only make it longer, so what is shorter than
/// the estimate counts for more than what is longer; both count, because caches grow and clocks change.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    seconds: f64,
    count: u32,
}

impl Time {
    /// The first few times are all too likely to be those of cold caches: the shortest counts.
    const FIRST: u32 = 4;
    /// How far the estimate follows a shorter and a longer time.
    const FOLLOW: (f64, f64) = (0.3, 0.05);

    fn push(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds = match self.count {
            0 => seconds,
            count if count < Self::FIRST => self.seconds.min(seconds),
            _ if seconds < self.seconds => self.seconds + Self::FOLLOW.0 * (seconds - self.seconds),
            // A time that is longer by far is that of something else.
            _ => self.seconds + Self::FOLLOW.1 * (seconds.min(2.0 * self.seconds) - self.seconds),
        };
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
        if self.draft.count == 0 {
            0.0
        } else {
            self.draft.seconds / self.step.seconds.max(f64::MIN_POSITIVE)
        }
    }

    /// A round with `n` drafts, the next block of drafts included, in plain steps.
    pub(super) fn round(&self, n: usize) -> f64 {
        if self.rounds.iter().fold(0, |sum: u32, time| sum.saturating_add(time.count)) < Self::FIRST_ROUNDS {
            // With nothing to go by a round is taken for cheap, and tried.
            return 1.0 + self.draft() + n as f64 / 16.0;
        }
        let step = self.step.seconds.max(f64::MIN_POSITIVE);
        let known = self.rounds[n];
        let line = || self.line(n).map_or(f64::INFINITY, |seconds| seconds / step);
        match known.count {
            0 => line(),
            1..Time::FIRST => line().min(known.seconds / step),
            _ => known.seconds / step,
        }
    }

    /// Seconds of a round with `n` drafts along a line through those of the other lengths.
    fn line(&self, n: usize) -> Option<f64> {
        let known = || {
            let all = self.rounds.iter().enumerate();
            all.filter(|&(other, time)| other != n && time.count > 0)
                .map(|(n, time)| (n as f64, time.seconds))
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

    /// One run in five takes half as long again, and some ten times as long.
    #[test]
    fn interruptions_do_not_count() {
        let mut time = Time::default();
        for i in 0..400 {
            let us = if i % 50 == 7 { 1000.0 } else { [100.0, 103.0, 150.0, 101.0, 99.0][i % 5] };
            time.push(micros(us));
        }
        assert!((95.0..112.0).contains(&(1e6 * time.seconds)), "{}", time.seconds);
    }

    #[test]
    fn times_that_change_are_followed() {
        let mut time = Time::default();
        (0..50).for_each(|_| time.push(micros(100.0)));
        (0..100).for_each(|_| time.push(micros(160.0)));
        assert!(1e6 * time.seconds > 155.0, "{}", time.seconds);
        (0..10).for_each(|_| time.push(micros(90.0)));
        assert!(1e6 * time.seconds < 95.0, "{}", time.seconds);
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
