//! `cargo xtask sanitize`: tests of the `inproc` device's code and of the ggml backend, and a short
//! generation, under a sanitizer.
//!
//! Rustup's compilers bring the sanitizers' runtimes, and take the flags from who says so. Rust's own library
//! comes compiled without the sanitizer's checks, and stays so where its source is not installed
//! (`rust-src`):
//!
//! * `address` still sees every access of our code, and what the library does to memory through the C
//!   library;
//! * `thread` does not see how the library's locks, channels and threads order what they protect, unless that
//!   happens in code that is inlined into ours: [`SUPPRESSIONS`] has what that makes it say wrongly.

use std::env;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};

/// Arguments of `cargo xtask sanitize`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What is looked for
    #[arg(value_enum)]
    sanitizer: Sanitizer,
    /// Words for the tests, such as a name to run only the tests with it
    #[arg(last = true)]
    words: Vec<String>,
}

/// A sanitizer of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sanitizer {
    /// Accesses outside of allocations, or after their end
    Address,
    /// Accesses of two threads without order between them
    Thread,
}

impl Sanitizer {
    /// The name that the compiler knows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// The name of its runtime.
    const fn runtime(self) -> &'static str {
        match self {
            Self::Address => "_rt.asan.a",
            Self::Thread => "_rt.tsan.a",
        }
    }
}

/// What the thread sanitizer is not to tell, as `TSAN_OPTIONS` takes it.
const SUPPRESSIONS: &str = "toolchain/tsan.supp";

/// Tests of sessions, programs and messages.
const TESTS: [&str; 3] = ["session", "rounds", "hostile"];

/// Tests of the ggml backend: graphs, and a host that loads the library. Under the address sanitizer alone:
/// without checks in Rust's library, the other one does not see what their locks order.
const BACKEND_TESTS: [&str; 3] = ["fusion", "hosts", "runtime"];

/// Bytes of a test's stack. Kernels that are not optimised and have the checks in them use up to 950 KiB for
/// one call (`objdump`), and a thread's usual 2 MiB then end in the stack of the thread beside it: what such
/// a test reports is nonsense.
const STACK: &str = "67108864";

/// Worlds of hostile messages: each is some 130 of them.
const WORLDS: &str = "40";

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    let (root, sanitizer) = (process::workspace_root()?, arguments.sanitizer);
    let whole = has_library_source();
    if !whole {
        eprintln!(
            "Rust's own library is used as it comes, without checks: its source (rust-src) is not installed"
        );
    }
    let command = |verb: &str| -> Result<Command> {
        // Kernels in one back end, and not optimised: with a sanitizer's checks in them that takes many
        // minutes.
        let mut command = cargo(sanitizer, &["--cfg=fuzzing", "-Cunsafe-allow-abi-mismatch=sanitizer"])?;
        command.current_dir(&root).arg(verb).args(["--target", &host()?]);
        command.arg("--target-dir").arg(root.join("target/sanitize").join(sanitizer.name()));
        command.args(["--config", "profile.dev.package.hexflash-dsp.opt-level=0"]);
        if whole {
            command.arg("-Zbuild-std");
        }
        command.env("RUST_MIN_STACK", STACK);
        command.env("TSAN_OPTIONS", format!("suppressions={}", root.join(SUPPRESSIONS).display()));
        Ok(command)
    };
    let mut tests = command("test")?;
    tests.args(["--package", "hexflash-dsp"]).env("HOSTILE_WORLDS", WORLDS);
    for test in TESTS {
        tests.args(["--test", test]);
    }
    tests.arg("--").args(&arguments.words);
    if sanitizer == Sanitizer::Thread {
        // There the host writes what the session reads, at the same time and on purpose.
        tests.args(["--skip", "memory_changes_under_the_session"]);
    }
    process::run(&mut tests)?;
    if !arguments.words.is_empty() {
        return Ok(());
    }
    if sanitizer == Sanitizer::Address {
        let mut tests = command("test")?;
        tests.args(["--package", "hexflash-ggml"]);
        for test in BACKEND_TESTS {
            tests.args(["--test", test]);
        }
        process::run(&mut tests)?;
    }
    let mut generation = command("run")?;
    generation.args(["--package", "hexflash-cli", "--", "run", "-m", "models/tiny-hybrid-q8_0.gguf"]);
    generation.args(["-md", "models/tiny-hybrid-dflash-q8_0.gguf", "--draft-max", "4", "--no-repack-cache"]);
    generation.args(["--temp", "0", "-n", "4", "-t", "2", "def __repr__(self):"]);
    process::run(&mut generation)
}

/// Whether the source of Rust's library is there, to be compiled with checks.
fn has_library_source() -> bool {
    let sysroot = process::output(rustc().args(["--print", "sysroot"])).unwrap_or_default();
    Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std/Cargo.toml").is_file()
}

/// The compiler that belongs to the cargo that runs us.
fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// The triple of this machine.
pub fn host() -> Result<String> {
    let about = process::output(rustc().arg("-vV")).unwrap_or_default();
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::unusable("rustc does not say its host", "see `rustc -vV`"))
}

/// A cargo that compiles for this machine with the sanitizer and `flags`.
///
/// The caller adds `--target` with [`host`], so that the flags are not for build scripts and macros, too.
pub fn cargo(sanitizer: Sanitizer, flags: &[&str]) -> Result<Command> {
    let libraries = process::output(rustc().args(["--print", "target-libdir"])).unwrap_or_default();
    let files = Path::new(libraries.trim()).read_dir().into_iter().flatten().flatten();
    let runtime = |name: std::ffi::OsString| name.to_string_lossy().ends_with(sanitizer.runtime());
    if !files.map(|file| file.file_name()).any(runtime) {
        return Err(Failure::unusable(
            format!("this compiler has no runtime of the {} sanitizer", sanitizer.name()),
            "use a compiler of rustup, stable or nightly, on x86-64 or arm64 Linux",
        ));
    }
    // Kernels are generic in the platform, and optimised crates would each compile all of them again.
    let mut all = vec![format!("-Zsanitizer={}", sanitizer.name()), "-Zshare-generics=y".to_owned()];
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let mut command = process::cargo();
    // Sanitizers are unstable options; this makes the stable compiler take them.
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", all.join("\x1f"));
    Ok(command)
}
