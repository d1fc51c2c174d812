//! The table of steps in docs/testing/steps.md: what each takes, and what it found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::process;
use crate::suite::{Outcome, Report, Step, Tier};

/// The page, and the lines of it between which the table is.
const PAGE: &str = "docs/testing/steps.md";
const BEGIN: &str = "<!-- steps: `cargo xtask test --write-table` writes what follows -->\n";
const END: &str = "<!-- end of steps -->\n";

/// Seconds by step.
type Seconds = BTreeMap<String, f32>;

/// Keeps the seconds of the steps that passed, beside those of earlier runs.
pub fn record(reports: &[Report], folder: &Path) -> Result<()> {
    let mut seconds = read(folder)?;
    let passed = reports.iter().filter(|report| report.outcome == Outcome::Passed);
    seconds.extend(passed.map(|report| (report.name.to_owned(), report.seconds)));
    let text: String = seconds.iter().fold(String::new(), |mut text, (name, seconds)| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {seconds:.0}");
        text
    });
    let file = file(folder);
    fs::write(&file, text).map_err(|error| Failure::on_disk("write", &file, &error))
}

/// Writes the table of these steps into the page.
pub fn write(steps: &[&Step], folder: &Path) -> Result<()> {
    let page = process::workspace_root()?.join(PAGE);
    let text = fs::read_to_string(&page).map_err(|error| Failure::on_disk("read", &page, &error))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return Err(Failure::failed(
            format!("{PAGE} has no place for the table"),
            format!("put these two lines where it belongs: {BEGIN}{END}"),
        ));
    };
    let table = rows(steps, &read(folder)?);
    fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}"))
        .map_err(|error| Failure::on_disk("write", &page, &error))
}

/// The table: what a change waits for first, and what has no figure yet with a dash.
fn rows(steps: &[&Step], seconds: &Seconds) -> String {
    let mut text =
        "| step | run by | seconds | faults of the product that it found |\n|---|---|---|---|\n".to_owned();
    let mut sorted = steps.to_vec();
    sorted.sort_by_key(|step| step.tier.words().0 != Tier::Test.words().0);
    for step in sorted {
        let tier = match step.tier.words() {
            (tier, "") => format!("`{tier}`"),
            (tier, why) => format!("`{tier}`{}: {why}", step.tier.days()),
        };
        let seconds =
            seconds.get(step.name).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}"));
        let found = if step.found.is_empty() { "none on record" } else { step.found };
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{}` | {tier} | {seconds} | {found} |", step.name);
    }
    text
}

fn read(folder: &Path) -> Result<Seconds> {
    let file = file(folder);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::on_disk("read", &file, &error)),
    };
    let pair =
        |line: &str| line.split_once(' ').and_then(|(name, s)| Some((name.to_owned(), s.parse().ok()?)));
    Ok(text.lines().filter_map(pair).collect())
}

fn file(folder: &Path) -> PathBuf {
    folder.join("seconds.txt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::STEPS;

    #[test]
    fn steps_of_a_change_come_first_and_what_did_not_run_has_no_figure() {
        let steps: Vec<_> = STEPS.iter().collect();
        let text = rows(&steps, &Seconds::from([("fmt".to_owned(), 2.4)]));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), STEPS.len() + 2);
        assert!(lines[2].starts_with("| `fmt` | `test` | 2 |"), "{}", lines[2]);
        let others = lines.iter().position(|line| line.contains("`--full`")).unwrap();
        assert!(lines[others..].iter().all(|line| !line.contains("| `test` |") && line.contains(" - ")));
    }
}
