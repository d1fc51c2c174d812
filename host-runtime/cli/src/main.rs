//! The `hexflash` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    hexflash_cli::main()
}
