//! Running named steps one after another, and the list at the end.

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use std::process::Command;
use std::time::Instant;

/// One named check: a child process, and what must be installed for it.
pub struct Step {
    /// The name for `--only` and for the list at the end.
    pub name: &'static str,
    /// What it checks, in a few words.
    pub about: &'static str,
    /// The sets that are installed before it starts.
    pub needs: &'static [Set],
    /// The child process.
    pub command: fn() -> Command,
}

/// The steps with these names in the order of the table, or all of them when no name is given.
pub fn select<'a>(steps: &'a [Step], only: &[String]) -> Result<Vec<&'a Step>> {
    if let Some(unknown) = only.iter().find(|name| steps.iter().all(|step| step.name != name.as_str())) {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        return Err(Failure::unusable(
            format!("there is no step `{unknown}`"),
            format!("the steps are: {}", names.join(", ")),
        ));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(steps.iter().filter(wanted).collect())
}

/// Runs all the steps, also after one failed, and ends with the list of failures and the two counts.
pub fn run(steps: &[&Step]) -> Result<()> {
    let root = process::workspace_root()?;
    let mut failures = Vec::new();
    for step in steps {
        let mut command = (step.command)();
        command.current_dir(&root);
        eprintln!("==> {}: {}", step.name, process::typed(&command));
        let start = Instant::now();
        let result = step
            .needs
            .iter()
            .try_for_each(|set| setup::ensure(*set))
            .and_then(|()| process::run(&mut command));
        let seconds = start.elapsed().as_secs_f32();
        match result {
            Ok(()) => eprintln!("==> {}: passed in {seconds:.1} s", step.name),
            Err(failure) => {
                eprintln!("==> {}: FAILED after {seconds:.1} s: {failure}", step.name);
                failures.push((step.name, failure));
            }
        }
    }
    println!();
    for (name, failure) in &failures {
        println!("failed: {name}: {failure}");
    }
    println!("{}", counts(steps.len() - failures.len(), failures.len()));
    match failures.as_slice() {
        [] => Ok(()),
        failures => {
            let again: Vec<_> = failures.iter().map(|(name, _)| format!("--only {name}")).collect();
            Err(Failure::failed(
                format!("{} of {} steps failed", failures.len(), steps.len()),
                format!("to repeat: cargo xtask test {}", again.join(" ")),
            ))
        }
    }
}

/// The line that says how it went; scripts read it.
fn counts(passed: usize, failed: usize) -> String {
    format!("{passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const STEPS: &[Step] = &[
        Step { name: "good", about: "", needs: &[], command: || shell("exit 0") },
        Step { name: "bad", about: "", needs: &[], command: || shell("exit 1") },
        Step { name: "gone", about: "", needs: &[], command: || Command::new("hexflash-no-such-program") },
    ];

    #[test]
    fn selects_by_name_in_table_order() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            select(STEPS, &only).unwrap().iter().map(|step| step.name).collect()
        };
        assert_eq!(names(&[]), ["good", "bad", "gone"]);
        assert_eq!(names(&["bad", "good"]), ["good", "bad"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = select(STEPS, &["god".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("`god`") && error.contains("good, bad, gone"), "{error}");
    }

    #[test]
    fn failures_are_collected_to_the_end() {
        let error = run(&select(STEPS, &[]).unwrap()).unwrap_err().to_string();
        assert!(error.contains("2 of 3") && error.contains("--only bad --only gone"), "{error}");
        assert!(run(&select(STEPS, &["good".to_owned()]).unwrap()).is_ok());
    }

    #[test]
    fn the_counts_are_a_line_of_their_own() {
        assert_eq!(counts(7, 0), "7 passed, 0 failed");
    }
}
