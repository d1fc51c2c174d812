//! What the device consists of: an emulator and an image, found and matched.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hexflash_abi::forms::{Given, Operands, WORDS};
use zerocopy::IntoBytes;

use super::super::{Arch, DeviceError};

/// What `--version` of an emulator prints that was built with this project's patches.
const OURS: &str = "(hexflash-";
/// File name of emulators.
const EMULATOR: &str = "qemu-hexagon";
/// Where an ELF file's header has the flags, which are the architecture.
const ELF_FLAGS: usize = 36;

/// Emulator and image.
#[derive(Clone, Debug)]
pub(super) struct Executables {
    pub(super) emulator: PathBuf,
    pub(super) image: PathBuf,
    /// What the image is built for.
    pub(super) arch: Arch,
}

fn unavailable(reason: String, remedy: impl Into<String>) -> DeviceError {
    DeviceError::Unavailable { device: "qemu", reason, remedy: remedy.into() }
}

/// The file that a variable names, if it names one.
fn named(variable: &str, what: &str) -> Result<Option<PathBuf>, DeviceError> {
    match env::var_os(variable).map(PathBuf::from) {
        Some(path) if !path.is_file() => {
            let reason = format!("{variable} names {}, which is no file", path.display());
            Err(unavailable(reason, format!("set it to the path of {what}, or unset it")))
        }
        path => Ok(path),
    }
}

impl Executables {
    /// Finds both: where `HEXFLASH_QEMU` and `HEXFLASH_QEMU_IMAGE` say, else where `cargo xtask` puts them.
    /// Without `arch` the image is that of v67, or the one that the variable names.
    ///
    /// Any emulator runs v67, the one on `PATH` too. Float code is given to one with this project's patches
    /// alone.
    pub(super) fn find(arch: Option<Arch>) -> Result<Self, DeviceError> {
        let image = match named("HEXFLASH_QEMU_IMAGE", "an image, such as hexflash-v67")? {
            Some(path) => path,
            None => {
                let arch = arch.unwrap_or(Arch::V67);
                let name = format!("hexflash-{arch}");
                built(&name).ok_or_else(|| {
                    let remedy = format!(
                        "build it (cargo xtask hexagon --image --arch {arch}), or set HEXFLASH_QEMU_IMAGE"
                    );
                    unavailable(format!("the emulator's image {name} is not there"), remedy)
                })?
            }
        };
        let found = arch_of(&image)?;
        if let Some(wanted) = arch.filter(|wanted| *wanted != found) {
            return Err(unavailable(
                format!("{} is an image for {found}, not for {wanted}", image.display()),
                "set HEXFLASH_QEMU_IMAGE to another one, or unset it",
            ));
        }
        let emulator = match named("HEXFLASH_QEMU", EMULATOR)? {
            Some(path) => path,
            None if found.has_float() => built(EMULATOR).ok_or_else(|| {
                unavailable(
                    format!("the code of {found} needs an emulator with HVX float, which is not there"),
                    "build it once (in a checkout: cargo xtask setup emulator)",
                )
            })?,
            None => on_path().ok_or_else(|| {
                let remedy = "install it (Debian: qemu-user; in a checkout: cargo xtask setup hexagon)";
                unavailable(format!("{EMULATOR} is not on PATH"), remedy)
            })?,
        };
        if found.has_float() && !is_ours(&emulator) {
            return Err(unavailable(
                format!(
                    "{} is a stock emulator, which takes some of {found}'s float instructions for others and \
                     would give wrong results",
                    emulator.display()
                ),
                "unset HEXFLASH_QEMU, and build the emulator with HVX float (cargo xtask setup emulator)",
            ));
        }
        Ok(Self { emulator, image, arch: found })
    }

    /// Has the image check its vector operations; gives what it says against them.
    pub(super) fn check(&self) -> io::Result<Result<(), String>> {
        let output =
            Command::new(&self.emulator).arg(&self.image).arg("check").stdin(Stdio::null()).output()?;
        let words = || format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        Ok(if output.status.success() { Ok(()) } else { Err(words()) })
    }

    /// Has the image execute a form of float instruction; `None` where it has no such form. What it says
    /// against it is the error: it ends over an instruction that the emulator refuses.
    pub(super) fn form(&self, operands: &Operands) -> io::Result<Result<Option<Given>, String>> {
        let mut command = Command::new(&self.emulator);
        command.arg(&self.image).arg("forms").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // Where nobody reads it, the end of the program says why.
            let _ = input.write_all(operands.as_bytes());
        }
        let output = child.wait_with_output()?;
        let words = || format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        if !output.status.success() {
            return Ok(Err(words()));
        }
        let mut answer = [0; 1 + 2 * WORDS];
        let all = output.stdout.chunks_exact(4).zip(&mut answer);
        all.for_each(|(bytes, word)| *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let given = [0, 1].map(|i| std::array::from_fn(|lane| answer[1 + i * WORDS + lane]));
        Ok(Ok((answer[0] == 1).then_some(given)))
    }
}

/// The emulator on `PATH`.
fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(EMULATOR)).find(|file| file.is_file())
}

/// A file beside this program, or where `cargo xtask` puts it: the program lies in TARGET/PROFILE or
/// TARGET/PROFILE/deps, what is built for Hexagon in TARGET/hexagon.
fn built(name: &str) -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let beside = program.with_file_name(name);
    let built = program.ancestors().skip(1).take(4).map(|dir| dir.join("hexagon").join(name));
    std::iter::once(beside).chain(built).find(|file| file.is_file())
}

/// What an image is built for.
fn arch_of(image: &Path) -> Result<Arch, DeviceError> {
    let mut header = [0; ELF_FLAGS + 4];
    let read = File::open(image).and_then(|mut file| file.read_exact(&mut header));
    let flags = header.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let arch = (read.is_ok() && header.starts_with(b"\x7fELF")).then(|| Arch::of_number(flags)).flatten();
    arch.ok_or_else(|| {
        unavailable(
            format!("{} is not an image of a known version of the Hexagon", image.display()),
            "build one (cargo xtask hexagon), and see what HEXFLASH_QEMU_IMAGE names",
        )
    })
}

/// Whether an emulator was built with this project's patches.
fn is_ours(emulator: &Path) -> bool {
    let output = Command::new(emulator).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(OURS))
}
