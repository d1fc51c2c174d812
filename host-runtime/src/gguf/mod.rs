//! GGUF model files: reading with every claim checked, and writing.
//!
//! [`Gguf::open`] maps a file (and the other shards of a split model), verifies its whole structure once, and
//! hands out [`Metadata`] and tensor bytes that need no further checks. Nothing is copied but the metadata.
//! Opening costs one pass over the header, some 20 ms for a vocabulary of a quarter million; data pages are
//! read by the kernel on first touch.
//!
//! A file is not trusted: see [`limits`] for what it may claim. It is trusted not to change while it is open,
//! since no check survives that; see [`Gguf`].

mod error;
pub mod limits;
mod meta;
mod reader;
mod shards;
mod tensor;
#[cfg(test)]
mod tests;
mod types;
mod value;
pub mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

pub(crate) use error::Clean;
pub use error::{Cause, GgufError, Lookalike, Place};
pub use meta::Metadata;
pub use tensor::TensorInfo;
pub use types::GgmlType;
pub use value::{Array, Kind, StringArray, Value, ValueType};

/// An open model: metadata and tensors of a GGUF file, or of all shards of a split one.
///
/// The files stay mapped while this lives. They must not be modified or truncated meanwhile: touching a page
/// that a shrunken file no longer has ends the process with SIGBUS, which cannot be turned into an error.
/// Replacing a model by renaming another over it is safe.
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    shards: Vec<Shard>,
    meta: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    map: Mmap,
}

impl Gguf {
    /// Opens a model by its file, or by the first file of a split one.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let (shard, parsed) = open_shard(path, 0)?;
        let mut model = Gguf {
            version: parsed.version,
            shards: vec![shard],
            meta: parsed.meta,
            tensors: Vec::new(),
            index: HashMap::new(),
        };
        model.add_tensors(parsed.tensors)?;
        if let Some(split) = shards::Split::of(&model.meta)? {
            for (path, no) in split.siblings(path)?.iter().zip(1..) {
                let (shard, parsed) = open_shard(path, model.shards.len())?;
                split.check_member(&parsed.meta, path, no)?;
                model.shards.push(shard);
                model.add_tensors(parsed.tensors)?;
            }
            split.check_tensor_count(path, model.tensors.len())?;
        }
        Ok(model)
    }

    /// The file that was opened; of a split model, its first.
    pub fn path(&self) -> &Path {
        &self.shards[0].path
    }

    /// All files of the model, indexed by [`TensorInfo::shard`].
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|s| s.path.as_path())
    }

    /// GGUF version of the first file, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The model's metadata; of a split model, that of its first file.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The tensor of this name, which must be there.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        let missing = || GgufError::new(self.path(), Cause::MissingTensor { name: name.to_owned() });
        self.tensor(name).ok_or_else(missing)
    }

    /// A tensor's bytes: `ne[3] * ne[2] * ne[1]` rows of [`TensorInfo::row_bytes`], `size` bytes in all.
    ///
    /// # Panics
    ///
    /// May panic if `tensor` comes from another model.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        // The casts are exact: `reader::parse` proved that the extent lies inside this mapping.
        &self.shards[tensor.shard].map[tensor.offset as usize..][..tensor.size as usize]
    }

    /// Adds the tensors of the shard opened last, refusing names that are there already.
    fn add_tensors(&mut self, tensors: Vec<TensorInfo>) -> Result<(), GgufError> {
        for t in tensors {
            if let Some(&i) = self.index.get(&t.name) {
                let other = self.tensors[i].shard;
                let cause = if other == t.shard {
                    Cause::DuplicateTensor { name: t.name }
                } else {
                    Cause::TensorInTwoShards { name: t.name, other: self.shards[other].path.clone() }
                };
                return Err(GgufError::new(&self.shards[t.shard].path, cause));
            }
            self.index.insert(t.name.clone(), self.tensors.len());
            self.tensors.push(t);
        }
        Ok(())
    }
}

/// Maps and parses one file, which is to have index `shard`.
fn open_shard(path: &Path, shard: usize) -> Result<(Shard, reader::Parsed), GgufError> {
    let map = map_file(path).map_err(|cause| GgufError::new(path, cause))?;
    let parsed = reader::parse(&map, path, shard).map_err(|cause| GgufError::new(path, cause))?;
    Ok((Shard { path: path.to_owned(), map }, parsed))
}

fn map_file(path: &Path) -> Result<Mmap, Cause> {
    let cannot = |io: io::Error| match io.kind() {
        io::ErrorKind::NotFound => Cause::NotFound,
        _ => Cause::Io { io },
    };
    // Asked before opening: opening a pipe would wait for its writer.
    let about = path.metadata().map_err(cannot)?;
    if about.is_dir() {
        return Err(Cause::IsDirectory);
    }
    if !about.is_file() {
        return Err(Cause::NotRegular);
    }
    if about.len() == 0 {
        return Err(Cause::Empty);
    }
    let file = File::open(path).map_err(cannot)?;
    // SAFETY: the mapping is read-only and private to this module, which hands out shared slices bounded by
    // its length. That the file neither changes nor shrinks while mapped cannot be enforced; it is required
    // of the user (see `Gguf`), as by every program that maps its models, because copying gigabytes is the
    // worse choice.
    unsafe { Mmap::map(&file) }.map_err(cannot)
}
