//! A program under construction, with the memory it runs on.
//!
//! An [`OpProgram`] lays every operand out in one image of the device's memory, with guard bytes around each.
//! What no op may write is compared afterwards: a kernel that writes one byte too many fails its case.

use std::ops::Range;

use hexflash::record::{self, Recorder};
use hexflash_abi::program::{MAX_PARAMS, NO_TOKEN_AXIS, Numerics, TensorFlags};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{BufferId, DType, Op, VECTOR_BYTES};
use hexflash_oracle::{GgmlType, Tensor};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// What memory holds that nobody has written: NaN as F32 and F16, no row as I32.
pub const POISON: u8 = 0xff;

/// Guard bytes after each operand.
const GUARD: usize = VECTOR_BYTES;

fn packed_bytes(dtype: DType, ne: [u32; 4]) -> u64 {
    record::packed_bytes(dtype, ne).expect("operands of cases are small")
}

/// A tensor of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct T(usize);

/// A tensor as the program will describe it.
#[derive(Clone, Copy, Debug)]
struct Desc {
    dtype: DType,
    offset: usize,
    ne: [u32; 4],
    nb: [u32; 4],
    token_axis: u8,
    written: bool,
}

#[derive(Clone, Debug)]
struct Step {
    op: Op,
    src: Vec<Option<T>>,
    dst: T,
    params: [u32; MAX_PARAMS],
}

/// Operands, ops and memory of one program.
#[derive(Clone, Debug)]
pub struct OpProgram {
    /// Length of the token axis.
    pub max_tokens: u32,
    /// Positions of the caches.
    pub n_ctx: u32,
    /// Sequences that it keeps states of.
    n_slots: u32,
    /// The class of the program.
    numerics: Numerics,
    /// The memory before the run.
    pub image: Vec<u8>,
    tensors: Vec<Desc>,
    steps: Vec<Step>,
}

/// The row-major type of hexflash that is ggml's `ty`.
pub fn plain(ty: GgmlType) -> Option<DType> {
    match ty {
        GgmlType::F32 => Some(DType::F32),
        GgmlType::F16 => Some(DType::F16),
        GgmlType::I32 => Some(DType::I32),
        GgmlType::Q8_0 => Some(DType::Q8_0),
        _ => None,
    }
}

/// Extents as the ABI has them.
///
/// # Panics
/// If one does not fit: cases are smaller.
pub fn dims(ne: [i64; 4]) -> [u32; 4] {
    ne.map(|n| u32::try_from(n).expect("an extent of a case fits 32 bits"))
}

impl OpProgram {
    /// A program for steps of up to `max_tokens` tokens and caches of `n_ctx` positions.
    pub fn new(max_tokens: u32, n_ctx: u32) -> Self {
        let image = vec![POISON; GUARD];
        let numerics = Numerics::Exact;
        Self { max_tokens, n_ctx, n_slots: 1, numerics, image, tensors: Vec::new(), steps: Vec::new() }
    }

    /// The same, for kernels of the class `fast`.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { numerics: Numerics::Fast, ..self }
    }

    /// Whether it is of the class `fast`.
    pub fn is_fast(&self) -> bool {
        self.numerics == Numerics::Fast
    }

    /// Whether it has an op that may be for the matrix unit.
    pub fn is_for_matrix_unit(&self) -> bool {
        self.is_fast()
            && (self.ops().any(|op| matches!(op, Op::MulMat | Op::MulMatId))
                || self.has_floats_beside_matrix_unit())
    }

    /// Whether vectors compute with floats beside the matrix unit: a softmax between its products, or what a
    /// chunk of the delta rule does.
    pub fn has_floats_beside_matrix_unit(&self) -> bool {
        self.ops().any(|op| matches!(op, Op::FlashAttnExt | Op::Attend | Op::GatedDeltaNet))
    }

    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = self.image.len().next_multiple_of(VECTOR_BYTES);
        self.image.resize(at, POISON);
        self.image.extend_from_slice(bytes);
        self.image.resize(self.image.len() + GUARD, POISON);
        at
    }

    fn push(&mut self, desc: Desc) -> T {
        self.tensors.push(desc);
        T(self.tensors.len() - 1)
    }

    fn packed_at(&mut self, dtype: DType, ne: [u32; 4], offset: usize, written: bool) -> T {
        let nb = record::packed(dtype, ne).expect("operands of cases are small").nb;
        self.push(Desc { dtype, offset, ne, nb, token_axis: NO_TOKEN_AXIS, written })
    }

    /// An input as the case has it, strides and gaps included.
    ///
    /// # Panics
    /// If hexflash has no plain type like it: the adapter checks before.
    pub fn input(&mut self, t: &Tensor) -> T {
        let dtype = plain(t.ty).expect("the adapter has checked the type");
        let at = self.place(&t.data);
        let nb = t.nb().map(|n| u32::try_from(n).expect("strides fit 32 bits"));
        let offset = at + t.offset();
        self.push(Desc { dtype, offset, ne: dims(t.ne), nb, token_axis: NO_TOKEN_AXIS, written: false })
    }

    /// A packed input from its bytes: tiles, indices.
    ///
    /// # Panics
    /// If the bytes are not as many as the shape needs.
    pub fn packed(&mut self, dtype: DType, ne: [u32; 4], bytes: &[u8]) -> T {
        assert_eq!(bytes.len() as u64, packed_bytes(dtype, ne), "{dtype:?} {ne:?}");
        let at = self.place(bytes);
        self.packed_at(dtype, ne, at, false)
    }

    /// A packed tensor that ops read and write.
    pub fn state(&mut self, dtype: DType, ne: [u32; 4], bytes: &[u8]) -> T {
        let t = self.packed(dtype, ne, bytes);
        self.tensors[t.0].written = true;
        t
    }

    /// A packed tensor that an op writes.
    pub fn output(&mut self, dtype: DType, ne: [u32; 4]) -> T {
        let at = self.place(&vec![POISON; packed_bytes(dtype, ne) as usize]);
        self.packed_at(dtype, ne, at, true)
    }

    /// An F32 input of which a step uses a part: `t` copied into rows of `max_tokens` along `axis`, poison
    /// after it.
    pub fn tokens(&mut self, t: &Tensor, axis: usize) -> T {
        assert_eq!(t.ty, GgmlType::F32);
        let c = t.contiguous();
        let mut ne = dims(t.ne);
        let used = 4 * t.ne[..=axis].iter().product::<i64>() as usize;
        let row = used / ne[axis] as usize;
        ne[axis] = self.max_tokens;
        let mut bytes = Vec::with_capacity(packed_bytes(DType::F32, ne) as usize);
        for part in c.data.chunks_exact(used) {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len() + row * self.max_tokens as usize - used, POISON);
        }
        let t = self.packed(DType::F32, ne, &bytes);
        self.on_tokens(t, axis)
    }

    /// An F32 output whose axis `axis` is the token axis.
    pub fn token_output(&mut self, mut ne: [u32; 4], axis: usize) -> T {
        ne[axis] = self.max_tokens;
        let t = self.output(DType::F32, ne);
        self.on_tokens(t, axis)
    }

    /// Says that `axis` is the token axis of `t`, where there is more than one token.
    pub fn on_tokens(&mut self, t: T, axis: usize) -> T {
        if self.max_tokens > 1 {
            assert_eq!(self.tensors[t.0].ne[axis], self.max_tokens);
            self.tensors[t.0].token_axis = axis as u8;
        }
        t
    }

    /// `t` with other extents, strides and start, the latter from that of `t`.
    pub fn view(&mut self, t: T, ne: [u32; 4], nb: [u32; 4], offset: usize) -> T {
        let of = self.tensors[t.0];
        self.push(Desc { ne, nb, offset: of.offset + offset, token_axis: NO_TOKEN_AXIS, ..of })
    }

    /// Elements per axis.
    pub fn ne(&self, t: T) -> [u32; 4] {
        self.tensors[t.0].ne
    }

    /// Byte strides.
    pub fn nb(&self, t: T) -> [u32; 4] {
        self.tensors[t.0].nb
    }

    /// `t` as an operand whose rows must lie together: itself, or a copy that CPY makes first.
    pub fn rows(&mut self, t: T) -> T {
        let d = self.tensors[t.0];
        if d.dtype.element_bytes() == Some(d.nb[0] as usize) {
            return t;
        }
        let copy = self.output(d.dtype, d.ne);
        self.op(Op::Cpy, &[Some(t)], copy, &[0u32; 0]);
        copy
    }

    /// `t` as F32 rows.
    pub fn f32_rows(&mut self, t: T) -> T {
        let d = self.tensors[t.0];
        if d.dtype == DType::F32 {
            return self.rows(t);
        }
        let copy = self.output(DType::F32, d.ne);
        self.op(Op::Cpy, &[Some(t)], copy, &[0u32; 0]);
        copy
    }

    /// Adds an op.
    pub fn op<P: IntoBytes + Immutable>(&mut self, op: Op, src: &[Option<T>], dst: T, params: &P) {
        let mut words = <[u32; MAX_PARAMS]>::new_zeroed();
        words.as_mut_bytes()[..size_of::<P>()].copy_from_slice(params.as_bytes());
        self.steps.push(Step { op, src: src.to_vec(), dst, params: words });
    }

    /// The ops of the program, in order.
    pub fn ops(&self) -> impl Iterator<Item = Op> {
        self.steps.iter().map(|s| s.op)
    }

    /// The program, for memory that is mapped as `data`.
    pub fn record(&self, data: BufferId) -> Recorder {
        let mut rec = Recorder::new(self.max_tokens, self.n_ctx);
        rec.slots(self.n_slots);
        rec.numerics(self.numerics);
        let flags = TensorFlags::HOST_WRITES | TensorFlags::HOST_READS;
        let tensors: Vec<_> = self
            .tensors
            .iter()
            .map(|d| {
                // Strides come with a view: the tensor itself is as packed as its bytes allow.
                let one = if d.dtype.element_bytes().is_some() { [1; 4] } else { d.ne };
                let base = rec.tensor(data, d.offset as u64, d.dtype, one, flags);
                let axis = (d.token_axis != NO_TOKEN_AXIS).then_some(d.token_axis);
                rec.view(base, 0, d.ne, d.nb, axis)
            })
            .collect();
        for s in &self.steps {
            let src: Vec<_> = s.src.iter().map(|t| t.map(|t| tensors[t.0])).collect();
            rec.op_with(s.op, &src, &[tensors[s.dst.0]], &s.params);
        }
        rec
    }

    /// The same memory as a program of several sequences in place of one of several batches: the rows of
    /// batch j follow those of batch j - 1 on the token axis, and its states are those of slot j. For steps
    /// that use all of the token axis.
    ///
    /// `None` where there is nothing of the kind: one batch, an op that does not go by slots, tokens that are
    /// apart, operands that several batches share, more rows than the caches have positions.
    pub fn by_slots(&self) -> Option<Self> {
        let [step] = &self.steps[..] else { return None };
        // The token axis of its first input, which the batch axis follows.
        let axis = match step.op {
            Op::SsmConv => 1,
            Op::GatedDeltaNet | Op::FlashAttnExt => 2,
            _ => return None,
        };
        let all = self.tensors.iter().filter(|d| d.token_axis != NO_TOKEN_AXIS);
        let n_slots = all.clone().next()?.ne[axis + 1];
        let max_tokens = n_slots * self.max_tokens;
        let adjacent = |d: &Desc| d.nb[axis + 1] == d.ne[axis] * d.nb[axis] && d.ne[axis + 1] == n_slots;
        let fits = all.clone().all(|d| usize::from(d.token_axis) == axis && adjacent(d));
        // A mask has rows for the tokens of a batch, and caches no more positions than they have.
        let attends = step.op == Op::FlashAttnExt;
        let masked = step.src.get(5).is_some_and(Option::is_some);
        if n_slots == 1 || !fits || attends && (masked || max_tokens > self.n_ctx) {
            return None;
        }
        let mut plan = Self { max_tokens, n_ctx: self.n_ctx.max(max_tokens), n_slots, ..self.clone() };
        for d in plan.tensors.iter_mut().filter(|d| d.token_axis != NO_TOKEN_AXIS) {
            d.ne[axis] = max_tokens;
            d.ne[axis + 1] = 1;
        }
        Some(plan)
    }

    /// Its register blocks for a step with these registers in every slot.
    pub fn blocks(&self, registers: &StepRegisters) -> Vec<StepRegisters> {
        (0..self.n_slots).map(|slot| registers.with(Register::Slot, slot)).collect()
    }

    /// The bytes that a step of `n_tokens` may write, as ranges of the image.
    fn writable(&self, n_tokens: u32) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        for d in self.tensors.iter().filter(|d| d.written) {
            let Some(size) = d.dtype.element_bytes() else {
                out.push(d.offset..d.offset + packed_bytes(d.dtype, d.ne) as usize);
                continue;
            };
            let mut ne = d.ne.map(|n| n as usize);
            if d.token_axis != NO_TOKEN_AXIS {
                ne[d.token_axis as usize] = n_tokens as usize;
            }
            let nb = d.nb.map(|n| n as usize);
            for i in 0..ne[1] * ne[2] * ne[3] {
                let row = [i % ne[1], i / ne[1] % ne[2], i / ne[1] / ne[2]];
                let at = d.offset + row[0] * nb[1] + row[1] * nb[2] + row[2] * nb[3];
                out.push(at..at + ne[0] * size);
            }
        }
        out
    }

    /// The first byte of `after` that no op of a step of `n_tokens` was to write, but that has changed.
    pub fn strayed(&self, after: &[u8], n_tokens: u32) -> Option<String> {
        let mut expected = self.image.clone();
        for range in self.writable(n_tokens) {
            expected[range.clone()].copy_from_slice(&after[range]);
        }
        if expected == after {
            return None;
        }
        let at = expected.iter().zip(after).position(|(a, b)| a != b)?;
        Some(format!("wrote where it must not: {}", self.place_of(at)))
    }

    /// The first byte in which two outcomes differ.
    pub fn differs(&self, want: &[u8], got: &[u8]) -> Option<String> {
        let at = want.iter().zip(got).position(|(a, b)| a != b)?;
        let word = |m: &[u8]| m[at & !3..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let words = format!("{:#010x} instead of {:#010x}", word(got), word(want));
        Some(format!("other bits than inproc's (or an earlier setting's): {words} at {}", self.place_of(at)))
    }

    /// A byte of the image in words.
    fn place_of(&self, at: usize) -> String {
        let near =
            self.tensors.iter().enumerate().filter(|(_, d)| d.offset <= at).max_by_key(|(_, d)| d.offset);
        let near = near.map_or("the start".to_owned(), |(i, d)| {
            format!("{} into tensor {i}, {:?} {:?}", at - d.offset, d.dtype, d.ne)
        });
        format!("byte {at}, {near}")
    }

    /// Bytes of a packed tensor in a copy of the memory.
    pub fn bytes<'m>(&self, memory: &'m [u8], t: T) -> &'m [u8] {
        let d = self.tensors[t.0];
        &memory[d.offset..][..packed_bytes(d.dtype, d.ne) as usize]
    }

    /// A packed plain tensor in a copy of the memory, its token axis cut to `n_tokens`.
    pub fn tensor(&self, memory: &[u8], t: T, n_tokens: u32) -> Tensor {
        let d = self.tensors[t.0];
        let ty = match d.dtype {
            DType::F16 => GgmlType::F16,
            DType::I32 => GgmlType::I32,
            DType::Q8_0 => GgmlType::Q8_0,
            _ => GgmlType::F32,
        };
        let whole = Tensor::new(ty, d.ne.map(i64::from), self.bytes(memory, t).to_vec());
        if d.token_axis == NO_TOKEN_AXIS {
            return whole;
        }
        let mut ne = whole.ne;
        ne[d.token_axis as usize] = n_tokens.into();
        whole.slice(ne, None, 0).contiguous()
    }
}
