//! Where every weight lies in the image, and how each piece of it is made.

use std::collections::HashMap;
use std::ops::Range;

use hexflash_abi::DType;
use hexflash_abi::dtype::{TILE_ROWS, TileGroup};

use super::error::WeightError;
use super::tiles;
use crate::gguf::{GgmlType, Gguf, GgufError, TensorInfo};

/// Alignment of every weight in the image, and so of the buffer that holds it, in bytes.
pub const WEIGHT_ALIGNMENT: u64 = hexflash_abi::VECTOR_BYTES as u64;

/// A weight that a model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSpec {
    /// What the model's graph calls it.
    pub name: String,
    /// GGUF tensors it is made of. The rows of several follow each other without padding; their types and
    /// `ne[0]` must agree. Empty for [`Form::Values`], where they are ignored.
    pub sources: Vec<String>,
    /// What becomes of them.
    pub form: Form,
}

impl WeightSpec {
    /// One tensor, labelled with its own name.
    pub fn new(tensor: &str, form: Form) -> Self {
        Self { name: tensor.to_owned(), sources: vec![tensor.to_owned()], form }
    }
}

/// The form of a weight in the image.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Tiles of the source's type, for MUL_MAT and GET_ROWS: {k, n, ..} to {k, n, ..}. The matrices of a
    /// tensor of 3 or 4 dimensions follow each other, each padded to whole strips.
    Tiled,
    /// Tiles of the filters {w, h, c, n} of a convolution whose windows do not overlap: of the matrix
    /// {w h c, n}, which multiplies a window's values.
    Filters,
    /// Tiles of the transpose {n, k} of a matrix {k, n} of F32, F16 or BF16.
    Turned,
    /// Row-major F32 of the same shape, from F32, F16 or BF16: norms, biases and other small tensors.
    Plain,
    /// A matrix {k, c}, such as the taps of a convolution, as row-major F32 {c, k}.
    Transposed,
    /// These values, as F32 {len}.
    Values(Vec<f32>),
}

impl Form {
    /// Whether it is for MUL_MAT.
    const fn is_tiled(&self) -> bool {
        matches!(self, Self::Tiled | Self::Filters | Self::Turned)
    }
}

/// A weight's place in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightEntry {
    /// Element type: a tiled one or F32.
    pub dtype: DType,
    /// Elements per axis, in ggml's order.
    pub ne: [u32; 4],
    /// First byte, a multiple of [`WEIGHT_ALIGNMENT`].
    pub offset: u64,
    /// Bytes, without the padding up to the next weight.
    pub bytes: u64,
}

impl WeightEntry {
    /// Bytes per step along each axis, as a tensor descriptor wants them: element, row, matrix, outer for
    /// F32; group, strip, matrix, outer for tiles. An axis of one element whose step exceeds 32 bits has 0.
    pub fn strides(&self) -> [u32; 4] {
        let [first, row, matrix, outer] = strides(self.dtype, self.ne.map(u64::from));
        [first, row, matrix, outer].map(|bytes| u32::try_from(bytes).unwrap_or(0))
    }

    /// The ranges of the image that are packed, and hashed, one by one: strips, or the whole weight.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let step = match self.dtype.tile_group() {
            Some(group) => group.strip_bytes(self.ne[0] as usize) as u64,
            None => self.bytes,
        };
        let (start, end) = (self.offset, self.offset + self.bytes);
        (0..self.bytes / step).map(move |i| start + i * step..(start + (i + 1) * step).min(end))
    }
}

fn strides(dtype: DType, ne: [u64; 4]) -> [u64; 4] {
    let (first, row, rows) = match dtype.tile_group() {
        Some(group) => (group.bytes as u64, strip_bytes(group, ne[0]), ne[1].div_ceil(TILE_ROWS as u64)),
        None => (4, 4 * ne[0], ne[1]),
    };
    let matrix = row.saturating_mul(rows);
    [first, row, matrix, matrix.saturating_mul(ne[2])]
}

fn strip_bytes(group: TileGroup, k: u64) -> u64 {
    group.strip_bytes(k as usize) as u64
}

/// A tensor and the rows in it.
struct SourceTensor<'a> {
    tensor: &'a TensorInfo,
    rows: usize,
}

/// A weight, and what it is made from.
struct Item<'a> {
    entry: WeightEntry,
    form: &'a Form,
    /// Type of all sources; F32 for values.
    ggml_type: GgmlType,
    row_bytes: usize,
    sources: Vec<SourceTensor<'a>>,
}

/// A part of the image that is made on its own.
#[derive(Clone)]
pub(super) struct Piece {
    item: usize,
    /// Number of the piece within its weight.
    number: usize,
    /// Bytes of the image: the pieces follow each other without gaps.
    pub range: Range<u64>,
    /// Bytes of it that belong to the weight. The others are zeros, up to where the next weight may begin.
    used: usize,
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

/// The layout of an image over an open model.
pub(super) struct ImageLayout<'a> {
    gguf: &'a Gguf,
    items: Vec<Item<'a>>,
    /// All pieces, by rising offset.
    pub pieces: Vec<Piece>,
    /// Bytes of the image.
    pub bytes: u64,
}

impl<'a> ImageLayout<'a> {
    /// Checks every spec against the model and lays the weights out in order.
    pub(super) fn new(gguf: &'a Gguf, specs: &'a [WeightSpec]) -> Result<Self, WeightError> {
        let (mut items, mut pieces, mut bytes) = (Vec::with_capacity(specs.len()), Vec::new(), 0u64);
        for spec in specs {
            let mut item = item(gguf, spec)?;
            item.entry.offset = bytes.next_multiple_of(WEIGHT_ALIGNMENT);
            let large =
                || WeightError::TooLarge { label: spec.name.clone(), ne: item.entry.ne.map(u64::from) };
            bytes = item.entry.offset.checked_add(item.entry.bytes).ok_or_else(large)?;
            // Whole vectors to the end: a kernel may load one where a weight has fewer bytes.
            let padded = |at: u64| at.next_multiple_of(WEIGHT_ALIGNMENT);
            pieces.extend(item.entry.pieces().enumerate().map(|(number, range)| {
                let used = (range.end - range.start) as usize;
                Piece { item: items.len(), number, range: range.start..padded(range.end), used }
            }));
            items.push(item);
        }
        Ok(Self { gguf, items, pieces, bytes: bytes.next_multiple_of(WEIGHT_ALIGNMENT) })
    }

    /// The entries by label, and in order.
    pub(super) fn entries(&self, specs: &[WeightSpec]) -> Result<HashMap<String, WeightEntry>, WeightError> {
        let mut entries = HashMap::with_capacity(specs.len());
        for (spec, item) in specs.iter().zip(&self.items) {
            if entries.insert(spec.name.clone(), item.entry).is_some() {
                return Err(WeightError::DuplicateLabel { label: spec.name.clone() });
            }
        }
        Ok(entries)
    }

    /// Reads the model's bytes that a piece is made of into `data`, whose content is lost. Given values are
    /// part of the specs, not of the model.
    pub(super) fn read(&self, piece: &Piece, data: &mut Vec<u8>) -> Result<(), GgufError> {
        let item = &self.items[piece.item];
        let rows = match item.form {
            // Rows of the tiles are columns there.
            Form::Turned => 0..item.entry.ne[0] as usize,
            form if form.is_tiled() => item.strip_rows(piece.number),
            _ => 0..item.sources.iter().map(|source| source.rows).sum(),
        };
        data.resize(rows.len() * item.row_bytes, 0);
        let (mut left, mut first) = (&mut data[..], 0);
        for source in &item.sources {
            // The rows that are wanted of this source, counted from its first.
            let start = rows.start.clamp(first, first + source.rows) - first;
            let end = rows.end.clamp(first, first + source.rows) - first;
            let (part, rest) = left.split_at_mut((end - start) * item.row_bytes);
            if !part.is_empty() {
                self.gguf.read(source.tensor, (start * item.row_bytes) as u64, part)?;
            }
            (left, first) = (rest, first + source.rows);
        }
        Ok(())
    }

    /// Makes a piece of what was read for it; `out` is as long as it, and every byte is written.
    ///
    /// # Errors
    /// [`WeightError::NotFinite`]: a value of the model's that no computation could use.
    pub(super) fn pack(&self, piece: &Piece, data: &[u8], out: &mut [u8]) -> Result<(), WeightError> {
        let item = &self.items[piece.item];
        let (out, padding) = out.split_at_mut(piece.used);
        padding.fill(0);
        match item.form {
            Form::Tiled | Form::Filters => {
                let mut rows: [&[u8]; TILE_ROWS] = [&[]; TILE_ROWS];
                let all = data.chunks_exact(item.row_bytes);
                let count = all.len();
                for (slot, row) in rows.iter_mut().zip(all) {
                    *slot = row;
                }
                let k = item.entry.ne[0] as usize;
                if let Some(row) = tiles::pack_strip(item.ggml_type, k, &rows[..count], out) {
                    return Err(item.not_finite("row", item.strip_rows(piece.number).start + row, 1));
                }
            }
            Form::Turned => {
                let bytes = item.ggml_type.block_bytes() as usize;
                let columns = item.strip_rows(piece.number);
                let column = |i: usize| -> Vec<u8> {
                    let values = data.chunks_exact(item.row_bytes).map(|row| &row[i * bytes..][..bytes]);
                    values.flatten().copied().collect()
                };
                let rows: Vec<Vec<u8>> = columns.clone().map(column).collect();
                let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                if let Some(row) = tiles::pack_strip(item.ggml_type, item.entry.ne[0] as usize, &rows, out) {
                    return Err(item.not_finite("column", columns.start + row, usize::MAX));
                }
            }
            Form::Plain => {
                let values = out.as_chunks_mut().0;
                tiles::to_f32(item.ggml_type, data, values);
                if let Some(value) = tiles::first_special(values) {
                    return Err(item.not_finite("value", value, item.entry.ne[0] as usize));
                }
            }
            Form::Transposed => {
                let [c, k, ..] = item.entry.ne.map(|n| n as usize);
                let (mut row, out) = (vec![[0; 4]; k], out.as_chunks_mut::<4>().0);
                for (i, data) in data.chunks_exact(item.row_bytes).enumerate() {
                    tiles::to_f32(item.ggml_type, data, &mut row);
                    if tiles::first_special(&row).is_some() {
                        return Err(item.not_finite("row", i, 1));
                    }
                    for (j, value) in row.iter().enumerate() {
                        out[j * c + i] = *value;
                    }
                }
            }
            Form::Values(values) => {
                for (value, out) in values.iter().zip(out.as_chunks_mut().0) {
                    *out = value.to_le_bytes();
                }
            }
        }
        Ok(())
    }
}

impl Item<'_> {
    /// That row or value `at`, of which a row has `per_row`, is infinite or no number. It is counted through
    /// all sources, and told by the one that has it.
    fn not_finite(&self, what: &'static str, mut at: usize, per_row: usize) -> WeightError {
        let mut tensor = "";
        for source in &self.sources {
            tensor = &source.tensor.name;
            match at.checked_sub(source.rows * per_row) {
                Some(rest) => at = rest,
                None => break,
            }
        }
        WeightError::NotFinite { tensor: tensor.to_owned(), what, at }
    }

    /// Rows in strip `number`, strips being counted through all matrices.
    fn strip_rows(&self, number: usize) -> Range<usize> {
        let n = self.entry.ne[1] as usize;
        let strips = n.div_ceil(TILE_ROWS);
        let (matrix, first) = (number / strips, number % strips * TILE_ROWS);
        matrix * n + first..matrix * n + (first + TILE_ROWS).min(n)
    }
}

fn item<'a>(gguf: &'a Gguf, spec: &'a WeightSpec) -> Result<Item<'a>, WeightError> {
    if let Form::Values(values) = &spec.form {
        let ne = [values.len() as u64, 1, 1, 1];
        return finish(spec, DType::F32, ne, GgmlType::F32, 0, Vec::new());
    }
    let tensors = spec.sources.iter().map(|name| gguf.require_tensor(name)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = tensors.split_first() else {
        return Err(WeightError::Empty { label: spec.name.clone() });
    };
    let wanted = match (others, &spec.form) {
        (_, Form::Filters) => None,
        (_, Form::Transposed | Form::Turned) => Some("a transpose"),
        ([_, ..], _) => Some("joining"),
        _ => None,
    };
    for t in &tensors {
        if (t.ggml_type, t.ne[0]) != (first.ggml_type, first.ne[0]) {
            return Err(WeightError::CannotJoin {
                first: first.name.clone(),
                second: t.name.clone(),
                kinds: ((first.ggml_type, first.ne[0]), (t.ggml_type, t.ne[0])),
            });
        }
        if let Some(wanted) = wanted.filter(|_| t.ne[2] != 1 || t.ne[3] != 1) {
            return Err(WeightError::NotAMatrix { tensor: t.name.clone(), ne: t.ne, wanted });
        }
    }
    let mut ne = first.ne;
    // Cannot wrap: all these rows lie in files.
    ne[1] = tensors.iter().map(|t| t.ne[1]).sum();
    let dtype = match &spec.form {
        // Blocks of several values lie along rows.
        Form::Turned if first.ggml_type.block_len() != 1 => None,
        form if form.is_tiled() => tiles::tile_dtype(first.ggml_type),
        _ => tiles::PLAIN.contains(&first.ggml_type).then_some(DType::F32),
    };
    let dtype = dtype.ok_or_else(|| WeightError::UnsupportedType {
        tensor: first.name.clone(),
        ggml_type: first.ggml_type,
        plain: !spec.form.is_tiled(),
    })?;
    if spec.form == Form::Filters {
        // Cannot wrap: as many values lie in a file.
        let row = [ne[0] * ne[1] * ne[2], ne[3], 1, 1];
        let source = SourceTensor { tensor: first, rows: ne[3] as usize };
        let row_bytes = (first.row_bytes() * ne[1] * ne[2]) as usize;
        return finish(spec, dtype, row, first.ggml_type, row_bytes, vec![source]);
    }
    if matches!(spec.form, Form::Transposed | Form::Turned) {
        ne.swap(0, 1);
    }
    let rows = |t: &TensorInfo| (t.ne[1] * t.ne[2] * t.ne[3]) as usize;
    let sources = tensors.iter().map(|t| SourceTensor { tensor: t, rows: rows(t) }).collect();
    finish(spec, dtype, ne, first.ggml_type, first.row_bytes() as usize, sources)
}

/// Checks that a device tensor can describe the weight, and computes its size.
fn finish<'a>(
    spec: &'a WeightSpec,
    dtype: DType,
    ne: [u64; 4],
    ggml_type: GgmlType,
    row_bytes: usize,
    sources: Vec<SourceTensor<'a>>,
) -> Result<Item<'a>, WeightError> {
    let large = || WeightError::TooLarge { label: spec.name.clone(), ne };
    if ne.contains(&0) {
        return Err(WeightError::Empty { label: spec.name.clone() });
    }
    let fit = |n: u64| u32::try_from(n).map_err(|_| large());
    let shape = [fit(ne[0])?, fit(ne[1])?, fit(ne[2])?, fit(ne[3])?];
    // Padding multiplies a size by at most 1024 (a value to a group of tiles); sources are as large as a file
    // can be.
    let steps = strides(dtype, ne);
    let units = [1, if dtype == DType::F32 { ne[1] } else { ne[1].div_ceil(TILE_ROWS as u64) }, ne[2], ne[3]];
    if units.iter().zip(steps).any(|(&n, step)| n > 1 && fit(step).is_err()) {
        return Err(large());
    }
    let bytes = steps[3].checked_mul(ne[3]).ok_or_else(large)?;
    let entry = WeightEntry { dtype, ne: shape, offset: 0, bytes };
    Ok(Item { entry, form: &spec.form, ggml_type, row_bytes, sources })
}
