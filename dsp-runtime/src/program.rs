//! Loaded programs: private copies in an arena of fixed size, out of the host's reach.

use core::mem::size_of;
use core::ptr::NonNull;

use heapless::Vec;
use hexflash_abi::op::Op;
use hexflash_abi::program::{
    MAX_BUFFERS, MAX_OPS, MAX_TENSORS, OpDesc, TensorDesc, TensorFlags, block_bytes,
};
use hexflash_abi::validate::Program;
use hexflash_abi::{DType, ErrorCode, Fault, TensorIndex};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::buffers::BufferTable;
use crate::kernels::products::mul_mat;
use crate::plan::{OpShapes, Plan, Resources};
use crate::stream::{self, RingLayout, StreamedMatrix};
use crate::table;
use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

/// Alignment of blocks in the arena.
const ALIGN: usize = 64;
/// Blocks that the arena holds: every program that a session may keep, and the one of a `Run`.
const MAX_BLOCKS: usize = hexflash_abi::program::MAX_PROGRAMS + 1;

/// Bytes of the largest block that may be a program. (A longer one would overflow the sums below on 32 bits.)
const MAX_BYTES: usize = match block_bytes(MAX_BUFFERS, MAX_TENSORS, MAX_OPS) {
    Some(bytes) => bytes,
    None => unreachable!(),
};

/// A piece of the arena, by offset and length. Only its owner looks inside.
#[derive(Debug, PartialEq, Eq)]
pub struct ArenaRange {
    offset: usize,
    bytes: usize,
}

/// Memory for programs.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    /// Blocks in use, by offset.
    used: Vec<(usize, usize), MAX_BLOCKS>,
}

// SAFETY: only the raw pointer keeps the arena from being `Send`, and nobody else uses the memory behind it
// (the contract of `new`).
unsafe impl Send for Arena {}

impl Arena {
    /// An arena on `bytes` at `base`.
    ///
    /// # Safety
    /// As long as the arena lives:
    /// 1. `base` is aligned to 64 bytes and valid for reads and writes of `bytes`, which are initialised;
    /// 2. nobody else uses these bytes, and the host cannot write them.
    pub const unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes, used: Vec::new() }
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first gap that holds `bytes`.
    ///
    /// # Errors
    /// [`ErrorCode::ProgramTooLarge`] with the bytes needed.
    pub fn allocate(&mut self, bytes: usize) -> Result<ArenaRange, Fault> {
        let full = Fault::new(ErrorCode::ProgramTooLarge, bytes as u32);
        if bytes > self.bytes {
            return Err(full);
        }
        // At least one unit: an empty block would lie where another begins, and `free` tells them by their
        // offsets.
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        let mut at = 0;
        let mut place = self.used.len();
        for (i, &(offset, len)) in self.used.iter().enumerate() {
            if offset - at >= bytes {
                place = i;
                break;
            }
            at = offset + len;
        }
        if bytes > self.bytes || at > self.bytes - bytes {
            return Err(full);
        }
        self.used.insert(place, (at, bytes)).map_err(|_| full)?;
        Ok(ArenaRange { offset: at, bytes })
    }

    /// Gives a block back.
    pub fn free(&mut self, block: ArenaRange) {
        self.used.retain(|&(offset, _)| offset != block.offset);
    }

    /// The bytes of a block.
    pub fn get(&self, block: &ArenaRange) -> &[u8] {
        // SAFETY: `allocate` made the block inside the arena's memory, apart from all other blocks, and its
        // bytes are initialised (the contract of `new`). The arena is borrowed for as long as the slice
        // lives, so that nothing writes it.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(block.offset), block.bytes) }
    }

    /// The bytes of a block, to write.
    pub fn get_mut(&mut self, block: &ArenaRange) -> &mut [u8] {
        // SAFETY: `allocate` made the block inside the arena's memory, apart from all other blocks, and its
        // bytes are initialised (the contract of `new`). The arena is borrowed exclusively for as long as the
        // slice lives.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr().add(block.offset), block.bytes) }
    }
}

/// What was decided about an op, as it lies in the arena.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredPlan {
    /// [`Variant::code`].
    variant: u16,
    /// 1 if the op moves the registers.
    advances: u16,
    /// Bytes of VTCM for all workers together.
    shared: u32,
    /// Bytes of VTCM per worker.
    own: u32,
    /// Groups of a piece in the weight stream; 0 if the op has no part in it.
    piece_groups: u32,
    /// Units of the weight stream up to the op's last one.
    stream_end: u32,
}

impl StoredPlan {
    const fn new(plan: Plan, advances: bool) -> Self {
        let Plan { variant, vtcm: VtcmPlan { shared, own } } = plan;
        let (variant, advances) = (variant.code(), advances as u16);
        Self { variant, advances, shared: shared as u32, own: own as u32, piece_groups: 0, stream_end: 0 }
    }

    const fn vtcm(self) -> VtcmPlan {
        VtcmPlan { shared: self.shared as usize, own: self.own as usize }
    }
}

/// A validated program: the block, then a plan per op, then the indices of tensors that the host touches.
#[derive(Debug)]
pub struct Loaded {
    block: ArenaRange,
    block_bytes: usize,
    n_ops: usize,
    n_io: usize,
    ends_round: bool,
    stream: Option<RingLayout>,
}

/// A loaded program, opened for a run.
pub struct LoadedView<'a> {
    /// The validated program.
    pub program: Program<'a>,
    plans: &'a [StoredPlan],
    /// Tensors that the host writes or reads, by index.
    pub io: &'a [TensorIndex],
    /// Whether it has an op that ends a round, and so leaves its registers behind for the next run.
    pub ends_round: bool,
    /// Where its weight stream lies in VTCM, if it has one.
    pub stream: Option<RingLayout>,
}

impl LoadedView<'_> {
    /// The plan of op `i`.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`]: the arena was overwritten.
    pub fn plan(&self, i: usize) -> Result<Plan, Fault> {
        let plan = self.plans[i];
        let variant = Variant::parse(plan.variant).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
        Ok(Plan { variant, vtcm: plan.vtcm() })
    }

    /// The matrix of op `i` in the weight stream, if it has one there. `base` says where a buffer is mapped,
    /// by its index in the program.
    pub fn matrix(&self, i: usize, base: impl Fn(u16) -> Option<NonNull<u8>>) -> Option<StreamedMatrix> {
        let plan = self.plans.get(i).filter(|plan| plan.piece_groups > 0)?;
        let w = self.program.tensor(self.program.ops[i].src[mul_mat::abi::W.place()])?;
        let base = base(w.buffer)?.as_ptr().cast_const();
        mul_mat::matrix(base, w, DType::parse(w.dtype)?, plan.piece_groups as usize, plan.stream_end)
    }

    /// The op whose matrix has a unit of the weight stream.
    pub fn op_of_unit(&self, unit: u32) -> Option<usize> {
        let i = self.plans.partition_point(|plan| plan.stream_end <= unit);
        (i < self.plans.len()).then_some(i)
    }

    /// Whether op `i` moves the registers.
    pub fn advances(&self, i: usize) -> bool {
        self.plans[i].advances != 0
    }
}

impl Loaded {
    /// Copies `bytes` at `shared` into the arena, validates the copy and plans its ops, with a weight stream
    /// if `streams` allows it.
    ///
    /// # Safety
    /// `shared` is valid for reading `bytes`. The host may write there at the same time.
    ///
    /// # Errors
    /// Whatever validation or planning finds; nothing stays allocated.
    pub unsafe fn load(
        arena: &mut Arena,
        shared: NonNull<u8>,
        bytes: usize,
        buffers: &BufferTable,
        resources: Resources,
        streams: bool,
    ) -> Result<Self, Fault> {
        if bytes > MAX_BYTES {
            return Err(Fault::new(ErrorCode::ProgramTooLarge, bytes as u32));
        }
        let block = arena.allocate(with_side_arrays(bytes))?;
        // SAFETY: `shared` is valid for reading `bytes` (the caller's contract), and the block has at least
        // as many. They do not overlap, because nobody else uses the arena's memory (the contract of
        // `Arena::new`). A copy torn by the host is validated like any other bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(shared.as_ptr(), arena.get_mut(&block).as_mut_ptr(), bytes);
        }
        let counts = Program::parse(&arena.get(&block)[..bytes]).map(|program| {
            let io = program.tensors.iter().filter(|t| is_io(t)).count();
            let ends_round = |op: &OpDesc| Op::parse(op.opcode).is_some_and(|op| op.spec().ends_round);
            (program.ops.len(), io, program.ops.iter().any(ends_round))
        });
        let (n_ops, n_io, ends_round) = match counts {
            Ok(counts) => counts,
            Err(fault) => {
                arena.free(block);
                return Err(fault);
            }
        };
        let loaded = Self { block, block_bytes: bytes, n_ops, n_io, ends_round, stream: None };
        match loaded.validate(arena, buffers, resources, streams) {
            Ok(stream) => Ok(Self { stream, ..loaded }),
            Err(fault) => {
                loaded.unload(arena);
                Err(fault)
            }
        }
    }

    /// Frees the program's memory.
    pub fn unload(self, arena: &mut Arena) {
        arena.free(self.block);
    }

    /// Opens the program for a run.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`]: the arena was overwritten.
    pub fn open<'a>(&self, arena: &'a Arena) -> Result<LoadedView<'a>, Fault> {
        let internal = Fault::new(ErrorCode::Internal, line!());
        let (block, side) = arena.get(&self.block).split_at(self.block_bytes.next_multiple_of(8));
        let program = Program::parse(&block[..self.block_bytes])?;
        let (plans, side) =
            <[StoredPlan]>::ref_from_prefix_with_elems(side, self.n_ops).map_err(|_| internal)?;
        let (io, _) = <[TensorIndex]>::ref_from_prefix_with_elems(side, self.n_io).map_err(|_| internal)?;
        Ok(LoadedView { program, plans, io, ends_round: self.ends_round, stream: self.stream })
    }

    fn validate(
        &self,
        arena: &mut Arena,
        buffers: &BufferTable,
        resources: Resources,
        streams: bool,
    ) -> Result<Option<RingLayout>, Fault> {
        let internal = Fault::new(ErrorCode::Internal, line!());
        let at = self.block_bytes.next_multiple_of(8);
        let (block, side) = arena.get_mut(&self.block).split_at_mut(at);
        let program = Program::parse(&block[..self.block_bytes])?;
        program.check(|id| buffers.get(id).map(|m| m.info))?;
        let (plans, side) =
            <[StoredPlan]>::mut_from_prefix_with_elems(side, self.n_ops).map_err(|_| internal)?;
        for (i, (op, stored)) in program.ops.iter().zip(&mut *plans).enumerate() {
            let opcode = Op::parse(op.opcode).ok_or(internal.at(i))?;
            let shapes = OpShapes::of(&program, op, resources);
            let plan = table::plan(opcode, &shapes).map_err(|f| f.at(i))?;
            *stored = StoredPlan::new(plan, opcode.spec().advances);
        }
        let stream = if streams { plan_stream(&program, plans, resources) } else { None };
        let (io, _) = <[TensorIndex]>::mut_from_prefix_with_elems(side, self.n_io).map_err(|_| internal)?;
        let indices = program.tensors.iter().enumerate().filter(|(_, t)| is_io(t)).map(|(i, _)| i);
        for (slot, index) in io.iter_mut().zip(indices) {
            *slot = TensorIndex(index as u16);
        }
        Ok(stream)
    }
}

/// Plans the ops of a program once more, with a weight stream; `None` and the plans as they were if it cannot
/// have one: steps may be too wide, VTCM too small, or there is nothing to stream.
fn plan_stream(program: &Program<'_>, plans: &mut [StoredPlan], resources: Resources) -> Option<RingLayout> {
    if program.header.max_tokens as usize > stream::MAX_ROWS {
        return None;
    }
    let written = written_buffers(program);
    let streams = |op: &OpDesc| {
        let w = program.tensor(op.src[mul_mat::abi::W.place()]);
        Op::parse(op.opcode) == Some(Op::MulMat)
            && w.is_some_and(|w| written & 1 << w.buffer == 0)
            && mul_mat::can_stream(&OpShapes::of(program, op, resources))
    };
    // Other ops share half of VTCM at most, and less if that is all they want. Some take what there is.
    let Resources { workers, vtcm_bytes, .. } = resources;
    let total = |plan: VtcmPlan| plan.total(workers).unwrap_or(usize::MAX);
    let others = || program.ops.iter().enumerate().filter(|(_, op)| !streams(op));
    let wanted = others().map(|(i, _)| total(plans[i].vtcm())).max().unwrap_or(0);
    let budget = Resources { vtcm_bytes: wanted.min(vtcm_bytes / 2), ..resources };
    let planned = |op: &OpDesc| table::plan(Op::parse(op.opcode)?, &OpShapes::of(program, op, budget)).ok();
    let mut used = total(mul_mat::SUMS_PLAN);
    for (_, op) in others() {
        used = used.max(total(planned(op)?.vtcm));
    }
    let mut layout = RingLayout::behind(used, workers, vtcm_bytes);
    for op in program.ops.iter().filter(|op| streams(op)) {
        layout.push(mul_mat::cut(&OpShapes::of(program, op, resources), layout.piece_bytes())?.units)?;
    }
    if layout.units == 0 {
        return None;
    }

    // It can have one: from here on nothing fails.
    layout.units = 0;
    for (op, stored) in program.ops.iter().zip(plans) {
        let plan = if streams(op) {
            let cut = mul_mat::cut(&OpShapes::of(program, op, resources), layout.piece_bytes())?;
            layout.push(cut.units)?;
            stored.piece_groups = cut.piece_groups as u32;
            mul_mat::SUMS_PLAN
        } else {
            planned(op)?.vtcm
        };
        (stored.shared, stored.own, stored.stream_end) = (plan.shared as u32, plan.own as u32, layout.units);
    }
    Some(layout)
}

/// The buffers that ops write, by their indices in the program, a bit each.
fn written_buffers(program: &Program<'_>) -> u64 {
    const { assert!(MAX_BUFFERS <= u64::BITS as usize) };
    let mut written = 0;
    for op in program.ops {
        let Some(spec) = Op::parse(op.opcode).map(Op::spec) else { continue };
        let sources = op.src.iter().zip(spec.src).filter(|(_, spec)| spec.written).map(|(index, _)| index);
        for tensor in sources.chain(&op.dst).filter_map(|&index| program.tensor(index)) {
            written |= 1 << tensor.buffer;
        }
    }
    // A buffer may have several indices.
    let id = |index: usize| program.buffers.get(index).map(|buffer| buffer.buffer);
    let is_written = |i: &usize| (0..program.buffers.len()).any(|j| written & 1 << j != 0 && id(j) == id(*i));
    (0..program.buffers.len()).filter(is_written).fold(0, |bits, i| bits | 1 << i)
}

fn is_io(t: &TensorDesc) -> bool {
    t.flags & (TensorFlags::HOST_WRITES | TensorFlags::HOST_READS).bits() != 0
}

/// Bytes of a block with the arrays behind it, whatever its counts turn out to be: a plan per op, an index
/// per tensor.
const fn with_side_arrays(block: usize) -> usize {
    let plans = block / size_of::<OpDesc>() * size_of::<StoredPlan>();
    let io = block / size_of::<TensorDesc>() * size_of::<TensorIndex>();
    block.next_multiple_of(8) + plans + io
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    const BYTES: usize = 4096;

    /// An arena whose memory nobody looks at.
    fn arena() -> Arena {
        // SAFETY: the tests use offsets only.
        unsafe { Arena::new(NonNull::dangling(), BYTES) }
    }

    /// Random allocations and releases: blocks are aligned, inside, apart, and long enough.
    #[test]
    fn blocks_never_overlap() {
        for seed in 0..200 {
            let mut random = random(seed, 600, 0.0, 1.0).into_iter();
            let mut number = |n: usize| ((random.next().unwrap() * n as f32) as usize).min(n - 1);
            let (mut arena, mut blocks) = (arena(), std::vec::Vec::<ArenaRange>::new());
            for _ in 0..200 {
                if number(2) == 0 && !blocks.is_empty() {
                    arena.free(blocks.swap_remove(number(blocks.len())));
                } else {
                    let bytes = number(700);
                    let Ok(block) = arena.allocate(bytes) else { continue };
                    assert!(block.offset % ALIGN == 0 && block.bytes >= bytes.max(1));
                    assert!(block.offset + block.bytes <= BYTES);
                    let apart = |b: &ArenaRange| {
                        b.offset + b.bytes <= block.offset || block.offset + block.bytes <= b.offset
                    };
                    assert!(blocks.iter().all(apart), "seed {seed}: {block:?} {blocks:?}");
                    blocks.push(block);
                }
                assert_eq!(arena.used.len(), blocks.len());
            }
            blocks.into_iter().for_each(|block| arena.free(block));
            assert_eq!(arena.allocate(BYTES).unwrap(), ArenaRange { offset: 0, bytes: BYTES });
        }
    }

    /// An empty block is a block of its own: to free it frees no other.
    #[test]
    fn empty_blocks_do_not_share_offsets() {
        let mut arena = arena();
        let (empty, block) = (arena.allocate(0).unwrap(), arena.allocate(64).unwrap());
        let other = arena.allocate(0).unwrap();
        arena.free(empty);
        arena.free(other);
        assert_eq!(arena.used.as_slice(), [(block.offset, block.bytes)]);
    }

    #[test]
    fn too_much_is_refused_with_what_was_asked() {
        let mut arena = arena();
        for bytes in [BYTES + 1, usize::MAX, usize::MAX - 62] {
            let full = Fault::new(ErrorCode::ProgramTooLarge, bytes as u32);
            assert_eq!(arena.allocate(bytes), Err(full));
        }
        let _half = arena.allocate(BYTES / 2).unwrap();
        let full = Fault::new(ErrorCode::ProgramTooLarge, BYTES as u32 / 2 + 1);
        assert_eq!(arena.allocate(BYTES / 2 + 1), Err(full));
        arena.allocate(BYTES / 2).unwrap();
    }

    #[test]
    fn there_is_a_block_for_every_program_and_one_run() {
        let mut arena = arena();
        assert!((0..MAX_BLOCKS).all(|_| arena.allocate(1).is_ok()));
        assert_eq!(arena.allocate(1).unwrap_err().code, ErrorCode::ProgramTooLarge);
    }

    /// A gap between two blocks is used before the space behind them.
    #[test]
    fn gaps_are_reused() {
        let mut arena = arena();
        let [a, b, c] = [64, 128, 64].map(|bytes| arena.allocate(bytes).unwrap());
        let offset = b.offset;
        arena.free(b);
        assert_eq!(arena.allocate(129).unwrap().offset, c.offset + 64);
        assert_eq!(arena.allocate(128).unwrap().offset, offset);
        arena.free(a);
        assert_eq!(arena.allocate(64).unwrap().offset, 0);
    }
}
