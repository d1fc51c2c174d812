//! How counts have moved since the file of expected counts was written: shown, and never a failure.

use std::collections::BTreeMap;
use std::fmt;

/// As many of the cases that changed most are shown, in each direction.
const SHOWN: usize = 5;

/// A case that was counted, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub build: String,
    pub case: String,
    /// Packets in the file.
    pub expected: u64,
    /// Packets counted.
    pub packets: u64,
}

impl Change {
    /// How many packets there are for each that was expected.
    fn ratio(&self) -> f64 {
        self.packets as f64 / self.expected.max(1) as f64
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { build, case, expected, packets } = self;
        write!(f, "{build} {case}: {expected} to {packets} ({:+.1} %)", percent(self.ratio()))
    }
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// All cases that were counted and have an expected count.
#[derive(Debug, Default)]
pub(super) struct Trend(Vec<Change>);

impl Trend {
    pub fn add(&mut self, change: Change) {
        self.0.push(change);
    }

    /// The cases that changed most upwards, or downwards.
    fn most(&self, upwards: bool) -> Vec<&Change> {
        let changed = |change: &&Change| match upwards {
            true => change.packets > change.expected,
            false => change.packets < change.expected,
        };
        let mut changes: Vec<_> = self.0.iter().filter(changed).collect();
        changes.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        if upwards {
            changes.reverse();
        }
        changes.truncate(SHOWN);
        changes
    }
}

/// Cases of one build.
#[derive(Default)]
struct Sum {
    cases: usize,
    changed: usize,
    expected: u64,
    packets: u64,
    /// Of the ratios' logarithms: a long case counts as much as a short one there.
    logarithms: f64,
}

impl fmt::Display for Trend {
    /// The sum and the mean of each build, and the cases that changed most, each on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builds: BTreeMap<&str, Sum> = BTreeMap::new();
        for change in &self.0 {
            let sum = builds.entry(&change.build).or_default();
            sum.cases += 1;
            sum.changed += usize::from(change.packets != change.expected);
            sum.expected += change.expected;
            sum.packets += change.packets;
            sum.logarithms += change.ratio().max(f64::MIN_POSITIVE).ln();
        }
        for (build, sum) in builds {
            let all = sum.packets as f64 / sum.expected.max(1) as f64;
            let mean = (sum.logarithms / sum.cases as f64).exp();
            writeln!(
                f,
                "{build}: {} of {} cases changed, {} packets in sum ({:+.2} %), {:+.2} % in the mean of cases",
                sum.changed,
                sum.cases,
                sum.packets,
                percent(all),
                percent(mean)
            )?;
        }
        for (what, upwards) in [("more", true), ("less", false)] {
            for change in self.most(upwards) {
                writeln!(f, "  {what}: {change}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(counts: &[(&str, u64, u64)]) -> Trend {
        let mut trend = Trend::default();
        for (i, &(build, expected, packets)) in counts.iter().enumerate() {
            trend.add(Change { build: build.to_owned(), case: format!("case {i}"), expected, packets });
        }
        trend
    }

    #[test]
    fn gains_and_losses_are_shown_beside_the_sum() {
        let trend = trend(&[("v67", 100, 100), ("v73", 1000, 1050), ("v73", 1000, 500), ("v73", 10, 11)]);
        let text = trend.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "v67: 0 of 1 cases changed, 100 packets in sum (+0.00 %), +0.00 % in the mean of cases"
        );
        assert!(
            lines[1].starts_with("v73: 3 of 3 cases changed, 1561 packets in sum (-22.34 %), "),
            "{text}"
        );
        // The mean of 1.05, 0.5 and 1.1 by their product.
        assert!(lines[1].ends_with("-16.72 % in the mean of cases"), "{text}");
        let rest = [
            "  more: v73 case 3: 10 to 11 (+10.0 %)",
            "  more: v73 case 1: 1000 to 1050 (+5.0 %)",
            "  less: v73 case 2: 1000 to 500 (-50.0 %)",
        ];
        assert_eq!(lines[2..], rest);
    }

    #[test]
    fn the_largest_changes_are_shown() {
        let counts: Vec<_> = (1..=9).map(|i| ("v79", 100, 100 + i)).collect();
        let trend = trend(&counts);
        let shown: Vec<_> = trend.most(true).iter().map(|change| change.packets).collect();
        assert_eq!(shown, [109, 108, 107, 106, 105]);
        assert!(trend.most(false).is_empty());
    }
}
