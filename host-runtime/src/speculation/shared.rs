//! What drafts cost in steps that several texts share.
//!
//! The time of such a step is taken as a part that it has in any case, and a part for each of its rows: a
//! line through the times of steps with many rows and with few, of which the last ones count most. Drafts are
//! made one text after the other, so that their time is added for all.

use std::time::Duration;

/// What is left of the weight of a step after the next one: about 50 steps count.
const FADE: f64 = 0.98;
/// Rows that cost as much as the rest of a step, as long as steps have not shown that.
const USUAL_ROWS: f64 = 8.0;
/// Squares of rows that this guess counts for.
const GUESS_WEIGHT: f64 = 4.0;
/// Share of an error by which the time of a block of drafts is corrected.
const GAIN: f64 = 0.1;

/// The costs of shared steps: they outlive texts.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedCosts {
    /// Sums over steps, with fading weights: of the weights, rows, seconds, squares of rows, and products of
    /// rows and seconds.
    weight: f64,
    rows: f64,
    seconds: f64,
    squares: f64,
    products: f64,
    /// Seconds of a block of drafts.
    draft: f64,
    drafts: u32,
}

impl SharedCosts {
    /// A step with so many rows took `time`.
    pub(super) fn stepped(&mut self, rows: usize, time: Duration) {
        let (rows, seconds) = (rows as f64, time.as_secs_f64());
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.rows, rows),
            (&mut self.seconds, seconds),
            (&mut self.squares, rows * rows),
            (&mut self.products, rows * seconds),
        ] {
            *sum = *sum * FADE + value;
        }
    }

    /// A block of drafts took `time`.
    pub(super) fn drafted(&mut self, time: Duration) {
        self.drafts = self.drafts.saturating_add(1);
        let gain = (1.0 / f64::from(self.drafts)).max(GAIN);
        self.draft += gain * (time.as_secs_f64() - self.draft);
    }

    /// Whether it is known what a step costs.
    pub(super) fn is_known(&self) -> bool {
        self.weight > 1.0
    }

    /// A block of drafts, in steps in which each of `texts` texts has one row.
    pub(super) fn draft(&self, texts: usize) -> f64 {
        self.in_steps(self.draft, texts)
    }

    /// A row, in the same unit.
    pub(super) fn row(&self, texts: usize) -> f64 {
        self.in_steps(self.row_seconds(), texts)
    }

    fn in_steps(&self, seconds: f64, texts: usize) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        let (rows, mean) = (self.rows / self.weight, self.seconds / self.weight);
        let step = mean + self.row_seconds() * (texts as f64 - rows);
        // A line that was drawn through noise may fall below nothing.
        seconds / step.max(0.1 * mean).max(f64::MIN_POSITIVE)
    }

    fn row_seconds(&self) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        let (rows, mean) = (self.rows / self.weight, self.seconds / self.weight);
        let variance = self.squares / self.weight - rows * rows;
        let covariance = self.products / self.weight - rows * mean;
        let guess = mean / (rows + USUAL_ROWS);
        ((covariance + GUESS_WEIGHT * guess) / (variance + GUESS_WEIGHT)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: f64) -> Duration {
        Duration::from_secs_f64(x / 1000.0)
    }

    #[test]
    fn rows_and_drafts_are_told_apart() {
        let mut costs = SharedCosts::default();
        assert!(!costs.is_known());
        // Steps of 4 to 32 rows that take 2 ms, and 0.05 ms for each row.
        for i in 0..200 {
            let rows = 4 + i * 7 % 29;
            costs.stepped(rows, ms(2.0 + 0.05 * rows as f64));
            costs.drafted(ms(0.5));
        }
        let step = 2.0 + 0.05 * 4.0;
        assert!((costs.row(4) - 0.05 / step).abs() < 0.003, "{}", costs.row(4));
        assert!((costs.draft(4) - 0.5 / step).abs() < 0.02, "{}", costs.draft(4));
    }

    #[test]
    fn steps_that_are_all_alike_leave_the_guess() {
        let mut costs = SharedCosts::default();
        (0..100).for_each(|_| costs.stepped(4, ms(2.0)));
        assert!(costs.is_known());
        assert!((costs.row(4) - 1.0 / 12.0).abs() < 0.001, "{}", costs.row(4));
        assert_eq!(costs.draft(4), 0.0, "none were made");
    }
}
