//! An op batch in shared memory: a header, then buffers, tensors and ops as plain arrays.
//!
//! ```text
//! ProgramHeader | BufferRef x n_buffers | TensorDesc x n_tensors | OpDesc x n_ops
//! ```
//! The DSP copies the block into memory that the host cannot reach before it looks at it.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::ids::{BufferId, TensorIndex};
use crate::opcode::Op;

/// Buffers that a session may have mapped, and that a program may name.
pub const MAX_BUFFERS: usize = 64;
/// Programs that a session keeps.
pub const MAX_PROGRAMS: usize = 32;
/// Tensors of a program.
pub const MAX_TENSORS: usize = 16 * 1024;
/// Ops of a program.
pub const MAX_OPS: usize = 8 * 1024;
/// Inputs of an op.
pub const MAX_SRC: usize = 8;
/// Outputs of an op.
pub const MAX_DST: usize = 4;
/// Words of parameters of an op.
pub const MAX_PARAMS: usize = 16;
/// Parts whose times a response carries.
pub const PARTS: usize = 6;
/// Rows of the token axis of a program.
pub const MAX_TOKENS: u32 = 4096;
/// Sequences whose state a program keeps, and register blocks of a step.
pub const MAX_SLOTS: u32 = 64;

wire_enum! {
    /// The promise of a program's kernels about the order of arithmetic.
    pub enum Numerics: u32 {
        /// The result of a row is the same bits in every exact program, whatever rows it stands beside:
        /// decode, verify, rounds.
        Exact = 1 "exact",
        /// Kernels may use other algorithms, with other roundings: the same program gives the same bits for
        /// the same tokens, and no more.
        Fast = 2 "fast",
        /// Like [`Exact`](Self::Exact), among the programs of this class: the bits of a row do not depend on
        /// the rows beside it. But MUL_MAT is the matrix unit's, for single rows too, wherever that has a
        /// kernel for the type of the weights, and rounds as the unit does.
        Hmx = 3 "hmx",
    }
}

impl Numerics {
    /// Whether programs of this class have products that only a matrix unit can compute.
    pub const fn wants_matrix_unit(self) -> bool {
        match self {
            Self::Exact => false,
            Self::Fast | Self::Hmx => true,
        }
    }
}

/// Bytes of a block with these counts; `None` if a count is over its limit.
pub const fn block_bytes(n_buffers: usize, n_tensors: usize, n_ops: usize) -> Option<usize> {
    if n_buffers > MAX_BUFFERS || n_tensors > MAX_TENSORS || n_ops > MAX_OPS {
        return None;
    }
    // At most 64 + 64 * 8 + 16384 * 48 + 8192 * 96 bytes: no overflow on 32 bits.
    Some(
        size_of::<ProgramHeader>()
            + n_buffers * size_of::<BufferRef>()
            + n_tensors * size_of::<TensorDesc>()
            + n_ops * size_of::<OpDesc>(),
    )
}

wire_struct! {
    /// First bytes of a program block.
    pub struct ProgramHeader [64 bytes] {
        /// [`crate::MAGIC`].
        pub magic: u32,
        /// [`crate::ABI_VERSION`].
        pub abi_version: u32,
        /// [`crate::LAYOUT_HASH`].
        pub layout_hash: u64,
        /// Bytes of the whole block.
        pub total_bytes: u32,
        /// Entries of the buffer array.
        pub n_buffers: u32,
        /// Entries of the tensor array.
        pub n_tensors: u32,
        /// Entries of the op array.
        pub n_ops: u32,
        /// Length of the token axis: the bound of the register `n_tokens`, and of its sum over the register
        /// blocks of a step.
        pub max_tokens: u32,
        /// Length of every KV cache: the bound of `n_past + n_tokens`.
        pub n_ctx: u32,
        /// A [`Numerics`].
        pub numerics: u32,
        /// Sequences that the program keeps state of, 1 to [`MAX_SLOTS`]: the outermost axis of every state
        /// is so many times as long as the batch axis of the activations that advance it. The state of
        /// batch j of b lies at index `slot * b + j`.
        pub n_slots: u32,
        /// Must be zero.
        pub reserved: [u32; 4],
    }
}

wire_struct! {
    /// A buffer that the program uses. Each is named once, so that tensors of different entries never
    /// overlap.
    pub struct BufferRef [8 bytes] {
        /// Id under which the buffer is mapped.
        pub buffer: BufferId,
        /// Must be zero.
        pub reserved: u32,
    }
}

/// No axis of the tensor is the token axis.
pub const NO_TOKEN_AXIS: u8 = 0xff;

wire_flags! {
    /// Parties that touch a tensor besides the ops of its program.
    pub struct TensorFlags: u8 {
        /// The host writes it before a step: the DSP's caches are invalidated before the program runs.
        const HOST_WRITES = 1;
        /// The host reads it after a step: the DSP's caches are flushed when the program has run.
        const HOST_READS = 2;
        /// Never written: weights and tables.
        const CONST = 4;
    }
}

wire_struct! {
    /// A tensor: a strided view of a buffer, up to four axes, ggml's order (`ne[0]` is the fastest).
    ///
    /// For row-major types `nb` holds strides in bytes. For tiled types `nb` is `[group, strip, matrix,
    /// outer]` bytes: `nb[1]` is the stride of 32-row strips. For `Q8_ACT`, `ne[0]` is the number of values
    /// and `nb[0]` is 1.
    pub struct TensorDesc [48 bytes] {
        /// First byte, from the start of the buffer.
        pub offset: u64,
        /// Index into the program's buffer array.
        pub buffer: u16,
        /// A [`crate::DType`].
        pub dtype: u16,
        /// Axis whose length is `max_tokens` and of which a step uses the first `n_tokens`; [`NO_TOKEN_AXIS`]
        /// if none. Axes that an op's shape rule makes equal are cut together or not at all.
        pub token_axis: u8,
        /// [`TensorFlags`].
        pub flags: u8,
        /// Must be zero.
        pub reserved: u16,
        /// Elements per axis.
        pub ne: [u32; 4],
        /// Bytes per step along an axis.
        pub nb: [u32; 4],
    }
}

wire_struct! {
    /// An op: opcode, operands, parameters.
    pub struct OpDesc [96 bytes] {
        /// A [`crate::Op`].
        pub opcode: u16,
        /// Part of the program that the op belongs to, below [`PARTS`]: the response says how long each took.
        pub part: u16,
        /// Inputs; absent ones are [`TensorIndex::NONE`].
        pub src: [TensorIndex; MAX_SRC],
        /// Outputs; absent ones are [`TensorIndex::NONE`].
        pub dst: [TensorIndex; MAX_DST],
        /// Must be zero.
        pub reserved2: u32,
        /// The op's parameter struct (see [`crate::op`]), zero-padded.
        pub params: [u32; MAX_PARAMS],
    }
}

impl ProgramHeader {
    /// The header of this ABI's exact programs for one sequence, without contents yet: see
    /// [`with_counts`](Self::with_counts).
    pub const fn new(max_tokens: u32, n_ctx: u32) -> Self {
        Self {
            magic: crate::MAGIC,
            abi_version: crate::ABI_VERSION,
            layout_hash: crate::LAYOUT_HASH,
            total_bytes: 0,
            n_buffers: 0,
            n_tensors: 0,
            n_ops: 0,
            max_tokens,
            n_ctx,
            numerics: Numerics::Exact.wire(),
            n_slots: 1,
            reserved: [0; 4],
        }
    }

    /// The header of a block with so many buffers, tensors and ops; `None` if there are too many.
    pub fn with_counts(self, [buffers, tensors, ops]: [usize; 3]) -> Option<Self> {
        let total_bytes = block_bytes(buffers, tensors, ops)? as u32;
        let [n_buffers, n_tensors, n_ops] = [buffers, tensors, ops].map(|n| n as u32);
        Some(Self { total_bytes, n_buffers, n_tensors, n_ops, ..self })
    }
}

impl OpDesc {
    /// An op without parameters, of part 0. Operands that the op can do without may be [`TensorIndex::NONE`].
    pub fn new(op: Op, src: &[TensorIndex], dst: &[TensorIndex]) -> Self {
        let mut desc = Self {
            opcode: op.wire(),
            part: 0,
            src: [TensorIndex::NONE; MAX_SRC],
            dst: [TensorIndex::NONE; MAX_DST],
            reserved2: 0,
            params: [0; MAX_PARAMS],
        };
        desc.src[..src.len()].copy_from_slice(src);
        desc.dst[..dst.len()].copy_from_slice(dst);
        desc
    }

    /// The parameters as the op's own struct.
    pub fn params<T: FromBytes>(&self) -> T {
        const { assert!(size_of::<T>() <= MAX_PARAMS * 4) };
        match T::read_from_prefix(self.params.as_bytes()) {
            Ok((params, _)) => params,
            // read_from_prefix fails only on a length that the assertion above excludes.
            Err(_) => unreachable!(),
        }
    }

    /// Stores `params`, zero-padded.
    pub fn set_params<T: IntoBytes + Immutable>(&mut self, params: &T) {
        const { assert!(size_of::<T>() <= MAX_PARAMS * 4) };
        self.params = [0; MAX_PARAMS];
        self.params.as_mut_bytes()[..size_of::<T>()].copy_from_slice(params.as_bytes());
    }
}

impl TensorDesc {
    /// A tensor without gaps at the start of buffer 0, without token axis and flags; `None` where a stride
    /// that is used exceeds 32 bits. A single matrix may be larger: the strides past it are then 0.
    pub fn packed(dtype: crate::DType, ne: [u32; 4]) -> Option<Self> {
        let nb = Self::packed_strides(dtype, ne)?;
        let (offset, buffer, flags, reserved) = (0, 0, 0, 0);
        Some(Self { offset, buffer, dtype: dtype.wire(), token_axis: NO_TOKEN_AXIS, flags, reserved, ne, nb })
    }

    fn packed_strides(dtype: crate::DType, ne: [u32; 4]) -> Option<[u32; 4]> {
        let k = ne[0] as usize;
        let (unit, row, rows) = match (dtype.tile_group(), dtype.row_block()) {
            (Some(group), _) => {
                (group.bytes, group.strip_bytes(k), ne[1].div_ceil(crate::dtype::TILE_ROWS as u32))
            }
            (None, Some(block)) => (block.bytes, block.count(k).checked_mul(block.bytes)?, ne[1]),
            (None, None) => (1, crate::dtype::ActivationRow::new(k).bytes(), ne[1]),
        };
        let row = u32::try_from(row).ok()?;
        // The stride to the next matrix is only used where there is one.
        let matrix = match row.checked_mul(rows) {
            None if ne[2] <= 1 && ne[3] <= 1 => 0,
            matrix => matrix?,
        };
        let outer = if ne[3] > 1 { matrix.checked_mul(ne[2])? } else { 0 };
        Some([unit as u32, row, matrix, outer])
    }

    /// Bytes from the first to one past the last that the tensor touches; `None` on overflow.
    ///
    /// Row-major: the last element's or block's end. Tiled: whole strips. Activation rows: whole rows.
    pub fn extent(&self, dtype: crate::DType) -> Option<u64> {
        let reach = |n: u32, stride: u32| u64::from(n.checked_sub(1)?).checked_mul(u64::from(stride));
        let outer = reach(self.ne[2], self.nb[2])?.checked_add(reach(self.ne[3], self.nb[3])?)?;
        let k = self.ne[0] as usize;
        if let Some(group) = dtype.tile_group() {
            let strips = self.ne[1].div_ceil(crate::dtype::TILE_ROWS as u32);
            let strip = group.count(k) as u64 * group.bytes as u64 + group.tail as u64;
            outer.checked_add(reach(strips, self.nb[1])?)?.checked_add(strip)
        } else {
            let (last, row) = match dtype.row_block() {
                Some(block) => (block.bytes as u64, reach(block.count(k) as u32, self.nb[0])?),
                None => (crate::dtype::ActivationRow::new(k).bytes() as u64, 0),
            };
            outer.checked_add(reach(self.ne[1], self.nb[1])?)?.checked_add(row)?.checked_add(last)
        }
    }
}
