//! `cargo xtask check`: what to run after every change, in minutes. It installs nothing and asks no network.
//!
//! It has a folder of its own to build in. Kernels are compiled for portable vectors alone there, and would
//! be compiled anew with each turn between this verb and those that test all back ends.

use std::path::Path;
use std::time::Instant;

use crate::failure::{Failure, Result};
use crate::process;

/// One check: what it is for, and the words for cargo.
struct Check {
    name: &'static str,
    words: &'static str,
}

/// The checks: the quickest first.
const CHECKS: [Check; 5] = [
    Check { name: "format", words: "fmt --all --check" },
    Check { name: "pages", words: "test --quiet --package xtask --test repository --test modules" },
    // Cargo looks again only at what has changed, and at what depends on it.
    Check { name: "lints", words: "clippy --quiet --workspace --all-targets -- -D warnings" },
    // What each side checks of the other's messages: seconds, unlike other tests that start from outside.
    Check {
        name: "ABI",
        words: "test --quiet --workspace --no-fail-fast --test messages --test operands --test rounds \
                --test session --test shapes --test stream --test validate --test wire",
    },
    Check { name: "unit tests", words: "test --quiet --workspace --lib --bins --no-fail-fast" },
];

/// The verb: runs all checks, also after one found something.
pub fn run() -> Result<()> {
    let root = process::workspace_root()?;
    let target = process::target_dir(&root)?.join("check");
    let failed: Vec<_> = CHECKS.iter().filter(|check| !passes(check, &root, &target)).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = failed.iter().map(|check| check.name).collect();
    let words: Vec<_> = failed.iter().map(|check| format!("cargo {}", check.words)).collect();
    Err(Failure::failed(format!("found by {}", names.join(", ")), format!("to repeat: {}", words.join("; "))))
}

fn passes(check: &Check, root: &Path, target: &Path) -> bool {
    let start = Instant::now();
    let mut cargo = process::cargo();
    cargo.current_dir(root).args(check.words.split_whitespace());
    cargo.env(process::VECTORS, "portable").env("CARGO_TARGET_DIR", target);
    eprintln!("==> {}: {}", check.name, process::typed(&cargo));
    let result = process::run(&mut cargo);
    let seconds = start.elapsed().as_secs_f32();
    match &result {
        Ok(()) => eprintln!("==> {}: passed in {seconds:.1} s", check.name),
        Err(failure) => eprintln!("==> {}: FAILED after {seconds:.1} s: {failure}", check.name),
    }
    result.is_ok()
}
