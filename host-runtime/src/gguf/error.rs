//! What can be wrong with a model file. Each message is one line: the file, the cause, the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::limits::{MAX_ALIGNMENT, MAX_DIMS, MIN_ALIGNMENT};
use super::types::GgmlType;
use super::value::Kind;

/// A file that could not be opened or does not hold what the caller needs.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", Clean(&path.to_string_lossy()))]
pub struct GgufError {
    /// The file at fault; of a split model, the shard.
    pub path: PathBuf,
    /// What is wrong with it. Boxed to keep `Result`s of accessors small.
    pub cause: Box<Cause>,
}

impl GgufError {
    pub(crate) fn new(path: &Path, cause: Cause) -> Self {
        Self { path: path.to_owned(), cause: Box::new(cause) }
    }
}

/// Part of a file that a message speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// Magic, version and counts.
    Header,
    /// Name of the key-value pair at this position.
    KeyName(u64),
    /// Value of this key.
    Key(String),
    /// One element of this key's array.
    Element(String, u64),
    /// Name of the tensor at this position.
    TensorName(u64),
    /// Description or data of this tensor.
    Tensor(String),
}

impl fmt::Display for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilePart::Header => f.write_str("the header"),
            FilePart::KeyName(n) => write!(f, "the name of key {n}"),
            FilePart::Key(key) => write!(f, "key {}", Clean(key)),
            FilePart::Element(key, n) => write!(f, "element {n} of key {}", Clean(key)),
            FilePart::TensorName(n) => write!(f, "the name of tensor {n}"),
            FilePart::Tensor(name) => write!(f, "tensor {}", Clean(name)),
        }
    }
}

/// What a file that is not a GGUF seems to be, judged by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookalike {
    /// The text stub that stands for a file kept in Git LFS.
    GitLfsPointer,
    /// A web page, typically a login or error page saved under the model's name.
    WebPage,
    /// A zip archive, the container of PyTorch checkpoints.
    Zip,
    /// A model of the formats before GGUF.
    OldGgml,
    /// A safetensors file: a length, then JSON.
    Safetensors,
    /// Zeros only: space that was reserved and never filled.
    Zeros,
    /// Nothing known.
    Unknown,
}

impl Lookalike {
    /// Guesses from the first bytes of a file.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let head = &bytes[..bytes.len().min(64)];
        let text = head.trim_ascii_start();
        match head {
            _ if head.starts_with(b"version https://git-lfs") => Lookalike::GitLfsPointer,
            _ if text.starts_with(b"<!") || text.starts_with(b"<html") => Lookalike::WebPage,
            _ if head.starts_with(b"PK\x03\x04") => Lookalike::Zip,
            _ if [b"lmgg", b"fmgg", b"tjgg", b"algg"].iter().any(|m| head.starts_with(*m)) => {
                Lookalike::OldGgml
            }
            _ if head.get(8..10) == Some(b"{\"") => Lookalike::Safetensors,
            _ if head.iter().all(|&b| b == 0) => Lookalike::Zeros,
            _ => Lookalike::Unknown,
        }
    }
}

impl fmt::Display for Lookalike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lookalike::GitLfsPointer => "it is a Git LFS pointer; run `git lfs pull` where it came from",
            Lookalike::WebPage => "it is a web page, not a model; download the model file itself",
            Lookalike::Zip => "it is a zip archive, perhaps a PyTorch checkpoint; convert it to GGUF",
            Lookalike::OldGgml => "it is of a format older than GGUF; convert the original model to GGUF",
            Lookalike::Safetensors => "it is a safetensors file; convert it to GGUF",
            Lookalike::Zeros => "it begins with zeros, an unfinished download; download it again",
            Lookalike::Unknown => "it does not begin with GGUF; check the path or download it again",
        })
    }
}

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages are the documentation.
pub enum Cause {
    // The file itself.
    #[error("no such file; check the path")]
    NotFound,
    #[error("is a directory; name a .gguf file in it")]
    IsDirectory,
    #[error("is not a regular file; copy the model to a file on disk")]
    NotRegular,
    #[error("cannot be read: {io}; check its permissions and the disk")]
    Io { io: io::Error },
    #[error("empty file; download it again")]
    Empty,
    #[error("not a GGUF file: {looks}")]
    NotGguf { looks: Lookalike },
    #[error("big-endian GGUF (version {version}); use a little-endian file of this model")]
    BigEndian { version: u32 },
    #[error("unsupported GGUF version {version}; convert the model to version 2 or 3")]
    UnsupportedVersion { version: u32 },

    // Counts and lengths.
    #[error(
        "tensor {} can no longer be read whole, because the file has become shorter since it was opened; \
         let whatever writes it finish, then start again",
        Clean(name)
    )]
    Shortened { name: String },
    #[error("truncated: {place} ends at byte {end} but the file has {len}; download it again")]
    Truncated { place: FilePart, end: u64, len: u64 },
    #[error(
        "truncated or corrupt: {count} {what} cannot fit in the {left} bytes that follow; download it again"
    )]
    CountBeyondFile { what: &'static str, count: u64, left: u64 },
    #[error("too many {what}: {count}, at most {limit} are supported; download it again or use another file")]
    TooMany { what: &'static str, count: u64, limit: u64 },
    #[error("corrupt: {place} is {len} bytes long, at most {limit} are supported; download it again")]
    StringTooLong { place: FilePart, len: u64, limit: u64 },
    #[error(
        "corrupt: key {} has {len} elements, at most {limit} are supported; download it again",
        Clean(key)
    )]
    ArrayTooLong { key: String, len: u64, limit: u64 },

    // Names and values.
    #[error("corrupt: {place} is empty; download it again or convert the model again")]
    EmptyName { place: FilePart },
    #[error("corrupt: {place} is not valid UTF-8 (byte {at} of it); download it again")]
    InvalidUtf8 { place: FilePart, at: usize },
    #[error("corrupt: key {} occurs twice; convert the model again", Clean(key))]
    DuplicateKey { key: String },
    #[error("key {} has unknown value type {id}; download it again or update hexflash", Clean(key))]
    UnknownValueType { key: String, id: u32 },
    #[error("corrupt: {place} is a bool stored as {byte}, not 0 or 1; download it again")]
    BadBool { place: FilePart, byte: u8 },
    #[error("key {} is an array of arrays, which is not supported; convert the model without it", Clean(key))]
    NestedArray { key: String },
    #[error(
        "general.alignment is {value}, not a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}; \
         convert the model again"
    )]
    BadAlignment { value: u64 },

    // Tensors.
    #[error("corrupt: tensor {} has {n} dimensions, not 1 to {MAX_DIMS}; download it again", Clean(name))]
    BadDimCount { name: String, n: u32 },
    #[error("corrupt: tensor {} has zero elements along ne{dim}; download it again", Clean(name))]
    ZeroDim { name: String, dim: usize },
    #[error("corrupt: the size of tensor {} {ne:?} overflows; download it again", Clean(name))]
    SizeOverflow { name: String, ne: [u64; 4] },
    #[error("tensor {} has {}; {}", Clean(name), TypeId(*id), TypeRemedy(*id))]
    UnknownTensorType { name: String, id: u32 },
    #[error(
        "corrupt: tensor {} has rows of {ne0} values, not whole {ggml_type} blocks of {}; \
         convert the model again",
        Clean(name), ggml_type.block_len()
    )]
    PartialBlock { name: String, ne0: u64, ggml_type: GgmlType },
    #[error(
        "corrupt: tensor {} begins at offset {offset}, not a multiple of {alignment}; \
         convert the model again",
        Clean(name)
    )]
    Misaligned { name: String, offset: u64, alignment: u64 },
    #[error(
        "tensor {} has {found} bytes of {ggml_type}{}, where llama.cpp's {ggml_type} takes {expected}: the \
         file is corrupt or made for a fork of llama.cpp; use one made for llama.cpp, or convert the \
         original with llama-quantize to Q4_K_M or Q8_0",
        Clean(name), ForkBlock(*block_len)
    )]
    LayoutOfFork { name: String, ggml_type: GgmlType, found: u64, expected: u64, block_len: Option<u64> },
    #[error("corrupt: tensors {} and {} overlap; download it again", Clean(first), Clean(second))]
    Overlap { first: String, second: String },
    #[error("corrupt: tensor {} occurs twice; convert the model again", Clean(name))]
    DuplicateTensor { name: String },
    #[error(
        "tensor {} is also in {}; delete the shards and download them all again",
        Clean(name), Clean(&other.to_string_lossy())
    )]
    TensorInTwoShards { name: String, other: PathBuf },

    // What the caller asked for.
    #[error("missing key {}; convert the model again with a current converter", Clean(key))]
    MissingKey { key: String },
    #[error("key {} should be {expected} but is {found}; convert the model again", Clean(key))]
    WrongType { key: String, expected: &'static str, found: Kind },
    #[error("{place} is {value}, which does not fit {expected}; convert the model again")]
    OutOfRange { place: FilePart, expected: &'static str, value: i128 },
    #[error("key {} has {found} elements, not {expected}; convert the model again", Clean(key))]
    WrongLength { key: String, expected: usize, found: usize },
    #[error("missing tensor {}; download it again or use a complete model", Clean(name))]
    MissingTensor { name: String },

    // Split models.
    #[error("is shard {} of {count}; open {} instead", u64::from(*no) + 1, Clean(first))]
    NotFirstShard { no: u32, count: u32, first: String },
    #[error("{} of {count} shards missing: {}; download them beside it", missing.len(), List(missing))]
    MissingShards { count: u32, missing: Vec<String> },
    #[error(
        "is the first of {count} shards but its name does not end in {suffix}; give it its original name"
    )]
    ShardName { count: u32, suffix: String },
    #[error(
        "{key} is {found} where the split needs {expected}; delete the shards and download them all again"
    )]
    ShardMismatch { key: &'static str, expected: u64, found: u64 },
}

/// Longest name quoted whole, in characters; hostile names run to kilobytes.
const QUOTED_CHARS: usize = 200;

/// Whether a character does something to a line of text rather than being seen in it: controls, line and
/// paragraph separators, and marks that change the direction of what follows.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Text from a file or path, kept to one line: control characters escaped, long text cut.
pub struct Clean<'a>(pub &'a str);

impl fmt::Display for Clean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(QUOTED_CHARS) {
            if acts(c) { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        if chars.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// A tensor type number, with its old name if ggml removed it.
struct TypeId(u32);

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match GgmlType::removed_name(self.0) {
            Some(name) => write!(f, "type {} ({name}), which ggml has removed", self.0),
            None => write!(f, "unknown type {}", self.0),
        }
    }
}

/// The blocks of a fork's layout, where they are known by their size.
struct ForkBlock(Option<u64>);

impl fmt::Display for ForkBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |len| write!(f, " in blocks of {len}"))
    }
}

/// What to do about a tensor type that is not known.
struct TypeRemedy(u32);

impl fmt::Display for TypeRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match GgmlType::removed_name(self.0) {
            Some(_) => "use a newer conversion of this model",
            // Forks number types of their own from where ggml's end.
            None => {
                "update hexflash, or, if the file is for a fork of llama.cpp, convert the original with \
                     llama-quantize to Q4_K_M or Q8_0"
            }
        })
    }
}

/// File names joined by commas; only the first few, since a split can have hundreds.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, Clean(name))?;
        }
        if self.0.len() > SHOWN { write!(f, " and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}
