//! From bytes and buffer sizes to "safe to run": everything about a program that does not depend on a step.
//!
//! Pure functions of their arguments, run by the DSP on its own copy of the block at `Load` and `Run`, and by
//! the host on what it is about to send. What passes has every tensor inside its buffer, every operand of a
//! type, layout and shape that its op takes, and no output that another operand reads. What varies per step
//! (registers, row ids) is checked when it is used.

mod layout;

use core::mem::size_of;

use zerocopy::FromBytes;

use crate::dtype::DType;
use crate::ids::BufferId;
use crate::op::{Dst, FIRST_DST, Op, OpSpec, Operand, OperandSpec, Operands, Src};
use crate::program::{
    BufferRef, MAX_BUFFERS, MAX_DST, MAX_OPS, MAX_PARAMS, MAX_SLOTS, MAX_SRC, MAX_TENSORS, MAX_TOKENS,
    Numerics, OpDesc, PARTS, ProgramHeader, TensorDesc, TensorFlags, block_bytes,
};
use crate::registers::{Halt, REGISTER_COUNT, Register, StepRegisters};
use crate::status::{ErrorCode, Fault};
use crate::{ABI_VERSION, LAYOUT_HASH, MAGIC, TensorIndex};

/// The facts about a mapped buffer that validation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInfo {
    /// Bytes mapped.
    pub size: u64,
    /// Programs may not write it.
    pub read_only: bool,
}

/// A program block split into its arrays; counts and lengths checked, contents not.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The header.
    pub header: &'a ProgramHeader,
    /// The buffers it names.
    pub buffers: &'a [BufferRef],
    /// The program's tensors.
    pub tensors: &'a [TensorDesc],
    /// The program's ops, in order.
    pub ops: &'a [OpDesc],
}

const fn fail<T>(code: ErrorCode, detail: u64) -> Result<T, Fault> {
    Err(Fault::new(code, detail as u32))
}

impl<'a> Program<'a> {
    /// Splits `block`, which must be aligned to 8 bytes and exactly as long as its header says.
    ///
    /// # Errors
    /// Magic, version, layout, counts, bounds and reserved fields of the header, in that order.
    pub fn parse(block: &'a [u8]) -> Result<Self, Fault> {
        let Ok((header, rest)) = ProgramHeader::ref_from_prefix(block) else {
            return fail(ErrorCode::BadMessage, block.len() as u64);
        };
        if header.magic != MAGIC {
            return fail(ErrorCode::BadMagic, header.magic.into());
        }
        if header.abi_version != ABI_VERSION {
            return fail(ErrorCode::AbiVersion, header.abi_version.into());
        }
        if header.layout_hash != LAYOUT_HASH {
            return fail(ErrorCode::LayoutHash, header.layout_hash);
        }
        let counts = [header.n_buffers, header.n_tensors, header.n_ops].map(|n| n as usize);
        let Some(expected) = block_bytes(counts[0], counts[1], counts[2]) else {
            let limits = [MAX_BUFFERS, MAX_TENSORS, MAX_OPS];
            let over = counts.iter().zip(limits).find(|&(&count, limit)| count > limit);
            return fail(ErrorCode::BadCount, over.map_or(0, |(&count, _)| count as u64));
        };
        if header.total_bytes as usize != expected || block.len() != expected {
            return fail(ErrorCode::BadCount, header.total_bytes.into());
        }
        if !(1..=MAX_TOKENS).contains(&header.max_tokens) {
            return fail(ErrorCode::BadCount, header.max_tokens.into());
        }
        if header.n_ctx < header.max_tokens || header.n_ctx > i32::MAX as u32 {
            return fail(ErrorCode::BadCount, header.n_ctx.into());
        }
        if !(1..=MAX_SLOTS).contains(&header.n_slots) {
            return fail(ErrorCode::BadCount, header.n_slots.into());
        }
        if Numerics::parse(header.numerics).is_none() {
            return fail(ErrorCode::BadNumerics, header.numerics.into());
        }
        if header.reserved.iter().any(|&word| word != 0) {
            return fail(ErrorCode::ReservedNotZero, 0);
        }
        let bad = |_| Fault::new(ErrorCode::Misaligned, 0);
        let short = |_| Fault::new(ErrorCode::BadCount, header.total_bytes);
        let (buffers, rest) = rest.split_at(counts[0] * size_of::<BufferRef>());
        let (tensors, ops) = rest.split_at(counts[1] * size_of::<TensorDesc>());
        Ok(Self {
            header,
            buffers: <[BufferRef]>::ref_from_bytes(buffers).map_err(bad)?,
            tensors: <[TensorDesc]>::ref_from_bytes(tensors)
                .map_err(|_| Fault::new(ErrorCode::Misaligned, 1))?,
            ops: <[OpDesc]>::ref_from_bytes(ops).map_err(short)?,
        })
    }

    /// Checks everything that [`parse`](Self::parse) did not. `buffer` tells what is mapped under an id.
    ///
    /// # Errors
    /// The first thing wrong, blamed on its op where there is one.
    pub fn check(&self, buffer: impl Fn(BufferId) -> Option<BufferInfo>) -> Result<(), Fault> {
        let mut infos = [None; MAX_BUFFERS];
        for (i, (info, reference)) in infos.iter_mut().zip(self.buffers).enumerate() {
            if reference.reserved != 0 {
                return fail(ErrorCode::ReservedNotZero, reference.reserved.into());
            }
            // Two names for one buffer would hide an overlap from `check_writes`.
            if self.buffers[..i].iter().any(|earlier| earlier.buffer == reference.buffer) {
                return fail(ErrorCode::BufferInUse, reference.buffer.0.into());
            }
            *info = buffer(reference.buffer);
            if info.is_none() {
                return fail(ErrorCode::UnknownBuffer, reference.buffer.0.into());
            }
        }
        for (i, tensor) in self.tensors.iter().enumerate() {
            layout::check_tensor(i as u32, tensor, self.header, &infos)?;
        }
        for (i, op) in self.ops.iter().enumerate() {
            self.check_op(op, &infos).map_err(|fault| fault.at(i))?;
        }
        Ok(())
    }

    /// The tensor at `index`; `None` if the operand is absent or out of range.
    pub fn tensor(&self, index: TensorIndex) -> Option<&'a TensorDesc> {
        self.tensors.get(index.0 as usize)
    }

    fn check_op(&self, op: &OpDesc, infos: &[Option<BufferInfo>; MAX_BUFFERS]) -> Result<(), Fault> {
        let Some(opcode) = Op::parse(op.opcode) else {
            return fail(ErrorCode::UnknownOp, op.opcode.into());
        };
        if op.reserved2 != 0 {
            return fail(ErrorCode::ReservedNotZero, op.reserved2.into());
        }
        if usize::from(op.part) >= PARTS {
            return fail(ErrorCode::BadCount, op.part.into());
        }
        let spec = opcode.spec();
        let words = spec.param_words();
        if let Some(i) = op.params[words..MAX_PARAMS].iter().position(|&p| p != 0) {
            return fail(ErrorCode::BadParam, (words + i) as u64);
        }
        let mut operands = Operands { src: [None; MAX_SRC], dst: [None; MAX_DST], op, header: self.header };
        for i in 0..MAX_SRC {
            operands.src[i] = self.operand(op.src[i], spec.src.get(i), Src::at(i).number())?;
        }
        for i in 0..MAX_DST {
            operands.dst[i] = self.operand(op.dst[i], spec.dst.get(i), Dst::at(i).number())?;
        }
        check_writes(&spec, &operands, infos)?;
        (spec.check)(&operands)
    }

    /// Resolves one operand and checks it against its entry in the op table.
    fn operand(
        &self,
        index: TensorIndex,
        spec: Option<&OperandSpec>,
        number: u32,
    ) -> Result<Option<(&'a TensorDesc, DType)>, Fault> {
        let Some(spec) = spec.filter(|_| index != TensorIndex::NONE) else {
            let fine = if spec.is_some_and(|s| !s.optional) { false } else { index == TensorIndex::NONE };
            return if fine { Ok(None) } else { fail(ErrorCode::BadOperand, number.into()) };
        };
        let Some(tensor) = self.tensor(index) else {
            return fail(ErrorCode::BadTensorIndex, index.0.into());
        };
        // check_tensor has parsed it already.
        let Some(dtype) = DType::parse(tensor.dtype) else {
            return fail(ErrorCode::UnknownType, tensor.dtype.into());
        };
        if !spec.types.contains(dtype) {
            return fail(ErrorCode::BadType, number.into());
        }
        if !layout::fits(spec, tensor, dtype) {
            return fail(ErrorCode::BadStride, number.into());
        }
        Ok(Some((tensor, dtype)))
    }
}

/// Operands by number, with whether the op writes them.
fn numbered<'o>(
    spec: &'o OpSpec,
    o: &'o Operands<'_>,
) -> impl Iterator<Item = (u32, bool, &'o TensorDesc, DType)> + 'o {
    let src = o.src.iter().zip(spec.src).enumerate().map(|(i, operand)| (Src::at(i).number(), operand));
    let dst = o.dst.iter().zip(spec.dst).enumerate().map(|(i, operand)| (Dst::at(i).number(), operand));
    src.chain(dst).filter_map(|(n, (operand, spec))| operand.map(|(t, dtype)| (n, spec.written, t, dtype)))
}

/// No write to constant memory, and no operand that overlaps one that is written, except in place where
/// allowed.
fn check_writes(
    spec: &OpSpec,
    o: &Operands<'_>,
    infos: &[Option<BufferInfo>; MAX_BUFFERS],
) -> Result<(), Fault> {
    for (n, written, t, dtype) in numbered(spec, o) {
        if !written {
            continue;
        }
        let constant = t.flags & TensorFlags::CONST.bits() != 0;
        if constant || infos[t.buffer as usize].is_none_or(|b| b.read_only) {
            return fail(ErrorCode::WriteToConst, n.into());
        }
        for (m, _, other, other_dtype) in numbered(spec, o) {
            if m == n || !layout::overlap(t, dtype, other, other_dtype) {
                continue;
            }
            let in_place = n == FIRST_DST && spec.in_place.iter().any(|src| src.number() == m);
            if !(in_place && layout::same_place(t, other)) {
                return fail(ErrorCode::BadAlias, m.into());
            }
        }
    }
    Ok(())
}

/// Checks the row table of a step against a program's bounds, before each run: each register block by itself,
/// then that the blocks fit together.
///
/// No two blocks are of one slot, because two rows of a state at one position would be written at once. With
/// more than one block no sequence may have halted: whether a program runs is decided for all of them.
///
/// # Errors
/// [`ErrorCode::BadCount`] with the number of blocks if that is 0 or above [`MAX_SLOTS`];
/// [`ErrorCode::BadRegister`] with the register's number.
pub fn check_step(header: &ProgramHeader, blocks: &[StepRegisters]) -> Result<(), Fault> {
    if blocks.is_empty() || blocks.len() > MAX_SLOTS as usize {
        return fail(ErrorCode::BadCount, blocks.len() as u64);
    }
    let bad = |register: Register| fail(ErrorCode::BadRegister, register.wire().into());
    let (mut tokens, mut slots) = (0, 0u64);
    for block in blocks {
        check_block(header, block)?;
        // Neither overflows: at most MAX_SLOTS times MAX_TOKENS, and a slot below MAX_SLOTS.
        tokens += block.get(Register::NTokens);
        let slot = 1 << block.get(Register::Slot);
        if slots & slot != 0 {
            return bad(Register::Slot);
        }
        slots |= slot;
        if blocks.len() > 1 && block.halted() {
            return bad(Register::Halt);
        }
    }
    if tokens > header.max_tokens { bad(Register::NTokens) } else { Ok(()) }
}
const _: () = assert!(MAX_SLOTS <= u64::BITS && MAX_TOKENS <= u32::MAX / MAX_SLOTS);

/// Checks what a register block says of its own sequence.
fn check_block(header: &ProgramHeader, registers: &StepRegisters) -> Result<(), Fault> {
    let bad = |register: u32| fail(ErrorCode::BadRegister, register.into());
    let n_tokens = registers.get(Register::NTokens);
    if !(1..=header.max_tokens).contains(&n_tokens) {
        return bad(Register::NTokens.wire());
    }
    let end = registers.get(Register::NPast).checked_add(n_tokens);
    if end.is_none_or(|end| end > header.n_ctx) {
        return bad(Register::NPast.wire());
    }
    let draft_max = registers.get(Register::DraftMax);
    let bounds = [
        (Register::NAccept, header.max_tokens),
        (Register::NCommit, registers.get(Register::NPast)),
        (Register::NDraft, draft_max),
        (Register::DraftMax, header.max_tokens - 1),
        (Register::Slot, header.n_slots - 1),
        (Register::NOutput, header.max_tokens),
        (Register::Fold, 1),
    ];
    if let Some((register, _)) = bounds.iter().find(|&&(register, most)| registers.get(register) > most) {
        return bad(register.wire());
    }
    if Halt::parse(registers.get(Register::Halt)).is_none() {
        return bad(Register::Halt.wire());
    }
    match (Register::ALL.len()..REGISTER_COUNT).find(|&i| registers.values[i] != 0) {
        Some(i) => bad(i as u32),
        None => Ok(()),
    }
}
