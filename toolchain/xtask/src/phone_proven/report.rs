//! The report of a run, and its judgement.

use std::fmt;

use crate::failure::{Failure, Result};

use super::cases::{Known, Row, arch_index, known};

/// A case that was begun.
#[derive(Debug, Default, PartialEq)]
pub struct Case {
    /// The case, as `OP(PARAMETERS)`.
    pub name: String,
    /// The largest error of a tensor in terms of what ggml allows, and that: both are NMSE as a rule.
    pub error: Option<(f64, f64)>,
    /// ggml's judgement; none where the case did not end.
    pub is_right: Option<bool>,
    /// Lines that were printed besides.
    pub said: String,
}

/// A run of the tests.
#[derive(Debug, Default, PartialEq)]
pub struct Run {
    pub cases: Vec<Case>,
    /// How the process on the DSP ended, if it did.
    pub lost: Option<String>,
    /// Lines of the emulator: instructions that it refuses, transfers that failed.
    pub complaints: Vec<String>,
    /// Transfers, and those that failed; none where the emulator did not come to count them.
    pub transfers: Option<(u64, u64)>,
    /// All that was printed.
    pub printed: String,
}

impl Run {
    /// Reads what was printed (`tests/phone-proven/host/cases.h` writes the lines that matter).
    pub fn read(stdout: &str, stderr: &str) -> Self {
        let mut run = Self { printed: format!("{stdout}\n{stderr}"), ..Self::default() };
        for line in stdout.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, run.cases.last_mut()) {
                ("@case", _) => run.cases.push(Case { name: rest.to_owned(), ..Case::default() }),
                ("@lost", _) => run.lost = Some(rest.to_owned()),
                ("@error", Some(case)) => case.compare(rest),
                ("@end", Some(case)) => case.is_right = Some(rest == "ok"),
                (_, Some(case)) if case.is_right.is_none() && !line.trim().is_empty() => {
                    case.said.push_str(line.trim());
                }
                _ => {}
            }
        }
        for line in stderr.lines() {
            if let Some(counts) = line.strip_prefix("dma: descriptors ") {
                let words: Vec<_> = counts.split(' ').collect();
                let number = |i: usize| words.get(i).and_then(|word| word.parse().ok()).unwrap_or(0);
                run.transfers = Some((number(0), number(4)));
            } else if line.starts_with("0x")
                || line.contains("dma: descriptor 0x")
                || line.starts_with("fault: ")
            {
                run.complaints.push(line.to_owned());
            }
        }
        run
    }
}

impl Case {
    /// `OP ERROR LIMIT`: kept where it is the worst one.
    fn compare(&mut self, words: &str) {
        let numbers: Vec<f64> = words.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        let [error, limit] = numbers[..] else { return };
        let is_worse = |(known, of): (f64, f64)| error * of > known * limit || error.is_nan();
        if self.error.is_none_or(is_worse) {
            self.error = Some((error, limit));
        }
    }

    fn text(&self) -> String {
        let error = match self.error {
            Some((error, limit)) => format!("error {error:.1e}, and {limit:.0e} is allowed"),
            None => "no result was compared".to_owned(),
        };
        if self.said.is_empty() { error } else { format!("{error} ({})", self.said) }
    }
}

/// Judgement of a run.
#[derive(Debug)]
pub struct Judgement {
    title: String,
    cases: usize,
    right: usize,
    /// The worst error of those that are right, and what is allowed there.
    worst: Option<(f64, f64)>,
    transfers: u64,
    /// Failures, each with op, case and version.
    pub failures: Vec<String>,
    /// Known differences that were seen, with how many cases had them.
    pub known: Vec<(&'static Known, usize, f64)>,
    /// Known differences that were not seen.
    pub gone: Vec<&'static Known>,
}

impl Judgement {
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} cases right", self.title, self.right, self.cases)?;
        if let Some((error, limit)) = self.worst {
            write!(f, ", at worst {error:.1e} of {limit:.0e}")?;
        }
        writeln!(f, "; {} transfers", self.transfers)?;
        for (known, cases, worst) in &self.known {
            writeln!(f, "  known: {cases} cases up to {worst:.1e}: {}", known.reason)?;
        }
        for known in &self.gone {
            writeln!(f, "  NOT SEEN any more, so that the table may lose it: {}", known.reason)?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "  FAILED: {failure}"))
    }
}

/// Judges a run of a row. `is_counted` where as many cases are expected as the table says: with the package's
/// own library.
pub fn judge(arch: &str, row: &Row, is_counted: bool, run: &Run) -> Judgement {
    let mut failures = Vec::new();
    let mut worst: Option<(f64, f64)> = None;
    let mut seen: Vec<(&'static Known, usize, f64)> = Vec::new();
    let expected: Vec<_> = known(arch, row).collect();
    let mut right = 0;
    for case in &run.cases {
        match case.is_right {
            Some(true) => {
                right += 1;
                let is_worse =
                    |(error, limit): (f64, f64)| worst.is_none_or(|(worst, of)| error * of > worst * limit);
                // Where both sides are infinite there is no number.
                worst = case.error.filter(|error| !error.0.is_nan() && is_worse(*error)).or(worst);
            }
            Some(false) => {
                // Only errors that were measured have a bound: NaN or a damaged neighbour is a failure.
                let error = case.error.map_or(f64::NAN, |(error, _)| error);
                match expected.iter().find(|known| case.has(known, error)) {
                    Some(known) => match seen.iter_mut().find(|(it, ..)| std::ptr::eq(*it, *known)) {
                        Some((_, cases, most)) => (*cases, *most) = (*cases + 1, most.max(error)),
                        None => seen.push((known, 1, error)),
                    },
                    None => failures.push(format!("{arch} {}: {}", case.name, case.text())),
                }
            }
            None => {
                let how = run.lost.as_deref().unwrap_or("the test program ended");
                failures.push(format!("{arch} {}: {}", case.name, reason(how, &run.complaints)));
            }
        }
    }
    if run.cases.is_empty() {
        let why =
            run.lost.as_deref().map_or("no case was run".to_owned(), |how| reason(how, &run.complaints));
        failures.push(format!("{arch} {}: {why}", row.op));
    }
    let wanted = row.cases.map(|cases| cases[arch_index(arch)]).filter(|_| is_counted && run.lost.is_none());
    if let Some(wanted) = wanted.filter(|wanted| *wanted != run.cases.len()) {
        failures.push(format!(
            "{arch} {}: {} cases were run, and the table has {wanted}",
            row.op,
            run.cases.len()
        ));
    }
    let (transfers, failed) = run.transfers.unwrap_or_default();
    if failed > 0 {
        let which = run.complaints.join("; ");
        failures.push(format!("{arch} {}: {failed} of {transfers} transfers failed: {which}", row.op));
    }
    let gone = expected.into_iter().filter(|known| !seen.iter().any(|(it, ..)| std::ptr::eq(*it, *known)));
    let gone = gone.collect();
    let title = format!("{arch} {}", row.op);
    Judgement { title, cases: run.cases.len(), right, worst, transfers, failures, known: seen, gone }
}

impl Case {
    /// Whether this is that difference.
    fn has(&self, known: &Known, error: f64) -> bool {
        self.name.contains(known.of) && self.said_no_more() && error <= known.bound
    }

    /// Whether ggml found nothing but an error that is too large.
    fn said_no_more(&self) -> bool {
        !["NaN", "inf", "sentinel", "failed"].iter().any(|word| self.said.contains(word))
    }
}

/// Why the process on the DSP ended.
fn reason(how: &str, complaints: &[String]) -> String {
    let what = if how.starts_with("signal 4 ") {
        "the emulator refuses an instruction"
    } else if how.starts_with("signal 7 ") {
        "a DMA transfer failed, or an address is not aligned"
    } else {
        "the process on the DSP ended"
    };
    format!("{what} ({how}): {}", complaints.join("; "))
}

/// Fails with the first of what must not be.
pub fn conclude(judgements: &[Judgement]) -> Result<()> {
    let (cases, right): (usize, usize) =
        judgements.iter().fold((0, 0), |(cases, right), one| (cases + one.cases, right + one.right));
    let known: usize = judgements.iter().flat_map(|one| &one.known).map(|(_, cases, _)| cases).sum();
    let transfers: u64 = judgements.iter().map(|one| one.transfers).sum();
    println!("{right} of {cases} cases right, {known} with known differences; {transfers} transfers");
    let failures: Vec<_> = judgements.iter().flat_map(|one| &one.failures).collect();
    match failures[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::failed(
            format!("{} differences are not known; the first: {first}", failures.len()),
            "repeat it alone by --arch and --op; what is no fault of ours goes to KNOWN in \
             toolchain/xtask/src/phone_proven/cases.rs, with the reason",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::Unit;
    use super::*;

    const ROW: Row = Row { op: "RMS_NORM", only: "", unit: Unit::Beside, cases: Some([1, 1, 1, 1]) };
    const RIGHT: &str =
        "@case RMS_NORM(n=1)\n@error NONE 0.0e+00 1.0e-07\n@error RMS_NORM 3.0e-14 1.0e-07\n@end ok\n";

    fn failures(arch: &str, row: &Row, stdout: &str, stderr: &str) -> Vec<String> {
        judge(arch, row, true, &Run::read(stdout, stderr)).failures
    }

    #[test]
    fn a_case_that_is_right_has_its_worst_error() {
        let run = Run::read(RIGHT, "dma: descriptors 84 bytes 100 errors 0 polls 84 waits 0\n");
        assert_eq!((run.cases[0].error, run.transfers), (Some((3e-14, 1e-7)), Some((84, 0))));
        assert!(!judge("v79", &ROW, true, &run).has_failed());
    }

    #[test]
    fn an_error_that_is_too_large_names_op_case_and_version() {
        let wrong = RIGHT.replace("3.0e-14", "2.0e-07").replace("@end ok", "@end wrong");
        let found = failures("v79", &ROW, &wrong, "");
        assert!(matches!(&found[..], [one] if one.contains("v79 RMS_NORM(n=1): error 2.0e-7")), "{found:?}");
    }

    #[test]
    fn a_known_difference_passes_up_to_its_bound_and_is_missed_when_it_is_gone() {
        let rope = Row { op: "ROPE", ..ROW };
        let wrong = RIGHT.replace("RMS_NORM", "ROPE").replace("@end ok", "@end wrong");
        let of = |error: &str| failures("v79", &rope, &wrong.replace("3.0e-14", error), "");
        assert!(of("2.0e-07").is_empty(), "{:?}", of("2.0e-07"));
        assert_eq!(of("2.0e-05").len(), 1);
        assert_eq!(of("nan").len(), 1);
        assert_eq!(failures("v73", &rope, &wrong.replace("3.0e-14", "2.0e-07"), "").len(), 1);
        let right = judge("v79", &rope, true, &Run::read(&RIGHT.replace("RMS_NORM", "ROPE"), ""));
        assert!(!right.has_failed() && right.gone.len() == 1);
    }

    #[test]
    fn refused_instructions_and_failed_transfers_are_failures() {
        let begun = "@case RMS_NORM(n=1)\n@lost signal 4 while computing\n";
        let found =
            failures("v75", &ROW, begun, "0x001234a0: V6_vconv_sf_w is new in v81, and this is v75\n");
        assert!(found[0].contains("v75 RMS_NORM(n=1)") && found[0].contains("refuses"), "{found:?}");
        assert!(found[0].contains("V6_vconv_sf_w"), "{found:?}");
        let found = failures("v75", &ROW, RIGHT, "dma: descriptors 9 bytes 1 errors 2 polls 9 waits 0\n");
        assert!(found[0].contains("2 of 9 transfers failed"), "{found:?}");
    }

    #[test]
    fn fewer_cases_than_the_table_has_are_a_failure() {
        assert!(failures("v73", &ROW, "", "")[0].contains("no case was run"));
        let two = Row { cases: Some([2, 2, 2, 2]), ..ROW };
        assert!(failures("v73", &two, RIGHT, "")[0].contains("1 cases were run, and the table has 2"));
    }
}
