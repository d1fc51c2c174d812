//! What steps, drafts and rounds cost, learned from their times.
//!
//! Times scatter: a machine is interrupted for moments and slower for seconds. So the logarithm of a time is
//! taken as the sum of what the thing costs, of how slow the machine is just now, and of noise. Each time
//! corrects the first two by a share of its error. A round with n drafts costs `usual_round + usual_row * n`,
//! times a factor that all rounds share, times a factor that grows with n: so a length that was never tried
//! is judged by those that were.

use std::time::Duration;

use super::tuning::TUNING;

/// The costs of a session: they outlive texts.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// Logarithm of the seconds of a plain step.
    step: f64,
    /// Logarithm of the cost of a block of drafts, in plain steps.
    draft: f64,
    /// Logarithm of the factor that all rounds share.
    round: f64,
    /// Logarithm of the factor per [`tilt`].
    slope: f64,
    /// Logarithm of how slow the machine is just now.
    slow: f64,
    /// Plain steps that were timed.
    steps: u32,
    /// Blocks of drafts that were timed.
    drafts: u32,
    /// Rounds that were timed.
    rounds: u32,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            step: 0.0,
            draft: TUNING.usual_draft.ln(),
            round: 0.0,
            slope: 0.0,
            slow: 0.0,
            steps: 0,
            drafts: 0,
            rounds: 0,
        }
    }
}

/// Position of a round with `n` drafts between short (-1) and long (1), for the slope of costs: 0 at 4
/// drafts, half of the usual block.
fn tilt(n: usize) -> f64 {
    (n as f64 - 4.0) / 4.0
}

/// Counts a time; gives the share of its error that corrects a cost whose first guess has this weight.
fn gain(timed: &mut u32, guess_weight: f64) -> f64 {
    *timed = timed.saturating_add(1);
    (1.0 / (f64::from(*timed) + guess_weight)).max(TUNING.gain)
}

impl Costs {
    pub(super) fn stepped(&mut self, time: Duration) {
        if self.steps == 0 {
            self.step = ln_seconds(time);
        }
        let error = self.error(time, self.step);
        self.step += error * gain(&mut self.steps, 0.0);
    }

    pub(super) fn drafted(&mut self, time: Duration) {
        let error = self.error(time, self.step + self.draft);
        self.draft += error * gain(&mut self.drafts, TUNING.guess_weight);
    }

    pub(super) fn rounded(&mut self, drafts: usize, time: Duration) {
        let error = self.error(time, self.step + self.ln_round(drafts));
        self.round += error * gain(&mut self.rounds, TUNING.guess_weight);
        self.slope += error * TUNING.gain * tilt(drafts);
    }

    /// Whether it is known what a plain step costs: the first one finds cold caches.
    pub(super) fn know_steps(&self) -> bool {
        self.steps >= 2
    }

    /// A block of drafts, in plain steps.
    pub(super) fn draft(&self) -> f64 {
        self.draft.exp()
    }

    /// A round with `n` drafts, the next block of drafts included, in plain steps.
    pub(super) fn round(&self, n: usize) -> f64 {
        self.ln_round(n).exp()
    }

    fn ln_round(&self, n: usize) -> f64 {
        (TUNING.usual_round + TUNING.usual_row * n as f64).ln() + self.round + self.slope * tilt(n)
    }

    /// By how much the logarithm of a time exceeds what was expected of the machine as it is just now.
    fn error(&mut self, time: Duration, expected: f64) -> f64 {
        self.slow *= TUNING.slow_fade;
        let most = TUNING.most_error;
        let error = (ln_seconds(time) - expected - self.slow).clamp(-most, most);
        self.slow += TUNING.slow_gain * error;
        error
    }
}

fn ln_seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9).ln()
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
        assert!((costs.round(3) - 2.9).abs() < 0.05, "{}", costs.round(3));
    }

    /// What was not tried follows from what was.
    #[test]
    fn unknown_lengths() {
        let mut costs = Costs::default();
        assert!(!costs.know_steps());
        (0..2).for_each(|_| costs.stepped(micros(100.0)));
        assert!(costs.know_steps());
        assert!((1.3..2.5).contains(&costs.round(3)) && costs.round(3) < costs.round(7), "as usual");
        costs.rounded(3, micros(9000.0));
        assert!(costs.round(3) < 4.0, "one round says little");
        let mut go_on = |n: usize, us: f64| {
            for _ in 0..60 {
                costs.stepped(micros(100.0));
                costs.rounded(n, micros(us));
            }
            costs.clone()
        };
        let costs_of_3 = go_on(3, 220.0);
        let [one, three, seven] = [1, 3, 7].map(|n| costs_of_3.round(n));
        assert!(
            (2.1..2.5).contains(&three) && (2.3..3.3).contains(&seven) && one < 2.2,
            "{one} {three} {seven}"
        );
        go_on(7, 300.0);
        let found = costs.round(5);
        assert!((2.4..2.8).contains(&found), "{found}");
        // Measured often enough, it counts as it is.
        for _ in 0..200 {
            costs.stepped(micros(100.0));
            costs.rounded(5, micros(350.0));
        }
        assert!((costs.round(5) - 3.5).abs() < 0.1, "{}", costs.round(5));
    }

    /// The rows of a block go to more and more of the experts, whose weights have to be read: with gpt-oss's
    /// 4 of 32, seven drafts make a round four times as dear as a step. That is in the times, and so in the
    /// costs.
    #[test]
    fn experts_of_all_rows_are_paid_for() {
        let read = |rows: i32| 1.0 - (1.0 - 4.0 / 32f64).powi(rows);
        let dear = |drafts: usize| 30.0 + 70.0 * read(drafts as i32 + 1) / read(1);
        let mut costs = Costs::default();
        for turn in 0..300 {
            costs.stepped(micros(100.0));
            let drafts = [1, 3, 7][turn % 3];
            costs.rounded(drafts, micros(dear(drafts)));
        }
        for drafts in 1..8 {
            let off = costs.round(drafts) / (dear(drafts) / 100.0);
            assert!((0.85..1.15).contains(&off), "{drafts}: {off}");
        }
    }

    /// All lengths were tried while the machine was busy with something else, and only one of them ever
    /// since.
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
            assert!((0.85..1.25).contains(&off), "{n}: {off}");
        }
    }
}
