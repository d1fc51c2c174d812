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

/// The checks that take turns.
const CHECKS: &[fn() -> Command] = &[
    || process::xtask(&["sanitize", "address"]),
    || process::xtask(&["conformance", "--device", "qemu", "--quiet"]),
    || process::xtask(&["mutants", "--today", "2", "--no-oracle"]),
    || process::xtask(&["ggml-backend", "--qemu"]),
    every_draft,
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
    || steps(&["clients"]),
    || htp_by("callbacks"),
    || htp_by("invoke"),
    || steps(&["emulated-host"]),
    || steps(&["fuzz", "ggml-backend"]),
    || process::xtask(&["phone-proven"]),
    || process::xtask(&["phone-proven", "--model", "--arch", "v79"]),
    || steps(&["races", "conformance-v79"]),
];

/// Ops that make floats of integers: what v68 and v69 lack of v73's float vectors. All ops would take
/// minutes, and are run by hand.
const OF_INTEGERS: &str =
    "EXP|SILU|SIGMOID|SOFTPLUS|SWIGLU|SWIGLU_OAI|GEGLU|QUANTIZE|GATED_DELTA_NET|MUL_MAT_ID";

/// The verb: runs the check of today, or all of them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let chosen = if arguments.all { CHECKS } else { std::slice::from_ref(turn(CHECKS)) };
    chosen.iter().try_for_each(|check| {
        let mut command = check();
        eprintln!("daily: {}", process::typed(&command));
        process::run(&mut command)
    })
}

/// Steps that are in the table for a turn here.
fn steps(names: &[&str]) -> Command {
    let mut command = process::xtask(&["test", "--strict"]);
    command.args(names.iter().flat_map(|name| ["--only", name]));
    command
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

/// The one of these that has its turn today.
///
/// # Panics
/// Nothing takes turns.
pub fn turn<T>(all: &[T]) -> &T {
    &all[(day() % all.len() as u64) as usize]
}

/// The part `I/N` of a list whose turn is today.
pub fn part(of: u64) -> String {
    format!("{}/{of}", day() % of)
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
