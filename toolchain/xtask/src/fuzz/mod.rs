//! `cargo xtask fuzz`: the targets of `tests/fuzz`, under libFuzzer and the address sanitizer.
//!
//! No tool but the C++ compiler is needed: libFuzzer comes as source with `libfuzzer-sys`, and rustup's
//! compilers, stable ones too, bring the sanitizer's runtime. The flags are those that cargo-fuzz would give.
//!
//! Each target starts from `tests/fuzz/corpus` and from what earlier runs found, which is kept below
//! `target/fuzz`. `--merge` makes the former from the latter.

mod output;
mod targets;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::process;
use crate::sanitize::{self, Sanitizer};
use crate::setup::{self, Set};

use output::Progress;
use targets::Target;

/// How the coverage that libFuzzer reads is put into the code.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// What the leak sanitizer is not to tell, as `LSAN_OPTIONS` takes it.
const SUPPRESSIONS: &str = "toolchain/lsan.supp";

/// Most bytes of a target's corpus in the repository.
const CORPUS_BYTES: u64 = 40 * 1024;

/// Arguments of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these targets (all of them when none is named)
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
    /// Minutes in all, shared evenly among the targets
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Compile without optimisation, which takes a third of the time: for short runs
    #[arg(long)]
    quick: bool,
    /// Targets that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Run one input and stop: the one target named, and a file
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Do not run: reduce what was found to what reaches new code, and put that into `tests/fuzz/corpus`
    #[arg(long)]
    merge: bool,
}

/// Folders of this checkout.
struct Folders {
    programs: PathBuf,
    /// The corpora in the repository.
    kept: PathBuf,
    /// What runs find and leave: corpora, crashes and logs.
    work: PathBuf,
    suppressions: PathBuf,
}

impl Folders {
    fn folder(&self, kind: &str, target: &Target) -> Result<PathBuf> {
        let folder = self.work.join(kind).join(target.name);
        make(&folder)?;
        Ok(folder)
    }
}

/// How a target ran.
struct Outcome {
    target: &'static Target,
    progress: Progress,
    took: Duration,
    /// The last lines of the log, if it failed.
    crash: Option<String>,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let targets = targets::select(&arguments.targets)?;
    for set in [Set::Base, Set::Fuzz] {
        setup::ensure(set)?;
    }
    let root = process::workspace_root()?;
    let work = root.join("target/fuzz");
    let programs = build(&root, &work, &targets, arguments.quick)?;
    let (kept, suppressions) = (root.join("tests/fuzz/corpus"), root.join(SUPPRESSIONS));
    let places = Folders { programs, kept, work, suppressions };
    if let Some(input) = &arguments.input {
        let [target] = targets[..] else {
            return Err(Failure::unusable("--input is for one target", "name it with --target"));
        };
        return process::run(program(&places, target).arg(input));
    }
    if arguments.merge {
        return targets.iter().try_for_each(|target| merge(&places, target));
    }
    let seconds = arguments.minutes.map_or(arguments.seconds, |n| (60 * n / targets.len() as u64).max(1));
    let outcomes = fuzz_all(&places, &targets, seconds, arguments.jobs)?;
    report(&outcomes)
}

/// Builds the targets; gives the folder with their programs.
fn build(root: &Path, work: &Path, targets: &[&Target], quick: bool) -> Result<PathBuf> {
    let (profile, folder) = if quick { ("dev", "debug") } else { ("release", "release") };
    let mut cargo = sanitize::cargo(Sanitizer::Address, COVERAGE)?;
    cargo.arg("build").arg("--manifest-path").arg(root.join("tests/fuzz/Cargo.toml"));
    let triple = sanitize::host()?;
    cargo.args(["--profile", profile, "--locked", "--target", &triple, "--target-dir"]).arg(work);
    for target in targets {
        cargo.args(["--bin", target.name]);
    }
    process::run(&mut cargo)?;
    Ok(work.join(triple).join(folder))
}

/// The program of a target, with the options that it always gets.
fn program(places: &Folders, target: &Target) -> Command {
    let mut command = Command::new(places.programs.join(target.name));
    // Long inputs at once: most targets take bytes for choices, of which a few do not make a program.
    command.arg(format!("-max_len={}", target.max_len)).arg("-len_control=0");
    // Generous: a machine that has other work to do may give a fuzzer little of its time.
    command.args(["-timeout=120", "-report_slow_units=60", "-rss_limit_mb=3000"]);
    command.env("LSAN_OPTIONS", format!("suppressions={}", places.suppressions.display()));
    command
}

/// Runs the targets, some at a time, each to its end.
fn fuzz_all(
    places: &Folders,
    targets: &[&'static Target],
    seconds: u64,
    jobs: usize,
) -> Result<Vec<Outcome>> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, targets.len()) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = fuzz(places, target, seconds);
                    if let Ok(outcome) = &outcome {
                        println!("{}", row(outcome));
                    }
                    outcomes.lock().unwrap_or_else(|e| e.into_inner()).push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(|e| e.into_inner()).into_iter().collect()
}

/// Runs one target.
fn fuzz(places: &Folders, target: &'static Target, seconds: u64) -> Result<Outcome> {
    let (found, crashes) = (places.folder("found", target)?, places.folder("crashes", target)?);
    let kept = places.kept.join(target.name);
    make(&kept)?;
    let mut command = program(places, target);
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", crashes.display()));
    if let Some(dictionary) = target.dictionary {
        let root = process::workspace_root()?;
        command.arg(format!("-dict={}", root.join("tests/fuzz").join(dictionary).display()));
    }
    // What is found goes into the first folder.
    command.args([&found, &kept]).stdout(Stdio::null()).stderr(Stdio::piped()).stdin(Stdio::null());
    let start = Instant::now();
    let cannot = |what: &str, error: std::io::Error| {
        Failure::unusable(format!("{what} ({error})"), "run `cargo xtask fuzz` again")
    };
    let mut child = command.spawn().map_err(|e| cannot("a fuzz target does not start", e))?;
    let mut progress = Progress::default();
    let mut log = String::new();
    let output = child.stderr.take().map(BufReader::new);
    for line in output.into_iter().flat_map(BufRead::lines).map_while(std::io::Result::ok) {
        progress.read(&line, start.elapsed());
        log.push_str(&line);
        log.push('\n');
    }
    let status = child.wait().map_err(|e| cannot("a fuzz target was lost", e))?;
    let file = places.work.join(format!("{}.log", target.name));
    fs::write(&file, &log).map_err(|e| cannot("the log cannot be written", e))?;
    let crash = (!status.success()).then(|| {
        let lines: Vec<_> = log.lines().filter(|line| !output::is_progress(line)).collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        format!("{last}\nthe whole log: {}", file.display())
    });
    Ok(Outcome { target, progress, took: start.elapsed(), crash })
}

/// Reduces what is known of a target to a small set of inputs that together reach all of its code.
fn merge(places: &Folders, target: &Target) -> Result<()> {
    let (found, kept) = (places.folder("found", target)?, places.kept.join(target.name));
    make(&kept)?;
    let merged = places.folder("merged", target)?;
    empty(&merged)?;
    let mut command = program(places, target);
    // Edges, not how often each is taken: a tenth of the inputs.
    command.args(["-set_cover_merge=1", "-use_counters=0"]).args([&merged, &found, &kept]);
    process::run(command.stderr(Stdio::null()))?;
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&merged).into_iter().flatten().flatten() {
        inputs.push((entry.metadata().map_or(0, |data| data.len()), entry.path()));
    }
    inputs.sort();
    empty(&kept)?;
    let (mut bytes, mut n) = (0, 0);
    for (size, path) in &inputs {
        // The largest ones go if there is no room.
        if bytes + size > CORPUS_BYTES {
            break;
        }
        let to = kept.join(path.file_name().unwrap_or_default());
        fs::copy(path, &to).map_err(|e| Failure::failed(format!("{} ({e})", to.display()), "make room"))?;
        (bytes, n) = (bytes + size, n + 1);
    }
    println!("{:14} {n} of {} inputs kept, {bytes} bytes", target.name, inputs.len());
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    let error = |e| Failure::unusable(format!("{} cannot be made ({e})", folder.display()), "make room");
    fs::create_dir_all(folder).map_err(error)
}

fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        fs::remove_file(entry.path())
            .map_err(|e| Failure::failed(format!("{} stays ({e})", entry.path().display()), "remove it"))?;
    }
    Ok(())
}

fn row(outcome: &Outcome) -> String {
    let Outcome { target, progress, took, crash } = outcome;
    let Progress { executions, edges, features, inputs, last_new, .. } = progress;
    let verdict = if crash.is_some() { "CRASHED" } else { "passed" };
    let (took, last_new) = (took.as_secs(), last_new.as_secs());
    format!(
        "{:14} {executions:>10} runs {edges:>6} edges {features:>7} features {inputs:>5} inputs in \
         {took:>5} s, last new after {last_new:>5} s: {verdict}",
        target.name
    )
}

fn report(outcomes: &[Outcome]) -> Result<()> {
    let crashed: Vec<_> = outcomes.iter().filter_map(|o| Some((o.target.name, o.crash.as_ref()?))).collect();
    for (target, crash) in &crashed {
        println!("\n{target}:\n{crash}");
    }
    let runs: u64 = outcomes.iter().map(|o| o.progress.executions).sum();
    println!("{} targets, {runs} runs, {} crashed", outcomes.len(), crashed.len());
    match crashed.first() {
        None => Ok(()),
        Some((target, _)) => Err(Failure::failed(
            format!("{} of {} targets crashed", crashed.len(), outcomes.len()),
            format!("repeat with: cargo xtask fuzz --target {target} --input FILE (the log names it)"),
        )),
    }
}
