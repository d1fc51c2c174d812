//! All weights of a model in one block of memory, in the form the device reads.
//!
//! [`WeightImage::load`] reads the image from the cache, or packs it: strips in parallel, each read from the
//! model, packed straight into its place, and written from there into the new cache file. When a cache is
//! built, the model's bytes and the packed bytes are hashed while they are hot.
//!
//! What a start checks. A cache is reused if nobody but its owner can have written it, if its header is
//! whole, is of this version, of this model's header, metadata and tensor table and of these specs, if the
//! model's files have the length and times that they had, and if the image has the hash that it was written
//! with. Where only the times differ (the file was copied or touched), the tensor data is hashed, and the
//! cache is reused if the hash is the one it was built from. On Unix the times include that of the last inode
//! change, so that content edited in place with its modification time set back is noticed; elsewhere it is
//! not.
//!
//! How it is kept from changing. A process that writes to a mapped file changes the weights in the middle of
//! a text, and one that shortens it ends this process with SIGBUS; what was verified would not be what is
//! used. On Linux a cache is mapped nevertheless, under a lease that holds off all writers until there is a
//! copy (see the module `lease`). A start then costs one pass over the image to hash it,
//! in parallel, which brings its pages into the process for the first token, too; the memory is the page
//! cache's, shared by all processes and given back when the system is short of it. Where there are no leases,
//! the image is copied into memory of this process, and each piece is hashed when it has just been copied and
//! still is in the processor's caches: that takes two to three times as long, and memory that stays taken.
//!
//! A device that copies weights into memory of its own would then have two copies there. For those,
//! [`WeightImage::load_to_copy`] verifies the file and keeps it open; each piece is verified once more when
//! the device copies it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::cache::{self, Cache, Existing, Found};
use super::error::WeightError;
use super::folder::UnfinishedFile;
use super::plan::{ImageLayout, Piece, WeightEntry, WeightSpec};
#[cfg(target_os = "linux")]
use super::store::Bytes;
use super::store::{FileStore, Store, anonymous};
use super::threads;
use crate::cancel::Cancel;
use crate::gguf::Gguf;

/// Where the repacked weights are kept between runs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CachePolicy {
    /// In `<model file>.hfcache`, beside the model; that of an MTP head in the same file, in
    /// `<model file>.mtp.hfcache`.
    #[default]
    Beside,
    /// In this directory, which is made if need be.
    Dir(PathBuf),
    /// Nowhere: weights are repacked at each start.
    Off,
}

/// How to load an image.
#[derive(Clone)]
pub struct ImageOptions<'a> {
    /// Where the cache is.
    pub cache: CachePolicy,
    /// Called with bytes done and bytes in all, from several threads, so not always in order. Checking a
    /// cache against a touched model counts too; if it fails, counting starts again. Not called when a cache
    /// is reused at once.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// The name of a part of the model, where an image has only that part and another image has the rest: it
    /// stands in the name of the cache.
    pub part: Option<&'static str>,
    /// Ends the load within the time that a piece of a weight takes; what was begun on disk is removed.
    pub cancel: Cancel,
}

impl Default for ImageOptions<'_> {
    fn default() -> Self {
        Self { cache: CachePolicy::default(), progress: &|_, _| {}, part: None, cancel: Cancel::default() }
    }
}

/// The weights of a model. Cheap to clone; the memory lives as long as any clone, and nobody can change it.
#[derive(Clone)]
pub struct WeightImage {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    bytes: u64,
    entries: HashMap<String, WeightEntry>,
    notes: Vec<String>,
    warnings: Vec<String>,
    repacked: u64,
}

/// An image, and what it took to get it.
struct Loaded {
    store: Store,
    repacked: u64,
}

impl WeightImage {
    /// Packs the weights that `specs` ask for, or reads them from the cache, in the order of `specs`.
    ///
    /// A cache that is stale or damaged is rebuilt; one that cannot be used or written is done without.
    /// [`notes`](Self::notes) says what happened; neither is an error.
    ///
    /// # Errors
    /// Tensors that are missing, of unsupported type or do not fit together; no memory; a model that cannot
    /// be read; [`WeightError::Cancelled`].
    pub fn load(
        gguf: &Gguf,
        specs: &[WeightSpec],
        options: &ImageOptions<'_>,
    ) -> Result<WeightImage, WeightError> {
        Self::load_as(gguf, specs, options, true)
    }

    /// As [`load`](Self::load), for a device that copies the weights: where there is a cache, they stay in
    /// its file.
    ///
    /// # Errors
    /// As there.
    pub fn load_to_copy(
        gguf: &Gguf,
        specs: &[WeightSpec],
        options: &ImageOptions<'_>,
    ) -> Result<WeightImage, WeightError> {
        Self::load_as(gguf, specs, options, false)
    }

    fn load_as(
        gguf: &Gguf,
        specs: &[WeightSpec],
        options: &ImageOptions<'_>,
        in_memory: bool,
    ) -> Result<WeightImage, WeightError> {
        threads::start()?;
        let plan = ImageLayout::new(gguf, specs)?;
        let entries = plan.entries(specs)?;
        let (notes, warnings, progress) = (Vec::new(), Vec::new(), options.progress);
        let cancel = &options.cancel;
        let mut loader = Loader { plan: &plan, progress, cancel, in_memory, notes, warnings };
        let cache = Cache::of(gguf, specs, plan.bytes, &options.cache, options.part).unwrap_or_else(|io| {
            loader.warn(format!("no weight cache: {io}; weights stay in memory"));
            None
        });
        let cached = cache.map(|cache| loader.through(&cache)).transpose()?.flatten();
        let Loaded { store, repacked } = cached.map_or_else(|| loader.without_cache(), Ok)?;
        options.cancel.check()?;
        let (notes, warnings) = (loader.notes, loader.warnings);
        let inner = Inner { store, bytes: plan.bytes, entries, notes, warnings, repacked };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The weight of this label.
    pub fn entry(&self, label: &str) -> Option<&WeightEntry> {
        self.inner.entries.get(label)
    }

    /// All weights with their labels, in no order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &WeightEntry)> {
        self.inner.entries.iter().map(|(label, entry)| (label.as_str(), entry))
    }

    /// The image: [`bytes`](Self::bytes) bytes from the start of a page. `None` where they are in a file, for
    /// a device that copies them.
    pub fn memory(&self) -> Option<&[u8]> {
        match &self.inner.store {
            Store::Memory(memory) => Some(&memory[..self.inner.bytes as usize]),
            Store::File(_) => None,
        }
    }

    /// The bytes of one weight.
    ///
    /// # Errors
    /// They are in a file, which cannot be read or has changed.
    pub fn data(&self, entry: &WeightEntry) -> Result<Cow<'_, [u8]>, WeightError> {
        match self.memory() {
            Some(memory) => Ok(Cow::Borrowed(&memory[entry.offset as usize..][..entry.bytes as usize])),
            None => {
                let mut data = vec![0; entry.bytes as usize];
                self.copy_to(entry.offset, &mut data)?;
                Ok(Cow::Owned(data))
            }
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Copies the bytes from byte `at` on.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    ///
    /// # Panics
    /// If the image has fewer bytes.
    pub(super) fn copy_to(&self, at: u64, out: &mut [u8]) -> Result<(), WeightError> {
        match &self.inner.store {
            Store::Memory(memory) => out.copy_from_slice(&memory[at as usize..][..out.len()]),
            Store::File(file) => file.copy_to(at, out)?,
        }
        Ok(())
    }

    /// Bytes of the image.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// What happened with the cache, for the user to read: a line each.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// The notes about something unusual: a cache that was rebuilt or could not be used.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Bytes that were packed by this load: 0 if a cache was reused.
    pub fn repacked_bytes(&self) -> u64 {
        self.inner.repacked
    }
}

impl fmt::Debug for WeightImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { bytes, entries, notes, .. } = &*self.inner;
        let mut f = f.debug_struct("WeightImage");
        f.field("bytes", bytes).field("weights", &entries.len()).field("notes", notes).finish()
    }
}

/// One hash of many, in order.
fn combine(hashes: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = Xxh3Default::new();
    hashes.into_iter().for_each(|hash| hasher.update(&hash.to_le_bytes()));
    hasher.digest()
}

/// Compares the hashes of all pieces of a cache with what was written.
fn verify(existing: &Existing, pieces: &[u64]) -> Result<(), Failure> {
    let found = combine(pieces.iter().copied());
    let damaged = || Failure::Cache("its data is damaged".to_owned());
    if found == existing.header.image { Ok(()) } else { Err(damaged()) }
}

/// Bytes done so far.
struct Progress<'a> {
    done: AtomicU64,
    total: u64,
    report: &'a (dyn Fn(u64, u64) + Sync),
}

impl Progress<'_> {
    fn add(&self, piece: &Piece) {
        let bytes = piece.len() as u64;
        // Relaxed: a counter that orders nothing.
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.report)(done, self.total);
    }
}

/// Why there is no image from a cache.
enum Failure {
    /// There can be no image at all.
    Weights(WeightError),
    /// It is the cache's fault.
    Cache(String),
}

impl<E: Into<WeightError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Weights(error.into())
    }
}

/// What a thread reads and packs pieces in.
#[derive(Default)]
struct Scratch {
    model: Vec<u8>,
    packed: Vec<u8>,
}

/// One load: the plan, and what is said about it.
struct Loader<'a> {
    plan: &'a ImageLayout<'a>,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    cancel: &'a Cancel,
    /// Whether the image is to be in memory even where it is in a cache.
    in_memory: bool,
    notes: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> Loader<'a> {
    fn note(&mut self, note: String) {
        tracing::info!("{note}");
        self.notes.push(note);
    }

    /// Adds a note that the caller should show to the user.
    fn warn(&mut self, note: String) {
        self.warnings.push(note.clone());
        self.notes.push(note);
    }

    fn start(&self) -> Progress<'a> {
        let total = self.plan.pieces.iter().map(|piece| piece.len() as u64).sum();
        Progress { done: AtomicU64::new(0), total, report: self.progress }
    }

    /// The image from the cache or through a new one; `None`, with a note, if there can be none.
    fn through(&mut self, cache: &Cache) -> Result<Option<Loaded>, WeightError> {
        let shown = cache.path.display();
        let reused = match cache.find() {
            Found::Nothing => None,
            Found::Stale(why) => Some(Err(Failure::Cache(why.to_owned()))),
            Found::Foreign(why) => {
                self.warn(format!(
                    "{shown} is left alone because {why}; weights stay in memory (move it, or cache elsewhere)"
                ));
                return Ok(None);
            }
            Found::Touched(existing) => Some(self.reuse(cache, &existing, true)),
            Found::Fresh(existing) => Some(self.reuse(cache, &existing, false)),
        };
        let stale = match reused {
            Some(Ok(store)) => return Ok(Some(Loaded { store, repacked: 0 })),
            Some(Err(Failure::Weights(error))) => return Err(error),
            Some(Err(Failure::Cache(why))) => Some(why),
            None => None,
        };
        match self.build(cache) {
            Ok((loaded, kept)) => {
                match (stale, kept) {
                    (None, Ok(())) => self.note(format!("weight cache {shown} written")),
                    (Some(why), Ok(())) => self.warn(format!("weight cache {shown} rebuilt because {why}")),
                    (_, Err(why)) => {
                        self.warn(format!("weight cache {shown} not kept because {why}; move that file"));
                    }
                }
                Ok(Some(loaded))
            }
            Err(Failure::Weights(error)) => Err(error),
            Err(Failure::Cache(why)) => {
                self.warn(format!("weight cache {shown} cannot be written: {why}; weights stay in memory"));
                Ok(None)
            }
        }
    }

    /// The image in a cache. Where the model was `touched` since, its content is compared first.
    fn reuse(&mut self, cache: &Cache, existing: &Existing, touched: bool) -> Result<Store, Failure> {
        if touched && self.hash_sources()? != existing.header.content {
            return Err(Failure::Cache("the model has changed".to_owned()));
        }
        // Before there is a lease, which would hold this off, too.
        let renewed = match touched.then(|| cache.renew(existing)) {
            None => "",
            Some(Ok(())) => ": the model's content is the same; its time stamp was renewed",
            Some(Err(_)) => ": the model's content is the same; its time stamp cannot be renewed",
        };
        let store = self.read(cache, existing)?;
        self.note(format!("weight cache {} reused{renewed}", cache.path.display()));
        Ok(store)
    }

    /// Maps the image in a cache and verifies it. `None` if it cannot be kept from changing.
    #[cfg(target_os = "linux")]
    fn map(&self, cache: &Cache, existing: &Existing) -> Result<Option<Store>, Failure> {
        use super::lease::{Lease, Leased};
        let mapped = Lease::take(&existing.file).and_then(|lease| {
            let map = lease.map(cache::IMAGE, self.plan.bytes as usize).ok()?;
            Some((lease, map))
        });
        let Some((lease, map)) = mapped else { return Ok(None) };
        let hash = |piece: &Piece| {
            self.cancel.check()?;
            Ok(xxh3_64(&map[piece.range.start as usize..piece.range.end as usize]))
        };
        let hashes = self.plan.pieces.par_iter().map(hash).collect::<Result<Vec<_>, Failure>>()?;
        verify(existing, &hashes)?;
        let leased = self.in_file(&existing.file, cache, hashes).and_then(|f| Leased::watch(lease, map, f));
        Ok(leased.ok().map(|leased| Store::Memory(Arc::new(Bytes::Leased(leased)))))
    }

    /// Elsewhere nothing keeps others from changing a file.
    #[cfg(not(target_os = "linux"))]
    fn map(&self, _cache: &Cache, _existing: &Existing) -> Result<Option<Store>, Failure> {
        Ok(None)
    }

    /// Reads the image in a cache and verifies it.
    fn read(&self, cache: &Cache, existing: &Existing) -> Result<Store, Failure> {
        if self.in_memory
            && let Some(mapped) = self.map(cache, existing)?
        {
            return Ok(mapped);
        }
        let mut memory = self.in_memory.then(|| anonymous(self.plan.bytes)).transpose()?;
        let read = |scratch: &mut Vec<u8>, (piece, place): (&Piece, Option<&mut [u8]>)| {
            self.cancel.check()?;
            let out = place.unwrap_or_else(|| {
                scratch.resize(piece.len(), 0);
                scratch
            });
            let found = cache::read(&existing.file, out, piece.range.start);
            found.map_err(|io| Failure::Cache(format!("it cannot be read ({io})")))?;
            Ok(xxh3_64(out))
        };
        let pieces = self.plan.pieces.par_iter().zip(self.places(memory.as_deref_mut()));
        let hashes = pieces.map_init(Vec::new, read).collect::<Result<Vec<_>, Failure>>()?;
        verify(existing, &hashes)?;
        self.store(memory, &existing.file, cache, hashes)
    }

    /// Packs into a new cache file; also says why it is not kept, if so.
    fn build(&self, cache: &Cache) -> Result<(Loaded, Result<(), String>), Failure> {
        let mut memory = self.in_memory.then(|| anonymous(self.plan.bytes)).transpose()?;
        let mut draft = cache.create().map_err(|io| Failure::Cache(io.to_string()))?;
        let hashes = self.pack(memory.as_deref_mut(), Some(&draft))?;
        // A load that is cancelled leaves no cache, also where all pieces were under way by then.
        self.cancel.check()?;
        let content = combine(hashes.iter().map(|&(model, _)| model));
        let image: Vec<u64> = hashes.into_iter().map(|(_, image)| image).collect();
        let kept = cache.finish(&mut draft, content, combine(image.iter().copied()));
        let store = self.store(memory, &draft.file, cache, image)?;
        Ok((Loaded { store, repacked: self.plan.bytes }, kept))
    }

    /// Packs into memory alone.
    #[expect(clippy::unreachable, reason = "only writing to a cache fails for the cache's sake")]
    fn without_cache(&self) -> Result<Loaded, WeightError> {
        let mut memory = anonymous(self.plan.bytes)?;
        match self.pack(Some(&mut memory), None) {
            Ok(_) => Ok(Loaded { store: Store::sealed(memory)?, repacked: self.plan.bytes }),
            Err(Failure::Weights(error)) => Err(error),
            Err(Failure::Cache(_)) => unreachable!("there is none"),
        }
    }

    /// Packs all pieces into memory, into a draft, or both. For the draft it gives the hashes of what each
    /// piece was made of and of what it became.
    fn pack(
        &self,
        memory: Option<&mut [u8]>,
        draft: Option<&UnfinishedFile<'_>>,
    ) -> Result<Vec<(u64, u64)>, Failure> {
        let progress = self.start();
        let pack = |scratch: &mut Scratch, (piece, place): (&Piece, Option<&mut [u8]>)| {
            self.cancel.check()?;
            self.plan.read(piece, &mut scratch.model)?;
            let out = place.unwrap_or_else(|| {
                scratch.packed.resize(piece.len(), 0);
                &mut scratch.packed
            });
            self.plan.pack(piece, &scratch.model, out)?;
            let mut hashes = (0, 0);
            if let Some(draft) = draft {
                let written = cache::write(draft, out, piece.range.start);
                written.map_err(|io| Failure::Cache(io.to_string()))?;
                hashes = (xxh3_64(&scratch.model), xxh3_64(out));
            }
            progress.add(piece);
            Ok(hashes)
        };
        self.plan.pieces.par_iter().zip(self.places(memory)).map_init(Scratch::default, pack).collect()
    }

    /// Hash of all tensor data that the image is made from.
    fn hash_sources(&self) -> Result<u64, WeightError> {
        let progress = self.start();
        let hash = |data: &mut Vec<u8>, piece: &Piece| {
            self.cancel.check()?;
            self.plan.read(piece, data)?;
            progress.add(piece);
            Ok(xxh3_64(data))
        };
        let hashes: Result<Vec<_>, WeightError> =
            self.plan.pieces.par_iter().map_init(Vec::new, hash).collect();
        Ok(combine(hashes?))
    }

    /// The place of every piece in `memory`, if there is any.
    fn places<'m>(&self, memory: Option<&'m mut [u8]>) -> Vec<Option<&'m mut [u8]>> {
        let mut rest = memory;
        let place = |piece: &Piece| {
            let (place, after) = rest.take()?.split_at_mut(piece.len());
            rest = Some(after);
            Some(place)
        };
        self.plan.pieces.iter().map(place).collect()
    }

    /// The image: the memory that it is in, or else its file.
    fn store(
        &self,
        memory: Option<MmapMut>,
        file: &File,
        cache: &Cache,
        hashes: Vec<u64>,
    ) -> Result<Store, Failure> {
        if let Some(memory) = memory {
            return Ok(Store::sealed(memory)?);
        }
        let file = self.in_file(file, cache, hashes).map_err(|io| Failure::Cache(io.to_string()))?;
        Ok(Store::File(file))
    }

    fn in_file(&self, file: &File, cache: &Cache, hashes: Vec<u64>) -> io::Result<FileStore> {
        let ranges = self.plan.pieces.iter().map(|piece| piece.range.clone());
        let (file, path) = (file.try_clone()?, cache.path.clone());
        Ok(FileStore { file, path, pieces: ranges.zip(hashes).collect() })
    }
}
