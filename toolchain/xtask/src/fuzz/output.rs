//! What libFuzzer says while it runs.

use std::time::Duration;

/// How far a run is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Inputs run.
    pub executions: u64,
    /// Edges of the control flow that were taken (`cov`).
    pub edges: u64,
    /// Edges with how often they are taken, and comparisons (`ft`).
    pub features: u64,
    /// Inputs of the corpus.
    pub inputs: u64,
    /// When an input last reached something new, the reading of the corpus included.
    pub last_new: Duration,
}

/// Whether a line only tells of progress: `#1234  NEW  cov: 5 ft: 6 corp: 7/8b ...`.
pub fn is_progress(line: &str) -> bool {
    line.starts_with('#') && line.contains(" cov: ")
}

impl Progress {
    /// Takes a line that came after `elapsed`.
    pub fn read(&mut self, line: &str, elapsed: Duration) {
        let Some((number, event)) = line.strip_prefix('#').and_then(|rest| rest.split_once('\t')) else {
            if let Some(n) = line.strip_prefix("stat::number_of_executed_units:") {
                self.executions = n.trim().parse().unwrap_or(self.executions);
            }
            return;
        };
        let word = |name: &str| -> Option<u64> {
            let value = event.split_once(name)?.1.split_whitespace().next()?;
            value.split('/').next()?.parse().ok()
        };
        self.executions = number.parse().unwrap_or(self.executions);
        self.edges = word("cov:").unwrap_or(self.edges);
        self.features = word("ft:").unwrap_or(self.features);
        self.inputs = word("corp:").unwrap_or(self.inputs);
        if event.starts_with("NEW") || event.starts_with("INITED") {
            self.last_new = elapsed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_run() {
        let mut progress = Progress::default();
        let lines = [
            "INFO: Seed: 5",
            "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 30Mb",
            "#90\tNEW    cov: 20 ft: 31 corp: 4/9b lim: 4 exec/s: 0 rss: 30Mb L: 3/3 MS: 1 ChangeByte-",
            "#95\tREDUCE cov: 20 ft: 31 corp: 4/8b lim: 4 exec/s: 0 rss: 30Mb",
            "#128\tpulse  cov: 20 ft: 31 corp: 4/8b lim: 4 exec/s: 64 rss: 31Mb",
            "stat::number_of_executed_units: 130",
        ];
        for (second, line) in (0..).zip(lines) {
            progress.read(line, Duration::from_secs(second));
            assert_eq!(is_progress(line), line.starts_with('#'));
        }
        let last_new = Duration::from_secs(2);
        assert_eq!(progress, Progress { executions: 130, edges: 20, features: 31, inputs: 4, last_new });
    }
}
