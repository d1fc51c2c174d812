//! Programs of llama.cpp, as Debian has compiled them: fetched, unpacked, and started by their own loader, so
//! that they run on systems with an older C library.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::download::{Archive, Format};
use crate::failure::{Failure, Result};

/// Where these packages have libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

macro_rules! package {
    ($name:literal, $folder:literal, $file:literal, $sha256:literal) => {
        Archive {
            name: $name,
            url: concat!("https://deb.debian.org/debian/pool/main/", $folder, "/", $file),
            sha256: $sha256,
            format: Format::Deb,
            keep: "",
        }
    };
}

/// Of Debian testing in November 2026: llama.cpp 0.7.0 with ggml 0.27.0, and the libraries that they were
/// linked with. The first ones have programs.
const PACKAGES: [Archive; 9] = [
    package!(
        "llama.cpp-tools-0.7.0",
        "l/llama.cpp",
        "llama.cpp-tools_0.7.0+dfsg-2_amd64.deb",
        "3007c170f116891974bd37d5ba802f094c7d020412f2100cc71582fc8530895c"
    ),
    package!(
        "llama.cpp-tests-0.7.0",
        "l/llama.cpp",
        "llama.cpp-tests_0.7.0+dfsg-2_amd64.deb",
        "c512d0401e66aab3bf94296f24816e5ac8cdaee88d06f7493212ff307b33d9fc"
    ),
    package!(
        "libllama0-0.7.0",
        "l/llama.cpp",
        "libllama0_0.7.0+dfsg-2_amd64.deb",
        "7d49cde5582ccdc8c454b379ba627eea8c95813b6a9c70628653101f629204d6"
    ),
    package!(
        "libggml0-0.27.0",
        "g/ggml",
        "libggml0_0.27.0-1_amd64.deb",
        "f621153d6615a8dd1ac4b14e110cbafca34cc66f551367c5f6326f71fb141b0d"
    ),
    package!(
        "libc6-2.43",
        "g/glibc",
        "libc6_2.43-7_amd64.deb",
        "5c71715c51103beb4fbba9fe9f8dff604af6610dfa71c70bff342f54a7860803"
    ),
    package!(
        "libstdc++6-16.2.0",
        "g/gcc-16",
        "libstdc++6_16.2.0-3_amd64.deb",
        "7c9e1a89e6c0b9202699957b469c06d0b86f5c97e86c1ff912b6502ddd8793b6"
    ),
    package!(
        "libgcc-s1-16.2.0",
        "g/gcc-16",
        "libgcc-s1_16.2.0-3_amd64.deb",
        "e716dc8baad27e884c45ff83a76955047a7a9e33a80e94f9459ee996ebb800b0"
    ),
    package!(
        "libgomp1-16.2.0",
        "g/gcc-16",
        "libgomp1_16.2.0-3_amd64.deb",
        "a94884d440c641499fccc658eb6845cdc7381fe3f419ab71dff8a621614122c7"
    ),
    package!(
        "libssl3t64-3.6.5",
        "o/openssl",
        "libssl3t64_3.6.5-1_amd64.deb",
        "0a0ec84fe860c5c93c74d53cbb071aea0793327a3761b483080e9d7b73c21b37"
    ),
];

/// The unpacked packages.
pub struct Programs {
    folders: Vec<PathBuf>,
}

impl Programs {
    /// Fetches what is not there yet.
    pub fn fetch() -> Result<Self> {
        if ARCH != "x86_64" {
            return Err(Failure::unusable(
                format!("llama.cpp's programs are fetched for x86_64, and this is {ARCH}"),
                "run this on such a machine",
            ));
        }
        let folders = PACKAGES.iter().map(Archive::fetch).collect::<Result<_>>();
        let folders = folders.map_err(|failure| {
            // Debian's archive keeps what testing has, and nothing older.
            let remedy = "where Debian has newer ones, renew the list in toolchain/xtask/src/llama.rs";
            Failure::unusable(failure.to_string(), remedy)
        })?;
        Ok(Self { folders })
    }

    /// A program, ready to be given arguments: `name` is its path below `usr`. It finds the plugins of ggml
    /// that compute on the CPU, and `backend`.
    pub fn command(&self, name: &str, backend: Option<&Path>) -> Result<Command> {
        let program = self.file(&format!("usr/{name}"))?;
        let below = |part: &str| self.folders.iter().map(|dir| dir.join(LIBRARIES).join(part)).collect();
        let mut libraries: Vec<PathBuf> = below("");
        libraries.extend(Vec::from_iter(below("llama") as Vec<PathBuf>));
        // What the packages need beyond: zlib and zstd, which every Debian has.
        libraries.push("/usr/lib/x86_64-linux-gnu".into());
        let libraries = std::env::join_paths(libraries);
        let libraries = libraries.map_err(|_| {
            Failure::unusable("the target folder has a colon in its name", "set CARGO_TARGET_DIR to another")
        })?;
        let mut command = Command::new(self.file(&format!("{LIBRARIES}/ld-linux-x86-64.so.2"))?);
        command.arg("--library-path").arg(libraries).arg(program);
        command.current_dir(self.file(&format!("{LIBRARIES}/ggml/backends0"))?);
        match backend {
            Some(backend) => command.env("GGML_BACKEND_PATH", backend),
            None => command.env_remove("GGML_BACKEND_PATH"),
        };
        Ok(command)
    }

    /// A file or folder of any of the packages.
    fn file(&self, path: &str) -> Result<PathBuf> {
        let found = self.folders.iter().map(|folder| folder.join(path)).find(|file| file.exists());
        found.ok_or_else(|| {
            Failure::unusable(format!("the packages of llama.cpp have no {path}"), "remove target/downloads")
        })
    }
}
