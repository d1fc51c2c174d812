//! Developer commands of hexflash: `cargo xtask --help`.
//!
//! Every check that CI runs is a verb here, so that whatever fails there can be repeated by the same words
//! on any machine. A verb installs what it needs before it starts; `cargo xtask setup --check` only looks.
//!
//! Exit codes: 0 all went well; 1 something was checked or built and failed; 2 the command could not be
//! carried out as given (a wrong argument, or a tool that is missing and cannot be installed from here).

mod apt;
mod disassembly;
mod failure;
mod hexagon;
mod process;
mod setup;
mod skel;
mod steps;
mod suite;
mod test;
mod toolchain;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer commands of hexflash.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing to build and test, and say what is done
    Setup(setup::Arguments),
    /// Run the checks that CI runs, and list what failed at the end
    Test(test::Arguments),
    /// Build the DSP runtime for Hexagon: the emulator's image (v67) and the skel libraries (v73 to v81)
    Hexagon(hexagon::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Setup(arguments) => setup::run(&arguments),
        Verb::Test(arguments) => test::run(&arguments),
        Verb::Hexagon(arguments) => hexagon::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
