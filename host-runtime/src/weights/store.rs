//! Where the bytes of an image are, and how a device gets them.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::cache;
use super::error::WeightError;
use super::image::WeightImage;
use crate::device::{Memory, Source};

/// Where an image is.
pub(super) enum Store {
    /// In memory of this process.
    Memory(Arc<Bytes>),
    /// In its cache file.
    File(FileStore),
}

/// An image in a file that had the right content when it was loaded.
pub(super) struct FileStore {
    pub file: File,
    pub path: PathBuf,
    /// The pieces of the image, which follow each other without gaps, and their hashes.
    pub pieces: Vec<(Range<u64>, u64)>,
}

/// An image in memory that cannot change. It begins with a page, is read-only and does not move.
pub(super) enum Bytes {
    /// In this process's own.
    Own(Mmap),
    /// In that of its cache file, which nobody can write to meanwhile.
    #[cfg(target_os = "linux")]
    Leased(super::lease::Leased),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(map) => map,
            #[cfg(target_os = "linux")]
            Self::Leased(map) => map,
        }
    }
}

impl Store {
    /// Takes memory with a packed or verified image, and makes it read-only.
    pub(super) fn sealed(memory: MmapMut) -> Result<Self, WeightError> {
        let bytes = memory.len() as u64;
        let memory = memory.make_read_only().map_err(|io| WeightError::Memory { bytes, io })?;
        Ok(Self::Memory(Arc::new(Bytes::Own(memory))))
    }
}

/// Memory for an image, zeroed.
pub(super) fn anonymous(bytes: u64) -> Result<MmapMut, WeightError> {
    let len = usize::try_from(bytes).map_err(io::Error::other);
    let map = len.and_then(MmapMut::map_anon).map_err(|io| WeightError::Memory { bytes, io })?;
    // Fewer page faults while it is filled, fewer misses afterwards. A hint, so failure does not matter.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

impl FileStore {
    /// Copies what was verified when the image was loaded, and verifies it again.
    pub(super) fn copy_to(&self, at: u64, out: &mut [u8]) -> Result<(), WeightError> {
        let end = at + out.len() as u64;
        let first = self.pieces.partition_point(|(range, _)| range.end <= at);
        let mut parts = Vec::new();
        let mut rest = out;
        for (range, hash) in self.pieces[first..].iter().take_while(|(range, _)| range.start < end) {
            let (from, to) = (range.start.max(at), range.end.min(end));
            let (out, after) = rest.split_at_mut((to - from) as usize);
            parts.push(PieceCopy { range, hash: *hash, skip: (from - range.start) as usize, out });
            rest = after;
        }
        assert!(rest.is_empty(), "{} bytes beyond the image", rest.len());
        parts.into_par_iter().map_init(Vec::new, |whole, part| self.copy_part(whole, part)).collect()
    }

    fn copy_part(&self, whole: &mut Vec<u8>, part: PieceCopy<'_>) -> Result<(), WeightError> {
        let PieceCopy { range, hash, skip, out } = part;
        let read = |piece: &mut [u8]| {
            let changed = |why| WeightError::Changed { path: self.path.clone(), why };
            cache::read(&self.file, piece, range.start).map_err(|io| changed(io.to_string()))?;
            if xxh3_64(piece) == hash { Ok(()) } else { Err(changed("its data is damaged".to_owned())) }
        };
        let bytes = (range.end - range.start) as usize;
        if out.len() == bytes {
            return read(out);
        }
        // There is a hash of the whole piece alone.
        whole.resize(bytes, 0);
        read(whole)?;
        out.copy_from_slice(&whole[skip..][..out.len()]);
        Ok(())
    }
}

/// What is to be copied of a piece.
struct PieceCopy<'a> {
    range: &'a Range<u64>,
    hash: u64,
    /// Bytes of the piece before those that are wanted.
    skip: usize,
    out: &'a mut [u8],
}

/// Some of an image, for a device.
pub struct ImageRange {
    image: WeightImage,
    range: Range<u64>,
}

impl ImageRange {
    /// The bytes `range` of an image.
    ///
    /// # Panics
    /// If they are not in the image, or do not begin with a page.
    pub fn new(image: &WeightImage, range: Range<u64>) -> Self {
        assert!(range.start.is_multiple_of(4096) && range.start <= range.end && range.end <= image.bytes());
        Self { image: image.clone(), range }
    }
}

impl Source for ImageRange {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn in_memory(&self) -> io::Result<Arc<dyn Memory>> {
        let (memory, start) = match self.image.store() {
            Store::Memory(memory) => (Arc::clone(memory), self.range.start as usize),
            Store::File(_) => {
                let mut copy = anonymous(self.bytes()).map_err(io::Error::other)?;
                self.copy_to(&mut copy)?;
                (Arc::new(Bytes::Own(copy.make_read_only()?)), 0)
            }
        };
        Ok(Arc::new(InPlace { memory, start, bytes: self.bytes() as usize }))
    }

    fn copy_to(&self, out: &mut [u8]) -> io::Result<()> {
        assert_eq!(out.len() as u64, self.bytes());
        self.image.copy_to(self.range.start, out).map_err(io::Error::other)
    }
}

/// A stretch of an image in memory, from a page on.
struct InPlace {
    memory: Arc<Bytes>,
    start: usize,
    bytes: usize,
}

// SAFETY: `Bytes` is read-only, begins with a page and does not move, and this value keeps it; `start` is a
// multiple of a page and the bytes are in it, as `ImageRange::new` found. It is not writable, so no device
// writes there.
unsafe impl Memory for InPlace {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(&self.memory[self.start..]).cast()
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn writable(&self) -> bool {
        false
    }
}
