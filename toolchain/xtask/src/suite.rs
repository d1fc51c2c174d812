//! Running named steps, several at a time where they allow it, and the list at the end.

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// One named check: a child process, and what must be installed for it.
pub struct Step {
    /// The name for `--only` and for the list at the end.
    pub name: &'static str,
    /// What it checks, in a few words.
    pub about: &'static str,
    /// The sets that are installed before it starts.
    pub needs: &'static [Set],
    /// Steps whose results it uses: of those that are run at all, it starts when they have ended.
    pub after: &'static [&'static str],
    /// Where it builds.
    pub place: Place,
    /// The child process.
    pub command: fn() -> Command,
}

/// Where a step builds. Cargo lets one process at a time build in a folder; others would wait in their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the workspace's target folder.
    Workspace,
    /// In the target folder of `tests/oracle`.
    Oracle,
    /// In a folder of its own, or nowhere.
    Own,
}

impl Place {
    fn is_shared_with(self, other: Self) -> bool {
        self == other && self != Self::Own
    }
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
///
/// Up to `lanes` steps run at the same time: a compiler and an emulator each leave a processor idle now and
/// then. With a folder for it, what a step prints goes to a file there, and is shown as a whole when the step
/// has ended.
pub fn run(steps: &[&Step], lanes: usize, folder: Option<&Path>) -> Result<()> {
    let root = process::workspace_root()?;
    let output = folder.map_or(Output::Shown, Output::Kept);
    let queue =
        Queue { steps, state: Mutex::new(vec![State::Waiting; steps.len()]), changed: Condvar::new() };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(i) = queue.next() {
                    queue.end(i, one(steps[i], &root, &output));
                }
            });
        }
    });
    let states = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failures: Vec<_> = steps
        .iter()
        .zip(states)
        .filter_map(|(step, state)| match state {
            State::Ended(Err(why)) => Some((step.name, why)),
            State::Waiting | State::Running | State::Ended(Ok(())) => None,
        })
        .collect();
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

/// Where what a step prints goes.
enum Output<'a> {
    /// To where ours goes.
    Shown,
    /// To a file per step in this folder, and from there to where ours goes.
    Kept(&'a Path),
}

/// Where a step is on its way.
#[derive(Clone)]
enum State {
    Waiting,
    Running,
    Ended(std::result::Result<(), String>),
}

/// The steps that lanes take from.
struct Queue<'a> {
    steps: &'a [&'a Step],
    state: Mutex<Vec<State>>,
    changed: Condvar,
}

impl Queue<'_> {
    /// The first step that may start, which then counts as running; waits for one. `None` when none is left.
    fn next(&self) -> Option<usize> {
        let mut states = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(i) = (0..states.len()).find(|&i| self.may_start(i, &states)) {
                states[i] = State::Running;
                return Some(i);
            }
            if !states.iter().any(|state| matches!(state, State::Waiting)) {
                return None;
            }
            states = self.changed.wait(states).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a step waits for nothing any more: what it comes after has ended, and nothing builds in the
    /// same place.
    fn may_start(&self, i: usize, states: &[State]) -> bool {
        let step = self.steps[i];
        let blocks = |other: &Step, state: &State| match state {
            State::Waiting => step.after.contains(&other.name),
            State::Running => step.after.contains(&other.name) || step.place.is_shared_with(other.place),
            State::Ended(_) => false,
        };
        matches!(states[i], State::Waiting)
            && !self.steps.iter().zip(states).any(|(other, state)| blocks(other, state))
    }

    fn end(&self, i: usize, outcome: Result<()>) {
        let mut states = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        states[i] = State::Ended(outcome.map_err(|failure| failure.to_string()));
        self.changed.notify_all();
    }
}

/// Installs what a step needs and runs it.
fn one(step: &Step, root: &Path, output: &Output<'_>) -> Result<()> {
    let mut command = (step.command)();
    command.current_dir(root);
    eprintln!("==> {}: {}", step.name, process::typed(&command));
    let start = Instant::now();
    let result = step.needs.iter().try_for_each(|set| setup::ensure(*set)).and_then(|()| match output {
        Output::Shown => process::run(&mut command),
        Output::Kept(folder) => run_to_file(&mut command, &folder.join(format!("{}.txt", step.name))),
    });
    let seconds = start.elapsed().as_secs_f32();
    match &result {
        Ok(()) => eprintln!("==> {}: passed in {seconds:.1} s", step.name),
        Err(failure) => eprintln!("==> {}: FAILED after {seconds:.1} s: {failure}", step.name),
    }
    result
}

/// Runs a command with its output in a file, and shows that when the command has ended.
fn run_to_file(command: &mut Command, path: &Path) -> Result<()> {
    let open = || File::create(path).and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = open().map_err(|error| on_disk("write", path, &error))?;
    let result = process::run(command.stdout(out).stderr(err));
    // In one piece: other lanes print, too.
    let text = fs::read(path).map_err(|error| on_disk("read", path, &error))?;
    let shown = io::stderr().lock().write_all(&text);
    shown.map_err(|error| on_disk("show", path, &error))?;
    result
}

fn on_disk(verb: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::unusable(format!("cannot {verb} {} ({error})", path.display()), "look after the disk")
}

/// The line that says how it went; scripts read it.
fn counts(passed: usize, failed: usize) -> String {
    format!("{passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const fn step(name: &'static str, command: fn() -> Command) -> Step {
        Step { name, about: "", needs: &[], after: &[], place: Place::Own, command }
    }

    const STEPS: &[Step] = &[
        step("good", || shell("exit 0")),
        step("bad", || shell("exit 1")),
        step("gone", || Command::new("hexflash-no-such-program")),
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
        for lanes in 1..4 {
            let folder = env::temp_dir().join(format!("hexflash-suite-{}-{lanes}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let kept = (lanes > 1).then_some(&*folder);
            let error = run(&select(STEPS, &[]).unwrap(), lanes, kept).unwrap_err().to_string();
            assert!(error.contains("2 of 3") && error.contains("--only bad --only gone"), "{error}");
            assert!(run(&select(STEPS, &["good".to_owned()]).unwrap(), lanes, kept).is_ok());
            assert_eq!(folder.join("good.txt").is_file(), lanes > 1);
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn a_step_starts_after_those_that_it_uses_and_not_beside_one_that_builds_in_its_place() {
        let of = |name, after, place| Step { after, place, ..step(name, || shell("exit 0")) };
        let all = [
            of("a", &[], Place::Workspace),
            of("b", &["a", "not chosen"], Place::Own),
            of("c", &[], Place::Workspace),
            of("d", &[], Place::Oracle),
            of("e", &["b"], Place::Oracle),
        ];
        let steps: Vec<_> = all.iter().collect();
        let state = Mutex::new(vec![State::Waiting; steps.len()]);
        let queue = Queue { steps: &steps, state, changed: Condvar::new() };
        let next = || queue.next().map(|i| steps[i].name);
        let end = |name| queue.end(steps.iter().position(|step| step.name == name).unwrap(), Ok(()));
        assert_eq!([next(), next()], [Some("a"), Some("d")]);
        end("a");
        assert_eq!([next(), next()], [Some("b"), Some("c")]);
        end("b");
        end("d");
        assert_eq!([next(), next()], [Some("e"), None]);
    }

    #[test]
    fn the_counts_are_a_line_of_their_own() {
        assert_eq!(counts(7, 0), "7 passed, 0 failed");
    }
}
