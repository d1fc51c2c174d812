//! The `hexflash` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    hexflash::cli::main()
}
