//! Writing of GGUF files, for tests and for tools that make models.

use std::borrow::Cow;
use std::io::{self, Write};

use super::limits::{DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MIN_ALIGNMENT, is_alignment};
use super::reader::{KEY_ALIGNMENT, MAGIC};
use super::types::GgmlType;
use super::value::{Array, Value, ValueType};

/// What is wrong with a request to write.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation.
pub enum WriteError {
    #[error("alignment {alignment} is not a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}; use 32")]
    Alignment { alignment: u32 },
    #[error("tensor {name:?} has {n} dimensions; give it 1 to {MAX_DIMS}")]
    DimCount { name: String, n: usize },
    #[error(
        "tensor {name:?} cannot have dimensions {ne:?} as {ggml_type}; make ne0 a whole number of blocks"
    )]
    Shape { name: String, ne: Vec<u64>, ggml_type: GgmlType },
    #[error("tensor {name:?} takes {expected} bytes but got {found}; match the data to its dimensions")]
    Size { name: String, expected: u64, found: u64 },
    #[error("tensor {name:?} was added twice; give each tensor its own name")]
    Duplicate { name: String },
    #[error("cannot write: {0}; check the disk")]
    Io(#[from] io::Error),
}

/// Writes a tensor's bytes to the output when its turn comes.
type Fill<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

enum Data<'a> {
    Bytes(Cow<'a, [u8]>),
    Stream(Fill<'a>),
}

struct Tensor<'a> {
    name: String,
    ne: Vec<u64>,
    ggml_type: GgmlType,
    size: u64,
    data: Data<'a>,
}

/// Collects metadata and tensors, and writes them as one GGUF file.
///
/// Data is borrowed where possible, or produced while writing, so that a model need not fit in memory.
pub struct GgufWriter<'a> {
    version: u32,
    alignment: u64,
    meta: Vec<(String, Value)>,
    tensors: Vec<Tensor<'a>>,
}

impl Default for GgufWriter<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> GgufWriter<'a> {
    /// An empty file of version 3 with the default alignment of 32 bytes.
    pub fn new() -> Self {
        Self { version: 3, alignment: DEFAULT_ALIGNMENT, meta: Vec::new(), tensors: Vec::new() }
    }

    /// Sets the version in the header. Versions 2 and 3 have the same layout; others make an unreadable file.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Sets the alignment of tensor data in bytes, and `general.alignment` with it.
    pub fn alignment(&mut self, alignment: u32) -> Result<&mut Self, WriteError> {
        if !is_alignment(alignment.into()) {
            return Err(WriteError::Alignment { alignment });
        }
        Ok(self.kv(KEY_ALIGNMENT, alignment))
    }

    /// Sets a key; a later value replaces an earlier one.
    pub fn kv(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        // Data must follow the key even where all keys of another model are copied with this method.
        let bytes = value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|&n| is_alignment(n));
        if let (KEY_ALIGNMENT, Some(bytes)) = (key, bytes) {
            self.alignment = bytes;
        }
        match self.meta.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.meta.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a tensor with dimensions `ne` (ggml order, `ne[0]` contiguous) and its bytes.
    pub fn tensor(
        &mut self,
        name: &str,
        ggml_type: GgmlType,
        ne: &[u64],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Result<&mut Self, WriteError> {
        let data = data.into();
        let found = data.len() as u64;
        let size = self.declare(name, ggml_type, ne)?;
        if found != size {
            return Err(WriteError::Size { name: name.to_owned(), expected: size, found });
        }
        self.push(name, ggml_type, ne, size, Data::Bytes(data))
    }

    /// Adds a tensor whose bytes `fill` produces while the file is written; it must produce exactly its size.
    pub fn tensor_with(
        &mut self,
        name: &str,
        ggml_type: GgmlType,
        ne: &[u64],
        fill: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Result<&mut Self, WriteError> {
        let size = self.declare(name, ggml_type, ne)?;
        self.push(name, ggml_type, ne, size, Data::Stream(Box::new(fill)))
    }

    /// Writes the file. `out` need not be buffered for large tensors, but should be for the header.
    pub fn write_to(&self, out: impl Write) -> Result<(), WriteError> {
        let mut out = Counting { out, written: 0 };
        out.write_all(&MAGIC)?;
        out.write_all(&self.version.to_le_bytes())?;
        out.write_all(&(self.tensors.len() as u64).to_le_bytes())?;
        out.write_all(&(self.meta.len() as u64).to_le_bytes())?;
        for (key, value) in &self.meta {
            write_string(&mut out, key)?;
            write_value(&mut out, value)?;
        }
        let mut offset = 0u64;
        for t in &self.tensors {
            write_string(&mut out, &t.name)?;
            out.write_all(&(t.ne.len() as u32).to_le_bytes())?;
            t.ne.iter().try_for_each(|n| out.write_all(&n.to_le_bytes()))?;
            out.write_all(&t.ggml_type.id().to_le_bytes())?;
            out.write_all(&offset.to_le_bytes())?;
            offset = (offset + t.size).next_multiple_of(self.alignment);
        }
        out.pad(self.alignment)?;
        for t in &self.tensors {
            let start = out.written;
            match &t.data {
                Data::Bytes(bytes) => out.write_all(bytes)?,
                Data::Stream(fill) => fill(&mut out)?,
            }
            let found = out.written - start;
            if found != t.size {
                return Err(WriteError::Size { name: t.name.clone(), expected: t.size, found });
            }
            out.pad(self.alignment)?;
        }
        Ok(out.flush()?)
    }

    /// Checks a tensor's name and dimensions; its size in bytes.
    fn declare(&self, name: &str, ggml_type: GgmlType, ne: &[u64]) -> Result<u64, WriteError> {
        if self.tensors.iter().any(|t| t.name == name) {
            return Err(WriteError::Duplicate { name: name.to_owned() });
        }
        if !(1..=MAX_DIMS as usize).contains(&ne.len()) {
            return Err(WriteError::DimCount { name: name.to_owned(), n: ne.len() });
        }
        let bytes = ggml_type.tensor_bytes(ne).filter(|&bytes| bytes > 0);
        bytes.ok_or_else(|| WriteError::Shape { name: name.to_owned(), ne: ne.to_vec(), ggml_type })
    }

    fn push(
        &mut self,
        name: &str,
        ggml_type: GgmlType,
        ne: &[u64],
        size: u64,
        data: Data<'a>,
    ) -> Result<&mut Self, WriteError> {
        self.tensors.push(Tensor { name: name.to_owned(), ne: ne.to_vec(), ggml_type, size, data });
        Ok(self)
    }
}

fn write_string(out: &mut impl Write, s: &str) -> io::Result<()> {
    out.write_all(&(s.len() as u64).to_le_bytes())?;
    out.write_all(s.as_bytes())
}

fn write_value(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let value_type = if let Value::Array(_) = value { ValueType::Array } else { value.kind().value_type };
    out.write_all(&value_type.id().to_le_bytes())?;
    match value {
        Value::U8(v) => out.write_all(&v.to_le_bytes()),
        Value::I8(v) => out.write_all(&v.to_le_bytes()),
        Value::U16(v) => out.write_all(&v.to_le_bytes()),
        Value::I16(v) => out.write_all(&v.to_le_bytes()),
        Value::U32(v) => out.write_all(&v.to_le_bytes()),
        Value::I32(v) => out.write_all(&v.to_le_bytes()),
        Value::U64(v) => out.write_all(&v.to_le_bytes()),
        Value::I64(v) => out.write_all(&v.to_le_bytes()),
        Value::F32(v) => out.write_all(&v.to_le_bytes()),
        Value::F64(v) => out.write_all(&v.to_le_bytes()),
        Value::Bool(v) => out.write_all(&[u8::from(*v)]),
        Value::String(v) => write_string(out, v),
        Value::Array(v) => write_array(out, v),
    }
}

fn write_array(out: &mut impl Write, array: &Array) -> io::Result<()> {
    out.write_all(&array.element_type().id().to_le_bytes())?;
    out.write_all(&(array.len() as u64).to_le_bytes())?;
    match array {
        Array::U8(v) => out.write_all(v),
        Array::I8(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::U16(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I16(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::U32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::U64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::F32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::F64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::Bool(v) => v.iter().try_for_each(|&b| out.write_all(&[u8::from(b)])),
        Array::String(v) => v.iter().try_for_each(|s| write_string(out, s)),
    }
}

/// Counts bytes, to pad and to hold `fill` functions to their word.
struct Counting<W> {
    out: W,
    written: u64,
}

impl<W: Write> Counting<W> {
    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        const ZEROS: [u8; 256] = [0; 256];
        let mut left = self.written.next_multiple_of(alignment) - self.written;
        while left > 0 {
            let n = left.min(ZEROS.len() as u64);
            self.write_all(&ZEROS[..n as usize])?;
            left -= n;
        }
        Ok(())
    }
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
