//! Figures of several runs, and of several prompts.

use std::fmt;

use serde::Serialize;

use super::sweep::{MeanRow, Mode, PromptRows, RoundCost, Row};
use hexflash::speculation::SpecStats;

/// The speed of a way of decoding over that of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    /// The median over the turns, or the geometric mean of such medians.
    pub median: f64,
    /// Its standard error.
    pub error: f64,
}

impl Ratio {
    /// Turn by turn, so that what slowed down a whole turn cancels out.
    pub(super) fn by_turns(speeds: &[f64], others: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = speeds.iter().zip(others).map(|(speed, other)| speed / other).collect();
        Some(Self { median: median(&ratios)?, error: error_of_median(&ratios)? })
    }

    /// The geometric mean over prompts, whose errors have nothing to do with each other.
    fn mean(ratios: impl Iterator<Item = Self>) -> Option<Self> {
        let (mut n, mut logarithm, mut square) = (0.0, 0.0, 0.0);
        for Self { median, error } in ratios {
            n += 1.0;
            logarithm += median.ln();
            square += (error / median).powi(2);
        }
        let median = (logarithm / n).exp();
        (n > 0.0).then(|| Self { median, error: median * square.sqrt() / n })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.3} ± {:.3}", self.median, self.error))
    }
}

/// `auto` over all prompts, against the one choice that is best for all of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AgainstOne {
    /// That choice: plain decoding, or a length of a drafter.
    pub drafts: Mode,
    #[serde(flatten)]
    pub ratio: Ratio,
}

impl AgainstOne {
    /// Of ways of decoding and their means.
    pub(super) fn find(prompts: &[PromptRows], mean: &[MeanRow]) -> Option<Self> {
        let speed = |i: usize| mean[i].by_turns.map_or(0.0, |ratio| ratio.median);
        let others = (0..mean.len()).filter(|&i| mean[i].drafts != Mode::Auto);
        let one = others.max_by(|&a, &b| speed(a).total_cmp(&speed(b)))?;
        let auto = mean.iter().position(|row| row.drafts == Mode::Auto)?;
        let ratios = prompts.iter().map(|prompt| (&prompt.rows[auto].runs, &prompt.rows[one].runs));
        let ratio = Ratio::mean(ratios.filter_map(|(auto, one)| Ratio::by_turns(auto, one)))?;
        Some(Self { drafts: mean[one].drafts, ratio })
    }
}

pub(super) fn best(speeds: &[f64]) -> Option<f64> {
    speeds.iter().copied().max_by(f64::total_cmp)
}

pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (n > 0).then(|| (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0)
}

/// Standard error of the median of `values`, from their median absolute deviation, as if they were normal.
fn error_of_median(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some(1.253 * 1.483 * median(&deviations)? / (values.len() as f64).sqrt())
}

/// Row `i`, which is that of `drafts`, over all prompts that have runs of it.
pub(super) fn mean(prompts: &[PromptRows], i: usize, drafts: Mode) -> MeanRow {
    let rows = || prompts.iter().map(|prompt| &prompt.rows[i]).filter(|row| !row.runs.is_empty());
    let average = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
        (n > 0.0).then(|| sum / n)
    };
    let with_drafts = || rows().filter_map(|row| row.speculation.as_ref()).filter(|stats| stats.drafted > 0);
    MeanRow {
        drafts,
        speedup: average(&mut rows().filter_map(|row| row.speedup).map(f64::ln)).map(f64::exp),
        by_turns: Ratio::mean(rows().filter_map(|row| row.by_turns)),
        mean_accepted_length: average(&mut rows().filter_map(Row::tokens_per_round)),
        acceptance: average(&mut with_drafts().map(SpecStats::acceptance)),
        cost_per_round: RoundCost(std::array::from_fn(|part| {
            average(&mut rows().map(|row| row.cost_per_round.0[part])).unwrap_or(0.0)
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let medians = (median(&[]), median(&[3.0]), median(&[4.0, 1.0, 3.0, 2.0]));
        assert_eq!(medians, (None, Some(3.0), Some(2.5)));
        assert_eq!(error_of_median(&[]), None);
        assert_eq!(error_of_median(&[1.0, 1.0, 1.0, 9.0]), Some(0.0));
        assert!((error_of_median(&[0.9, 1.0, 1.1]).unwrap() - 0.107).abs() < 1e-3);
    }

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        // The second turn was slow for both.
        let found = Ratio::by_turns(&[4.0, 1.0, 4.2], &[2.0, 0.5, 2.0]).unwrap();
        assert_eq!((found.median, Ratio::by_turns(&[], &[1.0])), (2.0, None));
        let mean =
            Ratio::mean([0.5, 2.0].map(|median| Ratio { median, error: 0.1 * median }).into_iter()).unwrap();
        assert!((mean.median - 1.0).abs() < 1e-12 && (mean.error - 0.1 / 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(Ratio::mean(std::iter::empty()), None);
        assert_eq!(mean.to_string(), "1.000 ± 0.071");
    }
}
