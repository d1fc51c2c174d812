//! The emulator that has what the code of phones needs: HVX float, user DMA, the bits of v79 outside of its
//! registers, the matrix unit.
//!
//! It is Debian's source of qemu with the patches of `toolchain/qemu`, built once. What was built is kept in
//! the user's cache folder, under a key made of all that it depends on, so that checkouts share it and a
//! change of a patch builds another one. Beside the images there is a link to it: there the host program
//! looks for it.
//!
//! A build ends with the self-test; what does not pass is not kept.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::download;
use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::{self, Toolchain};

/// The version, its file in Debian's archive, and the folder in it.
const VERSION: &str = "10.0.13";
const TARBALL: &str = "qemu_10.0.13+ds.orig.tar.xz";
const URL: &str = "https://deb.debian.org/debian/pool/main/q/qemu/qemu_10.0.13%2bds.orig.tar.xz";
const SHA256: &str = "6a0888e806c2ffc0c5f0733e974f9aea55491950d3c47c98669c8b236dde59ae";
/// Names a tarball that is already here.
const SOURCE: &str = "HEXFLASH_QEMU_SOURCE";

/// File name of what is built.
const PROGRAM: &str = "qemu-hexagon";

/// What is left out: all but one program, and what Debian has removed from the source.
const OPTIONS: [&str; 7] = [
    "--target-list=hexagon-linux-user",
    "--without-default-features",
    "--disable-system",
    "--disable-docs",
    "--disable-tools",
    "--disable-install-blobs",
    "--static",
];

/// Clang that knows all architectures up to v81: it compiles the self-test.
pub const CLANG: &str = "clang-22";

/// Whether it was built and the link leads to it.
pub fn is_ready() -> bool {
    Recipe::read().and_then(|recipe| Ok(recipe.is_built() && recipe.is_linked()?)).unwrap_or(false)
}

/// Whether it was built, by any checkout of this user.
pub fn is_built() -> bool {
    Recipe::read().is_ok_and(|recipe| recipe.is_built())
}

/// Builds it where it is not there yet, and links to it. That takes what builds for Hexagon: the self-test is
/// linked by the same linker as images.
pub fn prepare() -> Result<()> {
    let recipe = Recipe::read()?;
    if !recipe.is_built() {
        recipe.build()?;
    }
    recipe.link()
}

/// Where programs of this checkout find it.
pub fn path() -> Result<PathBuf> {
    Ok(toolchain::output_dir(&process::workspace_root()?)?.join(PROGRAM))
}

/// Programs that know their results, each of which must end as it should.
pub fn self_test(root: &Path, emulator: &Path) -> Result<Command> {
    let clang = process::find_program(&[CLANG]).ok_or_else(|| {
        Failure::unusable(format!("{CLANG} is not on PATH"), "run `cargo xtask setup emulator`")
    })?;
    let toolchain = Toolchain::wanted(None)?;
    let mut test = Command::new("sh");
    test.arg(root.join("toolchain/qemu/tests/run.sh")).arg(emulator);
    test.env("CC", clang).env("LD", toolchain.linker()?.get_program());
    Ok(test)
}

/// What it is built of, and where it goes.
struct Recipe {
    root: PathBuf,
    patches: Vec<PathBuf>,
    /// Names the result: twelve digits of a hash of everything that it depends on.
    key: String,
    /// The folder of all results.
    cache: PathBuf,
}

impl Recipe {
    fn read() -> Result<Self> {
        let root = process::workspace_root()?;
        let folder = root.join("toolchain/qemu");
        let patches = patches(&folder.join("patches"))?;
        let requirements = folder.join("requirements.txt");
        let mut hash = Sha256::new();
        hash.update(SHA256);
        hash.update(OPTIONS.join(" "));
        for file in patches.iter().chain([&requirements]) {
            hash.update(fs::read(file).map_err(|error| Failure::on_disk("read", file, &error))?);
        }
        let key = download::hex(&hash.finalize())[..12].to_owned();
        Ok(Self { root, patches, key, cache: cache_dir()? })
    }

    /// The program in the cache.
    fn program(&self) -> PathBuf {
        self.cache.join(&self.key).join(PROGRAM)
    }

    fn is_built(&self) -> bool {
        self.program().is_file()
    }

    fn is_linked(&self) -> Result<bool> {
        Ok(fs::read_link(path()?).is_ok_and(|target| target == self.program()))
    }

    /// Makes the link, in place of an older one.
    fn link(&self) -> Result<()> {
        if self.is_linked()? {
            return Ok(());
        }
        let link = path()?;
        let folder = link.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|error| Failure::on_disk("create", folder, &error))?;
        // Renamed over the old one: whoever starts it meanwhile finds one of both.
        let new = folder.join(format!("{PROGRAM}.{}", std::process::id()));
        symlink(&self.program(), &new).map_err(|error| Failure::on_disk("create", &new, &error))?;
        fs::rename(&new, &link).map_err(|error| Failure::on_disk("create", &link, &error))
    }

    /// Builds in a folder of its own, which then takes its place in the cache or is removed.
    fn build(&self) -> Result<()> {
        let under_way = self.cache.join(format!("{}.{}", self.key, std::process::id()));
        fs::create_dir_all(&under_way).map_err(|error| Failure::on_disk("create", &under_way, &error))?;
        let log = self.cache.join(format!("{}.log", self.key));
        let start = Instant::now();
        let result = self.build_in(&under_way, &log).and_then(|program| {
            let done = self.cache.join(&self.key);
            fs::create_dir_all(&done).map_err(|error| Failure::on_disk("create", &done, &error))?;
            fs::rename(&program, self.program())
                .map_err(|error| Failure::on_disk("create", &self.program(), &error))
        });
        // There is nothing in it that anybody needs: the log is beside it.
        let _ = fs::remove_dir_all(&under_way);
        result?;
        let _ = fs::remove_file(&log);
        eprintln!("emulator: built in {:.0} s: {}", start.elapsed().as_secs_f32(), self.program().display());
        Ok(())
    }

    fn build_in(&self, folder: &Path, log: &Path) -> Result<PathBuf> {
        eprintln!(
            "emulator: qemu {VERSION} with {} patches, built once; log {}",
            self.patches.len(),
            log.display()
        );
        let tarball = source(folder)?;
        let job = Job { log };
        File::create(log).map_err(|error| Failure::on_disk("create", log, &error))?;
        job.step("unpacking", Command::new("tar").arg("-xJf").arg(&tarball).arg("-C").arg(folder))?;
        let tree = folder.join(format!("qemu-{VERSION}"));
        for patch in &self.patches {
            let mut command = Command::new("patch");
            command.current_dir(&tree).args(["-p1", "--forward", "--fuzz=0", "-i"]).arg(patch);
            job.run("a patch does not apply", &mut command)?;
        }
        let python = folder.join("venv/bin/python3");
        job.step("getting meson", Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
        ]);
        job.run("pip could not install meson", pip.arg(self.root.join("toolchain/qemu/requirements.txt")))?;
        let build = tree.join("build");
        fs::create_dir_all(&build).map_err(|error| Failure::on_disk("create", &build, &error))?;
        let mut configure = Command::new("../configure");
        configure.current_dir(&build).args(OPTIONS).arg(format!("--python={}", python.display()));
        // Printed by --version: by this the host program knows it from a stock emulator.
        job.step("configuring", configure.arg(format!("--with-pkgversion=hexflash-{}", self.key)))?;
        let jobs = thread::available_parallelism().map_or(1, NonZero::get);
        let mut ninja = Command::new("ninja");
        job.ninja(ninja.current_dir(&build).arg(format!("-j{jobs}")).arg(PROGRAM))?;
        let program = build.join(PROGRAM);
        job.run("strip failed", Command::new("strip").arg(&program))?;
        job.step("self-test", &mut self_test(&self.root, &program)?)?;
        Ok(program)
    }
}

/// Commands of a build: what they print goes to a log.
struct Job<'a> {
    log: &'a Path,
}

impl Job<'_> {
    /// A command that takes a while: its name is shown.
    fn step(&self, name: &str, command: &mut Command) -> Result<()> {
        eprintln!("emulator: {name}");
        self.run(&format!("{name} failed"), command)
    }

    fn run(&self, failure: &str, command: &mut Command) -> Result<()> {
        command.stdin(Stdio::null()).stdout(self.open()?).stderr(self.open()?);
        let done = command.status().map_err(|error| self.not_started(command, &error))?.success();
        if done { Ok(()) } else { Err(self.failed(failure)) }
    }

    /// Compiles; shows how far it is at each tenth.
    fn ninja(&self, command: &mut Command) -> Result<()> {
        let mut log = self.open()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.open()?);
        let mut child = command.spawn().map_err(|error| self.not_started(command, &error))?;
        let mut tenth = 0;
        for line in
            BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(|line| line.ok())
        {
            // A log that cannot be written is no reason to stop.
            let _ = writeln!(log, "{line}");
            if let Some((done, all)) = progress(&line)
                && done * 10 / all > tenth
            {
                tenth = done * 10 / all;
                eprintln!("emulator: compiling, {done} of {all} steps");
            }
        }
        let status = child.wait().map_err(|error| self.not_started(command, &error))?;
        if status.success() { Ok(()) } else { Err(self.failed("it does not compile")) }
    }

    fn open(&self) -> Result<File> {
        File::options()
            .append(true)
            .open(self.log)
            .map_err(|error| Failure::on_disk("write", self.log, &error))
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::failed(
            format!("the emulator could not be built: {what}"),
            format!("see the end of {}, then run `cargo xtask setup emulator` again", self.log.display()),
        )
    }

    fn not_started(&self, command: &Command, error: &std::io::Error) -> Failure {
        let name = command.get_program().to_string_lossy();
        Failure::unusable(
            format!("`{name}` could not be started ({error})"),
            "run `cargo xtask setup emulator`",
        )
    }
}

/// The steps that ninja has done, and all of them, in a line such as `[12/379] Compiling C object ...`.
fn progress(line: &str) -> Option<(usize, usize)> {
    let (done, all) = line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok().filter(|all| *all > 0)?))
}

/// The source: as the caller names it, or fetched into this folder.
fn source(folder: &Path) -> Result<PathBuf> {
    if let Some(named) = env::var_os(SOURCE).map(PathBuf::from) {
        download::compare(&named, SHA256)?;
        return Ok(named);
    }
    let tarball = folder.join(TARBALL);
    download::file(URL, SHA256, &tarball).map_err(|failure| {
        Failure::unusable(
            format!("no source for the emulator: {failure}"),
            format!(
                "Debian's archive keeps the newest version only: if {TARBALL} is gone, get it from \
                 snapshot.debian.org and name it: {SOURCE}=FILE cargo xtask setup emulator"
            ),
        )
    })?;
    Ok(tarball)
}

/// The patches in the order in which they apply.
fn patches(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| Failure::on_disk("read", folder, &error))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "patch"));
    files.sort();
    Ok(files)
}

/// Where this user's programs keep what they can make again.
fn cache_dir() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("hexflash/qemu")).ok_or_else(|| {
        Failure::unusable("there is no cache folder to build the emulator in", "set HOME or XDG_CACHE_HOME")
    })
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patches_are_there_in_order_and_say_their_licence() {
        let folder = process::workspace_root().unwrap().join("toolchain/qemu/patches");
        let files = patches(&folder).unwrap();
        assert_eq!(files.len(), 11);
        for (i, file) in files.iter().enumerate() {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            assert!(name.starts_with(&format!("{:04}-", i + 1)), "{name}");
            let text = fs::read_to_string(file).unwrap();
            assert!(text.contains("\nSPDX-License-Identifier: GPL-2.0-or-later\n"), "{name}");
        }
    }

    #[test]
    fn progress_is_read_from_ninjas_lines() {
        assert_eq!(progress("[12/379] Compiling C object a.o"), Some((12, 379)));
        for line in ["ninja: no work to do.", "[1/0] x", "[a/b]", ""] {
            assert_eq!(progress(line), None, "{line}");
        }
    }
}
