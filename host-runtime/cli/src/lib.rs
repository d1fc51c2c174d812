//! The command line: `run`, `chat`, `embed`, `serve`, `info`, `bench`, `models`, `devices`, `doctor`,
//! `selftest`, `deploy`.
//!
//! Exit codes: 0 done; 1 the device or the system failed; 2 bad input or usage; interrupted by a signal: 128
//! and its number (130 for Ctrl-C).

// No property of a file or of an option may end the process: what can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
// The macros of the standard library panic where the output cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod chat;
mod conversation;
mod cores;
mod deploy;
mod devices;
mod doctor;
mod embed;
mod error;
mod flags;
#[cfg(unix)]
mod hang_up;
// Without downloads, part of what finds a model has no use.
#[cfg_attr(not(feature = "hub"), allow(dead_code))]
mod hub;
mod info;
mod input;
mod interrupt;
mod library_path;
mod llama;
#[cfg(feature = "terminal")]
mod manual;
mod models;
#[cfg(feature = "server")]
mod models_dir;
mod options;
mod output;
#[cfg_attr(not(feature = "pictures"), path = "pictures_elsewhere.rs")]
mod pictures;
mod plain;
mod progress;
mod record;
mod run;
mod sampling;
mod selftest;
#[cfg_attr(not(feature = "server"), path = "serve_elsewhere.rs")]
mod serve;
mod template;
mod writing;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

pub use deploy::DeployError;
pub use error::CliError;
pub use hub::HubError;
use output::{one_line, say};
use plain::plain;

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
    /// Talk with a model in the terminal
    Chat(Box<chat::Args>),
    /// Print vectors of texts, whose cosines say how near their meanings are
    Embed(Box<embed::Args>),
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
    /// Check what `htp` needs, here or on a device that adb reaches, and say what to do
    Doctor(Box<doctor::Args>),
    /// See what a device makes of float instructions and small kernels, and what it answers that only a
    /// processor can
    Selftest(Box<selftest::Args>),
    /// Push hexflash and a model to a machine with a Snapdragon, over adb, and run it there
    Deploy(deploy::Args),
    /// Print a script with which a shell completes commands and options
    #[cfg(feature = "terminal")]
    Completions(manual::CompletionsArgs),
    /// Print a page for man, or write those of all commands
    #[cfg(feature = "terminal")]
    Man(manual::ManArgs),
}

impl Command {
    /// Whether the command could do with a target and with a draft, and names none.
    fn lacks(&self) -> [bool; 2] {
        match self {
            Self::Run(args) => args.lacks(),
            Self::Chat(args) => args.lacks(),
            Self::Embed(args) => args.lacks(),
            Self::Serve(args) => args.lacks(),
            Self::Info(args) => args.lacks(),
            Self::Bench(args) => args.lacks(),
            Self::Doctor(args) => args.lacks(),
            Self::Models(_) | Self::Devices(_) | Self::Selftest(_) | Self::Deploy(_) => [false; 2],
            #[cfg(feature = "terminal")]
            Self::Completions(_) | Self::Man(_) => [false; 2],
        }
    }
}

/// Reads a command line, the first word of which is the program's name.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(llama::long_form(args))?;
    Cli::from_arg_matches(&matches)
}

/// Whether the command of these words, which follow the program's name, could do with a target and with a
/// draft, and names none.
fn lacks(words: &[String]) -> Result<[bool; 2], clap::Error> {
    let words = ["hexflash"].into_iter().chain(words.iter().map(String::as_str));
    Ok(parse(words.map(Into::into))?.command.lacks())
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    outlive_file_limits();
    // SAFETY: this is the first that the process does, and nothing before it starts a thread (1).
    let named = unsafe { library_path::name_own_folder() };
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log(cli.verbose, matches!(cli.command, Command::Doctor(_) | Command::Selftest(_)));
    if let Some((folder, variables)) = named.filter(|(_, variables)| !variables.is_empty()) {
        tracing::debug!("the program's folder {} is put into {}", folder.display(), variables.join(", "));
    }
    hexflash::setting::name_flags(flags::of);
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Info(args) => info::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Doctor(args) => doctor::run(&args, lacks),
        Command::Selftest(args) => selftest::run(&args, lacks),
        Command::Deploy(args) => deploy::run(&args, lacks),
        #[cfg(feature = "terminal")]
        Command::Completions(args) => manual::completions(&args, command()),
        #[cfg(feature = "terminal")]
        Command::Man(args) => manual::man(&args, command()),
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
    let command = command.mut_subcommand("doctor", doctor::with_device);
    let command = command.mut_subcommand("selftest", selftest::with_target);
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
    // Causes may have names of strangers in them.
    say(format_args!("error: {}", plain(&error.to_string())));
    error.exit_code()
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

/// Sets up the log: lines on standard error, and a record of all that is told in it if a command wants one.
fn log(verbose: u8, recorded: bool) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would tell of a standard error that cannot be written by printing there, which panics.
        .log_internal_errors(false);
    let record = fmt::layer()
        .with_writer(|| record::Writer)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .log_internal_errors(false);
    let record = recorded.then(|| record.with_filter(EnvFilter::new("debug")));
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(record).init();
}
