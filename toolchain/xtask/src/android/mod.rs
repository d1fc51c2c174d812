//! `cargo xtask android`: programs for arm64 phones, without the NDK or with it.
//!
//! Rust's library is compiled from source, by the compiler of the Hexagon builds. What the NDK would bring is
//! made here: the start code and the unwinder of `platform/android`, and stand-ins for Android's libraries.
//! Where `ANDROID_NDK_HOME` names an NDK, its clang links instead. Either way the result is held against what
//! the loader of Android 9 (API 28) wants, and what phones with pages of 16 KiB need.
//!
//! Nothing of it runs here: there is no loader and no libc of Android to be had.

mod check;
mod kit;
mod layout;
mod libraries;
pub mod linker;
mod ndk;
mod planted;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain::Toolchain;
use check::Libraries;
use kit::Kit;
use target::API;
pub use target::TARGET;

/// The workspace of the start code, the unwinder and the small program.
const PLATFORM: &str = "platform/android";
/// Functions of the unwinder that Rust's library calls, and where the loader starts the program.
const ENTRIES: [&str; 15] = [
    "_start",
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_FindEnclosingFunction",
    "_Unwind_GetCFA",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_SetGR",
    "_Unwind_SetIP",
];
/// Tool that hides names and strips programs, of the same package as the disassembler of the Hexagon builds.
const OBJCOPY: [&str; 2] = ["llvm-objcopy-22", "llvm-objcopy"];

/// Arguments of `cargo xtask android`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Build and check the whole of `hexflash`, as quick as that is compiled, and not the small program;
    /// compare its layout with that of a library which the NDK has linked
    #[arg(long)]
    whole: bool,
}

/// The verb.
///
/// The small program takes a minute of one processor, with Rust's library and the unwinder. It has what is
/// hard to link; `hexflash` itself adds the names that it calls, for five minutes more.
pub fn run(arguments: &Arguments) -> Result<()> {
    let builder = Builder::new()?;
    if arguments.whole {
        // Names are all that counts, and optimising takes longest.
        let quick =
            ["hexflash-dsp", "hexflash"].map(|name| format!("profile.dev.package.{name}.opt-level=0"));
        let program = builder.build(&Program { quick: &quick, ..Program::hexflash("dev") })?;
        println!("{} is what Android starts from API {API} on", program.display());
        setup::ensure(Set::Downloads)?;
        return layout::compare(&program);
    }
    let program = builder.build(&SMALL)?;
    println!("{} is what Android starts from API {API} on", program.display());
    planted::are_found(&program)?;
    builder.see_lost_frames()
}

/// Builds `hexflash` in a profile, checks it, and strips a copy, whose file it gives.
///
/// In the profile `release` that takes nine minutes of one processor, and gives 18.6 MB. The names would be
/// 6 MB more, and lines for backtraces 29 MB beyond that.
pub fn hexflash(profile: &str) -> Result<PathBuf> {
    let builder = Builder::new()?;
    let program = builder.build(&Program::hexflash(profile))?;
    let stripped = builder.folder.join("hexflash");
    process::run(objcopy()?.arg("--strip-all").arg(&program).arg(&stripped))?;
    println!("{} still has its lines, for crash reports", program.display());
    Ok(stripped)
}

/// A program that is built.
struct Program<'a> {
    /// The folder of its workspace, in the repository.
    workspace: &'a str,
    package: &'a str,
    name: &'a str,
    profile: &'a str,
    /// Settings of the profile that differ.
    quick: &'a [String],
}

/// The program that has what is hard to link, and takes as little time as that can.
const SMALL: Program<'_> = Program {
    workspace: PLATFORM,
    package: "hexflash-android-small",
    name: "small",
    profile: "dev",
    quick: &[],
};

impl<'a> Program<'a> {
    fn hexflash(profile: &'a str) -> Self {
        Self { workspace: ".", package: "hexflash-cli", name: "hexflash", profile, quick: &[] }
    }
}

/// Builder of programs: toolchain, kit and folder.
struct Builder {
    toolchain: Toolchain,
    root: PathBuf,
    /// Folder that all of it goes to.
    folder: PathBuf,
    kit: Kit,
}

impl Builder {
    /// Finds the compiler, and makes what is linked with.
    fn new() -> Result<Self> {
        for set in [Set::Base, Set::Hexagon] {
            setup::ensure(set)?;
        }
        let toolchain = Toolchain::find(None).ok_or_else(|| {
            Failure::unusable("the Rust compiler for Android is not there", "run `cargo xtask setup hexagon`")
        })?;
        let root = process::workspace_root()?;
        let folder = process::target_dir(&root)?.join("android");
        let kit = match ndk::clang()? {
            Some(clang) => ndk::kit(clang),
            None => own_kit(&toolchain, &root, &folder)?,
        };
        Ok(Self { toolchain, root, folder, kit })
    }

    /// Builds a program, and checks what came out.
    fn build(&self, program: &Program<'_>) -> Result<PathBuf> {
        let mut cargo = cargo(&self.toolchain, &self.folder);
        cargo
            .current_dir(self.root.join(program.workspace))
            .args(["rustc", "--locked", "--package", program.package, "--bin", program.name])
            .args(["--profile", program.profile, "--target", TARGET, "-Zbuild-std=std,panic_unwind"])
            .env("CARGO_ENCODED_RUSTFLAGS", self.kit.rustflags());
        for setting in program.quick {
            cargo.args(["--config", setting]);
        }
        if let Some(argument) = &self.kit.program {
            cargo.arg("--").arg(argument);
        }
        process::run(&mut cargo).map_err(|_| {
            Failure::failed(
                format!("{} does not build for Android", program.package),
                "the message of the compiler or the linker above says why",
            )
        })?;
        let profile = if program.profile == "dev" { "debug" } else { program.profile };
        let file = self.folder.join(TARGET).join(profile).join(program.name);
        check::check(&file, self.kit.libraries)?;
        Ok(file)
    }

    /// Links the unwinder in the way that loses its frames, and sees that this is found.
    fn see_lost_frames(&self) -> Result<()> {
        if self.kit.libraries == Libraries::OfNdk {
            return Ok(());
        }
        let object = link_platform(&self.toolchain, &self.folder, &["--gc-sections"])?;
        let found = has_frames(&object);
        remove(&object)?;
        if found? {
            return Err(Failure::failed(
                "an unwinder that was linked with --gc-sections has frames",
                "if the linker keeps them today, `see_lost_frames` in toolchain/xtask/src/android/mod.rs is \
                 done",
            ));
        }
        println!("an unwinder that has lost its frames is found");
        Ok(())
    }
}

/// Makes what replaces the NDK. Each file appears as a whole: another process may be linking with it.
fn own_kit(toolchain: &Toolchain, root: &Path, folder: &Path) -> Result<Kit> {
    let mut platform = cargo(toolchain, folder);
    platform
        .current_dir(root.join(PLATFORM))
        .args(["build", "--locked", "--release", "--package", "hexflash-android"])
        .args(["--target", TARGET, "-Zbuild-std=core,panic_abort"]);
    process::run(&mut platform)?;
    let kit = folder.join("kit");
    fs::create_dir_all(&kit).map_err(|error| Failure::on_disk("make", &kit, &error))?;
    let object = link_platform(toolchain, folder, &[])?;
    if !has_frames(&object)? {
        return Err(Failure::failed(
            "the unwinder has no frames of its own, so that it could not unwind any panic",
            "see how toolchain/xtask/src/android/mod.rs links it",
        ));
    }
    libraries::write(toolchain, &kit)?;
    let (linker, copy) = (kit.join(linker::NAME), temporary(folder, "copy"));
    let copied = std::env::current_exe().and_then(|program| fs::copy(program, &copy));
    copied.map_err(|error| Failure::on_disk("write", &copy, &error))?;
    rename(&copy, &linker)?;
    // Cargo does not look into what is linked: the object's name tells it when to link again.
    let named = kit.join(format!("{}.o", digest(&object)?));
    rename(&object, &named)?;
    let program = Some(format!("-Clink-arg={}", named.display()));
    Ok(Kit { linker, always: Vec::new(), program, libraries: Libraries::StandIns })
}

/// A word that differs where what programs are linked with does.
fn digest(object: &Path) -> Result<String> {
    let data = fs::read(object).map_err(|error| Failure::on_disk("read", object, &error))?;
    let mut hash = Sha256::new();
    hash.update(data);
    for word in linker::ALWAYS.iter().copied().chain(libraries::all()) {
        hash.update(word);
        hash.update([0]);
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Links start code and unwinder to an object that shows nothing else.
///
/// Without `--gc-sections`: with `-r`, that takes the tables of frames for garbage.
fn link_platform(toolchain: &Toolchain, folder: &Path, more: &[&str]) -> Result<PathBuf> {
    let archive = folder.join(TARGET).join("release/libhexflash_android.a");
    let [whole, object] = ["whole", "platform"].map(|name| temporary(folder, name));
    let mut linker = toolchain.linker()?;
    linker.args(["-m", "aarch64linux", "-r"]).args(more);
    linker.args(ENTRIES.map(|name| format!("--undefined={name}")));
    process::run(linker.arg(archive).arg("-o").arg(&whole))?;
    let mut hide = objcopy()?;
    hide.args([
        "--wildcard",
        "--keep-global-symbol=_Unwind_*",
        "--keep-global-symbol=_start",
        "--strip-debug",
    ]);
    process::run(hide.arg(&whole).arg(&object))?;
    remove(&whole)?;
    Ok(object)
}

/// Whether an object has tables of frames.
fn has_frames(file: &Path) -> Result<bool> {
    use object::read::elf::ElfFile64;
    use object::{LittleEndian, Object, ObjectSection};

    let data = fs::read(file).map_err(|error| Failure::on_disk("read", file, &error))?;
    let elf = ElfFile64::<LittleEndian>::parse(&*data).map_err(|error| {
        Failure::failed(format!("{} cannot be read ({error})", file.display()), "build it again")
    })?;
    Ok(elf.section_by_name(".eh_frame").is_some_and(|section| section.size() > 0))
}

/// Cargo of the Hexagon builds, with a folder of its own to build in: other compiler, other flags.
fn cargo(toolchain: &Toolchain, folder: &Path) -> Command {
    let mut cargo = toolchain.cargo();
    cargo.env("CARGO_TARGET_DIR", folder);
    cargo
}

fn objcopy() -> Result<Command> {
    process::find_program(&OBJCOPY).map(Command::new).ok_or_else(|| {
        Failure::unusable(
            "llvm-objcopy is not there",
            "run `cargo xtask setup hexagon`: LLVM's tools have it",
        )
    })
}

/// A file of this process alone.
fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join("kit").join(format!("{name}-{}", std::process::id()))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Failure::on_disk("write", to, &error))
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).map_err(|error| Failure::on_disk("remove", file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &str) -> String {
        fs::read_to_string(process::workspace_root().unwrap().join(file)).unwrap()
    }

    #[test]
    fn the_note_says_the_same_level() {
        assert!(text("platform/android/src/lib.rs").contains(&format!("const API: u32 = {API};")));
    }

    #[test]
    fn rustc_is_not_told_to_call_the_linker_itself_and_would_fail_on_the_small_program() {
        let kit = Kit {
            linker: "/a b/cc".into(),
            always: vec!["-Cx".into()],
            program: None,
            libraries: Libraries::StandIns,
        };
        assert_eq!(kit.rustflags(), "-Clinker=/a b/cc\x1f-Clinker-flavor=gcc\x1f-Cx");
        // Whose library is a shared one, too.
        assert!(text("platform/android/small/Cargo.toml").contains("crate-type = [\"lib\", \"cdylib\"]"));
    }

    #[test]
    fn entries_are_those_that_are_shown() {
        assert!(ENTRIES.iter().all(|name| *name == "_start" || name.starts_with("_Unwind_")));
    }
}
