//! Running named steps, several at a time where they allow it, and the list at the end.

use crate::daily;
use crate::failure::{Failure, Result};
use crate::limit;
use crate::process;
use crate::setup::{self, Set};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a step counts as one that hangs. The longest takes fifteen minutes, and thirty where two
/// other builds share the processors.
const LIMIT: Duration = Duration::from_secs(40 * 60);

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
    /// The verb that runs it.
    pub tier: Tier,
    /// Faults of the product that it found, by commits of this repository; empty where none are recorded.
    pub found: &'static str,
    /// The child process.
    pub command: fn() -> Command,
}

/// The smallest set of checks that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// `cargo xtask test`: what a change must pass.
    Test,
    /// `cargo xtask test --full`: the rest, with the days on which CI (`--rest`) runs it, and the reason why
    /// a change does not wait for it.
    Full(Days, &'static str),
    /// `cargo xtask daily`, which is a step of `--full`: a turn by date, with the reason for no more.
    Daily(&'static str),
}

/// Days on which CI runs a step. Half of the steps on each keep it below an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Days {
    /// Each day.
    All,
    /// Days since 1970 that are even: what llama.cpp and clients say.
    Even,
    /// The others: what runs as code for Hexagon.
    Odd,
}

impl Days {
    /// Whether a day is one of them, in days since 1970.
    pub fn has(self, day: u64) -> bool {
        match self {
            Self::All => true,
            Self::Even => day.is_multiple_of(2),
            Self::Odd => !day.is_multiple_of(2),
        }
    }
}

impl Tier {
    /// Way that the step is run, and the reason why not the ways before it.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Test => ("test", ""),
            Self::Full(_, why) => ("--full", why),
            Self::Daily(why) => ("daily", why),
        }
    }

    /// Days on which CI runs the step, as text that follows the way; empty where that is each day.
    pub fn days(self) -> &'static str {
        match self {
            Self::Full(Days::Even, _) => ", in CI on even days",
            Self::Full(Days::Odd, _) => ", in CI on odd days",
            Self::Test | Self::Full(Days::All, _) | Self::Daily(_) => "",
        }
    }
}

/// Fate of a step that needs something which is not on this machine and cannot be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The step is skipped, named and counted, unless it is a compiler or a linter that is missing.
    Skips,
    /// The step has failed.
    Fails,
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

/// Runs all the steps, also after one failed; how each ended, in their order.
///
/// Up to `lanes` steps run at the same time: a compiler and an emulator each leave a processor idle now and
/// then. With a folder for it, what a step prints goes to a file there, and is shown as a whole when the step
/// has ended.
pub fn run(steps: &[&Step], lanes: usize, folder: Option<&Path>, missing: Missing) -> Result<Vec<Report>> {
    let root = process::workspace_root()?;
    let output = folder.map_or(Output::Shown, Output::Kept);
    let queue =
        Queue { steps, state: Mutex::new(vec![State::Waiting; steps.len()]), changed: Condvar::new() };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(i) = queue.next() {
                    queue.end(i, one(steps[i], &root, &output, missing));
                }
            });
        }
    });
    let states = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ended = |(step, state): (&&Step, State)| match state {
        State::Ended(outcome, seconds) => Some(Report { name: step.name, outcome, seconds }),
        State::Waiting | State::Running => None,
    };
    Ok(steps.iter().zip(states).filter_map(ended).collect())
}

/// Prints what failed, what was skipped and the counts.
///
/// # Errors
/// A step has failed.
pub fn conclude(reports: &[Report]) -> Result<()> {
    println!();
    let (mut failed, mut skipped) = (Vec::new(), 0);
    for report in reports {
        match &report.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(why) => {
                skipped += 1;
                println!("skipped: {}: {why}", report.name);
            }
            Outcome::Failed(why) => {
                failed.push(format!("--only {}", report.name));
                println!("failed: {}: {why}", report.name);
            }
        }
    }
    println!("{}", counts(reports.len() - failed.len() - skipped, failed.len(), skipped));
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} of {} steps failed", failed.len(), reports.len()),
        format!("to repeat: cargo xtask test {}", failed.join(" ")),
    ))
}

/// How a step went.
pub struct Report {
    /// The step's name.
    pub name: &'static str,
    /// End of the step.
    pub outcome: Outcome,
    /// How long it took, what it had installed included.
    pub seconds: f32,
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It found nothing.
    Passed,
    /// It did not run, because this is missing.
    Skipped(String),
    /// It found something, or could not run.
    Failed(String),
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
    Ended(Outcome, f32),
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
            State::Ended(..) => false,
        };
        matches!(states[i], State::Waiting)
            && !self.steps.iter().zip(states).any(|(other, state)| blocks(other, state))
    }

    fn end(&self, i: usize, (outcome, seconds): (Outcome, f32)) {
        let mut states = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        states[i] = State::Ended(outcome, seconds);
        self.changed.notify_all();
    }
}

/// Installs what a step needs and runs it; how that ended, and after how many seconds.
fn one(step: &Step, root: &Path, output: &Output<'_>, missing: Missing) -> (Outcome, f32) {
    let mut command = (step.command)();
    // A build that is done once has no use for the files of incremental compilation.
    command.current_dir(root).env("CARGO_INCREMENTAL", "0").env(daily::DAY, daily::day().to_string());
    if missing == Missing::Fails {
        command.env(daily::STRICT, "1");
    }
    eprintln!("==> {}: {}", step.name, process::typed(&command));
    let start = Instant::now();
    let outcome = match step.needs.iter().find_map(|set| setup::ensure(*set).err().map(|why| (set, why))) {
        Some((set, why)) if missing == Missing::Skips && set.is_optional() => {
            Outcome::Skipped(why.to_string())
        }
        Some((_, why)) => Outcome::Failed(why.to_string()),
        None => {
            let ran = match output {
                Output::Shown => run_in_time(&mut command),
                Output::Kept(folder) => run_to_file(&mut command, &folder.join(format!("{}.txt", step.name))),
            };
            ran.map_or_else(|why| Outcome::Failed(why.to_string()), |()| Outcome::Passed)
        }
    };
    let seconds = start.elapsed().as_secs_f32();
    match &outcome {
        Outcome::Passed => eprintln!("==> {}: passed in {seconds:.1} s", step.name),
        Outcome::Skipped(why) => eprintln!("==> {}: SKIPPED: {why}", step.name),
        Outcome::Failed(why) => eprintln!("==> {}: FAILED after {seconds:.1} s: {why}", step.name),
    }
    (outcome, seconds)
}

/// Runs a command for at most [`LIMIT`].
fn run_in_time(command: &mut Command) -> Result<()> {
    let typed = process::typed(command);
    let mut child = process::spawn(command)?;
    match limit::wait(&mut child, LIMIT) {
        Ok(Some(status)) => process::judge(&typed, status),
        Ok(None) => Err(Failure::failed(
            format!("`{typed}` did not end within {} minutes", LIMIT.as_secs() / 60),
            "its output above ends where it hangs",
        )),
        Err(error) => Err(Failure::failed(format!("`{typed}` was lost ({error})"), "run it by hand")),
    }
}

/// Runs a command with its output in a file, and shows that when the command has ended.
fn run_to_file(command: &mut Command, path: &Path) -> Result<()> {
    let open = || File::create(path).and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = open().map_err(|error| Failure::on_disk("write", path, &error))?;
    let result = run_in_time(command.stdout(out).stderr(err));
    // In one piece: other lanes print, too.
    let text = fs::read(path).map_err(|error| Failure::on_disk("read", path, &error))?;
    let shown = io::stderr().lock().write_all(&text);
    shown.map_err(|error| Failure::on_disk("show", path, &error))?;
    result
}

/// The line that says how it went; scripts read it.
fn counts(passed: usize, failed: usize, skipped: usize) -> String {
    match skipped {
        0 => format!("{passed} passed, {failed} failed"),
        _ => format!("{passed} passed, {failed} failed, {skipped} skipped"),
    }
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
        Step {
            name,
            about: "",
            needs: &[],
            after: &[],
            place: Place::Own,
            tier: Tier::Test,
            found: "",
            command,
        }
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
            let chosen =
                |only: &[String]| run(&select(STEPS, only).unwrap(), lanes, kept, Missing::Fails).unwrap();
            let error = conclude(&chosen(&[])).unwrap_err().to_string();
            assert!(error.contains("2 of 3") && error.contains("--only bad --only gone"), "{error}");
            let good = chosen(&["good".to_owned()]);
            assert!(matches!(&good[..], [Report { name: "good", outcome: Outcome::Passed, .. }]));
            conclude(&good).unwrap();
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
        let place = |name| steps.iter().position(|step| step.name == name).unwrap();
        let end = |name| queue.end(place(name), (Outcome::Passed, 0.0));
        assert_eq!([next(), next()], [Some("a"), Some("d")]);
        end("a");
        assert_eq!([next(), next()], [Some("b"), Some("c")]);
        end("b");
        end("d");
        assert_eq!([next(), next()], [Some("e"), None]);
    }

    #[test]
    fn the_counts_are_a_line_of_their_own() {
        assert_eq!(counts(7, 0, 0), "7 passed, 0 failed");
        assert_eq!(counts(7, 1, 2), "7 passed, 1 failed, 2 skipped");
    }
}
