//! All weights of a model in one block of memory, in the form the device reads.
//!
//! [`WeightImage::load`] maps the image from the cache, or packs it: strips in parallel, each from the mapped model
//! straight into its place in the new cache file (or in anonymous memory), so that no second copy of the model
//! exists. When a cache is built, the model's bytes and the packed bytes are hashed while they are hot.
//!
//! What a start checks. A cache is reused if its header is whole, is of this version, of this model's header,
//! metadata and tensor table and of these specs, and if the model's files have the length and times that they had.
//! Where only the times differ (the file was copied or touched), the tensor data is hashed, and the cache is reused
//! if the hash is the one it was built from. On Unix the times include that of the last inode change, so that content
//! edited in place with its modification time set back is noticed; elsewhere it is not.
//!
//! What a start does not check: the cache's own data. Hashing gigabytes would cost more than the mapping saves. Bit
//! rot, or data lost in a power failure, is found by [`WeightImage::verify`] alone.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Mmap, MmapMut};
use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::cache::{Cache, Found};
use super::error::WeightError;
use super::plan::{Piece, Plan, WeightEntry, WeightSpec};
use super::threads;
use crate::cancel::Cancel;
use crate::gguf::Gguf;

/// Where the repacked weights are kept between runs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CachePolicy {
    /// In `<model file>.hfcache`, beside the model.
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
    /// Called with bytes done and bytes in all, from several threads, so not always in order. Checking a cache against
    /// a touched model counts too; if it fails, counting starts again. Not called when a cache is reused at once.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Ends the load within the time that a piece of a weight takes; what was begun on disk is removed.
    pub cancel: Cancel,
}

impl Default for ImageOptions<'_> {
    fn default() -> Self {
        Self { cache: CachePolicy::default(), progress: &|_, _| {}, cancel: Cancel::default() }
    }
}

/// The weights of a model. Cheap to clone; the memory lives as long as any clone.
///
/// The memory is read-only and starts at a page. Mapped from a cache, it is the cache file's: that must not be
/// modified or truncated meanwhile (replacing or deleting it is safe), as for [`Gguf`].
#[derive(Clone)]
pub struct WeightImage {
    inner: Arc<Inner>,
}

struct Inner {
    memory: Mmap,
    bytes: u64,
    entries: HashMap<String, WeightEntry>,
    notes: Vec<String>,
    warnings: Vec<String>,
    repacked: u64,
    /// The cache behind the memory, and the hash that its image should have.
    cache: Option<(PathBuf, u64)>,
}

/// An image in memory, and where it came from.
struct Loaded {
    memory: Mmap,
    repacked: u64,
    cache: Option<(PathBuf, u64)>,
}

impl WeightImage {
    /// Packs the weights that `specs` ask for, or maps them from the cache, in the order of `specs`.
    ///
    /// A cache that is stale is rebuilt; one that cannot be used or written is done without. [`notes`](Self::notes)
    /// says what happened; neither is an error.
    ///
    /// # Errors
    /// Tensors that are missing, of unsupported type or do not fit together; no memory; [`WeightError::Cancelled`].
    pub fn load(
        gguf: &Gguf,
        specs: &[WeightSpec],
        options: &ImageOptions<'_>,
    ) -> Result<WeightImage, WeightError> {
        threads::start()?;
        let plan = Plan::new(gguf, specs)?;
        let entries = plan.entries(specs)?;
        let mut loader = Loader {
            plan: &plan,
            progress: options.progress,
            cancel: &options.cancel,
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        let cache = Cache::of(gguf, specs, plan.bytes, &options.cache).unwrap_or_else(|io| {
            loader.warn(format!("no weight cache: {io}; weights stay in memory"));
            None
        });
        let cached = cache.and_then(|cache| loader.through(&cache));
        let Loaded { memory, repacked, cache } = cached.map_or_else(|| loader.in_memory(), Ok)?;
        options.cancel.check()?;
        let (notes, warnings) = (loader.notes, loader.warnings);
        let inner = Inner { memory, bytes: plan.bytes, entries, notes, warnings, repacked, cache };
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

    /// The image: [`bytes`](Self::bytes) bytes from the start of a page.
    pub fn memory(&self) -> &[u8] {
        &self.inner.memory[..self.inner.bytes as usize]
    }

    /// The bytes of one weight.
    pub fn data(&self, entry: &WeightEntry) -> &[u8] {
        &self.memory()[entry.offset as usize..][..entry.bytes as usize]
    }

    /// Bytes of the image.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// What happened with the cache, for the user to read: a line each.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// Those of the notes that tell of more than the usual course: a cache that was rebuilt or could not be used.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Bytes that were packed by this load: 0 if a cache was reused.
    pub fn repacked_bytes(&self) -> u64 {
        self.inner.repacked
    }

    /// Reads a mapped cache completely and compares it with the hash taken when it was built. Takes as long as
    /// reading the file does; an image that is not mapped from a cache is good by construction.
    ///
    /// # Errors
    /// [`WeightError::Damaged`].
    pub fn verify(&self) -> Result<(), WeightError> {
        let Some((path, expected)) = &self.inner.cache else { return Ok(()) };
        let mut entries: Vec<_> = self.inner.entries.values().collect();
        entries.sort_by_key(|entry| entry.offset);
        let pieces: Vec<_> = entries.into_iter().flat_map(WeightEntry::pieces).collect();
        let hash =
            |piece: &std::ops::Range<u64>| xxh3_64(&self.memory()[piece.start as usize..piece.end as usize]);
        let hashes: Vec<u64> = pieces.par_iter().map(hash).collect();
        if combine(hashes) == *expected { Ok(()) } else { Err(WeightError::Damaged { path: path.clone() }) }
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
    hashes.into_iter().for_each(|hash| hasher.write(&hash.to_le_bytes()));
    hasher.finish()
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

/// One load: the plan, and what is said about it.
struct Loader<'a> {
    plan: &'a Plan<'a>,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    cancel: &'a Cancel,
    notes: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> Loader<'a> {
    fn note(&mut self, note: String) {
        tracing::info!("{note}");
        self.notes.push(note);
    }

    /// A note that users should see: who asked for the weights shows it.
    fn warn(&mut self, note: String) {
        self.warnings.push(note.clone());
        self.notes.push(note);
    }

    fn start(&self) -> Progress<'a> {
        let total = self.plan.pieces.iter().map(|piece| piece.len() as u64).sum();
        Progress { done: AtomicU64::new(0), total, report: self.progress }
    }

    /// The image from the cache or through a new one; `None`, with a note, if there can be none.
    fn through(&mut self, cache: &Cache) -> Option<Loaded> {
        let shown = cache.path.display();
        let stale = match cache.find() {
            Found::Nothing => None,
            Found::Stale(why) => Some(why.to_owned()),
            Found::Foreign(why) => {
                self.warn(format!(
                    "{shown} is left alone because {why}; weights stay in memory (move it, or cache elsewhere)"
                ));
                return None;
            }
            Found::Fresh(existing) => match cache.map(&existing) {
                Ok(memory) => {
                    self.note(format!("weight cache {shown} reused"));
                    return Some(reused(memory, cache, existing.header.image));
                }
                Err(io) => Some(format!("it cannot be mapped ({io})")),
            },
            Found::Touched(existing) if self.hash_sources() != existing.header.content => {
                Some("the model has changed".to_owned())
            }
            Found::Touched(existing) => match cache.map(&existing) {
                Ok(memory) => {
                    let renewed = match cache.renew(&existing) {
                        Ok(()) => "its time stamp was renewed".to_owned(),
                        Err(io) => format!("its time stamp cannot be renewed ({io})"),
                    };
                    self.note(format!(
                        "weight cache {shown} reused: the model's content is the same; {renewed}"
                    ));
                    return Some(reused(memory, cache, existing.header.image));
                }
                Err(io) => Some(format!("it cannot be mapped ({io})")),
            },
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
                Some(loaded)
            }
            Err(io) => {
                self.warn(format!("weight cache {shown} cannot be written: {io}; weights stay in memory"));
                None
            }
        }
    }

    /// Packs into a new cache file.
    fn build(&self, cache: &Cache) -> io::Result<(Loaded, Result<(), String>)> {
        let draft = cache.create()?;
        let progress = self.start();
        let pack = |buffer: &mut Vec<u8>, piece: &Piece| {
            // Nobody sees this error: the caller finds the flag set, too.
            self.cancel.check().map_err(io::Error::other)?;
            buffer.resize(piece.len(), 0);
            // Hashed first: it brings the rows into the cache, where packing finds them.
            let source = self.plan.hash_source(piece);
            self.plan.pack(piece, buffer).map_err(io::Error::other)?;
            draft.write(buffer, piece.range.start)?;
            progress.add(piece);
            Ok((source, xxh3_64(buffer)))
        };
        let hashes = self.plan.pieces.par_iter().map_init(Vec::new, pack).collect::<io::Result<Vec<_>>>()?;
        // A load that is cancelled leaves no cache, also where all pieces were under way by then.
        self.cancel.check().map_err(io::Error::other)?;
        let content = combine(hashes.iter().map(|&(source, _)| source));
        let image = combine(hashes.iter().map(|&(_, image)| image));
        let (memory, kept) = cache.finish(draft, content, image)?;
        let cache = Some((cache.path.clone(), image));
        Ok((Loaded { memory, repacked: progress.total, cache }, kept))
    }

    /// Hash of all tensor data that the image is made from.
    fn hash_sources(&self) -> u64 {
        let progress = self.start();
        let hash = |piece: &Piece| {
            // The caller finds the flag set, too, and uses neither the hash nor the cache.
            if self.cancel.is_cancelled() {
                return 0;
            }
            let hash = self.plan.hash_source(piece);
            progress.add(piece);
            hash
        };
        combine(self.plan.pieces.par_iter().map(hash).collect::<Vec<_>>())
    }

    /// Packs into anonymous memory.
    fn in_memory(&self) -> Result<Loaded, WeightError> {
        let no_memory = |io| WeightError::Memory { bytes: self.plan.bytes, io };
        let mut map = MmapMut::map_anon(self.plan.bytes as usize).map_err(no_memory)?;
        // Fewer page faults while packing, fewer misses afterwards. A hint, so failure does not matter.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);

        let progress = self.start();
        let mut places = Vec::with_capacity(self.plan.pieces.len());
        let (mut rest, mut at) = (&mut map[..], 0);
        for piece in &self.plan.pieces {
            let (_padding, from) = rest.split_at_mut((piece.range.start - at) as usize);
            let (place, after) = from.split_at_mut(piece.len());
            places.push(place);
            (rest, at) = (after, piece.range.end);
        }
        self.plan.pieces.par_iter().zip(places).try_for_each(|(piece, place)| {
            self.cancel.check()?;
            self.plan.pack(piece, place)?;
            progress.add(piece);
            Ok::<_, WeightError>(())
        })?;
        let memory = map.make_read_only().map_err(no_memory)?;
        Ok(Loaded { memory, repacked: progress.total, cache: None })
    }
}

fn reused(memory: Mmap, cache: &Cache, image: u64) -> Loaded {
    Loaded { memory, repacked: 0, cache: Some((cache.path.clone(), image)) }
}
