//! What steps, drafts and rounds cost, learned from their times as generations go.
//!
//! Times scatter: a machine does other things for moments, and is slower for seconds. So the logarithm of a time is taken
//! for the sum of three: what the thing itself costs; how slow the machine is just now, which is the same for all and fades;
//! and noise. What rounds of different lengths cost has a part in common, a part that grows with the drafts, and a part of
//! its own each (rows go by groups). With normal distributions for all of them, a Kalman filter gives the most likely costs:
//! a length that is seldom tried, or was tried in bad moments, is judged by those that are known better.

use std::time::Duration;

use crate::model::MAX_VERIFY;

/// What is timed: rounds by their number of drafts, a plain step being one without any; and drafts alone.
const STEP: usize = 0;
const DRAFT: usize = MAX_VERIFY as usize;
/// How slow the machine is just now.
const SLOW: usize = DRAFT + 1;
const STATES: usize = SLOW + 1;

/// Before anything was seen, in plain steps: drafts; a round, and more per draft.
const USUAL: (f64, f64, f64) = (0.5, 1.5, 0.16);
/// Standard deviations of logarithms. Of a step, of which nothing is known:
const ANY: f64 = 10.0;
/// of drafts, in steps;
const DRAFTS: f64 = 0.7;
/// of rounds, in steps: in common, per draft, and each;
const ROUNDS: (f64, f64, f64) = (0.35, 0.035, 0.08);
/// of what rounds change between two times, in common and each: contexts grow;
const DRIFT: (f64, f64) = (0.002, 0.001);
/// of how slow the machine is, and what is left of that the next time;
const SLOWNESS: (f64, f64) = (0.4, 0.97);
/// of noise.
const NOISE: f64 = 0.08;
/// Standard deviations beyond which a time says less: it was interrupted.
const MOST: f64 = 2.0;

/// The costs of a session: they outlive texts.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// Logarithms of seconds.
    mean: [f64; STATES],
    covariance: [[f64; STATES]; STATES],
    steps: u32,
}

impl Default for Costs {
    fn default() -> Self {
        let mut new = Self { mean: [0.0; STATES], covariance: [[0.0; STATES]; STATES], steps: 0 };
        for i in 0..SLOW {
            for j in 0..SLOW {
                new.covariance[i][j] = ANY * ANY;
            }
        }
        new.mean[DRAFT] = USUAL.0.ln();
        new.covariance[DRAFT][DRAFT] += DRAFTS * DRAFTS;
        new.covariance[SLOW][SLOW] = SLOWNESS.0 * SLOWNESS.0;
        for i in STEP + 1..DRAFT {
            new.mean[i] = (USUAL.1 + USUAL.2 * i as f64).ln();
            for j in STEP + 1..DRAFT {
                new.covariance[i][j] += ROUNDS.0 * ROUNDS.0 + ROUNDS.1 * ROUNDS.1 * (i * j) as f64;
            }
            new.covariance[i][i] += ROUNDS.2 * ROUNDS.2;
        }
        new
    }
}

impl Costs {
    /// Plain steps that show what one costs.
    const FIRST_STEPS: u32 = 2;

    pub(super) fn stepped(&mut self, time: Duration) {
        self.steps = self.steps.saturating_add(1);
        self.took(STEP, time);
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        self.took(DRAFT, time);
    }

    pub(super) fn rounded(&mut self, drafts: usize, time: Duration) {
        self.took(drafts, time);
    }

    /// Whether it is known what a plain step costs.
    pub(super) fn know_steps(&self) -> bool {
        self.steps >= Self::FIRST_STEPS
    }

    /// A block of drafts, in plain steps.
    pub(super) fn draft(&self) -> f64 {
        self.in_steps(DRAFT)
    }

    /// A round with `n` drafts, the next block of drafts included, in plain steps.
    pub(super) fn round(&self, n: usize) -> f64 {
        self.in_steps(n)
    }

    fn in_steps(&self, what: usize) -> f64 {
        (self.mean[what] - self.mean[STEP]).exp()
    }

    /// One step of the filter: `what` took `time`.
    fn took(&mut self, what: usize, time: Duration) {
        let Self { mean, covariance, .. } = self;
        mean[SLOW] *= SLOWNESS.1;
        covariance.iter_mut().for_each(|row| row[SLOW] *= SLOWNESS.1);
        covariance[SLOW].iter_mut().for_each(|value| *value *= SLOWNESS.1);
        covariance[SLOW][SLOW] += SLOWNESS.0 * SLOWNESS.0 * (1.0 - SLOWNESS.1 * SLOWNESS.1);
        for (i, row) in covariance[..DRAFT].iter_mut().enumerate().skip(STEP + 1) {
            row[STEP + 1..DRAFT].iter_mut().for_each(|value| *value += DRIFT.0 * DRIFT.0);
            row[i] += DRIFT.1 * DRIFT.1;
        }
        let gains: [f64; STATES] = std::array::from_fn(|i| covariance[i][what] + covariance[i][SLOW]);
        let error = time.as_secs_f64().max(1e-9).ln() - mean[what] - mean[SLOW];
        // The farther off beyond that, the noisier it was.
        let variance = (gains[what] + gains[SLOW] + NOISE * NOISE).max((error / MOST).powi(2));
        for i in 0..STATES {
            mean[i] += gains[i] * error / variance;
            for j in 0..STATES {
                covariance[i][j] -= gains[i] * gains[j] / variance;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: f64) -> Duration {
        Duration::from_secs_f64(us / 1e6)
    }

    /// One time in five is half as long again, and some are ten times as long.
    #[test]
    fn interruptions_do_not_count() {
        let mut costs = Costs::default();
        let slow = |i: usize| if i % 50 == 7 { 10.0 } else { [1.0, 1.03, 1.5, 1.01, 0.99][i % 5] };
        for i in 0..400 {
            costs.stepped(micros(100.0 * slow(i)));
            costs.rounded(3, micros(230.0 * slow(3 * i + 2)));
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
        assert!((1.5..2.5).contains(&costs.round(3)) && costs.round(3) < costs.round(7), "as usual");
        costs.rounded(3, micros(9000.0));
        assert!(costs.round(3) < 4.0, "one round says little");
        (0..4).for_each(|_| costs.rounded(3, micros(220.0)));
        assert!((2.1..2.5).contains(&costs.round(3)), "{}", costs.round(3));
        assert!(costs.round(7) > 2.3 && costs.round(7) < 3.3 && costs.round(1) < 2.2);
        (0..8).for_each(|_| costs.rounded(7, micros(300.0)));
        let found = costs.round(5);
        assert!((2.4..2.8).contains(&found), "{found}");
        // Measured often enough, it counts as it is.
        for _ in 0..200 {
            costs.stepped(micros(100.0));
            costs.rounded(5, micros(350.0));
        }
        assert!((costs.round(5) - 3.5).abs() < 0.05, "{}", costs.round(5));
    }

    /// All lengths were tried while the machine was busy with something else, and only one of them ever since.
    #[test]
    fn bad_moments_are_not_held_against_lengths() {
        let (mut costs, dear) = (Costs::default(), |n: usize| 150.0 + 20.0 * n as f64);
        (0..3).for_each(|_| costs.stepped(micros(100.0)));
        for n in [7, 3, 5, 1, 2, 4, 6, 7, 5] {
            costs.rounded(n, micros(1.5 * dear(n)));
        }
        for _ in 0..40 {
            costs.stepped(micros(100.0));
            costs.rounded(3, micros(dear(3)));
        }
        for n in 1..8 {
            let off = costs.round(n) / (dear(n) / 100.0);
            assert!((0.9..1.25).contains(&off), "{n}: {off}");
        }
    }
}
