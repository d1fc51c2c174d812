//! `hexflash deploy`: program, libraries and a model onto a machine with a Snapdragon, over adb, and a
//! command there.

mod adb;
mod call;
mod command;
mod elf;
mod error;
mod push;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;

use super::{CliError, say};
use adb::{Adb, clean, quoted};
use command::Remote;
pub use error::DeployError;
use hexflash::gguf::Gguf;
use push::{File, RemoteFolder, fingerprint};

/// What `cargo xtask dist` calls the program.
const PROGRAM: &str = "hexflash";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the program and the libraries for the DSP, as `cargo xtask dist` makes it
    #[arg(long, value_name = "DIR", default_value = "target/dist/aarch64-unknown-linux-gnu")]
    dist: PathBuf,
    /// Model file (GGUF; the first one of a sharded model) [default: those in the folder]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// DFlash draft model (GGUF); -md for short
    #[arg(long, alias = "md", value_name = "FILE", requires = "model")]
    model_draft: Option<PathBuf>,
    /// The device, as `adb devices` names it [default: ANDROID_SERIAL, or the only one there is]
    #[arg(short, long, value_name = "SERIAL", value_parser = NonEmptyStringValueParser::new())]
    serial: Option<String>,
    /// The program adb
    #[arg(long, value_name = "FILE", default_value = "adb")]
    adb: PathBuf,
    /// Seconds that adb may take without any progress; the command on the device has all the time it wants
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Folder on the device
    #[arg(long, value_name = "DIR", default_value = "/data/local/tmp/hexflash")]
    to: String,
    /// Arguments of hexflash there; the model is put in where a command takes one and none is named [default:
    /// devices]
    #[arg(last = true, value_name = "ARGUMENTS")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    // Whatever can be told to be wrong without the device, first.
    let remote = Remote::parse(&args.command)?;
    if !args.to.starts_with('/') {
        return Err(DeployError::Folder { dir: args.to.clone() }.into());
    }
    let to = args.to.trim_end_matches('/');
    let plan = PushList::new(args)?;
    let adb = Adb::find(&args.adb, args.serial.as_deref(), Duration::from_secs(args.timeout.into()))?;
    fits(&adb, &args.dist.join(PROGRAM))?;
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
    Ok(adb.run(&remote.line(to, &models))?)
}

/// Refuses a program that the device cannot start: of another architecture, or for another system.
fn fits(adb: &Adb, program: &Path) -> Result<(), DeployError> {
    let header = elf::Header::read(program)?;
    let found = adb.script("it was asked for its processor", "uname -m")?;
    let found = found.trim();
    if found != header.machine {
        let (program, found) = (program.to_owned(), clean(found));
        return Err(DeployError::Machine { program, built: header.machine, found });
    }
    let Some(interpreter) = header.interpreter else { return Ok(()) };
    let there = format!("[ -e {} ] && echo yes || true", quoted(&interpreter));
    if adb.script("it was asked for its system", &there)?.trim() == "yes" {
        return Ok(());
    }
    Err(DeployError::System { program: program.to_owned(), interpreter: clean(&interpreter) })
}

/// What goes to the device.
struct PushList {
    /// Program and libraries.
    program: Vec<PathBuf>,
    /// Models of the folder. They keep their names.
    shipped: Vec<PathBuf>,
    /// Target and draft that were named: the path, and all files of the model.
    named: [Option<(PathBuf, Vec<PathBuf>)>; 2],
}

impl PushList {
    fn new(args: &Args) -> Result<Self, CliError> {
        let program = distribution(&args.dist)?;
        let model = |path: &Option<PathBuf>| -> Result<_, CliError> {
            let Some(path) = path else { return Ok(None) };
            // Opened here, so that a file that is no model is told of before hours of pushing.
            let files = Gguf::open(path)?.files().map(Path::to_owned).collect();
            Ok(Some((path.clone(), files)))
        };
        let named = [model(&args.model)?, model(&args.model_draft)?];
        let shipped = match &args.model {
            None => listed(&args.dist.join("models"), |name| name.ends_with(".gguf"))?,
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
        for (model, named) in models.iter_mut().zip(&self.named) {
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

/// Program and libraries.
fn distribution(dist: &Path) -> Result<Vec<PathBuf>, DeployError> {
    let is_skel = |name: &str| name.starts_with("libhexflash_skel_v") && name.ends_with(".so");
    let (program, skels) = (dist.join(PROGRAM), listed(dist, is_skel)?);
    if !program.exists() || skels.is_empty() {
        return Err(DeployError::Distribution { dir: dist.to_owned(), program: program.exists() });
    }
    Ok([program].into_iter().chain(skels).collect())
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
