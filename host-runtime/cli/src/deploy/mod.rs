//! `hexflash deploy`: program, libraries and a model onto a machine with a Snapdragon, over adb, and a
//! command there.

mod adb;
mod call;
mod command;
mod elf;
mod error;
mod push;
mod system;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;

use super::CliError;
use super::output::say;
use crate::library_path::is_skel;
use adb::{Adb, clean, quoted};
use command::Remote;
pub use error::DeployError;
use hexflash::gguf::Gguf;
use push::{File, RemoteFolder, fingerprint};
use system::System;

/// What `cargo xtask dist` calls the program.
const PROGRAM: &str = "hexflash";

/// Reader of hexflash's command lines: whether the command of these words could do with a target and with a
/// draft, and names none.
pub(super) type Reader = fn(&[String]) -> Result<[bool; 2], clap::Error>;

/// Which device, and what goes there.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct TargetArgs {
    /// Folder with the program and the libraries for the DSP, as `cargo xtask dist` makes it [default: that
    /// for the device's system, in target/dist]
    #[arg(long, value_name = "DIR")]
    dist: Option<PathBuf>,
    /// The device, as `adb devices` names it [default: ANDROID_SERIAL, or the only one there is]
    #[arg(short, long, value_name = "SERIAL", value_parser = NonEmptyStringValueParser::new())]
    serial: Option<String>,
    /// The program adb [default: adb]
    #[arg(long, value_name = "FILE")]
    adb: Option<PathBuf>,
    /// Seconds that adb may take without any progress; the command on the device has all the time it wants
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Folder on the device
    #[arg(long, value_name = "DIR", default_value = "/data/local/tmp/hexflash")]
    to: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Model file (GGUF; the first one of a sharded model) [default: those in the folder]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// DFlash draft model (GGUF); -md for short
    #[arg(long, alias = "md", value_name = "FILE", requires = "model")]
    model_draft: Option<PathBuf>,
    /// Arguments of hexflash there; the model is put in where a command takes one and none is named [default:
    /// devices]
    #[arg(last = true, value_name = "ARGUMENTS")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args, read: Reader) -> Result<ExitCode, CliError> {
    let (adb, line) = args.prepare(read)?;
    Ok(adb.run(&line)?)
}

/// Does the same, and gives what the command there prints.
pub(super) fn output(args: &Args, read: Reader) -> Result<String, CliError> {
    let (adb, line) = args.prepare(read)?;
    Ok(adb.output(&line)?)
}

/// Output of a program of this machine, if it succeeds and does not hang for longer than `patience`.
pub(super) fn said(command: &mut Command, patience: Duration) -> Option<String> {
    let heard = call::call(command, None, patience, |_| ()).ok()?;
    heard.status.success().then(|| String::from_utf8_lossy(&heard.stdout).into_owned())
}

impl TargetArgs {
    /// Whether a device is named, or how to get at it.
    pub(super) fn is_given(&self) -> bool {
        self.serial.is_some() || self.adb.is_some() || self.dist.is_some()
    }
}

impl Args {
    /// Arguments for a command without a draft model.
    pub(super) fn new(target: TargetArgs, model: Option<PathBuf>, command: Vec<String>) -> Self {
        Self { target, model, model_draft: None, command }
    }

    /// Pushes what the device lacks; gives adb, and the line for the device's shell.
    fn prepare(&self, read: Reader) -> Result<(Adb, String), CliError> {
        let target = &self.target;
        // Whatever can be told to be wrong without the device, first.
        let remote = Remote::parse(&self.command, read)?;
        if !target.to.starts_with('/') {
            return Err(DeployError::Folder { dir: target.to.clone() }.into());
        }
        let to = target.to.trim_end_matches('/');
        let models = NamedModels::new(self)?;
        let named = target.dist.clone().map(Distribution::named);
        let plan = named.as_ref().map(|dist| PushList::new(dist, &models)).transpose()?;
        let program = target.adb.as_deref().unwrap_or(Path::new("adb"));
        let patience = Duration::from_secs(target.timeout.into());
        let adb = Adb::find(program, target.serial.as_deref(), patience)?;
        let system = System::ask(&adb)?;
        let dist = named.map_or_else(|| system.distribution(), Ok)?;
        let plan = plan.map_or_else(|| PushList::new(&dist, &models), Ok)?;
        fits(&adb, &system, &dist.dir.join(PROGRAM))?;
        say(format_args!("[{}: {}]", clean(adb.serial()), system.describe(&dist.dir)));
        let (files, models) = plan.read(to)?;
        let place = RemoteFolder::make(&adb, to, &files)?;
        let (mut pushed, mut same) = (Vec::new(), 0);
        for file in place.wanted(&files, &mut same)? {
            place.push(file)?;
            pushed.push(file.name.as_str());
        }
        // Standard output is that of the command on the device.
        match pushed.as_slice() {
            [] => say(format_args!("nothing to push: all {same} files are in {to}")),
            names => say(format_args!("pushed to {to}: {} ({same} were there)", names.join(", "))),
        }
        Ok((adb, remote.line(to, &models)))
    }
}

/// Refuses a program that the device cannot start: of another architecture, or for another system.
fn fits(adb: &Adb, system: &System, program: &Path) -> Result<(), DeployError> {
    let header = elf::Header::read(program)?;
    if system.machine != header.machine {
        let (program, found) = (program.to_owned(), system.machine.clone());
        return Err(DeployError::Machine { program, built: header.machine, found });
    }
    let Some(interpreter) = header.interpreter else { return Ok(()) };
    let there = format!("[ -e {} ] && echo yes || true", quoted(&interpreter));
    if adb.script("it was asked for its system", &there)?.trim() == "yes" {
        return Ok(());
    }
    Err(DeployError::System { program: program.to_owned(), interpreter: clean(&interpreter) })
}

/// A folder that `cargo xtask dist` makes.
#[derive(Debug)]
struct Distribution {
    dir: PathBuf,
    /// The command that makes it.
    make: &'static str,
}

impl Distribution {
    /// The folder for arm64 Linux with glibc.
    fn linux() -> Self {
        Self { dir: "target/dist/aarch64-unknown-linux-gnu".into(), make: "cargo xtask dist" }
    }

    /// The folder for Android.
    fn android() -> Self {
        Self { dir: "target/dist/aarch64-linux-android".into(), make: "cargo xtask dist --android" }
    }

    /// The folder that the user names.
    fn named(dir: PathBuf) -> Self {
        Self { dir, make: "cargo xtask dist" }
    }

    /// Program and libraries.
    fn program(&self) -> Result<Vec<PathBuf>, DeployError> {
        let (program, skels) = (self.dir.join(PROGRAM), listed(&self.dir, |name| is_skel(name.as_ref()))?);
        if !program.exists() || skels.is_empty() {
            let (dir, make) = (self.dir.clone(), self.make);
            return Err(DeployError::Distribution { dir, program: program.exists(), make });
        }
        Ok([program].into_iter().chain(skels).collect())
    }
}

/// Target and draft that were named: the path, and all files of the model.
type NamedModel = Option<(PathBuf, Vec<PathBuf>)>;

/// The models that were named.
struct NamedModels([NamedModel; 2]);

impl NamedModels {
    fn new(args: &Args) -> Result<Self, CliError> {
        let model = |path: &Option<PathBuf>| -> Result<_, CliError> {
            let Some(path) = path else { return Ok(None) };
            // Opened here, so that a file that is no model is told of before hours of pushing.
            let files = Gguf::open(path)?.files().map(Path::to_owned).collect();
            Ok(Some((path.clone(), files)))
        };
        Ok(Self([model(&args.model)?, model(&args.model_draft)?]))
    }
}

/// Files and folders that go to the device.
struct PushList<'a> {
    /// Program and libraries.
    program: Vec<PathBuf>,
    /// Models of the folder. They keep their names.
    shipped: Vec<PathBuf>,
    named: &'a NamedModels,
}

impl<'a> PushList<'a> {
    fn new(dist: &Distribution, named: &'a NamedModels) -> Result<Self, DeployError> {
        let program = dist.program()?;
        let shipped = match &named.0[0] {
            None => listed(&dist.dir.join("models"), |name| name.ends_with(".gguf"))?,
            Some(_) => Vec::new(),
        };
        for path in program.iter().chain(&shipped) {
            push::open(path)?;
        }
        Ok(Self { program, shipped, named })
    }

    /// Reads all files; gives them, and the paths of target and draft on the device.
    ///
    /// Each model that was named lies in a folder that is named after its contents: models of the same name
    /// do not replace each other, and one that is there already is found wherever it comes from.
    fn read(&self, to: &str) -> Result<(Vec<File>, [Option<String>; 2]), DeployError> {
        let mut files = Vec::new();
        for path in &self.program {
            files.push(File::read(path, "")?);
        }
        for path in &self.shipped {
            files.push(File::read(path, "models/")?);
        }
        let mut models = [None, None];
        for (model, named) in models.iter_mut().zip(&self.named.0) {
            let Some((path, shards)) = named else { continue };
            let mut read = shards.iter().map(|shard| File::read(shard, "")).collect::<Result<Vec<_>, _>>()?;
            let folder = format!("models/{}/", fingerprint(&read));
            for file in &mut read {
                file.name.insert_str(0, &folder);
            }
            *model = Some(format!("{to}/{folder}{}", name(path)?));
            // The draft can be the target's file.
            read.retain(|file| files.iter().all(|other| other.name != file.name));
            files.extend(read);
        }
        Ok((files, models))
    }
}

/// Files of a folder, by their names; none if there is no such folder.
fn listed(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, DeployError> {
    let read = |source| DeployError::Read { path: dir.to_owned(), source };
    let entries = match dir.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(read)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        if path.file_name().and_then(OsStr::to_str).is_some_and(&wanted) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file's name, which a shell can be given.
fn name(path: &Path) -> Result<String, DeployError> {
    let name = path.file_name().and_then(OsStr::to_str).filter(|name| !name.contains(char::is_control));
    name.map(str::to_owned).ok_or_else(|| DeployError::Name { path: path.to_owned() })
}
