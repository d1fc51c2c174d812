//! The weight image as a file: what makes it valid, and how it comes into being.
//!
//! ```text
//! Header | zeros up to 64 KiB | image
//! ```
//! The header says which model, which specs and which layout the image is of. It is written last, into a temporary
//! file that is then renamed: at every moment there is a whole cache under the final name or none, whoever else is
//! building, and whenever a process dies. There is no fsync, so after a power failure the file system may have kept
//! the name and lost the data; `WeightImage::verify` finds that out.
//!
//! Nothing in the file tells where weights lie: that is computed from the model. So a hostile cache can hold wrong
//! numbers, but cannot lead a read outside the image.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use memmap2::{Mmap, MmapOptions};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::image::CachePolicy;
use super::plan::{Form, WeightSpec};
use crate::gguf::Gguf;

/// Added to the model's file name.
const EXTENSION: &str = ".hfcache";
const MAGIC: [u8; 8] = *b"HXFCACHE";
/// Version of this file format, of the hashes in it and of the order of weights in an image.
const VERSION: u32 = 1;
/// Where the image starts: a multiple of every page size.
const IMAGE: u64 = 64 * 1024;
/// Age at which a temporary file that nobody has locked is taken for a dead process's.
const ABANDONED: Duration = Duration::from_secs(60);

/// First bytes of a cache. `magic` and `version` keep their place in every version.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    version: u32,
    tile_layout: u32,
    abi_layout: u64,
    /// Bytes of the whole file.
    total_bytes: u64,
    /// Hash of all that precedes the data in the model's files, and of the specs.
    key: [u8; 16],
    /// Hash of lengths and times of the model's files.
    stamps: [u8; 16],
    /// Hash of the tensor data that went into the image.
    pub content: u64,
    /// Hash of the image.
    pub image: u64,
    /// Hash of the fields above.
    checksum: u64,
}
const _: () = assert!(size_of::<Header>() == 88 && (size_of::<Header>() as u64) < IMAGE);

impl Header {
    fn sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..size_of::<Self>() - 8])
    }
}

/// What lies at the cache's path.
pub(super) enum Found {
    Nothing,
    /// A cache for this very image, over a model with the same file times.
    Fresh(Existing),
    /// The same, but the model's files have been touched: only their content can tell.
    Touched(Existing),
    /// A cache that cannot be used, and why.
    Stale(&'static str),
    /// Something to keep away from, and why.
    Foreign(String),
}

/// An open cache.
pub(super) struct Existing {
    file: File,
    pub header: Header,
}

/// The cache that belongs to a model and its specs.
pub(super) struct Cache {
    pub path: PathBuf,
    key: u128,
    stamps: u128,
    bytes: u64,
}

impl Cache {
    /// The cache for an image of `bytes` bytes; `None` where the policy is to have none.
    pub(super) fn of(
        gguf: &Gguf,
        specs: &[WeightSpec],
        bytes: u64,
        policy: &CachePolicy,
    ) -> io::Result<Option<Self>> {
        let Some(path) = path(gguf.path(), policy)? else { return Ok(None) };
        // A link is followed, so that the file it points to is replaced, and not the link.
        let path = path.canonicalize().unwrap_or(path);
        // Stamps before content: a file that changes later has another stamp at the next start.
        Ok(Some(Self { path, stamps: stamps(gguf)?, key: key(gguf, specs)?, bytes }))
    }

    /// Looks at what lies at the path.
    pub(super) fn find(&self) -> Found {
        let foreign = |io: io::Error| Found::Foreign(format!("it cannot be read ({io})"));
        match fs::metadata(&self.path) {
            Err(io) if io.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(io) => return foreign(io),
            // Asked before opening: opening a pipe would wait for its writer.
            Ok(about) if !about.is_file() => return Found::Foreign("it is not a file".to_owned()),
            Ok(_) => {}
        }
        // For writing too, to be able to renew the stamps; without permission they stay as they are.
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        match file.or_else(|_| File::open(&self.path)).and_then(|file| self.examine(file)) {
            Ok(found) => found,
            Err(io) => foreign(io),
        }
    }

    fn examine(&self, file: File) -> io::Result<Found> {
        let mut head = Vec::new();
        (&file).take(size_of::<Header>() as u64).read_to_end(&mut head)?;
        let magic = &head[..head.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Ok(Found::Foreign("it is not a weight cache".to_owned()));
        }
        let Ok(header) = Header::read_from_bytes(&head) else { return Ok(Found::Stale("it was truncated")) };
        let expected = self.header(header.content, header.image);
        Ok(if header.version != VERSION {
            Found::Stale("another version of hexflash wrote it")
        } else if header.checksum != header.sum() {
            Found::Stale("its header is damaged")
        } else if (header.tile_layout, header.abi_layout) != (expected.tile_layout, expected.abi_layout) {
            Found::Stale("another version of hexflash wrote it")
        } else if header.key != expected.key || header.total_bytes != expected.total_bytes {
            Found::Stale("it is of another model")
        } else if file.metadata()?.len() != header.total_bytes {
            Found::Stale("it was truncated")
        } else if header.stamps != expected.stamps {
            Found::Touched(Existing { file, header })
        } else {
            Found::Fresh(Existing { file, header })
        })
    }

    fn header(&self, content: u64, image: u64) -> Header {
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            tile_layout: hexflash_abi::dtype::TILE_LAYOUT_VERSION,
            abi_layout: hexflash_abi::LAYOUT_HASH,
            total_bytes: IMAGE + self.bytes,
            key: self.key.to_le_bytes(),
            stamps: self.stamps.to_le_bytes(),
            content,
            image,
            checksum: 0,
        };
        header.checksum = header.sum();
        header
    }

    /// Writes the model's present stamps into a cache whose content was found to be right.
    pub(super) fn renew(&self, existing: &Existing) -> io::Result<()> {
        let header = self.header(existing.header.content, existing.header.image);
        // One small write, guarded by the checksum; another process would write the same bytes.
        write_all_at(&existing.file, header.as_bytes(), 0)
    }

    /// Maps an existing cache.
    pub(super) fn map(&self, existing: &Existing) -> io::Result<Mmap> {
        map(&existing.file, self.bytes)
    }

    /// Starts a new cache in a temporary file beside it.
    pub(super) fn create(&self) -> io::Result<Draft> {
        /// Keeps the drafts of one process apart.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.remove_abandoned();
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let suffix = format!(".{}-{number}.tmp", std::process::id());
            let path = with_suffix(&self.path, &suffix);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let draft = Draft { path, file, renamed: false };
                    // Tells others that its writer lives. Where files cannot be locked, nobody removes any.
                    let _ = draft.file.try_lock();
                    draft.file.set_len(IMAGE + self.bytes)?;
                    return Ok(draft);
                }
                // Left behind by an earlier process of this number.
                Err(io) if io.kind() == io::ErrorKind::AlreadyExists => {}
                Err(io) => return Err(io),
            }
        }
    }

    /// Removes drafts of processes that died, which may be gigabytes. Best effort.
    fn remove_abandoned(&self) {
        let (Some(dir), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let prefix = [name.as_encoded_bytes(), b"."].concat();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            let Some(rest) = name.strip_prefix(&*prefix).and_then(|rest| rest.strip_suffix(b".tmp")) else {
                continue;
            };
            let is_draft = rest.iter().all(|b| b.is_ascii_digit() || *b == b'-');
            let age =
                entry.metadata().ok().filter(|m| m.is_file()).and_then(|m| m.modified().ok()?.elapsed().ok());
            if !is_draft || age.is_none_or(|age| age < ABANDONED) {
                continue;
            }
            if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Gives a complete draft its header and its name. The mapping is good even where that fails, which `Err` in the
    /// second place says.
    pub(super) fn finish(
        &self,
        mut draft: Draft,
        content: u64,
        image: u64,
    ) -> io::Result<(Mmap, Result<(), String>)> {
        write_all_at(&draft.file, self.header(content, image).as_bytes(), 0)?;
        let map = map(&draft.file, self.bytes)?;
        // Looked at again: the user may have put a file there meanwhile.
        if let Found::Foreign(why) = self.find() {
            return Ok((map, Err(why)));
        }
        let renamed = fs::rename(&draft.path, &self.path);
        draft.renamed = renamed.is_ok();
        Ok((map, renamed.map_err(|io| format!("it cannot be replaced ({io})"))))
    }
}

/// A cache under construction; removed unless it is finished.
pub(super) struct Draft {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl Draft {
    /// Writes a part of the image; from any thread. A full disk is an error here, which it would not be (but a signal)
    /// if the file were written through a mapping.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        write_all_at(&self.file, bytes, IMAGE + at)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn map(file: &File, bytes: u64) -> io::Result<Mmap> {
    let mut options = MmapOptions::new();
    let options = options.offset(IMAGE).len(bytes as usize);
    // SAFETY: the mapping is read-only. The file has its full length, and hexflash never writes to the image of a
    // file that has its final name (it renames new files over it). That nobody else writes to it or truncates it
    // while it is mapped is required of the user, as it is for the model itself.
    let map = unsafe { options.map(file) }?;
    // Every weight is read for the first token. A hint, so failure does not matter.
    #[cfg(unix)]
    let _ = map.advise(memmap2::Advice::WillNeed);
    Ok(map)
}

fn path(model: &Path, policy: &CachePolicy) -> io::Result<Option<PathBuf>> {
    Ok(match policy {
        CachePolicy::Off => None,
        CachePolicy::Beside => Some(with_suffix(model, EXTENSION)),
        CachePolicy::Dir(dir) => {
            fs::create_dir_all(dir)?;
            // Models of the same name from different directories do not displace each other.
            let model = std::path::absolute(model)?;
            let parent = model.parent().map_or(&[][..], |p| p.as_os_str().as_encoded_bytes());
            let name = model.file_name().unwrap_or_default();
            Some(dir.join(with_suffix(Path::new(name), &format!("-{:016x}{EXTENSION}", xxh3_64(parent)))))
        }
    })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    path.into()
}

/// Hash of header, metadata and tensor table of every file, and of the specs.
fn key(gguf: &Gguf, specs: &[WeightSpec]) -> io::Result<u128> {
    let mut hasher = Xxh3Default::new();
    let mut buffer = vec![0; 64 * 1024];
    for (shard, path) in gguf.files().enumerate() {
        let of_shard = gguf.tensors().filter(|t| t.shard == shard).map(|t| t.offset);
        // A file without tensors has nothing but a header.
        let mut left = of_shard.min().unwrap_or(u64::MAX);
        let mut file = File::open(path)?;
        while left > 0 {
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = file.read(&mut buffer[..room])?;
            if n == 0 {
                break;
            }
            hasher.write(&buffer[..n]);
            left -= n as u64;
        }
    }
    for spec in specs {
        let mut text = |text: &str| {
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        };
        text(&spec.name);
        spec.sources.iter().for_each(|source| text(source));
        let (form, values) = match &spec.form {
            Form::Tiled => (0u8, &[][..]),
            Form::Plain => (1, &[][..]),
            Form::Transposed => (2, &[][..]),
            Form::Values(values) => (3, &values[..]),
        };
        // The counts end the lists before them.
        hasher.write(&[form]);
        hasher.write(&(spec.sources.len() as u64).to_le_bytes());
        hasher.write(&(values.len() as u64).to_le_bytes());
        hasher.write(values.as_bytes());
    }
    Ok(hasher.digest128())
}

/// Hash of the length and the times of every file of the model. Where there is one, the time of the last change of
/// the inode is included: unlike the modification time it cannot be set back.
fn stamps(gguf: &Gguf) -> io::Result<u128> {
    let mut stamps = Vec::new();
    for path in gguf.files() {
        let about = fs::metadata(path)?;
        let modified = about.modified()?;
        // Times before 1970 are as good as any: the distance is what counts.
        let distance = modified.duration_since(UNIX_EPOCH).unwrap_or_else(|before| before.duration());
        stamps.extend([u128::from(about.len()), distance.as_nanos(), changed(&about)]);
    }
    Ok(xxh3_128(stamps.as_bytes()))
}

#[cfg(unix)]
fn changed(about: &fs::Metadata) -> u128 {
    use std::os::unix::fs::MetadataExt;
    (about.ctime() as u128) << 64 | about.ctime_nsec() as u128
}

#[cfg(not(unix))]
fn changed(_: &fs::Metadata) -> u128 {
    0
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => (bytes, at) = (&bytes[n..], at + n as u64),
        }
    }
    Ok(())
}
