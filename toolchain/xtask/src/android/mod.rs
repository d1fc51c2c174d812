//! `cargo xtask android`: the program and the C library for arm64 phones, without the NDK or with it.
//!
//! Rust's library is compiled from source, by the compiler of the Hexagon builds. What the NDK would bring is
//! made here: the start code and the unwinder of `platform/android`, and stand-ins for Android's libraries.
//! Where `ANDROID_NDK_HOME` names an NDK, its clang links instead. Either way the result is held against what
//! the loader of Android 9 (API 28) wants, and what phones with pages of 16 KiB need.
//!
//! Nothing of it runs here: there is no loader and no libc of Android to be had.

mod check;
mod form;
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
use form::Form;
use kit::{Kit, Objects};
use target::API;
pub use target::TARGET;

/// The workspace of the start code, the unwinder and the small program.
const PLATFORM: &str = "platform/android";
/// Functions of the unwinder that Rust's library calls.
const UNWINDER: [&str; 14] = [
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
    /// Build and check the whole of `hexflash` and its C library, as quick as they are compiled, and not the
    /// small ones; compare their layouts with that of a library which the NDK has linked
    #[arg(long)]
    whole: bool,
}

/// The verb.
///
/// The small program and its library take a minute of one processor, with Rust's library and the unwinder.
/// They have what is hard to link; `hexflash` itself adds the names that it calls, for five minutes more.
pub fn run(arguments: &Arguments) -> Result<()> {
    let builder = Builder::new()?;
    if arguments.whole {
        // Names are all that counts, and optimising takes longest.
        let quick =
            ["hexflash-dsp", "hexflash"].map(|name| format!("profile.dev.package.{name}.opt-level=0"));
        for product in [Product::program("dev"), Product::library("dev")] {
            let file = builder.build(&Product { quick: &quick, ..product })?;
            setup::ensure(Set::Downloads)?;
            layout::compare(&file)?;
        }
        return Ok(());
    }
    for product in SMALL {
        let file = builder.build(&product)?;
        planted::are_found(&file, product.form)?;
    }
    builder.see_lost_frames()
}

/// Builds `hexflash` and its C library in a profile, checks them, and strips copies, whose files it gives.
///
/// In the profile `release` the program takes nine minutes of one processor, and has 24 MB. The names would
/// be 6 MB more, and lines for backtraces 29 MB beyond that.
pub fn products(profile: &str) -> Result<Vec<PathBuf>> {
    let builder = Builder::new()?;
    let mut stripped = Vec::new();
    for product in [Product::program(profile), Product::library(profile)] {
        let file = builder.build(&product)?;
        let copy = builder.folder.join(product.file());
        process::run(objcopy()?.arg("--strip-all").arg(&file).arg(&copy))?;
        println!("{} still has its lines, for crash reports", file.display());
        stripped.push(copy);
    }
    Ok(stripped)
}

/// A program or a library that is built.
struct Product<'a> {
    /// The folder of its workspace, in the repository.
    workspace: &'a str,
    package: &'a str,
    form: Form,
    profile: &'a str,
    /// Settings of the profile that differ.
    quick: &'a [String],
}

/// The program and the library that have what is hard to link, and take as little time as that can.
const SMALL: [Product<'_>; 2] = [
    Product {
        workspace: PLATFORM,
        package: "hexflash-android-small",
        form: Form::Program { name: "small" },
        profile: "dev",
        quick: &[],
    },
    Product {
        workspace: PLATFORM,
        package: "hexflash-android-small",
        form: Form::Library { file: "libhexflash_android_small.so", prefix: "hexflash_small_" },
        profile: "dev",
        quick: &[],
    },
];

impl<'a> Product<'a> {
    fn program(profile: &'a str) -> Self {
        let form = Form::Program { name: "hexflash" };
        Self { workspace: ".", package: "hexflash-cli", form, profile, quick: &[] }
    }

    fn library(profile: &'a str) -> Self {
        let form = Form::Library { file: "libhexflash_c.so", prefix: "hexflash_" };
        Self { workspace: ".", package: "hexflash-c", form, profile, quick: &[] }
    }

    fn file(&self) -> &'static str {
        match self.form {
            Form::Program { name } => name,
            Form::Library { file, .. } => file,
        }
    }
}

/// Builder of programs and libraries: toolchain, kit and folder.
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

    /// Builds a program or a library, and checks what came out.
    fn build(&self, product: &Product<'_>) -> Result<PathBuf> {
        let mut cargo = cargo(&self.toolchain, &self.folder);
        cargo
            .current_dir(self.root.join(product.workspace))
            .args(["rustc", "--locked", "--package", product.package])
            .args(["--profile", product.profile, "--target", TARGET, "-Zbuild-std=std,panic_unwind"])
            .env("CARGO_ENCODED_RUSTFLAGS", self.kit.rustflags());
        match product.form {
            Form::Program { name } => cargo.args(["--bin", name]),
            Form::Library { .. } => cargo.args(["--lib", "--crate-type", "cdylib"]),
        };
        for setting in product.quick {
            cargo.args(["--config", setting]);
        }
        cargo.arg("--").args(self.kit.arguments(product.form));
        process::run(&mut cargo).map_err(|_| {
            Failure::failed(
                format!("{} does not build for Android", product.package),
                "the message of the compiler or the linker above says why",
            )
        })?;
        let profile = if product.profile == "dev" { "debug" } else { product.profile };
        let file = self.folder.join(TARGET).join(profile).join(product.file());
        check::check(&file, product.form, self.kit.libraries)?;
        println!("{} is what Android loads from API {API} on", file.display());
        Ok(file)
    }

    /// Links the unwinder in the way that loses its frames, and sees that this is found.
    fn see_lost_frames(&self) -> Result<()> {
        if self.kit.libraries == Libraries::OfNdk {
            return Ok(());
        }
        let object = link_platform(&self.toolchain, &self.folder, &UNWINDER, &["--gc-sections"])?;
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
    let kit = folder.join("kit");
    fs::create_dir_all(&kit).map_err(|error| Failure::on_disk("make", &kit, &error))?;
    let for_programs =
        platform_object(toolchain, root, folder, "hexflash-program-", &["--features", "start"])?;
    let for_libraries = platform_object(toolchain, root, folder, linker::FOR_LIBRARIES, &[])?;
    libraries::write(toolchain, &kit)?;
    let (linker, copy) = (kit.join(linker::NAME), temporary(folder, "copy"));
    let copied = std::env::current_exe().and_then(|program| fs::copy(program, &copy));
    copied.map_err(|error| Failure::on_disk("write", &copy, &error))?;
    rename(&copy, &linker)?;
    let objects = Some(Objects { for_programs, for_libraries });
    Ok(Kit { linker, always: Vec::new(), objects, libraries: Libraries::StandIns })
}

/// Builds start code (with that feature) and unwinder, and links them to an object of a name that begins so.
fn platform_object(
    toolchain: &Toolchain,
    root: &Path,
    folder: &Path,
    name: &str,
    features: &[&str],
) -> Result<PathBuf> {
    let mut platform = cargo(toolchain, folder);
    platform
        .current_dir(root.join(PLATFORM))
        .args(["build", "--locked", "--release", "--package", "hexflash-android"])
        .args(features)
        .args(["--target", TARGET, "-Zbuild-std=core,panic_abort"]);
    process::run(&mut platform)?;
    let start: &[&str] = if features.is_empty() { &[] } else { &["_start"] };
    let object = link_platform(toolchain, folder, &[start, &UNWINDER].concat(), &[])?;
    if !has_frames(&object)? {
        return Err(Failure::failed(
            "the unwinder has no frames of its own, so that it could not unwind any panic",
            "see how toolchain/xtask/src/android/mod.rs links it",
        ));
    }
    // Cargo does not look into what is linked: the object's name tells it when to link again.
    let named = folder.join("kit").join(format!("{name}{}.o", digest(&object)?));
    rename(&object, &named)?;
    Ok(named)
}

/// A word that differs where what files are linked with does.
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

/// Links what was built last of start code and unwinder to an object that shows these entries and no more.
///
/// Without `--gc-sections`: with `-r`, that takes the tables of frames for garbage.
fn link_platform(toolchain: &Toolchain, folder: &Path, entries: &[&str], more: &[&str]) -> Result<PathBuf> {
    let archive = folder.join(TARGET).join("release/libhexflash_android.a");
    let [whole, object] = ["whole", "platform"].map(|name| temporary(folder, name));
    let mut linker = toolchain.linker()?;
    linker.args(["-m", "aarch64linux", "-r"]).args(more);
    linker.args(entries.iter().map(|name| format!("--undefined={name}")));
    process::run(linker.arg(archive).arg("-o").arg(&whole))?;
    let mut hide = objcopy()?;
    hide.args(entries.iter().map(|name| format!("--keep-global-symbol={name}"))).arg("--strip-debug");
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
            objects: None,
            libraries: Libraries::StandIns,
        };
        assert_eq!(kit.rustflags(), "-Clinker=/a b/cc\x1f-Clinker-flavor=gcc\x1f-Cx");
        // Whose library is a shared one, too.
        assert!(text("platform/android/small/Cargo.toml").contains("crate-type = [\"lib\", \"cdylib\"]"));
    }

    #[test]
    fn a_library_has_its_name_and_no_start() {
        let objects = Objects { for_programs: "p.o".into(), for_libraries: "l.o".into() };
        let kit = Kit {
            linker: "cc".into(),
            always: Vec::new(),
            objects: Some(objects),
            libraries: Libraries::StandIns,
        };
        let library = Form::Library { file: "liba.so", prefix: "a_" };
        assert_eq!(kit.arguments(library), ["-Clink-arg=l.o", "-Clink-arg=-Wl,-soname,liba.so"]);
        assert_eq!(kit.arguments(Form::Program { name: "a" }), ["-Clink-arg=p.o"]);
    }
}
