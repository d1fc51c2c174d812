//! The command line: `run`, `serve`, `info`, `bench`, `models`, `devices`, `deploy`.
//!
//! Exit codes: 0 done; 1 the device or the system failed; 2 bad input or usage; interrupted by a signal: 128
//! and its number (130 for Ctrl-C).

// No property of a file or of an option may end the process: what can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
// The macros of the standard library panic where the output cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod deploy;
mod devices;
mod error;
mod flags;
mod hub;
mod info;
mod input;
mod interrupt;
mod llama;
mod models;
mod options;
mod progress;
mod run;
mod sampling;
mod serve;
mod template;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

pub use deploy::DeployError;
pub use error::CliError;
pub use hub::HubError;

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
    /// Serve a model over HTTP, with OpenAI's interface
    Serve(Box<serve::Args>),
    /// Show what a model file holds and how much memory it takes
    Info(info::Args),
    /// Measure prefill and decode speed
    Bench(bench::Args),
    /// List the models in the cache of the Hugging Face Hub
    Models(models::Args),
    /// List the devices of this build
    Devices(devices::Args),
    /// Push hexflash and a model to a machine with a Snapdragon, over adb, and run it there
    Deploy(deploy::Args),
}

impl Command {
    /// Whether the command could do with a target and with a draft, and names none.
    fn lacks(&self) -> [bool; 2] {
        match self {
            Self::Run(args) => args.lacks(),
            Self::Serve(args) => args.lacks(),
            Self::Info(args) => args.lacks(),
            Self::Bench(args) => args.lacks(),
            Self::Models(_) | Self::Devices(_) | Self::Deploy(_) => [false; 2],
        }
    }
}

/// Reads a command line, the first word of which is the program's name.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(llama::long_form(args))?;
    Cli::from_arg_matches(&matches)
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    outlive_file_limits();
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log(cli.verbose);
    hexflash::setting::name_flags(flags::of);
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Info(args) => info::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Deploy(args) => deploy::run(&args),
    };
    match outcome {
        Ok(code) => code,
        // Whoever read our output has gone away: not an error worth words.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => gone(),
        Err(error @ CliError::Hub(HubError::Interrupted { .. })) => {
            say(&error);
            error.exit_code()
        }
        Err(error) if error.is_cancelled() => {
            say("[interrupted before there was anything to print]");
            error.exit_code()
        }
        Err(error) => report(&error),
    }
}

/// The command line, with negative numbers as values of all options: what is wrong with `-c -2` is the
/// number.
fn command() -> clap::Command {
    let option = |arg: clap::Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true),
    };
    let command = Cli::command().mut_subcommands(move |command| command.mut_args(option));
    command.mut_subcommand("serve", |serve| serve.mut_args(llama::with_variable))
}

/// Writing a file that is larger than allowed (`ulimit -f`) is to fail, not to end the process.
#[cfg(unix)]
fn outlive_file_limits() {
    // SAFETY: no handler is installed, so that nothing can run at a bad moment; no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Nobody reads the output any more.
fn gone() -> ExitCode {
    if interrupt::has_come() { interrupt::exit_code() } else { ExitCode::SUCCESS }
}

/// Says what the matter is.
fn report(error: &CliError) -> ExitCode {
    say(format_args!("error: {error}"));
    error.exit_code()
}

/// Writes a line to standard error, if it can be written: what else there is to do does not depend on that.
fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What clap has to say: help as it is, a mistake as one line like all other errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let code = if error.use_stderr() { 2 } else { 0 };
        return match error.print() {
            Err(io) if code == 0 && io.kind() != std::io::ErrorKind::BrokenPipe => report(&io.into()),
            _ => ExitCode::from(code),
        };
    }
    if let Some(error) = llama::foreign(error) {
        return report(&error);
    }
    say(format_args!("error: {}; see hexflash --help", one_line(error)));
    ExitCode::from(2)
}

/// What clap says of a mistake, without its advice.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let is_advice = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut message = String::new();
    for line in text.lines().map(str::trim).take_while(is_advice).filter(|line| !line.is_empty()) {
        let separator = match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        message.push_str(separator);
        message.push_str(line);
    }
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// Prints a value for programs to read.
fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would tell of a standard error that cannot be written by printing there, which panics.
        .log_internal_errors(false)
        .init();
}
