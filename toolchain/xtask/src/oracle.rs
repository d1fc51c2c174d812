//! Verbs that need llama.cpp: started from here, done by `tests/conformance`.
//!
//! That crate is in the workspace of `tests/oracle`, so that nothing else compiles C++. Cargo would look for its
//! configuration where the verb was typed; it is given by name, and paths in the arguments stay the caller's.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::failure::Result;
use crate::hexagon;
use crate::process;
use crate::setup::{self, Set};

/// Arguments that the crate itself reads; `--help` too.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// See `--help` of the verb itself
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Cargo for the workspace of `tests/oracle` in the checkout `root`.
///
/// Packages are always chosen in the same way: another choice unifies other features, and llama.cpp is compiled again.
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
    if on_qemu(&arguments.arguments) {
        // The image of this checkout, as it is now: an older one would be tested without anybody noticing.
        process::run(&mut process::xtask(&["hexagon", "--arch", "v67"]))?;
        command.env("HEXFLASH_QEMU_IMAGE", hexagon::output_dir(&root)?.join(hexagon::IMAGE));
    }
    process::run(&mut command)
}

/// Whether the arguments choose the emulator, for which an image must be there; one that the caller names is used.
fn on_qemu(arguments: &[OsString]) -> bool {
    let two = arguments.windows(2).any(|pair| pair[0] == "--device" && pair[1] == "qemu");
    (two || arguments.iter().any(|a| a == "--device=qemu")) && env::var_os("HEXFLASH_QEMU_IMAGE").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_is_seen_in_either_spelling() {
        let on = |words: &str| on_qemu(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(on("--op ADD --device qemu") && on("--device=qemu --json"));
        assert!(!on("--device inproc") && !on("--case qemu") && !on("--device"));
    }
}
