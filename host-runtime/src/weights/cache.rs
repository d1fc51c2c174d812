//! The weight image as a file: what makes it valid, and how it comes into being.
//!
//! ```text
//! Header | zeros up to 64 KiB | image
//! ```
//! The header says which model, which specs and which layout the image is of, and holds a hash of the image.
//! All of the file is covered: header and zeros are checked when it is found, the image is hashed as it is
//! read.
//!
//! A cache is written into a file without a name, brought to the disk and only then named. So at every moment
//! there is a whole cache under the final name or none, even if several processes build one, or a process or
//! the power fails. All who may read the model may read the cache; only its owner may write to it.
//!
//! Nothing in the file tells where weights lie: that is computed from the model. So a hostile cache can hold
//! wrong numbers, but cannot lead a read outside the image. The hashes are of XXH3, which finds damage and no
//! forgery: a cache that another user could have written is not used at all, see [`super::folder`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::folder::{Folder, Named, UnfinishedFile};
use super::image::CachePolicy;
use super::plan::{Form, WeightSpec};
use crate::gguf::Gguf;
use crate::positioned;

/// Added to the model's file name.
const EXTENSION: &str = ".hfcache";
const MAGIC: [u8; 8] = *b"HXFCACHE";
/// Version of this file format, of the hashes in it and of the order of weights in an image. Since version 2
/// the hash of the image covers what pads its weights.
const VERSION: u32 = 2;
/// Where the image starts: a multiple of every page size.
pub(super) const IMAGE: u64 = 64 * 1024;

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

/// An open cache. Only its header has been looked at.
pub(super) struct Existing {
    pub file: File,
    pub header: Header,
}

/// Reads a part of the image of a cache file; from any thread.
pub(super) fn read(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    positioned::read_exact_at(file, out, IMAGE + at)
}

/// Writes a part of the image into a draft; from any thread. A full disk is an error here, which it would not
/// be (but a signal) if the file were written through a mapping.
pub(super) fn write(draft: &UnfinishedFile<'_>, bytes: &[u8], at: u64) -> io::Result<()> {
    positioned::write_all_at(&draft.file, bytes, IMAGE + at)
}

/// The cache that belongs to a model and its specs.
pub(super) struct Cache {
    pub path: PathBuf,
    folder: Folder,
    /// What the system says of the model's files.
    models: Vec<fs::Metadata>,
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
        part: Option<&str>,
    ) -> io::Result<Option<Self>> {
        let Some(path) = path(gguf.path(), policy, part)? else { return Ok(None) };
        let folder = Folder::of(&path)?;
        // Stamps before content: a file that changes later has another stamp at the next start.
        let models = gguf.attributes()?;
        Ok(Some(Self { path, folder, stamps: stamps(&models)?, models, key: key(gguf, specs), bytes }))
    }

    /// Looks at what lies at the path.
    pub(super) fn find(&self) -> Found {
        let (file, exposed) = match self.folder.find() {
            Named::Nothing => return Found::Nothing,
            Named::Ours(file) => (file, false),
            Named::Exposed(file) => (file, true),
            Named::Foreign(why) => return Found::Foreign(why),
        };
        match self.examine(file) {
            // Judged last: what is no cache is not to be replaced.
            Ok(Found::Fresh(_) | Found::Touched(_)) if exposed => Found::Stale("other users may write to it"),
            Ok(found) => found,
            Err(io) => Found::Foreign(format!("it cannot be read ({io})")),
        }
    }

    fn examine(&self, file: File) -> io::Result<Found> {
        let mut head = Vec::new();
        (&file).take(IMAGE).read_to_end(&mut head)?;
        let magic = &head[..head.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Ok(Found::Foreign("it is not a weight cache".to_owned()));
        }
        let Ok((header, zeros)) = Header::read_from_prefix(&head) else {
            return Ok(Found::Stale("it was truncated"));
        };
        let expected = self.header(header.content, header.image);
        Ok(if header.version != VERSION {
            Found::Stale("another version of hexflash wrote it")
        } else if header.checksum != header.sum() || zeros.iter().any(|&byte| byte != 0) {
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
        let file = self.folder.open_to_write(&existing.file)?;
        // One small write, guarded by the checksum; another process would write the same bytes.
        positioned::write_all_at(&file, header.as_bytes(), 0)
    }

    /// Starts a new cache beside the one there is.
    pub(super) fn create(&self) -> io::Result<UnfinishedFile<'_>> {
        let draft = self.folder.draft()?;
        draft.file.set_len(IMAGE + self.bytes)?;
        Ok(draft)
    }

    /// Gives a complete draft its header and its name, or says why it is not kept.
    pub(super) fn finish(
        &self,
        draft: &mut UnfinishedFile<'_>,
        content: u64,
        image: u64,
    ) -> Result<(), String> {
        let cannot = |io: io::Error| format!("it cannot be written ({io})");
        positioned::write_all_at(&draft.file, self.header(content, image).as_bytes(), 0).map_err(cannot)?;
        // Looked at again: the user may have put a file there meanwhile.
        if let Found::Foreign(why) = self.find() {
            return Err(why);
        }
        draft.finish(&self.models).map_err(|io| format!("it cannot be replaced ({io})"))
    }
}

fn path(model: &Path, policy: &CachePolicy, part: Option<&str>) -> io::Result<Option<PathBuf>> {
    let extension = part.map_or(EXTENSION.to_owned(), |part| format!(".{part}{EXTENSION}"));
    Ok(match policy {
        CachePolicy::Off => None,
        CachePolicy::Beside => Some(with_suffix(model, &extension)),
        CachePolicy::Dir(dir) => {
            make_private(dir)?;
            // Models of the same name from different directories do not displace each other.
            let model = std::path::absolute(model)?;
            let parent = model.parent().map_or(&[][..], |p| p.as_os_str().as_encoded_bytes());
            let name = model.file_name().unwrap_or_default();
            Some(dir.join(with_suffix(Path::new(name), &format!("-{:016x}{extension}", xxh3_64(parent)))))
        }
    })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    path.into()
}

/// Makes a folder for caches, which is nobody's but this user's.
fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)
}

/// Hash of header, metadata and tensor table of every file, and of the specs.
fn key(gguf: &Gguf, specs: &[WeightSpec]) -> u128 {
    let mut hasher = Xxh3Default::new();
    gguf.headers().for_each(|header| hasher.update(&header.to_le_bytes()));
    for spec in specs {
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        text(&spec.name);
        spec.sources.iter().for_each(|source| text(source));
        let (form, values) = match &spec.form {
            Form::Tiled => (0u8, &[][..]),
            Form::Plain => (1, &[][..]),
            Form::Transposed => (2, &[][..]),
            Form::Values(values) => (3, &values[..]),
            Form::Filters => (4, &[][..]),
            Form::Turned => (5, &[][..]),
        };
        // The counts end the lists before them.
        hasher.update(&[form]);
        hasher.update(&(spec.sources.len() as u64).to_le_bytes());
        hasher.update(&(values.len() as u64).to_le_bytes());
        hasher.update(values.as_bytes());
    }
    hasher.digest128()
}

/// Hash of the length and the times of every file of the model. Where there is one, the time of the last
/// change of the inode is included: unlike the modification time it cannot be set back.
fn stamps(models: &[fs::Metadata]) -> io::Result<u128> {
    let mut stamps = Vec::new();
    for about in models {
        let modified = about.modified()?;
        // Times before 1970 are as good as any: the distance is what counts.
        let distance = modified.duration_since(UNIX_EPOCH).unwrap_or_else(|before| before.duration());
        stamps.extend([u128::from(about.len()), distance.as_nanos(), changed(about)]);
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
