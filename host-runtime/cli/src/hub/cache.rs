//! The cache that programs for the Hugging Face Hub share, as `huggingface_hub` lays it out:
//!
//! ```text
//! models--OWNER--NAME/refs/main              the commit that "main" was when it was last asked for
//! models--OWNER--NAME/snapshots/COMMIT/FILE  a link to
//! models--OWNER--NAME/blobs/ETAG             the file's bytes; ETAG.incomplete while they are downloaded
//! .locks/models--OWNER--NAME/ETAG.lock       locked (flock) by who downloads them
//! ```

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::repo::RepoId;
use crate::library_path::own_folder;
use crate::plain::read_text;

/// Folders within folders of a revision that are looked into: repositories keep quantizations in one level.
const MAX_DEPTH: usize = 4;
/// The branch that models are taken from.
pub(super) const BRANCH: &str = "main";
/// The extension of a blob while its bytes come.
pub(super) const PARTIAL: &str = "incomplete";

/// The cache's folder, which need not exist.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// The value of an environment variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of everything that programs for the Hub keep; `None` where nothing says where it is.
pub(super) fn hf_home() -> Option<PathBuf> {
    let cache = || variable("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("huggingface"));
    variable("HF_HOME").map(PathBuf::from).or_else(cache).or_else(in_home)
}

/// Cache in the user's home, or in what stands in for one: where commands come over adb, the home is `/`,
/// which cannot be written.
fn in_home() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let home = home.map(|home| home.join(".cache"));
    let others = [variable("TMPDIR").map(PathBuf::from), own_folder()];
    let found = [home.clone()].into_iter().chain(others).flatten().find(|folder| is_writable(folder));
    if let Some(folder) = found.as_ref().filter(|found| home.as_ref() != Some(*found)) {
        tracing::debug!("no home can be written: models of the Hub are kept in {}", folder.display());
    }
    // The home again where nothing can be written: the message names it then.
    Some(found.or(home)?.join("huggingface"))
}

/// Whether files can be made in a folder, or the folder itself where it is not there.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|folder| folder.is_dir() && has_rights(folder))
}

#[cfg(unix)]
fn has_rights(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a text that ends with NUL and lives through the call, which only reads it.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

#[cfg(not(unix))]
fn has_rights(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|about| !about.permissions().readonly())
}

impl Cache {
    /// The cache that the environment names, by the variables that `huggingface_hub` reads; `None` if there
    /// is not even a home.
    pub(crate) fn from_environment() -> Option<Self> {
        let named = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        let root = named.map(PathBuf::from).or_else(|| Some(hf_home()?.join("hub")))?;
        Some(Self { root })
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The repositories in it, by name.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub(crate) fn repos(&self) -> io::Result<Vec<RepoId>> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut repos: Vec<_> = entries.filter_map(|entry| RepoId::of_folder(&name(entry)?)).collect();
        repos.sort();
        Ok(repos)
    }

    /// The folder of a repository.
    pub(super) fn repo(&self, repo: &RepoId) -> PathBuf {
        self.root.join(repo.folder())
    }

    /// The folder of a revision.
    pub(super) fn revision(&self, repo: &RepoId, commit: &str) -> PathBuf {
        self.repo(repo).join("snapshots").join(commit)
    }

    /// The revisions of a repository, what `main` was first, then the newest.
    pub(crate) fn revisions(&self, repo: &RepoId) -> Vec<PathBuf> {
        let main = read_text(&self.repo(repo).join("refs").join(BRANCH)).unwrap_or_default();
        let folders = fs::read_dir(self.repo(repo).join("snapshots")).into_iter().flatten().flatten();
        let mut found: Vec<(bool, SystemTime, PathBuf)> = folders
            .filter_map(|entry| {
                let changed = entry.metadata().ok().filter(fs::Metadata::is_dir)?.modified().ok()?;
                Some((entry.file_name() == main.trim(), changed, entry.path()))
            })
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        found.into_iter().map(|(.., path)| path).collect()
    }

    /// Whether a file of a repository has begun to come, and is not whole.
    pub(super) fn has_partial(&self, repo: &RepoId) -> bool {
        let mut blobs = fs::read_dir(self.repo(repo).join("blobs")).into_iter().flatten().flatten();
        blobs.any(|blob| blob.path().extension() == Some(PARTIAL.as_ref()))
    }

    /// The lock of a blob.
    pub(super) fn lock(&self, repo: &RepoId, etag: &str) -> PathBuf {
        self.root.join(".locks").join(repo.folder()).join(format!("{etag}.lock"))
    }
}

/// The names of the GGUF files of a revision, folders included, in no order. A link whose file is gone is one
/// of them.
pub(crate) fn files(revision: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(revision, "", MAX_DEPTH, &mut found);
    found
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        let name = format!("{prefix}{name}");
        // Links to folders are not followed: none are made by programs that keep this layout.
        if kind.is_dir() {
            if depth > 0 {
                collect(&entry.path(), &format!("{name}/"), depth - 1, found);
            }
        } else if name.to_ascii_lowercase().ends_with(".gguf") {
            found.push(name);
        }
    }
}
