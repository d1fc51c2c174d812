//! Where the vendor's library looks for ours.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Variables that name folders with libraries for the DSP, separated by semicolons: as newer systems call it,
/// as older ones do, and the only one that some read for the DSP that hexflash runs on.
pub(super) const VARIABLES: [&str; 3] = ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "CDSP_LIBRARY_PATH"];

/// Whether a file is called as hexflash's libraries for the DSP are.
pub(super) fn is_skel(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("libhexflash_skel_v") && name.ends_with(".so"))
}

/// The program's own folder: as `/proc` has it or, where a sandbox hides that, as the program was started.
pub(super) fn own_folder() -> Option<PathBuf> {
    folder_of(std::env::current_exe().ok(), started_as)
}

fn folder_of(known: Option<PathBuf>, started_as: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    let started = || {
        // A name alone was looked for along PATH, and says nothing.
        let path = started_as().filter(|path| path.components().count() > 1)?;
        path.canonicalize().ok()
    };
    Some(known.or_else(started)?.parent()?.to_owned())
}

/// The path that the kernel was given for the program: absolute, or from the folder where it was started.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn started_as() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: the call takes a number, and answers 0 where the kernel has not said it.
    let at = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    let at = std::ptr::with_exposed_provenance::<std::ffi::c_char>(at);
    if at.is_null() {
        return None;
    }
    // SAFETY: a text that the kernel has put beside the first stack, which ends with 0 and stays as it is
    // until the process ends.
    let path = unsafe { std::ffi::CStr::from_ptr(at) };
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// The first word of the command line.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn started_as() -> Option<PathBuf> {
    std::env::args_os().next().map(PathBuf::from)
}

/// Sets those of the variables that are not set to the program's folder, if that has such libraries: whoever
/// unpacks program and libraries into one folder need not know of the variables. Gives the folder and what
/// was set.
///
/// # Safety
/// 1. No other thread runs.
pub(super) unsafe fn name_own_folder() -> Option<(PathBuf, Vec<&'static str>)> {
    let folder = own_folder().filter(|folder| has_skels(folder))?;
    let unset: Vec<_> = VARIABLES.into_iter().filter(|name| std::env::var_os(name).is_none()).collect();
    for name in &unset {
        // SAFETY: no other thread runs (1), so that none reads the environment meanwhile.
        unsafe { std::env::set_var(name, &folder) };
    }
    Some((folder, unset))
}

fn has_skels(folder: &Path) -> bool {
    folder.read_dir().into_iter().flatten().flatten().any(|entry| is_skel(&entry.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_proc_the_folder_is_that_in_which_the_program_was_started() {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().unwrap().canonicalize().unwrap();
        assert_eq!(folder_of(Some("/a/b".into()), || None), Some("/a".into()));
        assert_eq!(folder_of(None, || Some(own.clone())), Some(folder.clone()));
        assert_eq!(
            folder_of(None, || Some(
                folder.join("../").join(own.strip_prefix(folder.parent().unwrap()).unwrap())
            )),
            Some(folder.clone())
        );
        for unknown in ["hexflash", "/no/such/folder/hexflash"] {
            assert_eq!(folder_of(None, || Some(unknown.into())), None, "{unknown}");
        }
        // What the kernel says is the test's own program.
        assert_eq!(folder_of(None, started_as), Some(folder));
    }
}
