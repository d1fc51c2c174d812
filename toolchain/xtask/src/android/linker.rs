//! A copy of this xtask that rustc calls as its C compiler, to link for Android.
//!
//! rustc could call the linker itself (`-Clinker-flavor=ld.lld`). But then version 1.96 fails an assertion
//! (`l.is_cc()`) where a dependency is to become a shared library, too, as llguidance is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::Toolchain;

/// The name of the copy, by which it knows what it is to do. Not `link...`, which rustc takes for MSVC's.
pub const NAME: &str = "hexflash-android-cc";

/// Options that the linker gets in any case.
///
/// * Pages of 16 KiB, which newer phones have, fit kernels with 4 KiB, too.
/// * Neither `--pack-dyn-relocs=relr` nor Android's own forms of relocations: API 28 knows only some of them.
/// * One segment for what is read and what runs, as the NDK does it below API 29: the crash reports of older
///   systems need that.
/// * An identity, by which a crash report is matched with the program that still has its lines.
pub const ALWAYS: &[&str] = &[
    "-m",
    "aarch64linux",
    "--dynamic-linker=/system/bin/linker64",
    "-z",
    "max-page-size=16384",
    "--hash-style=gnu",
    "--pack-dyn-relocs=none",
    "--no-rosegment",
    "--build-id",
    "--fatal-warnings",
    "--error-limit=0",
];

/// How the object's name begins that is linked into a library which somebody loads.
pub const FOR_LIBRARIES: &str = "hexflash-library-";

/// Words for a C compiler that a linker does not know, and need not.
const FOR_COMPILERS: [&str; 7] =
    ["-nodefaultlibs", "-nostartfiles", "-no-pie", "-fuse-ld=", "--target=", "-m64", "-lunwind"];

/// Job that rustc asks for.
#[derive(Debug, PartialEq, Eq)]
enum Job {
    /// A program or a library, by these words for the linker.
    Link(Vec<OsString>),
    /// A shared library in this file which nobody loads: a dependency is to become one, too, and programs
    /// have the same code from an archive.
    Unused(PathBuf),
}

impl Job {
    /// Reads the words that a C compiler gets.
    fn of(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let (mut arguments, mut is_library, mut is_loaded) = (Vec::new(), false, false);
        let mut words = words.into_iter();
        let mut out = None;
        while let Some(word) = words.next() {
            let text = word.to_str().unwrap_or_default();
            if let Some(parts) = text.strip_prefix("-Wl,") {
                arguments.extend(parts.split(',').map(OsString::from));
            } else if text == "-o" {
                out = words.next();
            } else if text == "-shared" {
                is_library = true;
            } else if Path::new(&word).file_name().is_some_and(is_for_libraries) {
                is_loaded = true;
                arguments.push(word);
            } else if !FOR_COMPILERS.iter().any(|known| text.starts_with(known)) {
                arguments.push(word);
            }
        }
        let out = out?;
        if is_library && !is_loaded {
            return Some(Self::Unused(out.into()));
        }
        if is_library {
            arguments.push("-shared".into());
        }
        arguments.extend(["-o".into(), out]);
        Some(Self::Link(arguments))
    }
}

/// Whether a file of this name is the object for libraries.
fn is_for_libraries(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(FOR_LIBRARIES.as_bytes())
}

/// Whether this process is such a copy.
pub fn is_called() -> bool {
    env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Links what the arguments say, with the libraries that are beside the copy.
pub fn run() -> Result<()> {
    let job = Job::of(env::args_os().skip(1)).ok_or_else(|| {
        Failure::unusable(
            format!("{NAME} got no file to write"),
            "it is for rustc: cargo xtask dist --android",
        )
    })?;
    let arguments = match job {
        Job::Unused(file) => {
            return fs::write(&file, "").map_err(|error| Failure::on_disk("write", &file, &error));
        }
        Job::Link(arguments) => arguments,
    };
    let copy = env::current_exe().unwrap_or_default();
    let libraries = copy.parent().unwrap_or(Path::new("."));
    let toolchain = Toolchain::find(None).ok_or_else(|| {
        Failure::unusable("the Rust compiler for Android is not there", "run `cargo xtask setup hexagon`")
    })?;
    let mut linker = toolchain.linker()?;
    linker.args(ALWAYS).args(arguments).arg("-L").arg(libraries);
    process::run(&mut linker).map_err(|_| {
        Failure::failed(
            "the linker does not make a file for Android of it",
            "its message above says why; an undefined symbol that Android has since API 28 or earlier belongs \
             into toolchain/xtask/src/android/libraries.rs",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &str) -> Option<Job> {
        Job::of(words.split(' ').map(OsString::from))
    }

    #[test]
    fn words_for_a_compiler_become_words_for_a_linker() {
        let words = "a.o -Wl,--as-needed -Wl,-Bdynamic -lunwind -ldl -Wl,--eh-frame-hdr -Wl,-z,noexecstack \
                     -L x -o out -Wl,--gc-sections -pie -Wl,-z,relro,-z,now -nodefaultlibs -fuse-ld=lld";
        let expected = "a.o --as-needed -Bdynamic -ldl --eh-frame-hdr -z noexecstack -L x --gc-sections -pie \
                        -z relro -z now -o out";
        let expected = expected.split(' ').map(OsString::from).collect();
        assert_eq!(job(words), Some(Job::Link(expected)));
    }

    #[test]
    fn a_shared_library_that_nobody_loads_is_not_linked_whatever_it_takes() {
        assert_eq!(job("a.o -Wl,-z,now -shared -o liba.so -lno-such"), Some(Job::Unused("liba.so".into())));
    }

    #[test]
    fn a_shared_library_with_the_object_for_it_is_linked() {
        let expected = "a.o kit/hexflash-library-1.o -soname liba.so -shared -o liba.so";
        let expected = expected.split(' ').map(OsString::from).collect();
        let words = "a.o -shared -o liba.so kit/hexflash-library-1.o -Wl,-soname,liba.so";
        assert_eq!(job(words), Some(Job::Link(expected)));
    }

    #[test]
    fn without_a_file_to_write_there_is_nothing_to_do() {
        assert_eq!(job("a.o -shared"), None);
        assert_eq!(job("a.o -o"), None);
    }

    #[test]
    fn rustc_does_not_take_the_name_for_another_kind_of_linker() {
        assert!(!NAME.starts_with("link") && !NAME.ends_with("ld") && !NAME.contains("lld"));
    }
}
