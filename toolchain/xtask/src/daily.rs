//! `cargo xtask daily`: checks that take long and seldom find something take turns, one each day.

use std::env;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Result;
use crate::process;

/// Arguments of `cargo xtask daily`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run all of them
    #[arg(long)]
    all: bool,
}

/// The checks that take turns. On even days CI has compiled llama.cpp ([`crate::suite::Days`]); the checks in
/// even places use it.
const CHECKS: &[fn() -> Command] = &[
    || process::xtask(&["conformance", "--device", "qemu", "--quiet"]),
    || process::xtask(&["sanitize", "address"]),
    some_mutants,
    || process::xtask(&["ggml-backend", "--qemu"]),
    || steps(&["clients"]),
    || process::xtask(&["sanitize", "thread"]),
    || process::xtask(&["conformance", "--device", "qemu", "--arch", "v68", "--quiet", "--op", OF_INTEGERS]),
    || process::xtask(&["soak", "--minutes", "5", "--device", "inproc", "--device", "htp"]),
    // More than 30,000 requests.
    || process::xtask(&["soak", "--crowd", "10000"]),
    // The step `android` links a small program in a minute of one processor. This one has all names that
    // `hexflash` calls, which change with its dependencies, and takes five.
    || process::xtask(&["android", "--whole"]),
    // The step `conformance` has a part of upstream's largest groups each day, and none that takes long.
    || process::xtask(&["conformance", "--full", "--quiet"]),
    || steps(&["page", "deny", "clippy-small"]),
    || steps(&["fuzz", "ggml-backend"]),
    || htp_by("callbacks"),
    every_draft,
    || steps(&["emulated-host"]),
    || process::xtask(&["phone-proven", "--model", "--arch", "v79"]),
    || process::xtask(&["phone-proven"]),
    || steps(&["conformance-v79"]),
    || steps(&["races"]),
    || htp_by("invoke"),
    some_mutants,
];

/// Places of [`some_mutants`] among the checks.
const MUTANTS: [usize; 2] = [2, 21];

/// Ops that make floats of integers: what v68 and v69 lack of v73's float vectors. All ops would take
/// minutes, and are run by hand.
const OF_INTEGERS: &str =
    "EXP|SILU|SIGMOID|SOFTPLUS|SWIGLU|SWIGLU_OAI|GEGLU|QUANTIZE|GATED_DELTA_NET|MUL_MAT_ID";

/// The verb: runs the check of today, or all of them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let today = (day() % CHECKS.len() as u64) as usize;
    let chosen = if arguments.all { CHECKS } else { &CHECKS[today..=today] };
    chosen.iter().try_for_each(|check| {
        let mut command = check();
        eprintln!("daily: {}", process::typed(&command));
        process::run(&mut command)
    })
}

/// Steps that are in the table for a turn here. What is missing is skipped where it is in the run that this
/// is a step of.
fn steps(names: &[&str]) -> Command {
    let mut command = process::xtask(&["test"]);
    command.args(env::var_os(STRICT).map(|_| "--strict"));
    command.args(names.iter().flat_map(|name| ["--only", name]));
    command
}

/// The next mutants, of those that need no llama.cpp.
fn some_mutants() -> Command {
    process::xtask(&["mutants", "--today", "6", "--no-oracle"])
}

/// Texts of speculation with each way to draft; in the step `integration` texts take turns with them.
fn every_draft() -> Command {
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace", "--test", "speculation", "same::"]);
    cargo.env("HEXFLASH_EVERY_DRAFT", "1");
    cargo
}

/// Tests of the device `htp` with another way for messages; in the step `integration` a few texts go each
/// way.
fn htp_by(way: &str) -> Command {
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace", "--test", "htp", "--", "--skip", "skels::"]);
    cargo.env("HEXFLASH_HTP_WAY", way);
    cargo
}

/// Variable of the steps of a run that is strict about what is missing.
pub const STRICT: &str = "HEXFLASH_STRICT";

/// Number of the turn that a step has which runs every second day ([`crate::suite::Days`]): one more each
/// time, so that all of several things come, however many they are.
fn round() -> u64 {
    day() / 2
}

/// Element that has its turn in the step of today.
///
/// # Panics
/// Nothing takes turns.
pub fn turn<T>(all: &[T]) -> &T {
    &all[(round() % all.len() as u64) as usize]
}

/// The part `I/N` of a list whose turn is in the step of today.
pub fn part(of: u64) -> String {
    format!("{}/{of}", round() % of)
}

/// Number of the turn that mutants have today, of those that they have among the checks here.
pub fn turn_of_mutants() -> u64 {
    day() / (CHECKS.len() / MUTANTS.len()) as u64
}

/// Variable with the day that turns are taken by, so that all steps of a run have the same one, also after
/// midnight; and to repeat the run of another day.
pub const DAY: &str = "HEXFLASH_DAY";

/// Days since 1970 in UTC, when this was first asked or as [`DAY`] says; none where the clock is not set.
pub fn day() -> u64 {
    const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;
    static TODAY: OnceLock<u64> = OnceLock::new();
    *TODAY.get_or_init(|| {
        let named = env::var(DAY).ok().and_then(|day| day.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        named.unwrap_or_else(|| now().as_secs() / SECONDS_OF_A_DAY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_use_llama_cpp_come_when_it_is_compiled() {
        assert!(CHECKS.len().is_multiple_of(2), "the next round would have them on the other days");
        for (i, check) in CHECKS.iter().enumerate() {
            let typed = process::typed(&check());
            assert!(i.is_multiple_of(2) || !typed.contains("conformance"), "{i}: {typed}");
        }
    }

    #[test]
    fn mutants_have_one_turn_in_each_part_of_the_round() {
        let part = CHECKS.len() / MUTANTS.len();
        for (i, place) in MUTANTS.into_iter().enumerate() {
            assert_eq!(place / part, i);
            assert!(process::typed(&CHECKS[place]()).contains("mutants"));
        }
    }
}
