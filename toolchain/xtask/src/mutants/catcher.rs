//! Who catches mutants: tests of a package (`Test: PACKAGE TARGET NAME`, the target being `lib` or an
//! integration test), or cases of the conformance suite (`Case: NAME`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::limit;
use crate::oracle;
use crate::process;

/// Where tests are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Tests of a package.
    Cargo {
        /// The package.
        package: String,
        /// `lib`, or an integration test.
        target: String,
    },
    /// Cases against ggml.
    Conformance,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cargo { package, target } => write!(f, "{package} {target}"),
            Self::Conformance => write!(f, "conformance"),
        }
    }
}

/// How a mutant ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// A test failed, or did not end.
    Caught,
    /// They all passed.
    Survived,
}

/// The tests of what phones run: they need the emulator, and the image with the mistake in it.
const PHONES: &str = "phones";
/// What is built for them, by verbs of the copy's own xtask.
const FOR_PHONES: [&[&str]; 2] = [&["setup", "emulator"], &["hexagon", "--image", "--arch", "v73"]];
/// After which a test counts as one that does not end.
const PATIENCE: Duration = Duration::from_secs(300);
/// Kernels are compiled anew for every mutant. Their own tests run one at a time and need no optimisation;
/// whole models need a little.
const PLAIN: [&str; 2] = ["--config", "profile.dev.package.hexflash-dsp.opt-level=0"];
const QUICK: [&str; 2] = ["--config", "profile.dev.package.hexflash-dsp.opt-level=1"];

impl Suite {
    /// Builds the copy, and runs these tests on it.
    ///
    /// # Errors
    /// It does not compile, or there is no such test.
    pub fn check(&self, root: &Path, tree: &Path, tests: &[&str]) -> Result<Fate> {
        match self {
            Self::Cargo { package, target } => cargo_tests(tree, package, target, tests),
            Self::Conformance => {
                let mut build = oracle::cargo(tree, "build");
                build.args(QUICK).args(["--quiet", "--package", "hexflash-conformance"]);
                process::run(build.env("CARGO_TARGET_DIR", oracle_target(root)))?;
                cases(root, tree, tests)
            }
        }
    }
}

fn cargo_tests(tree: &Path, package: &str, target: &str, tests: &[&str]) -> Result<Fate> {
    let in_copy = || {
        let mut cargo = process::cargo();
        cargo.current_dir(tree).env("CARGO_TARGET_DIR", tree.with_file_name("target"));
        // Mistakes leave things unused; kernels that are not optimised want large stacks.
        cargo.env("RUSTFLAGS", "-Awarnings").env("RUST_MIN_STACK", (64 << 20).to_string());
        cargo
    };
    let cargo = |words: &[&str]| {
        let mut cargo = in_copy();
        cargo.args(if package == "hexflash-dsp" { PLAIN } else { QUICK }).args([
            "test",
            "--quiet",
            "--package",
            package,
        ]);
        cargo.args(if target == "lib" { vec!["--lib"] } else { vec!["--test", target] }).args(words);
        cargo
    };
    let emulated: &[&[&str]] = if target == PHONES { &FOR_PHONES } else { &[] };
    for words in emulated {
        process::run(in_copy().args(["run", "--quiet", "--package", "xtask", "--"]).args(*words))?;
    }
    process::run(&mut cargo(&["--no-run"]))?;
    let mut test = cargo(&["--", "--exact"]);
    // A test that is skipped passes.
    test.env("HEXFLASH_EMULATED", "v67,v73");
    let Some(output) = output_in_time(test.args(tests))? else { return Ok(Fate::Caught) };
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| -> usize {
        let line = text.lines().find(|line| line.starts_with("test result:")).unwrap_or_default();
        let part = line.split([';', '.']).find_map(|part| part.trim().strip_suffix(what));
        part.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    match (output.status.success(), count(" passed")) {
        (true, passed) if passed == tests.len() => Ok(Fate::Survived),
        (true, passed) => Err(Failure::failed(
            format!("{passed} of the tests {} of {package} {target} are there", tests.join(", ")),
            "see the lines `Test:` of the patches",
        )),
        // Also one that aborts, which counts nothing.
        (false, _) => Ok(Fate::Caught),
    }
}

/// The build folder of `tests/oracle`, wherever the caller has it: what is rebuilt is hexflash, not
/// llama.cpp.
fn oracle_target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("tests/oracle/target"), PathBuf::from)
}

/// Runs cases of what was built last.
fn cases(root: &Path, tree: &Path, cases: &[&str]) -> Result<Fate> {
    let escaped: Vec<String> = cases.iter().map(|case| escape(case)).collect();
    let mut command = Command::new(oracle_target(root).join("debug/hexflash-conformance"));
    command
        .args(["conformance", "--quiet", "--case", &format!("^(?:{})$", escaped.join("|"))])
        .current_dir(tree);
    let Some(output) = output_in_time(&mut command)? else { return Ok(Fate::Caught) };
    // 2: the arguments or the device; anything else but 0 is a case that failed, or a crash, which is caught
    // too.
    match output.status.code() {
        Some(0) => Ok(Fate::Survived),
        Some(2) => Err(Failure::failed(
            format!("the conformance runner says: {}", String::from_utf8_lossy(&output.stderr).trim()),
            "see the line `Case:` of the patch",
        )),
        _ if String::from_utf8_lossy(&output.stdout).contains("no case has such a name") => {
            Err(Failure::failed(
                format!("there is no case {}", cases.join(" or ")),
                "see the line `Case:` of the patch",
            ))
        }
        _ => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().filter(|line| line.starts_with("FAIL")).for_each(|line| eprintln!("  {line}"));
            Ok(Fate::Caught)
        }
    }
}

/// What a command prints, if it ends in time; else it is ended.
fn output_in_time(command: &mut Command) -> Result<Option<Output>> {
    let failed = |error: std::io::Error| {
        Failure::unusable(format!("a test cannot be started ({error})"), "see the build above")
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    // Pipes are read all the while, or a test that says much would wait for room.
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || drain(out));
    let err = std::thread::spawn(move || drain(err));
    let Some(status) = limit::wait(&mut child, PATIENCE).map_err(failed)? else { return Ok(None) };
    let [stdout, stderr] = [out, err].map(|thread| thread.join().unwrap_or_default());
    Ok(Some(Output { status, stdout, stderr }))
}

fn drain(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came before an error is shown.
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

/// A case's name as a regular expression.
fn escape(case: &str) -> String {
    case.chars()
        .flat_map(|c| {
            (!c.is_ascii_alphanumeric() && !"_-,=:".contains(c)).then_some('\\').into_iter().chain([c])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cases_are_taken_literally() {
        assert_eq!(escape("OP(n=[1,2])"), r"OP\(n=\[1,2\]\)");
    }

    #[test]
    fn what_does_not_fail_or_end_is_told_apart() {
        let output = output_in_time(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        let output = output.unwrap().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"out\n".as_slice()));
        assert!(output_in_time(&mut Command::new("no such program")).is_err());
    }
}
