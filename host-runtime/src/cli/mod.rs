//! The command line: `run`, `info`, `bench`, `devices`.
//!
//! Exit codes: 0 done; 1 the device or the system failed; 2 bad input or usage; 130 interrupted.

mod bench;
mod devices;
mod error;
mod info;
mod options;
mod progress;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

pub use error::CliError;

/// LLM inference on the Qualcomm Hexagon NPU, without the vendor's SDK.
#[derive(Debug, Parser)]
#[command(name = "hexflash", version, about, max_term_width = 100)]
struct Cli {
    /// Log more (-v: what is done, -vv: how); RUST_LOG overrides it
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write text
    Run(Box<run::Args>),
    /// Show what a model file holds and how much memory it takes
    Info(info::Args),
    /// Measure prefill and decode speed
    Bench(bench::Args),
    /// List the devices of this build
    Devices(devices::Args),
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Devices(args) => devices::run(&args),
    };
    match outcome {
        Ok(code) => code,
        // Whoever read our output has gone away: not an error worth words.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}
