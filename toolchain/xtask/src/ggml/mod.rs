//! `cargo xtask ggml-backend`: llama.cpp's programs with hexflash as a backend of ggml.
//!
//! 1. Which cases of llama.cpp's own tests the backend accepts, op by op, is compared with
//!    `toolchain/ggml-ops.json`, which may only grow.
//! 2. Those cases are computed and compared with the CPU backend's results, by llama.cpp's own tolerances.
//! 3. llama-server writes texts, which must be those that it writes on the CPU, and with several sessions
//!    those of one.
//! 4. Wrong settings are told in one line, and the CPU goes on.
//! 5. Some cases are computed by the matrix unit.
//! 6. Some cases are computed through the stand-in for FastRPC, with its checks of coherence.
//!
//! With `--speed`, llama-bench and `hexflash bench` run by turns instead; with `--qemu`, some cases are
//! computed as Hexagon code.

mod devices;
mod speed;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};
use crate::llama::Programs;
use crate::process;
use crate::setup::{self, Set};

/// Arguments of `cargo xtask ggml-backend`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the table of accepted cases anew
    #[arg(long)]
    update: bool,
    /// Compute the cases that take long, too, and a random model of every architecture
    #[arg(long)]
    full: bool,
    /// Compare llama-bench's speed with that of `hexflash bench` instead
    #[arg(long, conflicts_with_all = ["update", "full"])]
    speed: bool,
    /// Compute some cases as Hexagon code instead
    #[arg(long, conflicts_with_all = ["update", "full", "speed"])]
    qemu: bool,
}

/// The table of accepted cases, below the checkout.
const TABLE: &str = "toolchain/ggml-ops.json";
/// Tests of ops.
const TEST_OPS: &str = "libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops";
/// Models and contexts in threads.
const TEST_THREADS: &str = "libexec/x86_64-linux-gnu/llama.cpp-tests/test-thread-safety";
/// Tests of architectures.
const TEST_ARCHS: &str = "libexec/x86_64-linux-gnu/llama.cpp-tests/test-llama-archs";
/// Our first device.
const DEVICE: &str = "HEXFLASH0";

/// Ops of which a part is computed unless all are asked for, each with the cases, as an expression: on the
/// CPU, too, the others take minutes.
const PARTS: [(&str, &str); 3] = [
    ("MUL_MAT", "m=16,n=(1|9),k=256,bs=.[12],1.,nr=.[12],1."),
    ("MUL_MAT_ID", "n_mats=4,n_used=[12],b=[01],m=(32|512),n=(1|32),k=256"),
    ("ROPE", "ff=[01].*v=0"),
];

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Downloads)?;
    let root = process::workspace_root()?;
    let programs = Programs::fetch()?;
    if arguments.speed {
        return speed::run(&root, &programs);
    }
    process::build(&root)?;
    let backend = process::target_dir(&root)?.join("debug/libggml_hexflash.so");
    let here = Here { programs, backend, root };
    if arguments.qemu {
        return here.as_hexagon_code();
    }
    let accepted = here.accepted_cases(arguments.update)?;
    here.compute(&accepted, arguments.full)?;
    here.refuse_settings()?;
    for (model, near_tie) in texts::MODELS {
        here.compare_texts(model, near_tie)?;
    }
    here.compare_sessions()?;
    here.by_the_matrix_unit()?;
    here.run_in_threads()?;
    here.through_fastrpc()?;
    if arguments.full {
        process::run(here.command(TEST_ARCHS)?.args(["-b", DEVICE]))?;
    }
    Ok(())
}

/// Cases of an op: accepted ones, and all.
type Counts = BTreeMap<String, [u64; 2]>;

struct Here {
    programs: Programs,
    backend: PathBuf,
    root: PathBuf,
}

impl Here {
    /// A program of llama.cpp that knows the backend.
    fn command(&self, name: &str) -> Result<Command> {
        self.programs.command(name, Some(&self.backend))
    }

    /// Compares the accepted cases with the table.
    fn accepted_cases(&self, update: bool) -> Result<Counts> {
        let mut command = self.command(TEST_OPS)?;
        command.args(["support", "-b", DEVICE, "--output", "csv"]);
        let csv = process::output(&mut command).ok_or_else(|| not_well(&command))?;
        let found = count(&csv);
        let path = self.root.join(TABLE);
        let total = found.values().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        println!("{} of {} cases of {} ops are accepted", total[0], total[1], found.len());
        if update {
            return write_table(&path, &found).map(|()| found);
        }
        let known = read_table(&path)?;
        let fewer: Vec<_> =
            known.iter().filter(|(op, [n, _])| found.get(*op).is_none_or(|f| f[0] < *n)).collect();
        if !fewer.is_empty() {
            let list: Vec<_> = fewer.iter().map(|(op, [n, _])| format!("{op} (were {n})")).collect();
            return Err(Failure::failed(
                format!("fewer cases are accepted of {}", list.join(", ")),
                "the table may only grow",
            ));
        }
        if known != found {
            return Err(Failure::failed(
                format!("more cases are accepted than {TABLE} says"),
                "`cargo xtask ggml-backend --update` writes them down",
            ));
        }
        Ok(found)
    }

    /// Computes accepted cases.
    fn compute(&self, accepted: &Counts, full: bool) -> Result<()> {
        let some: Vec<_> = accepted.iter().filter(|(_, [n, _])| *n > 0).map(|(op, _)| op.as_str()).collect();
        let parts = if full { &[][..] } else { &PARTS[..] };
        let (in_part, whole): (Vec<&str>, Vec<&str>) =
            some.into_iter().partition(|op| parts.iter().any(|(part, _)| part == op));
        test_ops(self.command(TEST_OPS)?, &whole.join(","), None)?;
        for (op, cases) in parts.iter().filter(|(op, _)| in_part.contains(op)) {
            test_ops(self.command(TEST_OPS)?, op, Some(cases))?;
        }
        Ok(())
    }

    /// Two models and two contexts of each, all at once, in one session and in two.
    fn run_in_threads(&self) -> Result<()> {
        for sessions in ["1", "2"] {
            let mut command = self.command(TEST_THREADS)?;
            command.arg("-m").arg(self.root.join("models/tiny-hybrid-q8_0.gguf"));
            command.args(["-ngl", "99", "-c", "64", "-n", "16", "-np", "2", "-t", "1", "-p", "def fib(n):"]);
            command.env("HEXFLASH_SESSIONS", sessions).stdin(Stdio::null());
            let output = command.output().map_err(|_| not_well(&command))?;
            if !output.status.success() {
                eprint!("{}", String::from_utf8_lossy(&output.stderr));
                return Err(not_well(&command));
            }
        }
        println!("models and contexts run in threads, in one session and in two");
        Ok(())
    }

    /// A wrong value: a line that names it, and no device.
    fn refuse_settings(&self) -> Result<()> {
        for (variable, value) in
            [("HEXFLASH_DEVICE", "gpu"), ("HEXFLASH_THREADS", "1000"), ("HEXFLASH_NUMERICS", "quick")]
        {
            // llama-server may end before its logger has written.
            let mut command = self.command(TEST_OPS)?;
            command.args(["support", "-o", "ABS"]).env(variable, value).stdin(Stdio::null());
            let output = command.output().map_err(|_| not_well(&command))?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().filter(|line| line.contains("hexflash: ")).count();
            if !output.status.success() || lines != 1 || text.contains(DEVICE) {
                return Err(Failure::failed(
                    format!("{variable}={value} is not refused in one line: {text}"),
                    "see host-runtime/ggml-backend/src/options.rs",
                ));
            }
        }
        println!("wrong settings are refused in one line");
        Ok(())
    }
}

/// Computes cases of ops; `command` is test-backend-ops.
fn test_ops(mut command: Command, ops: &str, cases: Option<&str>) -> Result<()> {
    command.args(["test", "-b", DEVICE, "-o", ops]);
    if let Some(cases) = cases {
        command.args(["-p", cases]);
    }
    let typed = process::typed(&command);
    let output = command.stdin(Stdio::null()).output().map_err(|_| not_well(&command))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().find(|line| line.contains("tests passed")).unwrap_or("no case").trim();
    println!("{ops}: {passed}");
    if output.status.success() && computed(passed) > 0 {
        return Ok(());
    }
    text.lines().filter(|line| line.contains("FAIL")).for_each(|line| println!("{line}"));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(Failure::failed(format!("`{typed}` ended with {}", output.status), "its output above says why"))
}

fn not_well(command: &Command) -> Failure {
    let typed = process::typed(command);
    Failure::failed(format!("`{typed}` does not work"), "start it by hand, and see what it says")
}

/// Cases by op, of the table that `test-backend-ops support --output csv` prints.
fn count(csv: &str) -> Counts {
    let mut counts = Counts::new();
    for line in csv.lines().skip(1) {
        // Fields are quoted, and parameters have commas.
        let fields: Vec<_> = line.trim_matches('"').split("\",\"").collect();
        let [_, op, _, _, supported, ..] = fields[..] else { continue };
        let [accepted, all] = counts.entry(op.to_owned()).or_default();
        *accepted += u64::from(supported == "1");
        *all += 1;
    }
    counts
}

/// Cases that were computed, as `12/12 tests passed` says.
fn computed(line: &str) -> u64 {
    line.split('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

fn read_table(path: &Path) -> Result<Counts> {
    let parsed = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    parsed.ok_or_else(|| {
        let remedy = "`cargo xtask ggml-backend --update` writes it";
        Failure::unusable(format!("{} is missing or no table", path.display()), remedy)
    })
}

/// A line per op.
fn write_table(path: &Path, counts: &Counts) -> Result<()> {
    let lines: Vec<_> = counts.iter().map(|(op, [n, all])| format!("  \"{op}\": [{n}, {all}]")).collect();
    fs::write(path, format!("{{\n{}\n}}\n", lines.join(",\n"))).map_err(|error| {
        Failure::unusable(format!("cannot write {} ({error})", path.display()), "see that there is room")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_counted_by_op() {
        let csv = "\"backend_name\",\"op_name\",\"op_params\",\"test_mode\",\"supported\",\"error_message\"\n\
                   \"H\",\"ADD\",\"type=f32,ne=[1,2]\",\"support\",\"1\",\"yes\"\n\
                   \"H\",\"ADD\",\"type=bf16,ne=[1,2]\",\"support\",\"0\",\"no\"\n\
                   \"H\",\"MUL_MAT\",\"a\",\"support\",\"0\",\"no\"\n";
        let expected = [("ADD".to_owned(), [1, 2]), ("MUL_MAT".to_owned(), [0, 1])];
        assert_eq!(count(csv), Counts::from(expected));
    }

    #[test]
    fn passed_cases_are_read() {
        assert_eq!(["58/58 tests passed", "no case", "0/0 tests passed"].map(computed), [58, 0, 0]);
    }
}
