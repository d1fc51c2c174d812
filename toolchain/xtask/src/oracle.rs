//! Verbs that need llama.cpp: started from here, done by `tests/conformance`.
//!
//! That crate is in the workspace of `tests/oracle`, so that nothing else compiles C++. Cargo would look for
//! its configuration where the verb was typed; it is given by name, and paths in the arguments stay the
//! caller's.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::hexagon;
use crate::process;
use crate::setup::{self, Set};

/// Arguments that the crate itself reads; `--help` too.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// See `--help` of the verb itself
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Cargo for the workspace of `tests/oracle` in the checkout `root`.
///
/// Packages are always chosen in the same way: another choice unifies other features, and llama.cpp is
/// compiled again.
pub fn cargo(root: &Path, verb: &str) -> Command {
    let mut command = process::cargo();
    command.arg(verb).arg("--config").arg(root.join("tests/oracle/.cargo/config.toml"));
    command.arg("--manifest-path").arg(root.join("tests/oracle/Cargo.toml"));
    command
}

/// Runs a verb of `hexflash-conformance` with what it needs installed.
pub fn run(verb: &str, arguments: &Arguments) -> Result<()> {
    for set in [Set::Base, Set::Oracle] {
        setup::ensure(set)?;
    }
    let root = process::workspace_root()?;
    let mut command = cargo(&root, "run");
    command.args(["--package", "hexflash-conformance", "--", verb]).args(&arguments.arguments);
    if has(&arguments.arguments, "--device", Some("qemu")) && env::var_os("HEXFLASH_QEMU_IMAGE").is_none() {
        // The image of this checkout, as it is now: an older one would be tested without anybody noticing.
        process::run(&mut process::xtask(&["hexagon", "--arch", "v67"]))?;
        command.env("HEXFLASH_QEMU_IMAGE", hexagon::output_dir(&root)?.join(hexagon::IMAGE));
    }
    // Without a library of the caller's: the stand-in.
    let htp = has(&arguments.arguments, "--device", Some("htp"));
    if htp && !has(&arguments.arguments, "--htp-library", None) {
        return on_standin(&root, &mut command);
    }
    process::run(&mut command)
}

/// Runs the verb against the stand-in for FastRPC, which must not see a rule broken.
fn on_standin(root: &Path, command: &mut Command) -> Result<()> {
    let mut build = process::cargo();
    // The whole workspace's features: what other steps built is used again.
    build.current_dir(root).args(["build", "--locked", "--workspace", "--lib", "--bins"]);
    process::run(&mut build)?;
    let built = hexagon::output_dir(root)?.parent().unwrap_or(root).join("debug");
    let report = built.join(format!("standin-{}.txt", std::process::id()));
    command.arg("--htp-library").arg(built.join("libcdsprpc.so"));
    command.env("HEXFLASH_STANDIN", format!("report={}", report.display()));
    let outcome = process::run(command);
    let breaches = fs::read_to_string(&report).unwrap_or_default();
    // It is there only if there is something in it.
    let _ = fs::remove_file(&report);
    outcome?;
    if breaches.is_empty() {
        return Ok(());
    }
    print!("{breaches}");
    Err(Failure::failed(
        "device htp broke rules of FastRPC",
        "the lines above say which; tests/cdsprpc has the rules",
    ))
}

/// Whether the arguments have the option, in either spelling; with this value, if one is given.
fn has(arguments: &[OsString], option: &str, value: Option<&str>) -> bool {
    let two =
        arguments.windows(2).any(|pair| pair[0] == option && value.is_none_or(|value| pair[1] == value));
    let is_one = |argument: &OsString| {
        let rest = argument.to_str().and_then(|text| text.strip_prefix(option)?.strip_prefix('='));
        rest.is_some_and(|rest| value.is_none_or(|value| rest == value))
    };
    two || arguments.iter().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_seen_in_either_spelling() {
        let words = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        let on = |arguments: &str| has(&words(arguments), "--device", Some("qemu"));
        assert!(on("--op ADD --device qemu") && on("--device=qemu --json"));
        assert!(!on("--device inproc") && !on("--case qemu") && !on("--device"));
        let named = |arguments: &str| has(&words(arguments), "--htp-library", None);
        assert!(named("--htp-library=a.so") && named("--htp-library a.so --quiet"));
        assert!(!named("--htp-libraries=a.so") && !named("--device htp"));
    }
}
