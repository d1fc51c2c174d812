//! `hexflash serve` in a program that was built without the server: a line that says how to have it.

use std::ffi::OsString;
use std::process::ExitCode;

use super::CliError;

#[derive(Debug, clap::Args)]
#[command(after_help = "This program was built without the server: build it without --no-default-features.")]
pub(super) struct Args {
    /// Anything: a server's options are not known here.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Args {
    /// Whether a target and a draft could be used: there is nothing to use them.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [false; 2]
    }
}

pub(super) fn run(_: Args) -> Result<ExitCode, CliError> {
    Err(CliError::NoServer)
}
