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

/// The program's own folder.
pub(super) fn own_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
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
