//! The host's ggml, where its names are known to the host alone.
//!
//! A program that loads its libraries itself, as Node.js and Python do, keeps their names private, and then
//! they are not found in the process. They are found in the library that has them, which is loaded already.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY};

/// How the file begins that has ggml's core, with and without a version behind it.
const BASE: &str = "libggml-base";

/// The library with ggml's core that this process has loaded, if it is one of its own.
pub fn base() -> Option<Library> {
    let path = paths().into_iter().find(|path| is_base(path))?;
    // SAFETY: the library is loaded, so that none of its code runs.
    unsafe { Library::open(Some(path), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
}

fn is_base(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix(BASE).is_some_and(|rest| rest.starts_with(['.', '-']))
}

/// Files of the libraries that this process has loaded. Other systems have other lists, or none.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn paths() -> Vec<PathBuf> {
    Vec::new()
}

/// Files of the libraries that this process has loaded.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn paths() -> Vec<PathBuf> {
    use std::ffi::{CStr, OsStr, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;

    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
        // SAFETY: the loader calls this with an entry of its list, and with what it was given below.
        let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<PathBuf>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a name that is there is a string, which lives as long as the call.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            all.push(OsStr::from_bytes(name.to_bytes()).into());
        }
        0
    }
    let mut all: Vec<PathBuf> = Vec::new();
    // SAFETY: `add` gets a pointer to `all`, which is nobody else's until the call has ended.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::ffi::c_int;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_private_library_is_found() {
        type Number = unsafe extern "C" fn() -> c_int;
        const NAME: &[u8] = b"hexflash_test_of_ggml\0";

        let dir = std::env::temp_dir().join(format!("hexflash-loaded-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (source, library) = (dir.join("a.c"), dir.join("libggml-base.so.0"));
        std::fs::write(&source, "int hexflash_test_of_ggml(void) { return 42; }").unwrap();
        let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(status.unwrap().success());
        assert!(base().is_none());
        // SAFETY: it has one function, and nothing that runs when it is loaded.
        let loaded = unsafe { Library::open(Some(&library), RTLD_LAZY) }.unwrap();
        // SAFETY: the function is of this type.
        assert!(unsafe { Library::this().get::<Number>(NAME) }.is_err());
        let found = base().unwrap();
        // SAFETY: the library was compiled above, of one function, which takes nothing and gives an int.
        let number = unsafe { found.get::<Number>(NAME) }.unwrap();
        // SAFETY: it takes nothing.
        assert_eq!(unsafe { number() }, 42);
        drop((found, loaded));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn names_of_the_core_are_known() {
        for name in ["libggml-base.so", "libggml-base.so.0", "/usr/lib/libggml-base.so.0.27.0"] {
            assert!(is_base(Path::new(name)), "{name}");
        }
        for name in ["libggml.so", "libggml-cpu.so", "libggml-baseline.so", ""] {
            assert!(!is_base(Path::new(name)), "{name}");
        }
    }
}
