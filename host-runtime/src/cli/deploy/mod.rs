//! `hexflash deploy`: program, libraries and a model onto a machine with a Snapdragon, over adb, and a command there.

mod adb;
mod elf;
mod error;
mod push;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{CliError, say};
use crate::gguf::Gguf;
use adb::{Adb, quoted};
pub use error::DeployError;
use push::{File, Place};

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
    #[arg(short, long, value_name = "SERIAL")]
    serial: Option<String>,
    /// The program adb
    #[arg(long, value_name = "FILE", default_value = "adb")]
    adb: PathBuf,
    /// Folder on the device
    #[arg(long, value_name = "DIR", default_value = "/data/local/tmp/hexflash")]
    to: String,
    /// Arguments of hexflash there; the model is put in where a command takes one and none is named [default: devices]
    #[arg(last = true, value_name = "ARGUMENTS")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let plan = Plan::new(args)?;
    let adb = Adb::find(&args.adb, args.serial.as_deref())?;
    if !args.to.starts_with('/') {
        return Err(DeployError::Folder { dir: args.to.clone() }.into());
    }
    let to = args.to.trim_end_matches('/');
    fits(&adb, &args.dist.join(PROGRAM))?;
    let place = Place::make(&adb, to, plan.files.iter().any(|file| file.name.contains('/')))?;
    let (mut pushed, mut same) = (Vec::new(), 0);
    for file in place.wanted(&plan.files, &mut same)? {
        place.push(file)?;
        pushed.push(file.name.as_str());
    }
    // Standard output is that of the command on the device.
    match pushed.as_slice() {
        [] => say(format_args!("nothing to push: all {same} files are in {to}")),
        names => say(format_args!("pushed to {to}: {} ({same} were there)", names.join(", "))),
    }
    Ok(adb.run(&plan.command(to, &args.command))?)
}

/// Refuses a program that the device cannot start: of another architecture, or for another system.
fn fits(adb: &Adb, program: &Path) -> Result<(), DeployError> {
    let header = elf::Header::read(program)?;
    let found = adb.script("uname -m")?;
    let found = found.trim();
    if found != header.machine {
        let (program, found) = (program.to_owned(), found.to_owned());
        return Err(DeployError::Machine { program, built: header.machine, found });
    }
    let Some(interpreter) = header.interpreter else { return Ok(()) };
    let there = adb.script(&format!("[ -e {} ] && echo yes || true", quoted(&interpreter)))?;
    if there.trim() == "yes" {
        return Ok(());
    }
    Err(DeployError::System { program: program.to_owned(), interpreter })
}

/// What goes to the device, and what the models are called there.
struct Plan {
    files: Vec<File>,
    /// Option and name for each model that was named.
    models: Vec<(&'static str, String)>,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, CliError> {
        let mut files = distribution(&args.dist)?;
        let mut models = Vec::new();
        let named = [("-m", &args.model), ("-md", &args.model_draft)];
        for (option, path) in named.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
            // Opened here, so that a file that is no model is told of before hours of pushing.
            let shards = Gguf::open(path)?.files().map(Path::to_owned).collect::<Vec<_>>();
            for shard in shards {
                files.push(File::open(&shard, "models/")?);
            }
            models.push((option, format!("models/{}", name(path)?)));
        }
        if args.model.is_none() {
            for model in listed(&args.dist.join("models"), |name| name.ends_with(".gguf")) {
                files.push(File::open(&model, "models/")?);
            }
        }
        Ok(Self { files, models })
    }

    /// The command line on the device.
    fn command(&self, to: &str, arguments: &[String]) -> String {
        let takes_model = |word: &String| ["run", "info", "bench"].contains(&word.as_str());
        let mut words: Vec<String> = arguments.to_vec();
        if words.is_empty() {
            words.push("devices".to_owned());
        }
        if words.first().is_some_and(takes_model) {
            let given = |options: &[&str]| {
                arguments.iter().any(|word| {
                    options
                        .iter()
                        .any(|o| word == o || word.strip_prefix(o).is_some_and(|w| w.starts_with('=')))
                })
            };
            for (option, name) in self.models.iter().rev() {
                let same = if *option == "-m" { ["-m", "--model"] } else { ["-md", "--model-draft"] };
                if !given(&same) {
                    words.splice(1..1, [(*option).to_owned(), format!("{to}/{name}")]);
                }
            }
        }
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        let dir = quoted(to);
        // What older systems call it, and what newer ones do; nothing of the vendor's: see docs/devices.md.
        format!(
            "cd {dir} && LD_LIBRARY_PATH={dir} ADSP_LIBRARY_PATH={dir} DSP_LIBRARY_PATH={dir} exec ./{PROGRAM} {}",
            words.join(" ")
        )
    }
}

/// Program and libraries.
fn distribution(dist: &Path) -> Result<Vec<File>, DeployError> {
    let is_skel = |name: &str| name.starts_with("libhexflash_skel_v") && name.ends_with(".so");
    let (program, skels) = (dist.join(PROGRAM), listed(dist, is_skel));
    if !program.is_file() || skels.is_empty() {
        return Err(DeployError::Distribution { dir: dist.to_owned(), program: program.is_file() });
    }
    [program].iter().chain(&skels).map(|path| File::open(path, "")).collect()
}

/// Files of a folder, by their names; none if there is no such folder.
fn listed(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(&wanted)).collect();
    files.sort();
    files
}

/// A file's name, which a shell can be given.
fn name(path: &Path) -> Result<String, DeployError> {
    let name = path.file_name().and_then(OsStr::to_str).filter(|name| !name.contains(char::is_control));
    name.map(str::to_owned).ok_or_else(|| DeployError::Name { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(models: &[(&'static str, &str)], arguments: &[&str]) -> String {
        let models = models.iter().map(|&(option, name)| (option, name.to_owned())).collect();
        let plan = Plan { files: Vec::new(), models };
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let line = plan.command("/d/x y", &arguments);
        let (before, words) = line.split_once("exec ./hexflash ").unwrap();
        let dir = "'/d/x y'";
        let paths = format!("LD_LIBRARY_PATH={dir} ADSP_LIBRARY_PATH={dir} DSP_LIBRARY_PATH={dir} ");
        assert_eq!(before, format!("cd {dir} && {paths}"));
        words.to_owned()
    }

    #[test]
    fn models_are_put_in_where_a_command_takes_them() {
        let both = [("-m", "models/a.gguf"), ("-md", "models/d.gguf")];
        assert_eq!(line(&[], &[]), "devices");
        assert_eq!(line(&both, &["devices"]), "devices");
        let words = line(&both, &["run", "--device", "htp", "it's"]);
        assert_eq!(words, r"run -m '/d/x y/models/a.gguf' -md '/d/x y/models/d.gguf' --device htp 'it'\''s'");
        for given in ["--model=b.gguf", "-m"] {
            assert_eq!(line(&both[..1], &["info", given, "b.gguf"]), format!("info {given} b.gguf"));
        }
        assert_eq!(line(&both[..1], &["bench", "-md", "q"]), "bench -m '/d/x y/models/a.gguf' -md q");
    }
}
