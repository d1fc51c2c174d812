//! `hexflash doctor`: what of a machine is as hexflash needs it, one check after the other, and what to do
//! where it is not.

#[cfg(unix)]
mod dsp;
#[cfg(unix)]
mod machine;
mod private;
mod steps;

pub(super) use self::private::Private;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::steps::Findings;
use crate::CliError;
use crate::deploy::{self, Reader, TargetArgs};
use crate::options::DeviceArgs;
use crate::output::print_json;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Model for the self-test (GGUF), a small one [default: the one that lies beside the program]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Print a JSON object instead
    #[arg(long)]
    json: bool,
    /// Write everything into FILE, too, without serial numbers and without names and folders of yours
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Hide such names in what is printed, too
    #[arg(long, hide = true)]
    anonymous: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    target: TargetArgs,
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [self.model.is_none(), false]
    }
}

/// The system and the chip, in one line.
#[cfg(unix)]
pub(super) fn system() -> String {
    let (text, details) = machine::names();
    std::iter::once(text).chain(details).collect::<Vec<_>>().join("; ")
}

/// The system, in one line.
#[cfg(not(unix))]
pub(super) fn system() -> String {
    format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Options that send the doctor to another machine. Its device has the settings that it has there.
pub(super) const ELSEWHERE: [&str; 3] = ["serial", "adb", "dist"];

/// Settings that are not for `htp`, or not for a single session.
const UNUSED: [&str; 5] = ["sessions", "session_memory", "arch", "float", "trace"];

/// The arguments as they are for the doctor alone: the only device is `htp`, and its settings cannot be given
/// for another machine.
pub(super) fn with_device(command: clap::Command) -> clap::Command {
    let device = |arg: clap::Arg| arg.default_value("htp").value_parser(["htp"]).hide(true);
    let command = command.mut_arg("device", device);
    let command =
        UNUSED.into_iter().fold(command, |command, name| command.mut_arg(name, |arg| arg.hide(true)));
    ELSEWHERE
        .into_iter()
        .fold(command, |command, name| command.mut_arg(name, |arg| arg.conflicts_with("DeviceArgs")))
}

pub(super) fn run(args: &Args, read: Reader) -> Result<ExitCode, CliError> {
    if args.target.is_given() {
        return elsewhere(args, read);
    }
    let private = (args.anonymous || args.report.is_some()).then(Private::here);
    let found = here(args, private.as_ref().filter(|_| args.anonymous))?;
    match (&args.report, &private) {
        (Some(path), Some(private)) => write_report(path, &found.without(private)),
        _ => Ok(code(&found)),
    }
}

/// 1 if a check failed.
fn code(found: &Findings) -> ExitCode {
    ExitCode::from(u8::from(!found.ok))
}

fn write_report(path: &Path, found: &Findings) -> Result<ExitCode, CliError> {
    fs::write(path, found.report()).map_err(|source| CliError::Report { path: path.to_owned(), source })?;
    Ok(code(found))
}

/// All checks on this machine.
#[cfg(unix)]
fn here(args: &Args, private: Option<&Private>) -> Result<Findings, CliError> {
    let mut live = steps::Live::new(args.json, private);
    live.add(machine::system())?;
    let version = dsp::library(&args.device, &mut live)?;
    // Whatever has failed: these may say why.
    live.add(machine::nodes(Path::new("/")))?;
    live.add(machine::selinux())?;
    if let Some(version) = version {
        dsp::skel(version, &mut live)?;
    }
    if !live.has_failed()
        && let Some(device) = dsp::open(&args.device, &mut live)?
    {
        let model = args.model.clone().or_else(crate::options::shipped_beside);
        live.add(dsp::self_test(device, model.as_deref()))?;
    }
    live.end()
}

/// Refuses a look at this machine, whose system has no FastRPC.
#[cfg(not(unix))]
fn here(args: &Args, private: Option<&Private>) -> Result<Findings, CliError> {
    use self::steps::{Check, Outcome, Step};
    let mut live = steps::Live::new(args.json, private);
    let text = "device htp is not in this build; for a phone on USB, give its serial number: hexflash doctor \
                --serial SERIAL";
    live.add(Step::new(Check::Library, Outcome::Failed, text))?;
    live.end()
}

/// The doctor on a machine that adb reaches. For a report its findings are taken as JSON, without what is
/// private there; then what is private here is hidden, too.
fn elsewhere(args: &Args, read: Reader) -> Result<ExitCode, CliError> {
    let json = args.json || args.report.is_some();
    let hidden = args.anonymous || args.report.is_some();
    let words = [("doctor", true), ("--json", json), ("--anonymous", hidden)];
    let words = words.into_iter().filter(|(_, wanted)| *wanted).map(|(word, _)| word.to_owned());
    let deployment = deploy::Args::new(args.target.clone(), args.model.clone(), words.collect());
    let Some(path) = &args.report else { return deploy::run(&deployment, read) };
    let said = deploy::output(&deployment, read)?;
    let found: Findings = serde_json::from_str(&said).map_err(|_| CliError::NoFindings)?;
    if args.json {
        print_json(&found)?;
    } else {
        found.print(&mut std::io::stdout().lock())?;
    }
    write_report(path, &found.without(&Private::here()))
}
