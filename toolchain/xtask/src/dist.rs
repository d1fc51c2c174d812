//! `cargo xtask dist`: a folder with all that a machine with a Snapdragon needs.
//!
//! The host program is cross-built with Debian's gcc as the linker, or for phones as [`android`] says. The
//! skels are those that `cargo xtask hexagon` built: they take another compiler, and do not change with every
//! change of the host.

use crate::android;
use crate::failure::{Failure, Result};
use crate::linux_arm64::{LINKER, TARGET};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// What goes along, from the repository.
const ALONG: &[&str] = &["models/tiny-hybrid-q8_0.gguf", "docs/devices.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The header of the C library, which goes to phones and not yet to Linux boards.
const HEADER: &str = "host-runtime/c-api/include/hexflash.h";

/// Arguments of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Cargo's profile for the host program
    #[arg(long, default_value = "release")]
    profile: String,
    /// For phones, Android 9 and later: linked without the NDK, or by the one that ANDROID_NDK_HOME names
    #[arg(long)]
    android: bool,
}

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = process::workspace_root()?;
    let built = toolchain::output_dir(&root)?;
    let skels = skels(&built);
    if skels.is_empty() {
        return Err(Failure::unusable(
            format!("there is no library for the DSP in {}", built.display()),
            "build them first: cargo xtask hexagon",
        ));
    }
    let target_dir = built.parent().unwrap_or(&root);
    let (target, mut files) = if arguments.android {
        (android::TARGET, android::products(&arguments.profile)?)
    } else {
        (TARGET, vec![for_linux(&arguments.profile, &root, target_dir)?])
    };
    if arguments.android {
        files.push(root.join(HEADER));
    }
    let out = target_dir.join("dist").join(target);
    let along = ALONG.iter().map(|file| root.join(file));
    for file in files.into_iter().chain(skels).chain(along) {
        copy(&file, &out)?;
    }
    println!("{}", out.display());
    Ok(())
}

/// Builds the host program for Linux in a profile, and gives its file.
fn for_linux(profile: &str, root: &Path, target_dir: &Path) -> Result<PathBuf> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Cross)?;
    let mut cargo = process::cargo();
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--package", "hexflash-cli", "--target", TARGET])
        .args(["--profile", profile])
        .arg("--target-dir")
        .arg(target_dir)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    process::run(&mut cargo)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_dir.join(TARGET).join(folder).join("hexflash"))
}

/// The libraries for DSPs that were built.
fn skels(built: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(built).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_skel = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libhexflash_skel_v") && name.ends_with(".so")
    };
    let mut skels: Vec<_> = files.filter(is_skel).collect();
    skels.sort();
    skels
}

/// Copies a file into the folder; models into one of their own, where the program looks for them.
fn copy(file: &Path, out: &Path) -> Result<()> {
    let is_model = file.extension() == Some(OsStr::new("gguf"));
    let folder = if is_model { out.join("models") } else { out.to_owned() };
    let failed = |error: std::io::Error| {
        Failure::failed(
            format!("{} cannot be copied to {} ({error})", file.display(), folder.display()),
            "see that it is there, and that the disk has room",
        )
    };
    fs::create_dir_all(&folder).map_err(failed)?;
    let name = file.file_name().unwrap_or_default();
    fs::copy(file, folder.join(name)).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_along_is_there() {
        let root = process::workspace_root().unwrap();
        assert!(ALONG.iter().chain([&HEADER]).all(|file| root.join(file).is_file()));
    }

    #[test]
    fn only_libraries_for_dsps_are_taken() {
        let dir = std::env::temp_dir().join(format!("hexflash-dist-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["libhexflash_skel_v75.so", "hexflash-v67", "libhexflash_skel_v73.so", "libother.so"] {
            fs::write(dir.join(name), "").unwrap();
        }
        let names: Vec<_> = skels(&dir).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(names, ["libhexflash_skel_v73.so", "libhexflash_skel_v75.so"]);
    }
}
