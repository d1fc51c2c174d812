//! The folder that a cache lies in, held open, and what is done in it by name.
//!
//! Other users may be able to write to the folder, as in `/tmp`. So a file is opened without following links,
//! and is inspected by its handle and not by its name. A new file has no name before it is complete, or one
//! that cannot be guessed. No step goes through a path that could lead elsewhere by then.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(not(unix))]
use self::elsewhere as system;
#[cfg(unix)]
use self::unix as system;

/// Age at which a draft that nobody has locked is taken for a dead process's.
const ABANDONED: Duration = Duration::from_secs(60);

/// A folder, and the name of the cache in it.
pub(super) struct Folder {
    folder: system::Handle,
    path: PathBuf,
    name: OsString,
}

/// What is under the cache's name.
pub(super) enum Named {
    Nothing,
    /// A file of this user or of the system's administrator.
    Ours(File),
    /// The same, but other users may write to it.
    Exposed(File),
    /// Something that is not for us to read or to replace, and why.
    Foreign(String),
}

impl Folder {
    /// Opens the folder that `path`, a file that need not exist, is in.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        Ok(Self { folder: system::open_folder(parent)?, path: parent.to_owned(), name })
    }

    /// Opens what is under the cache's name, for reading only: opening a file for writing ends the leases
    /// that other processes have on it.
    pub(super) fn find(&self) -> Named {
        match system::open(&self.folder, &self.name, false) {
            Ok(Some(file)) => match file.metadata() {
                Ok(about) if !about.is_file() => Named::Foreign("it is not a file".to_owned()),
                Ok(about) => system::trust(&about, file),
                Err(io) => Named::Foreign(format!("it cannot be read ({io})")),
            },
            Ok(None) => Named::Foreign("it is a link, which is not followed".to_owned()),
            Err(io) if io.kind() == io::ErrorKind::NotFound => Named::Nothing,
            Err(io) => Named::Foreign(format!("it cannot be read ({io})")),
        }
    }

    /// Opens the cache for writing, if it still is the same file. Does not wait for processes that have a
    /// lease on it.
    pub(super) fn open_to_write(&self, same: &File) -> io::Result<File> {
        let file = system::open(&self.folder, &self.name, true)?.ok_or(io::ErrorKind::NotFound)?;
        if system::identity(&file.metadata()?) != system::identity(&same.metadata()?) {
            return Err(io::Error::other("another file has its name"));
        }
        Ok(file)
    }

    /// Starts a new file, for this user alone until it is named.
    pub(super) fn draft(&self) -> io::Result<UnfinishedFile<'_>> {
        self.remove_abandoned();
        if let Some(file) = system::unnamed(&self.folder)? {
            return Ok(UnfinishedFile { folder: self, file, name: None });
        }
        self.named_draft()
    }

    fn named_draft(&self) -> io::Result<UnfinishedFile<'_>> {
        let (file, name) = self.with_new_name(|name| system::create(&self.folder, name))?;
        // Shows other processes that the writer lives. Where files cannot be locked, unfinished files are
        // never removed.
        let _ = file.try_lock();
        Ok(UnfinishedFile { folder: self, file, name: Some(name) })
    }

    /// Creates something under a name that cannot be guessed.
    fn with_new_name<T>(&self, make: impl Fn(&OsStr) -> io::Result<T>) -> io::Result<(T, OsString)> {
        loop {
            // The standard library's keys for hash tables are random.
            let mut name = self.name.clone();
            name.push(format!(".{:016x}.tmp", RandomState::new().build_hasher().finish()));
            match make(&name) {
                Err(io) if io.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|made| (made, name)),
            }
        }
    }

    /// Removes drafts of processes that died, which may be gigabytes. Best effort.
    fn remove_abandoned(&self) {
        let prefix = [self.name.as_encoded_bytes(), b"."].concat();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let rest = name.as_encoded_bytes().strip_prefix(&*prefix).and_then(|r| r.strip_suffix(b".tmp"));
            // Earlier versions had process numbers there.
            let is_draft = |rest: &[u8]| rest.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
            if !rest.is_some_and(is_draft) {
                continue;
            }
            let Ok(Some(file)) = system::open(&self.folder, &name, false) else { continue };
            let about = file.metadata().ok().filter(fs::Metadata::is_file);
            let age = about.and_then(|about| about.modified().ok()?.elapsed().ok());
            if age.is_some_and(|age| age >= ABANDONED) && file.try_lock().is_ok() {
                let _ = system::remove(&self.folder, &name);
            }
        }
    }
}

/// A file under construction; it disappears unless it is finished.
pub(super) struct UnfinishedFile<'a> {
    folder: &'a Folder,
    pub(super) file: File,
    /// `None` as long as it has no name, so that nothing is left of it whenever the process ends.
    name: Option<OsString>,
}

impl UnfinishedFile<'_> {
    /// Lets those read it who may read all of `models`, puts it on the disk, and gives it the cache's name in
    /// place of what has it now: at every moment there is a whole file of that name, or none.
    pub(super) fn finish(&mut self, models: &[fs::Metadata]) -> io::Result<()> {
        system::permit(&self.file, models)?;
        // The name must not be on the disk before the data is.
        self.file.sync_all()?;
        let folder = self.folder;
        let name = match self.name.take() {
            Some(name) => name,
            None => folder.with_new_name(|name| system::link(&folder.folder, &self.file, name))?.1,
        };
        let renamed = system::rename(&folder.folder, &name, &folder.name);
        if renamed.is_err() {
            let _ = system::remove(&folder.folder, &name);
        }
        renamed?;
        // If the name is lost in a power failure after all, the cache is built once more.
        let _ = system::sync(&folder.folder);
        Ok(())
    }
}

impl Drop for UnfinishedFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = system::remove(&self.folder.folder, name);
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::fs::{self, File, Permissions};
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use rustix::fs::{AtFlags, Mode, OFlags, openat};
    use rustix::io::Errno;

    use super::Named;

    pub(super) type Handle = OwnedFd;

    /// For this user alone.
    const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
    /// Writing by the group or by all others.
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    /// Reading by the group and by all others.
    const READABLE_BY_OTHERS: u32 = 0o044;
    /// The system's administrator, who may do everything anyway.
    const ROOT: u32 = 0;

    pub(super) fn open_folder(path: &Path) -> io::Result<Handle> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Opens what has this name; `None` if it is a link. It never blocks, as opening a pipe could.
    pub(super) fn open(folder: &Handle, name: &OsStr, write: bool) -> io::Result<Option<File>> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match openat(folder, name, flags | access, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What tells a file from all others.
    pub(super) fn identity(about: &fs::Metadata) -> impl Eq + use<> {
        (about.dev(), about.ino())
    }

    /// Who can have written what is in a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Trust {
        /// This user or root.
        Ours,
        /// This user, but also others.
        Exposed,
        Foreign(&'static str),
    }

    impl Trust {
        /// The rule that ssh has for keys, for the user `own`.
        pub(super) fn of(own: u32, owner: u32, mode: u32) -> Self {
            let exposed = mode & WRITABLE_BY_OTHERS != 0;
            match owner {
                _ if owner == own && exposed => Self::Exposed,
                _ if owner == own || owner == ROOT && !exposed => Self::Ours,
                ROOT => Self::Foreign("other users may write to it"),
                _ => Self::Foreign("it belongs to another user"),
            }
        }
    }

    pub(super) fn trust(about: &fs::Metadata, file: File) -> Named {
        match Trust::of(rustix::process::geteuid().as_raw(), about.uid(), about.mode()) {
            Trust::Ours => Named::Ours(file),
            Trust::Exposed => Named::Exposed(file),
            Trust::Foreign(why) => Named::Foreign(why.to_owned()),
        }
    }

    /// A file without a name; `None` where the file system or the system has none.
    #[cfg(target_os = "linux")]
    pub(super) fn unnamed(folder: &Handle) -> io::Result<Option<File>> {
        let file = match openat(folder, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, PRIVATE) {
            Ok(file) => File::from(file),
            // What file systems and kernels without it answer.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // It is named by way of this, which is not there where /proc is not mounted.
        Ok(rustix::fs::stat(of_process(&file)).is_ok().then_some(file))
    }

    /// Not on Android, whose policy lets no program make hard links, nor on systems that have no such files.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn unnamed(_folder: &Handle) -> io::Result<Option<File>> {
        Ok(None)
    }

    fn of_process(file: &File) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// Gives a file without a name a name that nothing has.
    pub(super) fn link(folder: &Handle, file: &File, name: &OsStr) -> io::Result<()> {
        let (from, flags) = (of_process(file), AtFlags::SYMLINK_FOLLOW);
        Ok(rustix::fs::linkat(rustix::fs::CWD, from, folder, name, flags)?)
    }

    /// A new file under a name that nothing has.
    pub(super) fn create(folder: &Handle, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(folder, name, flags, PRIVATE)?.into())
    }

    /// Lets the group and others read the file if they may read all of the models, and nobody but this user
    /// write.
    pub(super) fn permit(file: &File, models: &[fs::Metadata]) -> io::Result<()> {
        let group = file.metadata()?.gid();
        let mode = models.iter().fold(0o644, |mode, model| {
            // Those of another group count as others here, so they get what both get there.
            let all = model.mode() & READABLE_BY_OTHERS == READABLE_BY_OTHERS;
            let shared = if model.gid() == group || all { model.mode() } else { 0 };
            mode & (shared & READABLE_BY_OTHERS | 0o600)
        });
        // File systems that have no permissions refuse; what the file was made with holds.
        let _ = file.set_permissions(Permissions::from_mode(mode));
        Ok(())
    }

    pub(super) fn rename(folder: &Handle, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(folder, from, folder, to)?)
    }

    pub(super) fn remove(folder: &Handle, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
    }

    pub(super) fn sync(folder: &Handle) -> io::Result<()> {
        Ok(rustix::fs::fsync(folder)?)
    }
}

/// Systems whose files have other rules for owners and links: what their access lists say holds.
#[cfg(not(unix))]
mod elsewhere {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::io;
    use std::path::{Path, PathBuf};

    use super::Named;

    pub(super) type Handle = PathBuf;

    pub(super) fn open_folder(path: &Path) -> io::Result<Handle> {
        if path.is_dir() { Ok(path.to_owned()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub(super) fn open(folder: &Handle, name: &OsStr, write: bool) -> io::Result<Option<File>> {
        let path = folder.join(name);
        if path.is_symlink() {
            return Ok(None);
        }
        File::options().read(true).write(write).open(&path).map(Some)
    }

    pub(super) fn identity(about: &fs::Metadata) -> impl Eq + use<> {
        about.created().ok()
    }

    pub(super) fn trust(_about: &fs::Metadata, file: File) -> Named {
        Named::Ours(file)
    }

    pub(super) fn unnamed(_folder: &Handle) -> io::Result<Option<File>> {
        Ok(None)
    }

    pub(super) fn link(_folder: &Handle, _file: &File, _name: &OsStr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn create(folder: &Handle, name: &OsStr) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(folder.join(name))
    }

    pub(super) fn permit(_file: &File, _models: &[fs::Metadata]) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn rename(folder: &Handle, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(folder.join(from), folder.join(to))
    }

    pub(super) fn remove(folder: &Handle, name: &OsStr) -> io::Result<()> {
        fs::remove_file(folder.join(name))
    }

    pub(super) fn sync(_folder: &Handle) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::unix::Trust;
    use super::*;

    #[test]
    fn a_file_is_trusted_if_nobody_but_its_owner_can_have_written_it() {
        let (me, root, stranger) = (1000, 0, 1001);
        for own in [me, root] {
            assert_eq!(Trust::of(own, own, 0o100_644), Trust::Ours);
            assert_eq!(Trust::of(own, own, 0o100_600), Trust::Ours);
            assert_eq!(Trust::of(own, own, 0o100_664), Trust::Exposed);
            assert_eq!(Trust::of(own, own, 0o100_646), Trust::Exposed);
            for mode in [0o100_600, 0o100_644, 0o100_666] {
                assert_eq!(Trust::of(own, stranger, mode), Trust::Foreign("it belongs to another user"));
            }
        }
        assert_eq!(Trust::of(me, root, 0o100_644), Trust::Ours);
        assert_eq!(Trust::of(me, root, 0o100_666), Trust::Foreign("other users may write to it"));
        assert_eq!(Trust::of(root, me, 0o100_600), Trust::Foreign("it belongs to another user"));
    }

    /// Where file systems have no files without a name.
    #[test]
    fn a_draft_with_a_name_of_its_own_takes_the_caches_name_or_disappears() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::of(&dir.path().join("cache")).unwrap();
        let names = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let mut draft = folder.named_draft().unwrap();
        let other = folder.named_draft().unwrap();
        assert!(names().len() == 2 && names().iter().all(|name| name.ends_with(".tmp")), "{:?}", names());
        assert_eq!(
            draft.file.metadata().unwrap().permissions(),
            other.file.metadata().unwrap().permissions()
        );
        draft.finish(&[]).unwrap();
        drop(draft);
        drop(other);
        assert_eq!(names(), ["cache"]);
        assert!(matches!(folder.find(), Named::Ours(_)));
    }
}
