//! The compiler and linker of the Hexagon builds.
//!
//! Stable Rust has no prebuilt `core` for Hexagon, so `core` is built from source (`-Zbuild-std`). That takes
//! a compiler whose LLVM has the Hexagon back end and the library source of the same version. Two are known:
//! Debian's `rustc-web`, `cargo-web` and `rust-web-src`, and a rustup nightly with the `rust-src` component.

use crate::failure::{Failure, Result};
use crate::process;
use clap::ValueEnum;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target triple of everything that runs on the DSP.
pub const TARGET: &str = "hexagon-unknown-none-elf";

/// Where the compiler comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// Debian's rustc-web, cargo-web and rust-web-src
    Debian,
    /// A rustup nightly with the rust-src component
    Nightly,
}

/// Where the products go, and below it a target directory per architecture.
pub fn output_dir(root: &Path) -> Result<PathBuf> {
    Ok(process::target_dir(root)?.join("hexagon"))
}

/// A compiler that can build for Hexagon.
#[derive(Debug)]
pub struct Toolchain {
    origin: Origin,
    cargo: PathBuf,
    rustc: PathBuf,
    sysroot: PathBuf,
    version: String,
}

impl Toolchain {
    /// The compiler from this origin, or the first of the two that is there.
    ///
    /// # Errors
    /// None is there.
    pub fn wanted(origin: Option<Origin>) -> Result<Self> {
        Self::find(origin).ok_or_else(|| {
            Failure::unusable(
                "the chosen Rust compiler for Hexagon is not there",
                "leave --toolchain out, or see `cargo xtask setup --check hexagon`",
            )
        })
    }

    /// The compiler from this origin, or the first of the two that is there. `None` when there is none.
    pub fn find(origin: Option<Origin>) -> Option<Self> {
        match origin {
            Some(origin) => Self::from(origin),
            None => Self::from(Origin::Debian).or_else(|| Self::from(Origin::Nightly)),
        }
    }

    fn from(origin: Origin) -> Option<Self> {
        // Full paths: a `rustc` or `cargo` found on PATH may be rustup's proxy for quite another toolchain.
        let bin = match origin {
            Origin::Debian => PathBuf::from("/usr/bin"),
            Origin::Nightly => {
                let rustc = process::output(Command::new("rustup").args([
                    "which",
                    "--toolchain",
                    "nightly",
                    "rustc",
                ]))?;
                Path::new(rustc.trim()).parent()?.to_path_buf()
            }
        };
        let (cargo, rustc) = (bin.join("cargo"), bin.join("rustc"));
        let ask = |argument: &str, value: &str| process::output(clean(&rustc).args([argument, value]));
        let sysroot = PathBuf::from(ask("--print", "sysroot")?.trim());
        let usable = cargo.is_file()
            && sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml").is_file()
            && ask("--print", "target-list")?.lines().any(|target| target == TARGET);
        let version = process::output(clean(&rustc).arg("--version"))?.trim().to_owned();
        usable.then_some(Self { origin, cargo, rustc, sysroot, version })
    }

    /// A cargo command of this toolchain, free of what the calling cargo put into the environment.
    pub fn cargo(&self) -> Command {
        let mut command = clean(&self.cargo);
        // `-Z` flags are for this build alone; Debian's compiler is a stable one.
        command.env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1");
        command
    }

    /// An ELF linker that knows Hexagon, called in its GNU flavour.
    pub fn linker(&self) -> Result<Command> {
        Self::system_linker().or_else(|| self.own_linker()).ok_or_else(|| {
            Failure::unusable("no ELF linker for Hexagon (ld.lld) was found", "run `cargo xtask setup`")
        })
    }

    /// `ld.lld` as packaged by the system.
    fn system_linker() -> Option<Command> {
        process::find_program(&["ld.lld-19", "ld.lld-22", "ld.lld-21", "ld.lld-20", "ld.lld"])
            .map(Command::new)
    }

    /// The linker that rustup ships with a toolchain; Debian's has none.
    fn own_linker(&self) -> Option<Command> {
        let host_libraries = std::fs::read_dir(self.sysroot.join("lib/rustlib")).ok()?;
        let linker =
            host_libraries.flatten().map(|dir| dir.path().join("bin/rust-lld")).find(|lld| lld.is_file())?;
        let mut command = Command::new(linker);
        command.args(["-flavor", "gnu"]);
        Some(command)
    }

    /// Whether there is a linker for the compiler that is there, or for any.
    pub fn has_linker() -> bool {
        Self::system_linker().is_some() || Self::find(None).is_some_and(|found| found.own_linker().is_some())
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Debian => "Debian's rustc-web",
            Origin::Nightly => "rustup's nightly with rust-src",
        };
        write!(f, "{}, {origin}", self.version)
    }
}

/// A command without the variables by which rustup and cargo steer the processes below them.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in [
        "CARGO",
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ] {
        command.env_remove(name);
    }
    command
}
