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

use crate::emulator_build;
use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain;

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
        let arch = value(&arguments.arguments, "--arch").unwrap_or("v67");
        // The image of this checkout, as it is now: an older one would be tested without anybody noticing.
        process::run(&mut process::xtask(&["hexagon", "--image", "--arch", arch]))?;
        command.env("HEXFLASH_QEMU_IMAGE", toolchain::output_dir(&root)?.join(format!("hexflash-{arch}")));
        if arch != "v67" && env::var_os("HEXFLASH_QEMU").is_none() {
            setup::ensure(Set::Emulator)?;
            command.env("HEXFLASH_QEMU", emulator_build::path()?);
        }
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
    let built = toolchain::output_dir(root)?.parent().unwrap_or(root).join("debug");
    let report = built.join(format!("standin-{}.txt", std::process::id()));
    command.arg("--htp-library").arg(built.join("libcdsprpc.so"));
    command.env("HEXFLASH_STANDIN", format!("report={}", report.display()));
    let outcome = process::run(command);
    let breaches = no_breaches(&report);
    outcome.and(breaches)
}

/// Takes the report of the stand-in for FastRPC away, and fails with what is in it.
pub fn no_breaches(report: &Path) -> Result<()> {
    let breaches = fs::read_to_string(report).unwrap_or_default();
    // It is there only if there is something in it.
    let _ = fs::remove_file(report);
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
fn has(arguments: &[OsString], option: &str, wanted: Option<&str>) -> bool {
    value(arguments, option).is_some_and(|found| wanted.is_none_or(|wanted| found == wanted))
}

/// The value of the option, in either spelling.
fn value<'a>(arguments: &'a [OsString], option: &str) -> Option<&'a str> {
    let two = arguments.windows(2).find(|pair| pair[0] == option).and_then(|pair| pair[1].to_str());
    let one = |argument: &'a OsString| argument.to_str()?.strip_prefix(option)?.strip_prefix('=');
    two.or_else(|| arguments.iter().find_map(one))
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
        assert_eq!(value(&words("--device qemu --arch=v73"), "--arch"), Some("v73"));
        let named = |arguments: &str| has(&words(arguments), "--htp-library", None);
        assert!(named("--htp-library=a.so") && named("--htp-library a.so --quiet"));
        assert!(!named("--htp-libraries=a.so") && !named("--device htp"));
    }
}
