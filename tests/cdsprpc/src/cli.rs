//! `hexflash`, as it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    hexflash_cli::main()
}
