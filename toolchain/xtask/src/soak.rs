//! `cargo xtask soak`: builds what `tests/soak` needs, and starts it.

use std::ffi::OsString;
use std::process::Command;

use crate::failure::Result;
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain;

/// Arguments that the program itself reads; `--help` too.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// See `--help` of the verb itself
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    let root = process::workspace_root()?;
    let mut build = process::cargo();
    // The stand-in for FastRPC, and the process behind it, are programs of their own.
    build.current_dir(&root).args(["build", "--package", "hexflash-soak", "--package", "hexflash-cdsprpc"]);
    // Who measures wants optimised code; checks of its own are what others want.
    let measures = arguments.arguments.iter().any(|argument| argument == "--speed");
    if measures {
        build.arg("--release");
    }
    process::run(&mut build)?;
    let built = toolchain::output_dir(&root)?;
    let profile = if measures { "release" } else { "debug" };
    let mut soak = Command::new(built.with_file_name(profile).join("hexflash-soak"));
    process::run(soak.args(&arguments.arguments))
}
