//! The file of expected counts: per build and case packets, instructions and HVX instructions, of all
//! threads.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::cases::Case;
use super::trend::{Change, Trend};
use super::{Build, Outcome};
use crate::failure::{Failure, Result};

/// How far a count may be above what is expected, in percent. Another compiler, or code beside a loop, moves
/// cases by a few percent either way, which nobody has asked for and nobody need answer for. What must not
/// pass is a loop that lost its form, by a spill or a call in it: such a case takes a good deal more.
const TOLERANCE_PERCENT: u64 = 10;

type Expected = BTreeMap<String, BTreeMap<String, [u64; 3]>>;

#[derive(Debug, Default)]
pub(super) struct Baseline(Expected);

impl Baseline {
    /// Reads the file; none is an empty one.
    pub fn read(path: &Path) -> Result<Self> {
        let unreadable = |error: &dyn Display| {
            Failure::unusable(
                format!("{} cannot be read ({error})", path.display()),
                "write it with --update",
            )
        };
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map(Self).map_err(|error| unreadable(&error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(unreadable(&error)),
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        // A line per case, so that a diff shows the cases that changed.
        let mut text = String::from("{");
        for (i, (build, cases)) in self.0.iter().enumerate() {
            text += if i == 0 { "\n" } else { ",\n" };
            text += &format!("  \"{build}\": {{");
            for (i, (case, counts)) in cases.iter().enumerate() {
                text += if i == 0 { "\n" } else { ",\n" };
                text += &format!("    \"{case}\": {counts:?}");
            }
            text += "\n  }";
        }
        text += "\n}\n";
        fs::write(path, text).map_err(|error| {
            Failure::failed(
                format!("{} cannot be written ({error})", path.display()),
                "see the file's rights",
            )
        })
    }

    pub fn set(&mut self, outcome: &Outcome) {
        let total = outcome.total();
        let counts = [total.packets, total.instructions, total.hvx];
        self.0.entry(outcome.build.to_string()).or_default().insert(outcome.case.name(), counts);
    }

    /// Expected packets of all threads, if the case is counted in this build.
    pub fn packets(&self, build: Build, case: &Case) -> Option<u64> {
        self.0.get(&build.to_string())?.get(&case.name()).map(|&[packets, ..]| packets)
    }

    /// Compares what was counted; with `complete`, expected cases that were not run are missed, too.
    pub fn compare(&self, outcomes: &[Outcome], complete: bool) -> Comparison {
        let (mut trend, mut failures) = (Trend::default(), Vec::new());
        for outcome in outcomes {
            let (build, case) = (outcome.build.to_string(), outcome.case.name());
            let packets = outcome.total().packets;
            match self.0.get(&build).and_then(|cases| cases.get(&case)) {
                None => failures.push(format!("{build} {case}: {packets}, not in the file")),
                Some(&[expected, ..]) => {
                    let change = Change { build, case, expected, packets };
                    if packets.saturating_sub(expected) * 100 > expected * TOLERANCE_PERCENT {
                        failures.push(change.to_string());
                    }
                    trend.add(change);
                }
            }
        }
        if complete {
            let run = |build: &str, name: &str| {
                outcomes.iter().any(|o| o.build.to_string() == build && o.case.name() == name)
            };
            for (build, cases) in &self.0 {
                let gone = cases.keys().filter(|name| !run(build, name));
                failures.extend(gone.map(|name| format!("{build} {name}: in the file, but no case")));
            }
        }
        Comparison { trend, failures }
    }
}

/// Outcome of a comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    /// All that was counted and is in the file.
    pub trend: Trend,
    /// Failures: counts that are too high, and cases that the file has not or has alone.
    pub failures: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::Counts;
    use super::super::cases::CASES;
    use super::*;

    fn outcome(packets: u64) -> Outcome {
        let workers = vec![Counts { packets, instructions: 1, hvx: 1 }];
        Outcome { build: Build::V73, case: &CASES[0], workers }
    }

    #[test]
    fn a_tenth_more_passes_and_any_gain() {
        let mut baseline = Baseline::default();
        baseline.set(&outcome(1000));
        for (packets, passes) in [(1, true), (900, true), (1000, true), (1100, true), (1101, false)] {
            let compared = baseline.compare(&[outcome(packets)], true);
            assert_eq!(compared.failures.is_empty(), passes, "{packets}");
        }
        let failures = baseline.compare(&[outcome(1250)], true).failures;
        assert!(failures[0].ends_with("1000 to 1250 (+25.0 %)"), "{failures:?}");
    }

    #[test]
    fn cases_come_and_go_by_update_only() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.compare(&[outcome(1)], true).failures.len(), 1);
        baseline.set(&outcome(1));
        assert_eq!(baseline.compare(&[], true).failures.len(), 1);
        assert!(baseline.compare(&[], false).failures.is_empty());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let path = std::env::temp_dir().join(format!("hexflash-packets-{}.json", std::process::id()));
        let mut baseline = Baseline::default();
        baseline.set(&outcome(7));
        baseline.write(&path).unwrap();
        let read = Baseline::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(read.0, baseline.0);
        assert!(Baseline::read(&path).unwrap().0.is_empty());
    }
}
