//! Where each tensor lies, and the proof that it lies inside its file.

use super::error::{Cause, FilePart};
use super::types::GgmlType;

/// One tensor's description. Made only by opening a file, so its extent is known to be inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Number of values per dimension in ggml order: `ne[0]` is contiguous (a matrix's inputs), `ne[1]`
    /// counts rows (its outputs). Dimensions from `n_dims` on are 1.
    pub ne: [u64; 4],
    /// Number of dimensions stored in the file, 1 to 4.
    pub n_dims: u32,
    /// How values are stored.
    pub ggml_type: GgmlType,
    /// Index of the file that holds the data; 0 unless the model is split.
    pub shard: usize,
    /// First byte of the data, counted from the beginning of that file.
    pub offset: u64,
    /// Bytes of data.
    pub size: u64,
}

impl TensorInfo {
    /// The dimensions stored in the file: `ne` without the trailing ones that fill it up.
    pub fn shape(&self) -> &[u64] {
        &self.ne[..self.n_dims as usize]
    }

    /// Number of values, the product of `ne`.
    pub fn elements(&self) -> u64 {
        self.ne.iter().product() // Cannot wrap: verified when the file was opened.
    }

    /// Bytes of one row of `ne[0]` values.
    pub fn row_bytes(&self) -> u64 {
        self.ne[0] / self.ggml_type.block_len() * self.ggml_type.block_bytes()
    }
}

/// Turns offsets relative to the data section into offsets in the file, and checks that all tensors are
/// aligned, inside the file and disjoint. `table_end` and `file_len` are in bytes.
pub(super) fn place_in_file(
    tensors: &mut [TensorInfo],
    alignment: u64,
    table_end: u64,
    file_len: u64,
) -> Result<(), Cause> {
    // Cannot wrap: a slice's length is below 2^63 and the alignment is small.
    let data_start = table_end.next_multiple_of(alignment);
    if let Some(t) = tensors.iter().find(|t| !t.offset.is_multiple_of(alignment)) {
        return Err(Cause::Misaligned { name: t.name.clone(), offset: t.offset, alignment });
    }
    check_contested_types(tensors, alignment, file_len.saturating_sub(data_start))?;
    for t in &mut *tensors {
        let start = data_start.saturating_add(t.offset);
        let end = start.saturating_add(t.size);
        if end > file_len {
            return Err(Cause::Truncated { place: FilePart::Tensor(t.name.clone()), end, len: file_len });
        }
        t.offset = start;
    }

    // Sizes are positive, so if neighbours by offset are disjoint, all are.
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    for pair in by_offset.windows(2) {
        if pair[0].offset + pair[0].size > pair[1].offset {
            return Err(Cause::Overlap { first: pair[0].name.clone(), second: pair[1].name.clone() });
        }
    }
    Ok(())
}

/// Checks that tensors of types whose numbers forks use as well have the room that ggml's layout takes: a
/// layout of a fork would be read as other values. Offsets are relative to the data section of `data_bytes`
/// bytes. Writers of GGUF put the next tensor behind a tensor's bytes, at the next multiple of the alignment.
fn check_contested_types(tensors: &[TensorInfo], alignment: u64, data_bytes: u64) -> Result<(), Cause> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    for (i, t) in by_offset.iter().enumerate().filter(|(_, t)| t.ggml_type.is_contested()) {
        let of_fork = t.ggml_type.fork_block().map(|(len, bytes)| t.elements() / len * bytes);
        let refused = |found: u64| Cause::LayoutOfFork {
            name: t.name.clone(),
            ggml_type: t.ggml_type,
            found,
            expected: t.size,
            block_len: t.ggml_type.fork_block().filter(|_| of_fork == Some(found)).map(|(len, _)| len),
        };
        // Sizes fit an i64, so that rounding them up cannot wrap.
        let padded = |bytes: u64| bytes.next_multiple_of(alignment);
        let Some(next) = by_offset.get(i + 1) else {
            // What follows the last tensor is not known, but the end of a fork's file is.
            let room = data_bytes.saturating_sub(t.offset);
            match of_fork {
                Some(bytes) if room < t.size && (room == bytes || room == padded(bytes)) => {
                    return Err(refused(bytes));
                }
                _ => continue,
            }
        };
        let room = next.offset - t.offset;
        if room != padded(t.size) {
            return Err(refused(of_fork.filter(|&bytes| room == padded(bytes)).unwrap_or(room)));
        }
    }
    Ok(())
}
