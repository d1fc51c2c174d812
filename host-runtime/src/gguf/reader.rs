//! Parsing of one file's header, metadata and tensor table.
//!
//! Layout, all little-endian: magic `GGUF`, version u32, tensor count u64, key count u64; then the key-value
//! pairs; then the tensor table; then, at the next multiple of the alignment, the data. Strings are a u64
//! length and bytes.

use std::path::Path;

use super::error::{Cause, FilePart, Lookalike};
use super::limits::*;
use super::meta::Metadata;
use super::tensor::{self, TensorInfo};
use super::types::GgmlType;
use super::value::{Array, StringArray, Value, ValueType};

/// First four bytes of every file.
pub(super) const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of tensor data in bytes, where it is not the default.
pub(super) const KEY_ALIGNMENT: &str = "general.alignment";

/// Versions with 64-bit lengths. Version 3 only added big-endian files; version 1 had 32-bit lengths.
pub(super) const VERSIONS: [u32; 2] = [2, 3];

/// Everything a file says before its data, verified against the file's length.
pub(super) struct Parsed {
    pub version: u32,
    pub meta: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// Bytes that all of this took.
    pub header_bytes: usize,
}

/// Why parsing ended early.
pub(super) enum Stop {
    /// The file goes on beyond the bytes at hand, and so does its header.
    Beyond,
    /// The file is bad.
    Bad(Cause),
}

/// Parses and verifies a file of `len` bytes by its first bytes. Every tensor returned lies inside the file
/// and overlaps no other.
pub(super) fn parse(bytes: &[u8], len: u64, path: &Path, shard: usize) -> Result<Parsed, Stop> {
    let mut cursor = Cursor { bytes, len, pos: 0, beyond: false };
    parse_all(&mut cursor, path, shard)
        .map_err(|cause| if cursor.beyond { Stop::Beyond } else { Stop::Bad(cause) })
}

fn parse_all(cursor: &mut Cursor<'_>, path: &Path, shard: usize) -> Result<Parsed, Cause> {
    let version = read_version(cursor)?;
    let header = || FilePart::Header;
    let tensor_count = cursor.u64(header)?;
    let key_count = cursor.u64(header)?;
    check_count("tensors", tensor_count, MAX_TENSORS, MIN_TENSOR_BYTES, cursor)?;
    check_count("keys", key_count, MAX_KEYS, MIN_KEY_BYTES, cursor)?;

    let mut meta = Metadata::new(path);
    for index in 0..key_count {
        let key = cursor.name(MAX_KEY_LEN, || FilePart::KeyName(index))?;
        let value = read_value(cursor, key)?;
        if !meta.insert(key, value) {
            return Err(Cause::DuplicateKey { key: key.to_owned() });
        }
    }

    let mut tensors = Vec::new();
    for index in 0..tensor_count {
        tensors.push(read_tensor(cursor, index, shard)?);
    }
    tensor::place_in_file(&mut tensors, alignment(&meta)?, cursor.pos as u64, cursor.len)?;
    Ok(Parsed { version, meta, tensors, header_bytes: cursor.pos })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Cause> {
    // A file cut inside the magic is truncated, not foreign.
    let head = &cursor.bytes[..cursor.bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(head) {
        return Err(Cause::NotGguf { looks: Lookalike::of(cursor.bytes) });
    }
    cursor.take(MAGIC.len() as u64, || FilePart::Header)?;
    let version = cursor.u32(|| FilePart::Header)?;
    // The magic is the same in big-endian files; a small version read backwards gives them away.
    if (1..=u32::from(u8::MAX)).contains(&version.swap_bytes()) {
        return Err(Cause::BigEndian { version: version.swap_bytes() });
    }
    if !VERSIONS.contains(&version) {
        return Err(Cause::UnsupportedVersion { version });
    }
    Ok(version)
}

/// Refuses a count that is implausible or that the rest of the file cannot hold.
fn check_count(
    what: &'static str,
    count: u64,
    limit: u64,
    least: u64,
    cursor: &Cursor<'_>,
) -> Result<(), Cause> {
    if count > limit {
        return Err(Cause::TooMany { what, count, limit });
    }
    let left = cursor.left();
    // `limit` times `least` is far below 2^64, so this cannot wrap.
    if count * least > left {
        return Err(Cause::CountBeyondFile { what, count, left });
    }
    Ok(())
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, Cause> {
    let place = || FilePart::Key(key.to_owned());
    Ok(match read_type(cursor, key)? {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(place)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(place)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(place)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(place)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(place)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(place)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(place)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(place)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(place)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(place)?)),
        ValueType::Bool => Value::Bool(to_bool(cursor.array::<1>(place)?[0], place)?),
        ValueType::String => Value::String(cursor.string(MAX_STRING_LEN, place)?.to_owned()),
        ValueType::Array => Value::Array(read_array(cursor, key)?),
    })
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, Cause> {
    let id = cursor.u32(|| FilePart::Key(key.to_owned()))?;
    ValueType::from_id(id).ok_or_else(|| Cause::UnknownValueType { key: key.to_owned(), id })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, Cause> {
    let element = read_type(cursor, key)?;
    let len = cursor.u64(|| FilePart::Key(key.to_owned()))?;
    if len > MAX_ARRAY_LEN {
        return Err(Cause::ArrayTooLong { key: key.to_owned(), len, limit: MAX_ARRAY_LEN });
    }
    Ok(match element {
        ValueType::U8 => Array::U8(read_numbers(cursor, key, len, u8::from_le_bytes)?),
        ValueType::I8 => Array::I8(read_numbers(cursor, key, len, i8::from_le_bytes)?),
        ValueType::U16 => Array::U16(read_numbers(cursor, key, len, u16::from_le_bytes)?),
        ValueType::I16 => Array::I16(read_numbers(cursor, key, len, i16::from_le_bytes)?),
        ValueType::U32 => Array::U32(read_numbers(cursor, key, len, u32::from_le_bytes)?),
        ValueType::I32 => Array::I32(read_numbers(cursor, key, len, i32::from_le_bytes)?),
        ValueType::U64 => Array::U64(read_numbers(cursor, key, len, u64::from_le_bytes)?),
        ValueType::I64 => Array::I64(read_numbers(cursor, key, len, i64::from_le_bytes)?),
        ValueType::F32 => Array::F32(read_numbers(cursor, key, len, f32::from_le_bytes)?),
        ValueType::F64 => Array::F64(read_numbers(cursor, key, len, f64::from_le_bytes)?),
        ValueType::Bool => {
            let bytes = cursor.take(len, || FilePart::Key(key.to_owned()))?;
            let element = |i| move || FilePart::Element(key.to_owned(), i);
            let bools = bytes.iter().zip(0..).map(|(&b, i)| to_bool(b, element(i)));
            Array::Bool(bools.collect::<Result<_, _>>()?)
        }
        ValueType::String => Array::String(read_strings(cursor, key, len)?),
        ValueType::Array => return Err(Cause::NestedArray { key: key.to_owned() }),
    })
}

/// Reads `len` numbers of `N` bytes. The bytes are taken before anything is allocated for them.
fn read_numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    key: &str,
    len: u64,
    convert: fn([u8; N]) -> T,
) -> Result<Vec<T>, Cause> {
    // `len` is at most MAX_ARRAY_LEN, so the product cannot wrap.
    let bytes = cursor.take(len * N as u64, || FilePart::Key(key.to_owned()))?;
    let (numbers, _) = bytes.as_chunks::<N>();
    Ok(numbers.iter().map(|&n| convert(n)).collect())
}

fn read_strings(cursor: &mut Cursor<'_>, key: &str, len: u64) -> Result<StringArray, Cause> {
    // Each string takes at least its length prefix; checked first, so the reservation is backed by real
    // bytes.
    const LEAST: u64 = 8;
    if len * LEAST > cursor.left() {
        let end = cursor.pos as u64 + len * LEAST;
        return Err(Cause::Truncated { place: FilePart::Key(key.to_owned()), end, len: cursor.len });
    }
    let mut strings = StringArray::with_capacity(len as usize);
    for i in 0..len {
        strings.push(cursor.string(MAX_STRING_LEN, || FilePart::Element(key.to_owned(), i))?);
    }
    Ok(strings)
}

fn to_bool(byte: u8, place: impl Fn() -> FilePart) -> Result<bool, Cause> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Cause::BadBool { place: place(), byte }),
    }
}

/// Reads one entry of the tensor table. Its `offset` is still relative to the data section.
fn read_tensor(cursor: &mut Cursor<'_>, index: u64, shard: usize) -> Result<TensorInfo, Cause> {
    let name = cursor.name(MAX_TENSOR_NAME_LEN, || FilePart::TensorName(index))?;
    let place = || FilePart::Tensor(name.to_owned());
    let n_dims = cursor.u32(place)?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(Cause::BadDimCount { name: name.to_owned(), n: n_dims });
    }
    let mut ne = [1; MAX_DIMS as usize];
    for (dim, n) in ne.iter_mut().enumerate().take(n_dims as usize) {
        *n = cursor.u64(place)?;
        if *n == 0 {
            return Err(Cause::ZeroDim { name: name.to_owned(), dim });
        }
    }
    let id = cursor.u32(place)?;
    let ggml_type =
        GgmlType::from_id(id).ok_or_else(|| Cause::UnknownTensorType { name: name.to_owned(), id })?;
    if ne[0] % ggml_type.block_len() != 0 {
        return Err(Cause::PartialBlock { name: name.to_owned(), ne0: ne[0], ggml_type });
    }
    let size =
        ggml_type.tensor_bytes(&ne).ok_or_else(|| Cause::SizeOverflow { name: name.to_owned(), ne })?;
    let offset = cursor.u64(place)?;
    Ok(TensorInfo { name: name.to_owned(), ne, n_dims, ggml_type, shard, offset, size })
}

fn alignment(meta: &Metadata) -> Result<u64, Cause> {
    let Some(value) = meta.get(KEY_ALIGNMENT) else { return Ok(DEFAULT_ALIGNMENT) };
    let wrong = || Cause::WrongType { key: KEY_ALIGNMENT.to_owned(), expected: "u32", found: value.kind() };
    let n = value.as_integer().ok_or_else(wrong)?;
    match u64::try_from(n) {
        Ok(n) if is_alignment(n) => Ok(n),
        Ok(value) => Err(Cause::BadAlignment { value }),
        Err(_) => Err(Cause::OutOfRange {
            place: FilePart::Key(KEY_ALIGNMENT.to_owned()),
            expected: "u32",
            value: n,
        }),
    }
}

/// A position in the file. Each read says, lazily, what it was reading, for the message if the file ends
/// there.
struct Cursor<'a> {
    /// The first bytes of the file.
    bytes: &'a [u8],
    /// Bytes of the file.
    len: u64,
    pos: usize,
    /// Something was to be read that is in the file, but not in `bytes`.
    beyond: bool,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        self.len - self.pos as u64
    }

    fn take(&mut self, n: u64, place: impl Fn() -> FilePart) -> Result<&'a [u8], Cause> {
        if n > self.left() {
            let end = (self.pos as u64).saturating_add(n);
            return Err(Cause::Truncated { place: place(), end, len: self.len });
        }
        let rest = &self.bytes[self.pos..];
        let Some(taken) = usize::try_from(n).ok().and_then(|n| rest.get(..n)) else {
            self.beyond = true;
            return Err(Cause::Truncated { place: place(), end: self.pos as u64 + n, len: self.len });
        };
        self.pos += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, place: impl Fn() -> FilePart) -> Result<[u8; N], Cause> {
        let bytes = self.take(N as u64, place)?;
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        Ok(out)
    }

    fn u32(&mut self, place: impl Fn() -> FilePart) -> Result<u32, Cause> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    fn u64(&mut self, place: impl Fn() -> FilePart) -> Result<u64, Cause> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    fn string(&mut self, limit: u64, place: impl Fn() -> FilePart) -> Result<&'a str, Cause> {
        let len = self.u64(&place)?;
        if len > limit {
            return Err(Cause::StringTooLong { place: place(), len, limit });
        }
        let bytes = self.take(len, &place)?;
        std::str::from_utf8(bytes).map_err(|e| Cause::InvalidUtf8 { place: place(), at: e.valid_up_to() })
    }

    /// A key or tensor name: a string that must not be empty.
    fn name(&mut self, limit: u64, place: impl Fn() -> FilePart) -> Result<&'a str, Cause> {
        match self.string(limit, &place)? {
            "" => Err(Cause::EmptyName { place: place() }),
            name => Ok(name),
        }
    }
}
