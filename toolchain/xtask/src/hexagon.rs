//! `cargo xtask hexagon`: the DSP runtime as Hexagon machine code.
//!
//! Static images for emulators, a skel library per architecture that phones have, and the program that holds
//! a skel under the emulator. A crate is compiled to an archive and linked here by hand: as a `cdylib` it
//! would crash the compiler, and the link has its own rules (`linker/`).
//!
//! A build ends when a product is linked and, if it is a skel, has the shape that a DSP loads. What the
//! compiler made of the code is looked at apart (`--check`): that reads a disassembly as text, and depends on
//! names of functions and on how the disassembler prints. Nobody who only needs an image shall depend on it.
//!
//! Each architecture has a target directory of its own. The flags differ, so in a shared one every change of
//! architecture would rebuild `core` and all dependencies.

use crate::arch::Arch;
use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};
use crate::toolchain::{Origin, TARGET, Toolchain, output_dir};
use crate::{arch_object, daily, disassembly, libc_stub, planted, skel};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Where the emulator's programs begin.
const PROGRAM_ENTRY: &str = "_start";
/// What FastRPC calls in the skel; `linker/skel.map` exports the same name.
const SKEL_ENTRY: &str = "hexflash_skel_handle_invoke";

/// The profile of Cargo.toml that Hexagon code is compiled with.
const PROFILE: &str = "hexagon";

/// LLVM 22 makes hardware loops that end too early of loops with a second exit that it has unrolled in part:
/// the count of the unrolled loop is rounded down, and the exit in its middle, which an odd count takes, is
/// never reached. SSM_CONV left out the newest row of an odd number. Without such unrolling counts are exact.
const SOUND_LOOPS: &str = "-Cllvm-args=-unroll-allow-partial=false";

/// LLVM 22 makes aligned loads and shifts of unaligned loads that are near each other, and gets it wrong
/// where the address advances in a loop: GATED_DELTA_NET read keys that were not the ones it had stored. An
/// unaligned load is one instruction anyway.
const SOUND_LOADS: &str = "-Cllvm-args=-hvc-va=false";

/// LLVM 22 takes inline assembly and aligned loops for shorter than they are, and then crashes on a
/// compare-and-jump that reaches 1 KiB at most. This is what it keeps in hand before it takes a longer jump
/// (200 bytes otherwise).
const NEAR_JUMPS: &str = "-Cllvm-args=-branch-relax-safety-buffer=600";

/// For v68, LLVM 22 takes a cast of an integer vector to a float one, which is no instruction at all, for the
/// dearest there is (`opt -passes='print<cost-model>'` shows it: 2^63 - 1). Sums of costs stop there, so that
/// a loop with such a cast minus a part with another costs nothing, and copying it for each condition that
/// does not change in it (loop unswitching) seems free. Each copy doubles the rest: the loops of
/// GATED_DELTA_NET became thousands, with no end. So there are no such copies.
const NO_COPIED_LOOPS: &str = "-Cllvm-args=-unswitch-threshold=0";

/// LLVM 22 takes the qfloat form of a float operation where an operand has just been converted from qfloat.
/// That saves a rounding, or rounds a tie the other way; so bits would depend on what it finds to merge: on
/// how many rows a kernel multiplies at once, or on where a matrix is cut. With this, results are what the
/// source says, and those of `hvx/qf32.rs`. Kernels stay in qfloat where it pays by themselves.
const AS_WRITTEN: &str = "-Cllvm-args=-disable-qfp-opt";

/// LLVM 22 looks at all pairs of scalar registers for shifts and masks that one `insert` could do, a sixth of
/// the time that it takes for machine code; and for copies along the graph of data, a tenth. Our loops are
/// vectors: without either the code of v73 is 0.05 % longer.
const NO_SLOW_PASSES: [&str; 2] = ["-Cllvm-args=-hexagon-insert=false", "-Cllvm-args=-rdf-opt=false"];

/// Arguments of `cargo xtask hexagon`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The architecture to build for
    #[arg(long, value_enum, default_value_t = Choice::All)]
    arch: Choice,
    /// Build (or check) the code for v67 and v73, and of the others what has its turn today
    #[arg(long, conflicts_with_all = ["arch", "image"])]
    today: bool,
    /// The compiler to use (the first of the two that is there, when not given)
    #[arg(long, value_enum)]
    toolchain: Option<Origin>,
    /// Build (or check) the emulator's image of each architecture and no skel
    #[arg(long)]
    image: bool,
    /// Build nothing, but check what the compiler made of the images and skels that were built: inner loops,
    /// instructions that the architecture has not, and bits of floats that get lost
    #[arg(long, conflicts_with = "toolchain")]
    check: bool,
}

/// One architecture, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The image that runs under any qemu-hexagon
    V67,
    /// Snapdragon 888
    V68,
    /// Snapdragon 8 Gen 1
    V69,
    /// Snapdragon 8 Gen 2
    V73,
    /// Snapdragon 8 Gen 3
    V75,
    /// Snapdragon 8 Elite
    V79,
    /// Snapdragon 8 Elite Gen 5
    V81,
    /// Everything
    All,
}

impl Choice {
    fn archs(self) -> &'static [Arch] {
        match self {
            Self::V67 => &[Arch::V67],
            Self::V68 => &[Arch::V68],
            Self::V69 => &[Arch::V69],
            Self::V73 => &[Arch::V73],
            Self::V75 => &[Arch::V75],
            Self::V79 => &[Arch::V79],
            Self::V81 => &[Arch::V81],
            Self::All => &[Arch::V67, Arch::V68, Arch::V69, Arch::V73, Arch::V75, Arch::V79, Arch::V81],
        }
    }
}

/// Machine code that was compiled for one architecture. Our code uses nothing that v75 has beyond v73, or v81
/// beyond v79: when it was compiled for v75 and v81, the same instructions came out, but for the constant
/// that says the architecture. So these two get the code of v73 and v79.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    V67,
    /// Code for v68 without IEEE arithmetic of HVX. One for all versions that have it otherwise: it is taken
    /// where a DSP is found not to execute that, which no phone was seen to do yet.
    Plain,
    V68,
    V69,
    V73,
    V79,
}

/// What is linked for an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// A static image for the emulator.
    Image,
    /// The library that FastRPC loads.
    Skel,
    /// The same without IEEE arithmetic of HVX.
    PlainSkel,
    /// The program that holds a skel where the emulator plays a phone's DSP. One for all architectures: the
    /// emulator is told which one it plays.
    Guest,
}

impl Product {
    /// The products that the verb makes for an architecture: skels of what phones have, images of what tests
    /// run. Of versions that run the same code, the oldest has the image.
    fn all_of(arch: Arch) -> &'static [Self] {
        match arch {
            Arch::V67 => &[Self::Image, Self::Guest],
            Arch::V68 | Arch::V73 => &[Self::Image, Self::Skel, Self::PlainSkel],
            Arch::V69 | Arch::V75 => &[Self::Skel, Self::PlainSkel],
            Arch::V79 => &[Self::Image, Self::Skel],
            Arch::V81 => &[Self::Skel],
        }
    }

    /// The crate that becomes Hexagon code, and its features that have entry points. Image and skel have one
    /// archive: kernels are compiled once, and tests run the instructions of the skel.
    fn package(self, code: Code) -> (&'static str, &'static str) {
        match self {
            Self::Image | Self::Skel if code == Code::V67 => ("hexflash-image", "qemu"),
            Self::Image | Self::Skel => ("hexflash-image", "qemu,skel"),
            Self::PlainSkel => ("hexflash-image", "skel,plain"),
            Self::Guest => ("hexflash-guest", "guest"),
        }
    }

    /// File name of what is built.
    fn file(self, arch: Arch) -> String {
        match self {
            Self::Image => format!("hexflash-{arch}"),
            Self::Skel => format!("libhexflash_skel_{arch}.so"),
            Self::PlainSkel => format!("libhexflash_skel_{arch}_plain.so"),
            Self::Guest => "hexflash-guest".to_owned(),
        }
    }

    /// The code that it is made of.
    fn code(self, arch: Arch) -> Code {
        match self {
            Self::PlainSkel => Code::Plain,
            Self::Image | Self::Skel | Self::Guest => Code::of(arch),
        }
    }
}

impl Code {
    /// The code that an architecture runs.
    fn of(arch: Arch) -> Self {
        match arch {
            Arch::V67 => Self::V67,
            Arch::V68 => Self::V68,
            Arch::V69 => Self::V69,
            Arch::V73 | Arch::V75 => Self::V73,
            Arch::V79 | Arch::V81 => Self::V79,
        }
    }

    /// What takes longest first: they are made side by side.
    const ALL: [Self; 6] = [Self::V68, Self::Plain, Self::V69, Self::V73, Self::V79, Self::V67];

    /// Code that takes turns in `--today`. v79, whose floats are its own, comes more often than v69, which no
    /// phone was seen to need.
    const IN_TURN: [&[Self]; 3] = [&[Self::V79], &[Self::V68, Self::Plain], &[Self::V69, Self::V79]];

    /// Code that is built each day, and what has its turn today.
    fn of_today() -> impl Iterator<Item = Self> {
        let is_today = |code: &Self| match code {
            Self::V67 | Self::V73 => true,
            Self::V68 | Self::Plain | Self::V69 | Self::V79 => daily::turn(&Self::IN_TURN).contains(code),
        };
        Self::ALL.into_iter().filter(is_today)
    }

    /// Flags for rustc, separated by blanks.
    ///
    /// Stock emulators know no HVX float at all, so the image that any of them runs is made for the last HVX
    /// without it; what phones have has qfloat.
    fn rustflags(self) -> &'static str {
        match self {
            Self::V67 => {
                "-Ctarget-cpu=hexagonv67 -Ctarget-feature=+hvxv66,+hvx-length128b -Crelocation-model=static"
            }
            Self::V68 | Self::Plain => {
                "-Ctarget-cpu=hexagonv68 -Ctarget-feature=+hvxv68,+hvx-length128b,+hvx-qfloat"
            }
            Self::V69 => "-Ctarget-cpu=hexagonv69 -Ctarget-feature=+hvxv69,+hvx-length128b,+hvx-qfloat",
            Self::V73 => "-Ctarget-cpu=hexagonv73 -Ctarget-feature=+hvxv73,+hvx-length128b,+hvx-qfloat",
            Self::V79 => "-Ctarget-cpu=hexagonv79 -Ctarget-feature=+hvxv79,+hvx-length128b,+hvx-qfloat",
        }
    }

    /// What LLVM must be told for it beside its features.
    fn llvm_arguments(self) -> Vec<&'static str> {
        let mut arguments = vec![SOUND_LOOPS, SOUND_LOADS, NEAR_JUMPS, AS_WRITTEN];
        arguments.extend(NO_SLOW_PASSES);
        match self {
            Self::V68 | Self::Plain => arguments.push(NO_COPIED_LOOPS),
            Self::V67 | Self::V69 | Self::V73 | Self::V79 => {}
        }
        arguments
    }

    /// Its folder: the name of the first architecture that runs it, or what it is.
    fn folder(self) -> &'static str {
        match self {
            Self::V67 => "v67",
            Self::Plain => "plain",
            Self::V68 => "v68",
            Self::V69 => "v69",
            Self::V73 => "v73",
            Self::V79 => "v79",
        }
    }
}

impl Arguments {
    /// Products that are built or checked for an architecture.
    fn products(&self, arch: Arch) -> &'static [Product] {
        if self.image { &[Product::Image] } else { Product::all_of(arch) }
    }

    /// Code that products are made of, what takes longest first.
    fn codes(&self) -> Vec<Code> {
        if self.today { Code::of_today().collect() } else { Code::ALL.to_vec() }
    }
}

/// Code that `--today` builds, by the names that [`Code::folder`] gives, with commas between them.
pub fn of_today() -> String {
    Code::of_today().map(Code::folder).collect::<Vec<_>>().join(",")
}

/// The verb: sets up, then compiles and links for each architecture, or checks what was linked.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Hexagon)?;
    if arguments.check {
        return check(arguments);
    }
    let toolchain = Toolchain::wanted(arguments.toolchain)?;
    eprintln!("hexagon: using {toolchain}");
    side_by_side(arguments, |arch, product| {
        let file = build(&toolchain, arch, product)?;
        let size = fs::metadata(&file).map_or(0, |data| data.len());
        println!("{arch}: {} ({} KiB)", file.display(), size.div_ceil(1024));
        Ok(())
    })
}

/// Does something for each product, on all processors. The compiler optimises an archive as a whole, on one
/// thread; products that share one take turns.
fn side_by_side(arguments: &Arguments, work: impl Fn(Arch, Product) -> Result<()> + Sync) -> Result<()> {
    let archs = arguments.arch.archs();
    let codes = Mutex::new(arguments.codes().into_iter());
    let lanes = thread::available_parallelism().map_or(1, usize::from);
    let work_all = || loop {
        let next = codes.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(code) = next else { return Ok(()) };
        for &arch in archs {
            let made_of = arguments.products(arch).iter().filter(|product| product.code(arch) == code);
            made_of.into_iter().try_for_each(|&product| work(arch, product))?;
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(work_all)).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Checks the disassembly of what was built, and by each image also the checks themselves. All that is found
/// is printed.
fn check(arguments: &Arguments) -> Result<()> {
    let out = output_dir(&process::workspace_root()?)?;
    let found = AtomicUsize::new(0);
    side_by_side(arguments, |arch, product| {
        let file = out.join(product.file(arch));
        if !file.exists() {
            return Err(Failure::unusable(
                format!("{} is not built", file.display()),
                "build it first: `cargo xtask hexagon` with the same --arch and --image",
            ));
        }
        let flaws = match product {
            Product::Skel => disassembly::check(&file, arch)?,
            Product::PlainSkel => disassembly::check_plain(&file, arch)?,
            Product::Image => disassembly::check_instructions(&file, arch)?,
            // It computes nothing.
            Product::Guest => return Ok(()),
        };
        for flaw in &flaws {
            println!("{arch}: {}: {flaw}", file.display());
        }
        found.fetch_add(flaws.len(), Ordering::Relaxed);
        if flaws.is_empty() {
            println!("{arch}: {}: nothing that must not be there", file.display());
        } else {
            println!("{arch}: see llvm-objdump-22 -d --mattr={} {}", arch.attributes(), file.display());
        }
        match product {
            Product::Image => planted::are_found(&file, arch),
            Product::Skel => skel::planted_are_found(&file, arch.number(), SKEL_ENTRY),
            Product::PlainSkel | Product::Guest => Ok(()),
        }
    })?;
    match found.into_inner() {
        0 => Ok(()),
        flaws => Err(Failure::failed(
            format!("{flaws} flaws in what the compiler made"),
            "the lines above say where, and how to see it",
        )),
    }
}

/// Compiles and links a product, and checks the shape of a skel; gives its file.
pub fn build(toolchain: &Toolchain, arch: Arch, product: Product) -> Result<PathBuf> {
    let root = process::workspace_root()?;
    let out = output_dir(&root)?;
    let archive = compile(toolchain, product.code(arch), product, &root, &out)?;
    let file = out.join(product.file(arch));
    let named = archive.with_file_name(format!("{arch}.o"));
    arch_object::write(&named, arch.number())?;
    process::run(&mut link(toolchain, arch, product, &root, [&archive, &named], &file)?).map_err(|_| {
        Failure::failed(
            format!("{} was compiled for {arch} but does not link", product.package(product.code(arch)).0),
            "the linker's message above names the symbol or section",
        )
    })?;
    if matches!(product, Product::Skel | Product::PlainSkel) {
        skel::reshape(&file)?;
        skel::check(&file, arch.number(), SKEL_ENTRY)?;
    }
    Ok(file)
}

/// Compiles this code for a product and returns the archive.
fn compile(toolchain: &Toolchain, code: Code, product: Product, root: &Path, out: &Path) -> Result<PathBuf> {
    let target_dir = out.join(code.folder());
    let (package, features) = product.package(code);
    let mut cargo = toolchain.cargo();
    cargo
        .current_dir(root)
        .args(["rustc", "--locked", "--profile", PROFILE, "--lib", "--crate-type", "staticlib"])
        .args(["--package", package, "--no-default-features", "--features", features])
        .args(["-Zbuild-std=core,panic_abort", "--target", TARGET])
        .env("CARGO_TARGET_DIR", &target_dir)
        .env("RUSTFLAGS", format!("{} {}", code.rustflags(), code.llvm_arguments().join(" ")));
    process::run(&mut cargo).map_err(|_| {
        Failure::failed(
            format!("{package} does not compile for {}", code.folder()),
            "the compiler's message above says why",
        )
    })?;
    let archive = format!("lib{}.a", package.replace('-', "_"));
    Ok(target_dir.join(TARGET).join(PROFILE).join(archive))
}

/// The command that links the archive, and the object beside it, to the architecture's product.
fn link(
    toolchain: &Toolchain,
    arch: Arch,
    product: Product,
    root: &Path,
    objects: [&Path; 2],
    file: &Path,
) -> Result<Command> {
    let mut linker = toolchain.linker()?;
    // Warnings are errors: the linker only warns when the entry is missing.
    linker.args(["--gc-sections", "--fatal-warnings"]);
    match product {
        Product::Image | Product::Guest => {
            if product == Product::Image {
                linker.arg("--defsym=hexflash_panic=hexflash_image_panic");
            }
            linker.args(["-static", "--orphan-handling=error", "--entry", PROGRAM_ENTRY]);
            linker.args(["--undefined", PROGRAM_ENTRY]);
            linker.arg("--script").arg(root.join("linker/qemu.ld"));
        }
        Product::Skel | Product::PlainSkel => {
            // What stays undefined (qurt_*, HAP_*, dspqueue_*) is resolved by the DSP's loader.
            linker.arg("--defsym=hexflash_panic=hexflash_skel_panic");
            linker.args(["-shared", "-Bsymbolic", "--undefined", SKEL_ENTRY]);
            // The archive has the entry of the image, too. The linker would keep it with all that it calls.
            linker.args(["--entry", "0"]);
            linker.arg("--version-script").arg(root.join("linker/skel.map"));
            linker.arg("-soname").arg(product.file(arch));
            // The loader maps whole 4 KiB pages, reads the classic hash table, and knows nothing of RELRO.
            linker.args(["-z", "max-page-size=4096", "-z", "separate-loadable-segments"]);
            linker.args(["--hash-style=sysv", "-z", "norelro"]);
            // Every library that is known to load on a phone has two segments: one to execute with all
            // constants, and one to write.
            linker.args(["--no-rosegment", "-z", "nognustack"]);
            // What an image of this version cannot have is bound here: a loader that refuses weak symbols
            // without a definition (SA8650P's firmware does) then has none of these to refuse.
            linker.args(skel::absent(arch.number()).map(|name| format!("--defsym={name}=0")));
            // A place in the dynamic section, for a tag that this linker does not write.
            linker.arg("-rpath").arg(".");
            // The library that memory and `abort` come from is named, as those of phones do it.
            let stubs = file.with_file_name("stubs").join(arch.to_string());
            linker.arg("--no-as-needed").arg(libc_stub::make(toolchain, arch.number(), &stubs)?);
        }
    }
    linker.arg("-o").arg(file).args(objects);
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_compiled_for_the_first_architecture_that_runs_it() {
        for code in Code::ALL.into_iter().filter(|code| *code != Code::Plain) {
            let first = Choice::All.archs().iter().find(|arch| Code::of(**arch) == code).unwrap();
            assert_eq!(code.folder(), first.to_string());
            assert!(code.rustflags().starts_with(&format!("-Ctarget-cpu=hexagon{first} ")), "{code:?}");
            assert!(code.rustflags().contains("+hvx-length128b"), "{code:?}");
            // Stock emulators have no HVX float.
            assert_eq!(code.rustflags().contains("qfloat"), code != Code::V67, "{code:?}");
        }
    }

    #[test]
    fn the_code_of_v75_and_v81_is_tested_on_v73_and_v79() {
        for (arch, tested) in [(Arch::V75, Arch::V73), (Arch::V81, Arch::V79)] {
            assert_eq!(Code::of(arch), Code::of(tested));
            assert!(Product::all_of(tested).contains(&Product::Image));
        }
    }

    #[test]
    fn products_are_named_as_the_host_asks_for_them() {
        let files = |arch: Arch| Product::all_of(arch).iter().map(|p| p.file(arch)).collect::<Vec<_>>();
        assert_eq!(files(Arch::V67), ["hexflash-v67", "hexflash-guest"]);
        for arch in [Arch::V68, Arch::V73] {
            let skel = format!("libhexflash_skel_{arch}");
            assert_eq!(
                files(arch),
                [format!("hexflash-{arch}"), format!("{skel}.so"), format!("{skel}_plain.so")]
            );
        }
        assert_eq!(files(Arch::V79), ["hexflash-v79", "libhexflash_skel_v79.so"]);
    }

    #[test]
    fn versions_with_ieee_arithmetic_have_a_skel_without() {
        for &arch in Choice::All.archs().iter().filter(|arch| **arch != Arch::V67) {
            assert_eq!(Product::all_of(arch).contains(&Product::PlainSkel), !arch.hides_bits(), "{arch}");
        }
    }

    #[test]
    fn the_version_script_exports_the_entry() {
        let root = process::workspace_root().unwrap();
        let map = fs::read_to_string(root.join("linker/skel.map")).unwrap();
        assert!(map.lines().any(|line| line.trim() == format!("{SKEL_ENTRY};")));
    }
}
