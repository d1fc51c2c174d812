//! What the runner says: a line per case, totals per op, reasons for what was skipped.

use std::collections::{BTreeMap, BTreeSet};

use hexflash_abi::Op;
use hexflash_oracle::cases::Case;
use serde_json::json;

use super::adapt::{Failure, limit};

/// Ops that ggml does not have, or only as several of its own. The tests of dsp-runtime hold them against
/// naive ones: what moves step registers, the first half of FLASH_ATTN_EXT alone, and the router and the sum
/// of a mixture of experts.
const WITHOUT_GGML: [Op; 7] =
    [Op::Accept, Op::SetTokens, Op::NextDraft, Op::KvAppend, Op::CopySlot, Op::TopkMoe, Op::WeightedSum];

/// How a case ended.
pub enum Status {
    /// Every way is close enough.
    Ok {
        /// Largest error.
        nmse: f64,
        /// Ways that were run.
        ways: Vec<&'static str>,
        /// Ops of their programs.
        ops: BTreeSet<&'static str>,
    },
    /// A way is not.
    Fail(Failure),
    /// hexflash has no such operation, for this reason.
    Skip(String),
}

#[derive(Default)]
struct Total {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Largest error as a share of the limit, and the error.
    worst: (f64, f64),
    seconds: f64,
}

/// The results so far.
pub struct Report {
    json: bool,
    quiet: bool,
    totals: BTreeMap<&'static str, Total>,
    reasons: BTreeMap<String, usize>,
    failures: Vec<String>,
    /// Cases that passed, by op of the op table.
    covered: BTreeMap<&'static str, usize>,
}

impl Report {
    /// An empty report; `quiet` leaves out the lines of cases that passed or were skipped.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            totals: BTreeMap::new(),
            reasons: BTreeMap::new(),
            failures: Vec::new(),
            covered: BTreeMap::new(),
        }
    }

    /// Takes the end of a case in.
    pub fn add(&mut self, case: &Case, status: &Status, seconds: f64) {
        let total = self.totals.entry(case.op).or_default();
        total.seconds += seconds;
        let name = &case.name;
        match status {
            Status::Ok { nmse, ways, ops } => {
                total.passed += 1;
                let share = if limit(case) > 0.0 { nmse / limit(case) } else { 0.0 };
                if share > total.worst.0 {
                    total.worst = (share, *nmse);
                }
                for op in ops {
                    *self.covered.entry(op).or_default() += 1;
                }
                if !self.json && !self.quiet {
                    println!("OK    {name}: NMSE {nmse:.2e}, {}", ways.join(", "));
                }
            }
            Status::Fail(failure) => {
                total.failed += 1;
                self.failures.push(name.clone());
                if !self.json {
                    println!("FAIL  {name}: {}: {}; seed {:#018x}", failure.way, failure.why, case.seed);
                }
            }
            Status::Skip(why) => {
                total.skipped += 1;
                *self.reasons.entry(why.clone()).or_default() += 1;
                if !self.json && !self.quiet {
                    println!("skip  {name}: {why}");
                }
            }
        }
        if self.json {
            let mut line = json!({
                "case": name, "op": case.op, "seed": format!("{:#018x}", case.seed),
                "origin": format!("{:?}", case.origin), "limit": limit(case), "seconds": seconds,
            });
            let more = match status {
                Status::Ok { nmse, ways, .. } => json!({ "status": "ok", "nmse": nmse, "ways": ways }),
                Status::Fail(f) => json!({ "status": "fail", "way": f.way, "why": f.why, "nmse": f.nmse }),
                Status::Skip(why) => json!({ "status": "skip", "why": why }),
            };
            if let (Some(line), serde_json::Value::Object(more)) = (line.as_object_mut(), more) {
                line.extend(more);
            }
            println!("{line}");
        }
    }

    /// Ops of the op table that no passing case has run, but for those that have no counterpart to compare
    /// with.
    fn uncovered(&self) -> Vec<&'static str> {
        let ops = (1..=u16::MAX).map_while(Op::parse).filter(|op| !WITHOUT_GGML.contains(op)).map(Op::name);
        ops.filter(|name| !self.covered.contains_key(name)).collect()
    }

    /// Prints the totals. `whole`: nothing was filtered out, so that every op must have passed somewhere.
    /// Returns whether all is well.
    pub fn finish(&self, whole: bool, seconds: f64) -> bool {
        let sum = |f: fn(&Total) -> usize| self.totals.values().map(f).sum::<usize>();
        let (passed, failed, skipped) = (sum(|t| t.passed), sum(|t| t.failed), sum(|t| t.skipped));
        let uncovered = if whole { self.uncovered() } else { Vec::new() };
        let fine = failed == 0 && passed > 0 && uncovered.is_empty();
        if self.json {
            let ops: BTreeMap<_, _> = self
                .totals
                .iter()
                .map(|(op, t)| {
                    let total = json!({
                        "passed": t.passed, "failed": t.failed, "skipped": t.skipped,
                        "worst_nmse": t.worst.1, "worst_share": t.worst.0, "seconds": t.seconds,
                    });
                    (op, total)
                })
                .collect();
            let summary = json!({
                "passed": passed, "failed": failed, "skipped": skipped, "seconds": seconds, "ops": ops,
                "skip_reasons": self.reasons, "failures": self.failures, "op_table": self.covered,
                "uncovered": uncovered,
            });
            println!("{summary}");
            return fine;
        }
        println!();
        println!(
            "{:18} {:>6} {:>6} {:>6}  {:>10} {:>9} {:>8}",
            "op", "passed", "failed", "skip", "worst NMSE", "of limit", "seconds"
        );
        for (op, t) in &self.totals {
            let (share, nmse) = t.worst;
            println!(
                "{op:18} {:6} {:6} {:6}  {nmse:10.2e} {:8.2}% {:8.1}",
                t.passed,
                t.failed,
                t.skipped,
                share * 100.0,
                t.seconds
            );
        }
        if !self.reasons.is_empty() {
            println!("\nskipped, because");
            for (why, n) in &self.reasons {
                println!("{n:6}  {why}");
            }
        }
        let table: Vec<String> = self.covered.iter().map(|(op, n)| format!("{op} {n}")).collect();
        println!("\npassing cases by op of the op table: {}", table.join(", "));
        println!("not in ggml, and tested elsewhere: {}", WITHOUT_GGML.map(Op::name).join(", "));
        if !uncovered.is_empty() {
            println!("NOT COVERED: {}", uncovered.join(", "));
        }
        for name in &self.failures {
            println!("failed; to repeat it: cargo xtask conformance --case '{name}'");
        }
        if passed + failed + skipped == 0 {
            println!("no case has such a name");
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped in {seconds:.0} s");
        fine
    }
}
