//! `hexflash completions` and `hexflash man`: what shells and `man` want to know of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::Shell;
use clap_mangen::Man;

use super::CliError;
use super::output::say;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "For bash: hexflash completions bash > ~/.local/share/bash-completion/completions/hexflash"
)]
pub(super) struct CompletionsArgs {
    /// The shell [default: that of $SHELL]
    shell: Option<Shell>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write the pages of all commands into DIR, instead of one page to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Command whose page to print [default: hexflash itself]
    #[arg(conflicts_with = "out")]
    command: Option<String>,
}

/// The verb `completions`.
pub(super) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> Result<ExitCode, CliError> {
    let shell = args.shell.or_else(Shell::from_env).ok_or(CliError::NoShell)?;
    // In memory first: a pipe that closes early is no reason to panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "hexflash", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The verb `man`.
pub(super) fn man(args: &ManArgs, command: clap::Command) -> Result<ExitCode, CliError> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let verbs: Vec<_> = command.get_subcommands().cloned().collect();
    if let Some(dir) = &args.out {
        for page in std::iter::once(&command).chain(&verbs) {
            let path = dir.join(format!("{}.1", page_name(page)));
            write(&path, &render(page)?).map_err(|source| CliError::Page { path, source })?;
        }
        say(format_args!("{} pages are in {}", verbs.len() + 1, dir.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let page = match &args.command {
        None => &command,
        Some(name) => verbs
            .iter()
            .find(|verb| verb.get_name() == name)
            .ok_or_else(|| CliError::NoPage { name: name.clone() })?,
    };
    io::stdout().lock().write_all(&render(page)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Name of a command's page: `hexflash`, or `hexflash-run`.
fn page_name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn render(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(page_name(command)).render(&mut page)?;
    Ok(page)
}

fn write(path: &Path, page: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, page)
}
