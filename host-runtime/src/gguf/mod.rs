//! GGUF model files: reading with every claim checked, and writing.
//!
//! [`Gguf::open`] reads the header of a file (and of the other shards of a split model), verifies its whole
//! structure once, and hands out [`Metadata`] and the bytes of tensors, which it reads when they are asked
//! for. Opening costs one pass over the header, some 20 ms for a vocabulary of a quarter million.
//!
//! A file is not trusted: see [`limits`] for what it may claim. Nor is it trusted to stay as it is: nothing
//! is mapped, so a file that becomes shorter while it is read is an error, and what was read does not change.

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
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use crate::positioned;

pub use error::{Cause, Clean, FilePart, GgufError, Lookalike, acts};
pub use meta::Metadata;
pub use shards::ShardName;
pub use tensor::TensorInfo;
pub use types::GgmlType;
pub use value::{Array, Kind, StringArray, Value, ValueType};

/// An open model: metadata and tensors of a GGUF file, or of all shards of a split one.
///
/// The files stay open while this lives. Renaming another model over one of them changes nothing here. Who
/// writes to them in place may mix old and new data; who shortens them causes [`Cause::Shortened`].
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
    file: File,
    /// Hash of all that precedes the tensors' data.
    header: u128,
}

/// Bytes of a file that are read before it is known how long its header is: enough for a small vocabulary.
const FIRST_READ: u64 = 1 << 20;
/// How much more is read if that was not enough, for parsing begins again: the second read has most of those
/// that are.
const MORE: u64 = 16;

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
        if let Some(split) = shards::ShardInfo::of(&model.meta)? {
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

    /// Reads a tensor's bytes: `ne[3] * ne[2] * ne[1]` rows of [`TensorInfo::row_bytes`], `size` bytes in
    /// all.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    ///
    /// # Panics
    /// If `tensor` comes from another model with more shards.
    pub fn data(&self, tensor: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        // No more than the file had when it was opened.
        let mut data = vec![0; tensor.size as usize];
        self.read(tensor, 0, &mut data)?;
        Ok(data)
    }

    /// Reads bytes of a tensor from byte `at` of it on.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    ///
    /// # Panics
    /// As [`data`](Self::data), or if the tensor has fewer bytes.
    pub(crate) fn read(&self, tensor: &TensorInfo, at: u64, out: &mut [u8]) -> Result<(), GgufError> {
        assert!(at <= tensor.size && out.len() as u64 <= tensor.size - at);
        let Shard { path, file, .. } = &self.shards[tensor.shard];
        positioned::read_exact_at(file, out, tensor.offset + at).map_err(|io| {
            let cause = match io.kind() {
                io::ErrorKind::UnexpectedEof => Cause::Shortened { name: tensor.name.clone() },
                _ => Cause::Io { io },
            };
            GgufError::new(path, cause)
        })
    }

    /// The hash of each file's header, metadata and tensor table, as they were read.
    pub(crate) fn headers(&self) -> impl Iterator<Item = u128> {
        self.shards.iter().map(|shard| shard.header)
    }

    /// What the system says of each open file, whatever its name may lead to by now.
    pub(crate) fn attributes(&self) -> io::Result<Vec<fs::Metadata>> {
        self.shards.iter().map(|shard| shard.file.metadata()).collect()
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

/// Opens and parses one file, which is to have index `shard`.
fn open_shard(path: &Path, shard: usize) -> Result<(Shard, reader::Parsed), GgufError> {
    let cause = |cause| GgufError::new(path, cause);
    let (mut file, len) = open_file(path).map_err(cause)?;
    let mut head = Vec::new();
    loop {
        let want = len.min(FIRST_READ.max(MORE * head.len() as u64));
        let more = (&mut file).take(want - head.len() as u64).read_to_end(&mut head);
        more.map_err(|io| cause(Cause::Io { io }))?;
        // A file that became shorter meanwhile is judged by what is left of it.
        let len = if (head.len() as u64) < want { head.len() as u64 } else { len };
        match reader::parse(&head, len, path, shard) {
            Ok(parsed) => {
                let header = xxh3_128(&head[..parsed.header_bytes]);
                return Ok((Shard { path: path.to_owned(), file, header }, parsed));
            }
            Err(reader::Stop::Beyond) => {}
            Err(reader::Stop::Bad(bad)) => return Err(cause(bad)),
        }
    }
}

/// An open file, and its length.
fn open_file(path: &Path) -> Result<(File, u64), Cause> {
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
    let file = File::open(path).map_err(cannot)?;
    match file.metadata().map_err(cannot)?.len() {
        0 => Err(Cause::Empty),
        len => Ok((file, len)),
    }
}
