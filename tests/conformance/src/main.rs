//! Every kernel of hexflash against ggml's own result, every model against llama.cpp.
//!
//! Started by `cargo xtask conformance` and `cargo xtask compare-llama`; see there.

mod ops;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run conformance cases on a device: each against ggml's own result
    Conformance(ops::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Conformance(arguments) => ops::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}
