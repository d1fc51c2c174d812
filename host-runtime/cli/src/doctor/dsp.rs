//! The DSP, from the vendor's library to the first tokens.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::machine;
use super::steps::{Check, Live, Outcome, Step};
use crate::options::DeviceArgs;
use crate::plain::is_file_or_nothing;
use crate::{CliError, library_path};
use hexflash::device::htp::error::{Call, HtpError};
use hexflash::device::{self, Chip, Device, DeviceError, DeviceOptions};
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Generation, Limits, Request};
use hexflash::gguf::Gguf;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};

/// The device under examination.
const DEVICE: &str = "htp";
/// Tokens of the self-test.
const TOKENS: usize = 8;
/// Text that the tokens follow. With the shipped model no token is close to another one here: the libraries
/// for phones write the same ones under the emulator, whatever their float arithmetic.
const PROMPT: &str = "def __repr__(self):";

/// Settings of the device: one session, whatever the model.
fn options(args: &DeviceArgs) -> DeviceOptions {
    DeviceOptions { sessions: Some(1), ..args.options() }
}

/// The vendor's library. If it is there, gives what it says of the DSP's version.
pub(super) fn library(
    args: &DeviceArgs,
    live: &mut Live<'_>,
) -> Result<Option<Result<u32, DeviceError>>, CliError> {
    let version = device::htp_version(&options(args));
    let step = |outcome, text| Step::new(Check::Library, outcome, text);
    if let Err(DeviceError::NoHardware(error @ (HtpError::NoLibrary { .. } | HtpError::NoSymbol { .. }))) =
        &version
    {
        live.add(step(Outcome::Failed, error.to_string()))?;
        return Ok(None);
    }
    let text = match args.htp_library().map(Path::to_owned).or_else(loaded) {
        Some(path) => format!("{} opens, with all functions", path.display()),
        None => "libcdsprpc.so opens where the system has it, with all functions".to_owned(),
    };
    live.add(step(Outcome::Ok, text))?;
    Ok(Some(version))
}

/// The file of the vendor's library, if this process has it loaded.
fn loaded() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("/libcdsprpc.so"))?;
    Some(line[line.find('/')?..].into())
}

/// The version of the DSP, and the library for it.
pub(super) fn skel(version: Result<u32, DeviceError>, live: &mut Live<'_>) -> Result<(), CliError> {
    let arch = match version {
        Ok(arch) => arch,
        Err(error) => return live.add(Step::new(Check::Dsp, Outcome::Failed, error.to_string())),
    };
    let chip = Chip::for_arch(arch);
    let text = match chip.arch == arch {
        true => format!("Hexagon v{arch:x}"),
        false => format!("Hexagon v{arch:x}, which gets the library for {}", chip.name),
    };
    live.add(Step::new(Check::Dsp, Outcome::Ok, text))?;
    live.add(find_skel(&chip.skel(), chip.arch, &folders()))
}

/// The folders that the vendor's library looks through, as far as variables name them, each with its
/// variable.
fn folders() -> Vec<(&'static str, PathBuf)> {
    let split = |name| {
        let folders = std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
        let folders = folders.split(';').filter(|folder| !folder.is_empty()).map(PathBuf::from);
        folders.map(|folder| (name, folder)).collect::<Vec<_>>()
    };
    let mut folders: Vec<_> = library_path::VARIABLES.into_iter().flat_map(split).collect();
    folders.extend(library_path::own_folder().map(|folder| ("the program's folder", folder)));
    folders
}

/// Whether a library lies in one of the folders. That it does not is a warning: the DSP has folders of its
/// own, where it may lie, too.
fn find_skel(name: &str, arch: u32, folders: &[(&str, PathBuf)]) -> Step {
    let details = folders.iter().map(|(from, folder)| format!("{from}: {}", folder.display())).collect();
    let step = |outcome, text: String| Step::new(Check::Skel, outcome, text).with(details);
    let Some((from, folder)) = folders.iter().find(|(_, folder)| folder.join(name).exists()) else {
        return step(
            Outcome::Warning,
            format!(
                "{name} is in no folder that DSP_LIBRARY_PATH names, nor beside the program; put it there \
                 (cargo xtask hexagon makes it)"
            ),
        );
    };
    let path = folder.join(name);
    match built_for(&path) {
        Err(error) => step(
            Outcome::Failed,
            format!(
                "{} cannot be read ({error}); see that it is a file that everybody may read",
                path.display()
            ),
        ),
        Ok(None) => step(
            Outcome::Failed,
            format!("{} is no library for a Hexagon; copy it again from one release", path.display()),
        ),
        Ok(Some(found)) if found > arch => step(
            Outcome::Failed,
            format!("{} is built for v{found:x}; copy it again from one release", path.display()),
        ),
        Ok(Some(_)) => step(Outcome::Ok, format!("{} ({from})", path.display())),
    }
}

/// The version that a library is built for; `None` if it is none for a Hexagon.
fn built_for(path: &Path) -> std::io::Result<Option<u32>> {
    const HEXAGON: [u8; 2] = 164u16.to_le_bytes();
    let mut header = Vec::new();
    is_file_or_nothing(path)?;
    fs::File::open(path)?.take(52).read_to_end(&mut header)?;
    // A 32-bit little-endian file of ELF: its machine at byte 18, its flags at byte 36.
    let is_hexagon = header.starts_with(b"\x7fELF\x01\x01") && header.get(18..20) == Some(&HEXAGON);
    let flags = header.get(36..38).filter(|_| is_hexagon);
    Ok(flags.map(|flags| u32::from(flags[0]) | u32::from(flags[1] & 3) << 8))
}

/// Opens the device: the library on the DSP, then queue, threads and scratchpad.
pub(super) fn open(args: &DeviceArgs, live: &mut Live<'_>) -> Result<Option<Box<dyn Device>>, CliError> {
    const LOADED: &str = "the library is loaded on the DSP, and of this release";
    match device::open(DEVICE, &options(args)) {
        Ok(device) => {
            live.add(Step::new(Check::Session, Outcome::Ok, LOADED))?;
            let info = device.info();
            let text = format!(
                "{} threads, {} KiB of VTCM; {}",
                info.threads,
                info.vtcm_bytes >> 10,
                info.description
            );
            // Where the loader has found it.
            let library = loaded().map(|path| format!("loaded from {}", path.display()));
            live.add(Step::new(Check::Start, Outcome::Ok, text).with(library.into_iter().collect()))?;
            Ok(Some(device))
        }
        // What was asked for is at fault.
        Err(error @ DeviceError::Setting { .. }) => Err(error.into()),
        Err(error) => {
            let check = check_of(&error);
            if check == Check::Start {
                live.add(Step::new(Check::Session, Outcome::Ok, LOADED))?;
            }
            // What SELinux has to say comes with the attempt.
            let denials = machine::denials();
            live.add(Step::new(check, Outcome::Failed, error.to_string()).with(denials))?;
            Ok(None)
        }
    }
}

/// The check that an error of opening the device belongs to.
fn check_of(error: &DeviceError) -> Check {
    let (DeviceError::Htp(error) | DeviceError::NoHardware(error)) = error else { return Check::Start };
    match error {
        HtpError::NoLibrary { .. } | HtpError::NoSymbol { .. } => Check::Library,
        HtpError::TooOld { .. } => Check::Dsp,
        HtpError::OpenHangs { .. } | HtpError::OtherBuild { .. } | HtpError::OtherArch { .. } => {
            Check::Session
        }
        HtpError::Call { call, .. } => match call {
            Call::Arch => Check::Dsp,
            Call::EffectiveDomain
            | Call::ReserveSession
            | Call::UnsignedModule
            | Call::Notifications
            | Call::Open
            | Call::Info => Check::Session,
            _ => Check::Start,
        },
        _ => Check::Start,
    }
}

/// Generates on the device and on this machine's own processor: both must write the same tokens.
pub(super) fn self_test(device: Box<dyn Device>, model: Option<&Path>) -> Step {
    let Some(path) = model else {
        let text = "there is no model beside the program; name a small one with -m FILE";
        return Step::new(Check::SelfTest, Outcome::NotTried, text);
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match compare(path, device) {
        Ok((expected, (found, speed))) => same(&name, &expected, &found, speed),
        Err(error) => Step::new(Check::SelfTest, Outcome::Failed, format!("{name}: {error}")),
    }
}

/// Whether the tokens of the model in file `name` are those that they should be.
fn same(name: &str, expected: &[u32], found: &[u32], speed: f64) -> Step {
    if expected == found {
        let text = format!("{name}: {} tokens are those of inproc ({speed:.1} tok/s)", found.len());
        return Step::new(Check::SelfTest, Outcome::Ok, text);
    }
    let text = format!(
        "{name}: the DSP writes {found:?}, and inproc {expected:?}; please report it, with --report FILE (with \
         another model than the shipped one, two tokens may be equally good: rounding decides)"
    );
    Step::new(Check::SelfTest, Outcome::Failed, text)
}

/// Tokens and tokens per second.
type Written = (Vec<u32>, f64);

/// The tokens of `inproc`, and those of the device.
fn compare(path: &Path, device: Box<dyn Device>) -> Result<(Vec<u32>, Written), CliError> {
    let gguf = Gguf::open(path)?;
    let model = TextModel::read(&gguf)?;
    let prompt = model.encode(PROMPT)?;
    let here = device::open("inproc", &DeviceOptions::default())?;
    let (expected, _) = write(&gguf, &model, &prompt, here)?;
    Ok((expected, write(&gguf, &model, &prompt, device)?))
}

fn write(
    gguf: &Gguf,
    model: &TextModel,
    prompt: &[u32],
    device: Box<dyn Device>,
) -> Result<Written, CliError> {
    let n_ctx = Some((prompt.len() + TOKENS + 1) as u32);
    let options = EngineOptions { n_ctx, speculate: false, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let mut engine = Engine::load_with(gguf, None, device, &options, &image)?;
    let sampler = Sampler::new(SamplerParams { temperature: 0.0, ..SamplerParams::default() })?;
    let limits = Limits { max_tokens: Some(TOKENS), ignore_eos: true, ..Limits::default() };
    let request = Request::new(prompt.to_vec(), sampler).limits(limits);
    let ended = Generation::new(model.tokenizer.clone(), request).run(&mut engine, |_| ())?;
    Ok((ended.generated.tokens, ended.generated.stats.generated_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a library for a Hexagon.
    fn skel_of(arch: u8) -> Vec<u8> {
        let mut file = vec![0; 52];
        file[..6].copy_from_slice(b"\x7fELF\x01\x01");
        (file[18], file[36]) = (164, arch);
        file
    }

    #[test]
    fn other_tokens_are_a_failure() {
        assert_eq!(same("m.gguf", &[1, 2], &[1, 2], 3.0).outcome, Outcome::Ok);
        for found in [&[1, 3][..], &[1], &[]] {
            let step = same("m.gguf", &[1, 2], found, 3.0);
            assert!(step.outcome == Outcome::Failed && step.text.contains("please report it"), "{step:?}");
        }
    }

    #[test]
    fn a_library_is_found_and_looked_at() {
        let dirs = [(); 2].map(|()| tempfile::TempDir::new().unwrap());
        let folders = [("A", dirs[0].path().to_owned()), ("B", dirs[1].path().to_owned())];
        let name = "libhexflash_skel_v75.so";
        let found = |outcome: Outcome, words: &str| {
            let step = find_skel(name, 0x75, &folders);
            assert!(step.outcome == outcome && step.text.contains(words), "{step:?}");
            assert_eq!(step.details.len(), 2);
        };
        found(Outcome::Warning, "in no folder");
        fs::write(dirs[1].path().join(name), skel_of(0x75)).unwrap();
        found(Outcome::Ok, "(B)");
        for (bytes, words) in
            [(skel_of(0x79), "built for v79"), (b"#!/bin/sh".to_vec(), "no library for a Hexagon")]
        {
            fs::write(dirs[0].path().join(name), bytes).unwrap();
            found(Outcome::Failed, words);
        }
        fs::remove_file(dirs[0].path().join(name)).unwrap();
        fs::create_dir(dirs[0].path().join(name)).unwrap();
        found(Outcome::Failed, "cannot be read");
    }

    #[test]
    fn a_library_that_does_not_come_up_is_not_called_loaded() {
        assert_eq!(check_of(&HtpError::OpenHangs { seconds: 20 }.into()), Check::Session);
        assert_eq!(check_of(&DeviceError::Timeout(std::time::Duration::ZERO)), Check::Start);
    }
}
