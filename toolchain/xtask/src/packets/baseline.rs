//! The file of expected counts: per build and case packets, instructions and HVX instructions, of all
//! threads.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::Outcome;
use crate::failure::{Failure, Result};

/// How far a count may be from what is expected, in either direction: 2 %.
const TOLERANCE_PERCENT: u64 = 2;

type Expected = BTreeMap<String, BTreeMap<String, [u64; 3]>>;

#[derive(Debug, Default)]
pub(super) struct Baseline(Expected);

impl Baseline {
    /// Reads the file; none is an empty one.
    pub fn read(path: &Path) -> Result<Self> {
        let unreadable = |error: &dyn std::fmt::Display| {
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

    /// What differs; with `complete`, expected cases that were not run, too.
    pub fn differences(&self, outcomes: &[Outcome], complete: bool) -> Vec<String> {
        let mut differences = Vec::new();
        for outcome in outcomes {
            let (build, name) = (outcome.build.to_string(), outcome.case.name());
            let packets = outcome.total().packets;
            match self.0.get(&build).and_then(|cases| cases.get(&name)) {
                None => differences.push(format!("{build} {name}: {packets}, not in the file")),
                Some(&[expected, ..]) => {
                    if packets.abs_diff(expected) * 100 > expected * TOLERANCE_PERCENT {
                        let percent = (packets as f64 / expected as f64 - 1.0) * 100.0;
                        differences
                            .push(format!("{build} {name}: {expected} to {packets} ({percent:+.1} %)"));
                    }
                }
            }
        }
        if complete {
            let run = |build: &str, name: &str| {
                outcomes.iter().any(|o| o.build.to_string() == build && o.case.name() == name)
            };
            for (build, cases) in &self.0 {
                let gone = cases.keys().filter(|name| !run(build, name));
                differences.extend(gone.map(|name| format!("{build} {name}: in the file, but no case")));
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::{Build, Counts};
    use super::*;

    fn outcome(packets: u64) -> Outcome {
        let workers = vec![Counts { packets, instructions: 1, hvx: 1 }];
        Outcome { build: Build::V73, case: &CASES[0], workers }
    }

    #[test]
    fn two_percent_either_way_pass() {
        let mut baseline = Baseline::default();
        baseline.set(&outcome(1000));
        for (packets, same) in [(980, true), (1020, true), (979, false), (1021, false)] {
            assert_eq!(baseline.differences(&[outcome(packets)], true).is_empty(), same, "{packets}");
        }
    }

    #[test]
    fn cases_come_and_go_by_update_only() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.differences(&[outcome(1)], true).len(), 1);
        baseline.set(&outcome(1));
        assert_eq!(baseline.differences(&[], true).len(), 1);
        assert!(baseline.differences(&[], false).is_empty());
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
