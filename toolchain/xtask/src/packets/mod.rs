//! `cargo xtask packets`: what kernels cost, in packets of the Hexagon processor.
//!
//! The emulator counts packets, instructions and HVX instructions of a thread exactly, so the counts of a
//! kernel are the same on every machine. Three builds are counted: the image that any emulator runs (v67,
//! scalar float), and those of v73 and of v79, the two families of HVX float, under the emulator that has it.
//! Packets are no cycles: nothing stalls in them.
//!
//! `toolchain/packets.json` holds the counts that are expected. More than a tenth above one of them fails.
//! Anything less is a trend: the sums and the cases that changed most, gains too, are printed beside the
//! table and fail nothing. Who has made a kernel faster or slower, or takes another compiler, writes the file
//! anew with one `--update`, so that the history says what did it. The same writes `toolchain/PACKETS.md`,
//! which has the counts for people.

mod baseline;
mod cases;
mod page;
mod trend;

use std::fmt;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use regex::Regex;

use crate::arch::Arch;
use crate::emulator_build;
use crate::failure::{Failure, Result};
use crate::hexagon::{self, Product};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain::Toolchain;
use baseline::Baseline;
use cases::{CASES, Case};

/// Arguments of `cargo xtask packets`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the cases whose name this regular expression finds something in
    #[arg(long, value_name = "RE")]
    op: Option<String>,
    /// Only this build
    #[arg(long, value_enum)]
    build: Option<Build>,
    /// Only the builds that `cargo xtask hexagon --today` makes
    #[arg(long, conflicts_with = "build")]
    today: bool,
    /// Leave out long cases whose loops are those of shorter ones
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of a table; what changed goes to standard error then
    #[arg(long)]
    json: bool,
    /// Write what was counted to the file of expected counts and to its page, and fail for none of it
    #[arg(long)]
    update: bool,
    /// Write the page of the file of expected counts, and count nothing
    #[arg(long, conflicts_with_all = ["op", "build", "quick", "json", "update"])]
    page: bool,
}

impl Arguments {
    /// Whether this build is counted.
    fn counts(&self, build: Build) -> bool {
        let is_built = || hexagon::of_today().split(',').any(|name| name == build.to_string());
        self.build.is_none_or(|only| only == build) && (!self.today || is_built())
    }
}

/// A build that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Build {
    /// Scalar float, under any emulator
    V67,
    /// The code of phones, with HVX float, under the emulator that has it
    V73,
    /// The same, with HVX float that hides bits from all other instructions
    V79,
}

impl Build {
    fn arch(self) -> Arch {
        match self {
            Self::V67 => Arch::V67,
            Self::V73 => Arch::V73,
            Self::V79 => Arch::V79,
        }
    }

    /// Whether the case is counted: on v67 none that takes long, on v79 none that only has more of what
    /// another has.
    fn counts(self, case: &Case) -> bool {
        match self {
            Self::V67 => !case.large(),
            Self::V73 => true,
            Self::V79 => !case.repeats(),
        }
    }

    /// The emulator that runs it, without the image.
    fn emulator(self) -> Result<Command> {
        Ok(match self {
            Self::V67 => {
                let mut stock = Command::new("qemu-hexagon");
                stock.args(["-cpu", "v67"]);
                stock
            }
            // The image says for which processor it is.
            Self::V73 | Self::V79 => Command::new(emulator_build::path()?),
        })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arch().fmt(f)
    }
}

/// What a worker's part of a kernel took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    packets: u64,
    instructions: u64,
    hvx: u64,
}

/// A case that was run: the counts of each worker.
struct Outcome {
    build: Build,
    case: &'static Case,
    workers: Vec<Counts>,
}

impl Outcome {
    fn total(&self) -> Counts {
        self.workers.iter().fold(Counts::default(), |sum, w| Counts {
            packets: sum.packets + w.packets,
            instructions: sum.instructions + w.instructions,
            hvx: sum.hvx + w.hvx,
        })
    }

    fn packets_per_unit(&self) -> f64 {
        self.total().packets as f64 / self.case.units() as f64
    }

    /// The share that the worker with most had, of an even share.
    fn unevenness(&self) -> f64 {
        let most = self.workers.iter().map(|w| w.packets).max().unwrap_or(0);
        most as f64 * self.workers.len() as f64 / self.total().packets.max(1) as f64
    }

    /// The most packets per unit that the case may take on phones, if that is what was counted.
    fn target(&self) -> Option<f64> {
        self.case.target.filter(|_| self.build == Build::V73)
    }
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    let path = root.join("toolchain/packets.json");
    if arguments.page {
        return page::write(&Baseline::read(&path)?, &root);
    }
    let pattern = Regex::new(arguments.op.as_deref().unwrap_or("")).map_err(|error| {
        Failure::unusable(format!("--op is no regular expression ({error})"), "see --help")
    })?;
    let chosen: Vec<_> = CASES.iter().filter(|case| pattern.is_match(&case.name())).collect();
    if chosen.is_empty() {
        return Err(Failure::unusable("no case has such a name", "leave --op out to see all of them"));
    }
    for set in [Set::Base, Set::Hexagon, Set::Emulator] {
        setup::ensure(set)?;
    }
    let toolchain = Toolchain::wanted(None)?;
    let mut outcomes = Vec::new();
    for build in [Build::V67, Build::V73, Build::V79].into_iter().filter(|build| arguments.counts(*build)) {
        let image = hexagon::build(&toolchain, build.arch(), Product::Image)?;
        let counted = |case: &Case| build.counts(case) && !(arguments.quick && case.long());
        for case in chosen.iter().filter(|case| counted(case)) {
            let (workers, _) = if case.parts.is_empty() {
                count(build.emulator()?, &image, case)?
            } else {
                (vec![step(build, &image, case.parts)?], 0)
            };
            outcomes.push(Outcome { build, case, workers });
        }
    }
    if arguments.json {
        println!("{}", json(&outcomes));
    } else {
        table(&outcomes);
    }
    let mut baseline = Baseline::read(&path)?;
    let all_builds = arguments.build.is_none() && !arguments.today;
    let complete = arguments.op.is_none() && all_builds && !arguments.quick;
    let compared = baseline.compare(&outcomes, complete);
    if arguments.json {
        eprint!("{}", compared.trend);
    } else {
        print!("\n{}", compared.trend);
    }
    if arguments.update {
        if complete {
            baseline = Baseline::default();
        }
        outcomes.iter().for_each(|outcome| baseline.set(outcome));
        baseline.write(&path)?;
        return page::write(&baseline, &root);
    }
    if compared.failures.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(
        format!("packets that the file does not allow: {}", compared.failures.join("; ")),
        "if that is meant, `cargo xtask packets --update` and say why in the commit",
    ))
}

/// Runs the parts of a step and adds up what a thread takes of each, with even shares.
fn step(build: Build, image: &Path, parts: &[(Case, u64)]) -> Result<Counts> {
    let mut sum = Counts::default();
    for (part, times) in parts {
        let (workers, even) = count(build.emulator()?, image, part)?;
        sum.packets += times * even;
        // Of these only all threads' are known.
        for worker in workers {
            sum.instructions += times * worker.instructions;
            sum.hvx += times * worker.hvx;
        }
    }
    Ok(sum)
}

/// Runs a case under an emulator: what each worker takes, and the packets of a thread with even shares.
fn count(mut emulator: Command, image: &Path, case: &Case) -> Result<(Vec<Counts>, u64)> {
    emulator.arg(image).args(case.arguments());
    let typed = process::typed(&emulator);
    let lines = process::output(&mut emulator)
        .ok_or_else(|| Failure::failed(format!("`{typed}` failed"), "run it to see its message"))?;
    let counts = lines.trim_end().rsplit_once('\n').and_then(|(workers, last)| {
        let workers: Option<Vec<_>> = workers.lines().map(parse).collect();
        Some((workers?, last.strip_prefix("even ")?.parse().ok()?))
    });
    counts.ok_or_else(|| {
        Failure::failed(format!("`{typed}` printed something else than counts"), "run it to see")
    })
}

/// A line of the image: the worker's number and its counts.
fn parse(line: &str) -> Option<Counts> {
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match *numbers.as_slice() {
        [_, packets, instructions, hvx] => Some(Counts { packets, instructions, hvx }),
        _ => None,
    }
}

fn table(outcomes: &[Outcome]) {
    println!(
        "{:5} {:42} {:>12} {:>12} {:>12} {:>10}  {:18} {:>8}  max/mean",
        "build", "case", "packets", "instructions", "hvx", "per unit", "unit", "target"
    );
    for outcome in outcomes {
        let (total, per_unit) = (outcome.total(), outcome.packets_per_unit());
        let target = outcome
            .target()
            .map_or(String::new(), |target| format!("{target}{}", if per_unit > target { " !" } else { "" }));
        let spread = match outcome.workers.len() {
            1 => String::new(),
            n => format!("{:.2} of {n}", outcome.unevenness()),
        };
        println!(
            "{:5} {:42} {:>12} {:>12} {:>12} {:>10.2}  {:18} {:>8}  {}",
            outcome.build.to_string(),
            outcome.case.name(),
            total.packets,
            total.instructions,
            total.hvx,
            per_unit,
            outcome.case.unit(),
            target,
            spread
        );
    }
}

fn json(outcomes: &[Outcome]) -> serde_json::Value {
    let one = |outcome: &Outcome| {
        let total = outcome.total();
        serde_json::json!({
            "build": outcome.build.to_string(),
            "case": outcome.case.name(),
            "packets": total.packets,
            "instructions": total.instructions,
            "hvx": total.hvx,
            "unit": outcome.case.unit(),
            "units": outcome.case.units(),
            "packets_per_unit": outcome.packets_per_unit(),
            "packets_per_weight_byte":
                outcome.case.weight_bytes().map(|bytes| total.packets as f64 / bytes as f64),
            "target": outcome.target(),
            "packets_per_thread": outcome.workers.iter().map(|w| w.packets).collect::<Vec<_>>(),
        })
    };
    outcomes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_worker_and_three_counts() {
        assert_eq!(parse("0 7 8 9"), Some(Counts { packets: 7, instructions: 8, hvx: 9 }));
        for line in ["", "0 7 8", "0 7 8 x", "0 7 8 9 10"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn an_even_split_has_no_unevenness() {
        let outcome = |packets: &[u64]| Outcome {
            build: Build::V67,
            case: &CASES[0],
            workers: packets.iter().map(|&packets| Counts { packets, ..Counts::default() }).collect(),
        };
        assert_eq!(outcome(&[5, 5]).unevenness(), 1.0);
        assert_eq!(outcome(&[0, 10]).unevenness(), 2.0);
        assert_eq!(outcome(&[7, 3]).total().packets, 10);
    }
}
