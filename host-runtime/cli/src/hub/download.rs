//! Downloads: what a repository has, and its files, each as far as it is not there yet.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::cache::{BRANCH, Cache, PARTIAL, variable};
use super::choice::encoder;
use super::error::HubError;
use super::http::{Client, Head, HttpError, LOOK};
use super::{Request, Token, tls};
use crate::output::say;
use crate::plain::is_file_or_nothing;
use crate::progress::Progress;
use hexflash::cancel::Cancel;

/// Where the Hub is, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";
/// Attempts in a row that may bring nothing.
const ATTEMPTS: u32 = 3;
/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are hashed at once.
const PIECE: usize = 1 << 20;

/// What the Hub says of a repository.
#[derive(Deserialize)]
struct Listing {
    /// The commit.
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
    size: Option<u64>,
    /// Git's hash of a small file.
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// A file to download.
struct Remote {
    name: String,
    size: u64,
    /// Its name among the blobs.
    etag: String,
    /// Whether that is its SHA-256.
    has_sha256: bool,
}

/// Downloads a model, and gives its first file.
pub(super) fn fetch(
    cache: &Cache,
    request: &Request<'_>,
    token: Option<Token>,
    cancel: &Cancel,
) -> Result<PathBuf, HubError> {
    let download = Download::new(cache, request, token, cancel)?;
    let listing = download.listing()?;
    let choice = request.choose(listing.siblings.iter().map(|file| file.name.as_str()))?;
    let remotes = choice.parts.iter().map(|name| download.remote(&listing, name));
    let remotes = remotes.collect::<Result<Vec<_>, _>>()?;
    download.fetch_all(&listing.sha, &remotes)?;
    Ok(cache.revision(&request.model.repo, &listing.sha).join(&choice.parts[0]))
}

/// Downloads the encoder of pictures that the repository of a model has, if it has one.
pub(super) fn fetch_encoder(
    cache: &Cache,
    request: &Request<'_>,
    token: Option<Token>,
    cancel: &Cancel,
) -> Result<(), HubError> {
    let download = Download::new(cache, request, token, cancel)?;
    let listing = download.listing()?;
    match encoder(listing.siblings.iter().map(|file| file.name.as_str())) {
        Some(name) => download.fetch_all(&listing.sha, &[download.remote(&listing, name)?]),
        None => Ok(()),
    }
}

fn endpoint() -> Result<String, HubError> {
    let Some(found) = variable("HF_ENDPOINT") else { return Ok(ENDPOINT.to_owned()) };
    let found = found.to_string_lossy().trim_end_matches('/').to_owned();
    let is_address = |rest: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_graphic());
    let rest = found.strip_prefix("https://").or_else(|| found.strip_prefix("http://"));
    if rest.is_some_and(is_address) { Ok(found) } else { Err(HubError::Endpoint { found }) }
}

/// A path within an address.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Whether a text is a hash of `digits` hexadecimal digits, and so a safe name of a file.
fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a name stays within the folder of its revision.
fn is_inside(name: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && !matches!(part, "." | "..") && !part.contains(['\\', ':', '\0']);
    name.split('/').all(is_part)
}

struct Download<'a> {
    cache: &'a Cache,
    request: &'a Request<'a>,
    endpoint: String,
    client: Client,
    token_from: Option<&'static str>,
    cancel: &'a Cancel,
}

impl<'a> Download<'a> {
    fn new(
        cache: &'a Cache,
        request: &'a Request<'a>,
        token: Option<Token>,
        cancel: &'a Cancel,
    ) -> Result<Self, HubError> {
        let endpoint = endpoint()?;
        let secure = endpoint.starts_with("https://");
        if secure && !tls::is_possible() {
            return Err(HubError::NoTls { endpoint });
        }
        let token_from = token.as_ref().map(|token| token.source_name);
        let client = Client::new(token.map(|token| token.text), secure);
        Ok(Self { cache, request, endpoint, client, token_from, cancel })
    }

    fn repo(&self) -> String {
        self.request.model.repo.to_string()
    }

    fn malformed(&self, reason: impl Into<String>) -> HubError {
        HubError::Malformed { endpoint: self.endpoint.clone(), reason: reason.into() }
    }

    fn failed(&self, error: HttpError, kept: u64) -> HubError {
        match error {
            HttpError::Cancelled => HubError::Interrupted { kept },
            HttpError::Lost(reason) => HubError::Network { endpoint: self.endpoint.clone(), reason, kept },
        }
    }

    /// What a status says that is no success.
    fn refused(&self, head: &Head, what: &str, kept: u64) -> HubError {
        let (repo, endpoint) = (self.repo(), self.endpoint.clone());
        let code = head.error_code.as_deref();
        match (head.status, self.token_from) {
            (401 | 403, _) if code == Some("GatedRepo") => HubError::Gated { repo, endpoint },
            (401 | 404, _) if code == Some("RepoNotFound") => HubError::NoRepo { repo, endpoint },
            (401, Some(source_name)) => HubError::BadToken { endpoint, source_name },
            // The Hub does not tell strangers which repositories there are.
            (401 | 404, _) => HubError::NoRepo { repo, endpoint },
            (403, _) => HubError::Gated { repo, endpoint },
            (status, _) => HubError::Status { endpoint, status, what: what.to_owned(), kept },
        }
    }

    fn listing(&self) -> Result<Listing, HubError> {
        let url = format!("{}/api/models/{}/revision/{BRANCH}?blobs=true", self.endpoint, self.repo());
        let failed = |error| self.failed(error, 0);
        let answer = self.client.get(&url, 0, self.cancel).map_err(failed)?;
        if answer.head.status != 200 {
            return Err(self.refused(&answer.head, "the question what there is", 0));
        }
        let text = answer.text(self.cancel).map_err(failed)?;
        let listing: Listing =
            serde_json::from_slice(&text).map_err(|error| self.malformed(error.to_string()))?;
        if !is_hash(&listing.sha, 40) {
            return Err(self.malformed("the commit is no hash"));
        }
        Ok(listing)
    }

    fn remote(&self, listing: &Listing, name: &str) -> Result<Remote, HubError> {
        let file = listing.siblings.iter().find(|file| file.name == name);
        let (size, etag, has_sha256) = match file {
            Some(Sibling { lfs: Some(lfs), .. }) => (lfs.size, &lfs.sha256, true),
            Some(Sibling { size: Some(size), blob_id: Some(id), .. }) => (*size, id, false),
            Some(_) | None => return Err(self.malformed(format!("it tells no size and hash of {name}"))),
        };
        if !is_hash(etag, if has_sha256 { 64 } else { 40 }) || !is_inside(name) {
            return Err(self.malformed(format!("{} has no safe name or hash", name.escape_debug())));
        }
        Ok(Remote { name: name.to_owned(), size, etag: etag.to_ascii_lowercase(), has_sha256 })
    }

    fn fetch_all(&self, commit: &str, remotes: &[Remote]) -> Result<(), HubError> {
        let folder = self.cache.repo(&self.request.model.repo);
        let blobs = folder.join("blobs");
        let revision = self.cache.revision(&self.request.model.repo, commit);
        // A file that has the name itself, instead of a link, has no blob any more.
        let is_named = |remote: &Remote| {
            let path = revision.join(&remote.name);
            !path.is_symlink() && is_complete(&path, remote.size)
        };
        let missing =
            |remote: &&Remote| !is_complete(&blobs.join(&remote.etag), remote.size) && !is_named(remote);
        let total: u64 = remotes.iter().filter(missing).map(|remote| remote.size).sum();
        if total > 0 {
            let mib = total as f64 / 1048576.0;
            say(format_args!("[downloading {mib:.1} MiB of {} into {}]", self.repo(), folder.display()));
        }
        let mut before = 0;
        for remote in remotes {
            let blob = blobs.join(&remote.etag);
            if is_named(remote) {
                continue;
            }
            if !is_complete(&blob, remote.size) {
                let bar = Progress::bytes(format!("downloading {}", remote.name));
                let fetched = self.fetch_blob(commit, remote, &blob, |done| bar.set(before + done, total));
                bar.finish();
                fetched?;
                before += remote.size;
            }
            self.link(commit, remote, &blob)?;
        }
        write_whole(&folder.join("refs").join(BRANCH), commit.as_bytes())
    }

    /// Downloads a file, or what is missing of it, unless another process does.
    fn fetch_blob(
        &self,
        commit: &str,
        remote: &Remote,
        blob: &Path,
        progress: impl Fn(u64),
    ) -> Result<(), HubError> {
        let _lock = self.lock(remote)?;
        if is_complete(blob, remote.size) {
            return Ok(());
        }
        let path = blob.with_extension(PARTIAL);
        make_folder_of(&path)?;
        let mut part = Partial::open(path, remote.size)?;
        let (mut attempts, mut before) = (1, part.bytes);
        while part.bytes < remote.size {
            progress(part.bytes);
            match self.transfer(commit, remote, &mut part, &progress) {
                Ok(()) => break,
                Err(HubError::Network { reason, .. }) if part.bytes > before || attempts < ATTEMPTS => {
                    attempts = if part.bytes > before { 1 } else { attempts + 1 };
                    before = part.bytes;
                    tracing::info!("{reason}; going on from byte {before} of {}", remote.name);
                    self.pause(attempts * PAUSE, before)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.check(remote, part)?.publish(blob)
    }

    /// Adds what the server has from the end of the part on.
    fn transfer(
        &self,
        commit: &str,
        remote: &Remote,
        part: &mut Partial,
        progress: impl Fn(u64),
    ) -> Result<(), HubError> {
        let url = format!("{}/{}/resolve/{commit}/{}", self.endpoint, self.repo(), escaped(&remote.name));
        let mut answer =
            self.client.get(&url, part.bytes, self.cancel).map_err(|error| self.failed(error, part.bytes))?;
        match (answer.head.status, answer.head.range_start) {
            (206, Some(start)) if start == part.bytes => {}
            // All of it: the server knows no ranges, or none was asked for.
            (200, _) => part.restart()?,
            (206, _) => return Err(self.malformed("it sends another part of the file than was asked for")),
            _ => {
                return Err(self.refused(
                    &answer.head,
                    &format!("the request for {}", remote.name),
                    part.bytes,
                ));
            }
        }
        loop {
            match answer.next(self.cancel) {
                Ok(Some(bytes)) => part.add(&bytes)?,
                Ok(None) if part.bytes < remote.size => {
                    let reason = "the connection ended early".to_owned();
                    return Err(self.failed(HttpError::Lost(reason), part.bytes));
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.failed(error, part.bytes)),
            }
            progress(part.bytes);
            if part.bytes > remote.size {
                return Ok(());
            }
        }
    }

    /// Gives the part back if it is the file, and removes it if it is not.
    fn check(&self, remote: &Remote, part: Partial) -> Result<Partial, HubError> {
        let found: String = part.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let reason = if part.bytes != remote.size {
            format!("more than its {} bytes", remote.size)
        } else if remote.has_sha256 && found != remote.etag {
            format!("SHA-256 {found} instead of {}", remote.etag)
        } else {
            return Ok(part);
        };
        fs::remove_file(&part.path).map_err(|source| HubError::Write { path: part.path, source })?;
        Err(HubError::Mismatch { file: remote.name.clone(), endpoint: self.endpoint.clone(), reason })
    }

    /// Waits until nobody else downloads the file. The lock ends when the file is closed.
    fn lock(&self, remote: &Remote) -> Result<File, HubError> {
        let path = self.cache.lock(&self.request.model.repo, &remote.etag);
        make_folder_of(&path)?;
        let failed = |source| HubError::Write { path: path.clone(), source };
        is_file_or_nothing(&path).map_err(failed)?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut waits = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            if !waits {
                say(format_args!("[another process is downloading {}: waiting for it]", remote.name));
                waits = true;
            }
            self.pause(LOOK, 0)?;
        }
    }

    fn pause(&self, time: Duration, kept: u64) -> Result<(), HubError> {
        for _ in 0..(time.as_millis() / LOOK.as_millis()).max(1) {
            if self.cancel.is_cancelled() {
                return Err(HubError::Interrupted { kept });
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Gives a blob its name in the revision.
    fn link(&self, commit: &str, remote: &Remote, blob: &Path) -> Result<(), HubError> {
        let path = self.cache.revision(&self.request.model.repo, commit).join(&remote.name);
        make_folder_of(&path)?;
        let depth = remote.name.matches('/').count();
        let target = format!("{}../../blobs/{}", "../".repeat(depth), remote.etag);
        match link(&WAYS, Path::new(&target), blob, &path) {
            // Another process was faster, or a link is left whose file was gone.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => Ok(()),
            made => made.map_err(|source| HubError::Write { path, source }),
        }
    }
}

/// A way to give a blob a name, as what the link leads to, the blob, and the name.
type Way = fn(&Path, &Path, &Path) -> io::Result<()>;

/// Ways to give a blob a name, the best first. Links of neither kind are possible on Android's shared
/// storage, and links to files of others are forbidden to its programs; then the file itself gets the name.
const WAYS: [Way; 3] = [
    #[cfg(unix)]
    |target, _, path| std::os::unix::fs::symlink(target, path),
    // Other systems may forbid links to their users: a second name for the same bytes does as well.
    #[cfg(not(unix))]
    |_, blob, path| fs::hard_link(blob, path),
    |_, blob, path| fs::hard_link(blob, path),
    |_, blob, path| fs::rename(blob, path),
];

/// Gives a blob its name in the first way that the file system allows.
fn link(ways: &[Way], target: &Path, blob: &Path, path: &Path) -> io::Result<()> {
    if path.is_symlink() && !path.exists() {
        fs::remove_file(path)?;
    }
    let mut refused = Ok(());
    for way in ways {
        refused = way(target, blob, path);
        let Err(error) = &refused else { return Ok(()) };
        if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) {
            break;
        }
        tracing::debug!("{}: a link was refused ({error})", path.display());
    }
    refused
}

fn is_complete(blob: &Path, size: u64) -> bool {
    blob.metadata().is_ok_and(|about| about.is_file() && about.len() == size)
}

fn make_folder_of(path: &Path) -> Result<(), HubError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|source| HubError::Write { path: folder.to_owned(), source })
}

/// Writes a small file, which others see with all of its contents or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    make_folder_of(path)?;
    let failed = |source| HubError::Write { path: path.to_owned(), source };
    is_file_or_nothing(path).map_err(failed)?;
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    written.map_err(failed)
}

/// The beginning of a file.
struct Partial {
    path: PathBuf,
    file: File,
    bytes: u64,
    hash: Sha256,
}

impl Partial {
    /// What an earlier download left, of a file of `size` bytes.
    fn open(path: PathBuf, size: u64) -> Result<Self, HubError> {
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let opened = is_file_or_nothing(&path).and_then(|()| open());
        let mut part = match opened {
            Ok(file) => Self { path, file, bytes: 0, hash: Sha256::new() },
            Err(source) => return Err(HubError::Write { path, source }),
        };
        part.read().map_err(|source| part.failed(source))?;
        if part.bytes > size {
            part.restart()?;
        }
        Ok(part)
    }

    fn failed(&self, source: io::Error) -> HubError {
        HubError::Write { path: self.path.clone(), source }
    }

    /// Hashes what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            match self.file.read(&mut piece)? {
                0 => return Ok(()),
                n => {
                    self.hash.update(&piece[..n]);
                    self.bytes += n as u64;
                }
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(|source| self.failed(source))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Forgets what is there.
    fn restart(&mut self) -> Result<(), HubError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|source| self.failed(source))?;
        (self.bytes, self.hash) = (0, Sha256::new());
        Ok(())
    }

    /// Makes it the blob.
    fn publish(self, blob: &Path) -> Result<(), HubError> {
        let Self { path, file, .. } = self;
        let done = file.sync_all().and_then(|()| fs::rename(&path, blob));
        done.map_err(|source| HubError::Write { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_their_folder_are_refused() {
        for good in ["m.gguf", "Q4_K_M/m-00001-of-00002.gguf", "a b.gguf", "..m"] {
            assert!(is_inside(good), "{good}");
        }
        for bad in ["", "/m", "../m", "a/../m", "a//m", "a/", "./m", "a\\m", "C:m", "m\0"] {
            assert!(!is_inside(bad), "{bad}");
        }
    }

    /// Android's shared storage, for one, has no links.
    #[test]
    fn a_blob_gets_its_name_where_links_are_refused() {
        let refuses: Way = |_, _, _| Err(io::ErrorKind::PermissionDenied.into());
        let lacks: Way = |_, _, _| Err(io::ErrorKind::Unsupported.into());
        let [symlink, hard_link, rename] = WAYS;
        for (ways, keeps_blob) in [
            ([symlink, refuses, refuses], true),
            ([refuses, hard_link, refuses], true),
            ([refuses, lacks, rename], false),
        ] {
            let dir = tempfile::TempDir::new().unwrap();
            let (blob, path) = (dir.path().join("blob"), dir.path().join("name"));
            fs::write(&blob, "bytes").unwrap();
            link(&ways, Path::new("blob"), &blob, &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "bytes");
            assert_eq!(blob.exists(), keeps_blob);
        }
        let nowhere = Path::new("/nowhere/at/all");
        let error = link(&[refuses, lacks], nowhere, nowhere, nowhere).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        // What has another reason fails in every way, and is told as it is.
        let missing: Way = |_, _, _| Err(io::ErrorKind::NotFound.into());
        let error = link(&[missing, refuses], nowhere, nowhere, nowhere).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn hashes_are_names() {
        assert!(is_hash(&"0aF9".repeat(10), 40));
        assert!(!is_hash(&"0aF9".repeat(10), 64));
        assert!(!is_hash(&"../9".repeat(10), 40));
    }

    #[test]
    fn addresses_are_escaped() {
        assert_eq!(escaped("Q8_0/a b#c%?.gguf"), "Q8_0/a%20b%23c%25%3F.gguf");
    }
}
