//! What a session must answer, from the bytes that it was sent: the rules of the ABI without the session's
//! code.

use hexflash_abi::dtype::TILE_ROWS;
use hexflash_abi::message::{Message, Ping, Probe, Range, Request};
use hexflash_abi::op::Op;
use hexflash_abi::program::{MAX_BUFFERS, MAX_PROGRAMS, MAX_SLOTS, OpDesc, TensorDesc};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::{BufferInfo, Program, check_step};
use hexflash_abi::{ABI_VERSION, BufferId, DType, ErrorCode, Fault, LAYOUT_HASH, MAGIC};
use zerocopy::{FromBytes, IntoBytes};

use crate::course::Moment;
use crate::memory::{Guarded, Marks};

/// Fd of memory `i`.
pub const FIRST_FD: i32 = 100;

/// A mapped buffer: which memory, how much of it, how.
#[derive(Clone, Copy)]
pub struct Mapped {
    pub memory: usize,
    pub info: BufferInfo,
}

/// The state of a session.
pub struct Model {
    pub buffers: [Option<Mapped>; MAX_BUFFERS],
    /// Copies of the loaded blocks.
    pub programs: [Option<Block>; MAX_PROGRAMS],
}

/// A program block, aligned.
#[derive(Clone)]
pub struct Block {
    words: Vec<u64>,
    bytes: usize,
}

impl Block {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Self { words, bytes: bytes.len() }
    }

    pub fn program(&self) -> Result<Program<'_>, Fault> {
        Program::parse(&self.words.as_bytes()[..self.bytes])
    }
}

/// The answers that are right.
pub enum Expect {
    /// Success, and nothing was run.
    Done,
    /// Refused for exactly this.
    Refused(Fault),
    /// A sound program is to be loaded: success, or no room for it.
    Loads(usize, Block),
    /// A sound program is to be run: success, no room for it, or a failure of an op for its data.
    Runs(Block, Step),
    /// A sound question: an answer, or no room in VTCM for its data.
    Answers(Probe),
}

/// The register blocks of a run, and where they lie.
#[derive(Clone, Debug)]
pub struct Step {
    pub blocks: Vec<StepRegisters>,
    pub memory: usize,
    pub at: usize,
    buffer: BufferId,
}

impl Step {
    /// Whether it is a round after the last one. Several sequences take no part in rounds.
    pub fn halted(&self) -> bool {
        self.blocks.len() == 1 && (1..=2).contains(&self.blocks[0].get(Register::Halt))
    }
}

impl Model {
    pub fn new() -> Self {
        Self { buffers: [None; MAX_BUFFERS], programs: [const { None }; MAX_PROGRAMS] }
    }

    pub fn info(&self, id: BufferId) -> Option<BufferInfo> {
        Some(self.buffers.get(id.0 as usize)?.as_ref()?.info)
    }

    /// The answer to `bytes`.
    pub fn answer(&self, bytes: &[u8], memories: &[Guarded]) -> Expect {
        let Ok(request) = Request::read_from_bytes(bytes) else {
            return Expect::Refused(Fault::new(ErrorCode::BadMessage, bytes.len() as u32));
        };
        match Message::decode(&request).and_then(|message| self.message(&message, memories)) {
            Ok(expect) => expect,
            Err(fault) => Expect::Refused(fault),
        }
    }

    fn message(&self, message: &Message, memories: &[Guarded]) -> Result<Expect, Fault> {
        let fail = |code, detail| Err(Fault::new(code, detail));
        match *message {
            Message::Ping(Ping { magic, .. }) if magic != MAGIC => fail(ErrorCode::BadMagic, magic),
            Message::Ping(Ping { abi_version, .. }) if abi_version != ABI_VERSION => {
                fail(ErrorCode::AbiVersion, ABI_VERSION)
            }
            Message::Ping(Ping { layout_hash, .. }) if layout_hash != LAYOUT_HASH => {
                fail(ErrorCode::LayoutHash, LAYOUT_HASH as u32)
            }
            Message::Ping(_) => Ok(Expect::Done),
            Message::Map(map) => {
                if self.slot(map.buffer)?.is_some() {
                    return fail(ErrorCode::BufferInUse, map.buffer.0);
                }
                if map.flags > 1 {
                    return fail(ErrorCode::ReservedNotZero, map.flags);
                }
                let memory =
                    map.fd.0.checked_sub(FIRST_FD).and_then(|i| memories.get(usize::try_from(i).ok()?));
                if memory.is_none_or(|m| map.size == 0 || map.size > m.size() as u64) {
                    return fail(ErrorCode::MapFailed, map.fd.0 as u32);
                }
                let memory = (map.fd.0 - FIRST_FD) as usize;
                let shares = |m: &Option<Mapped>| {
                    m.is_some_and(|m| m.memory == memory && !(m.info.read_only && map.flags == 1))
                };
                self.buffers
                    .iter()
                    .position(shares)
                    .map_or(Ok(Expect::Done), |i| fail(ErrorCode::BufferInUse, i as u32))
            }
            Message::Unmap(unmap) => {
                for (id, block) in self.programs.iter().enumerate() {
                    let Some(block) = block else { continue };
                    if block.program()?.buffers.iter().any(|b| b.buffer == unmap.buffer) {
                        return fail(ErrorCode::BufferBusy, id as u32);
                    }
                }
                match self.info(unmap.buffer) {
                    Some(_) => Ok(Expect::Done),
                    None => fail(ErrorCode::UnknownBuffer, unmap.buffer.0),
                }
            }
            Message::Load(load) => {
                let id = load.program.0;
                match self.programs.get(id as usize) {
                    None => return fail(ErrorCode::UnknownProgram, id),
                    Some(Some(_)) => return fail(ErrorCode::ProgramInUse, id),
                    Some(None) => {}
                }
                Ok(Expect::Loads(id as usize, self.sound(self.range(load.block, memories)?)?))
            }
            Message::Exec(exec) => {
                let step = self.registers(exec.registers, memories)?;
                let id = exec.program.0;
                let block = self.programs.get(id as usize).and_then(Option::as_ref);
                let block = block.ok_or(Fault::new(ErrorCode::UnknownProgram, id))?;
                self.runs(block.clone(), step)
            }
            Message::Run(run) => {
                let step = self.registers(run.registers, memories)?;
                self.runs(self.sound(self.range(run.block, memories)?)?, step)
            }
            Message::Unload(unload) => match self.programs.get(unload.program.0 as usize) {
                Some(Some(_)) => Ok(Expect::Done),
                _ => fail(ErrorCode::UnknownProgram, unload.program.0),
            },
            Message::Probe(probe) => self.probe(probe, memories),
        }
    }

    fn probe(&self, probe: Probe, memories: &[Guarded]) -> Result<Expect, Fault> {
        let Probe { question, number, data } = probe;
        let (numbers, bytes) = match question {
            1 => (1..=4, data.len == (2 * number.min(4) + 1) * 2048),
            2 | 3 => (1..=64, (512..=1 << 20).contains(&data.len) && data.len.is_multiple_of(256)),
            4 => (1..=3, data == Range::default()),
            _ => return Err(Fault::new(ErrorCode::BadParam, 0)),
        };
        if !numbers.contains(&number) {
            return Err(Fault::new(ErrorCode::BadParam, 1));
        }
        if !bytes {
            return Err(Fault::new(ErrorCode::BadParam, 2));
        }
        if !data.offset.is_multiple_of(128) {
            return Err(Fault::new(ErrorCode::Misaligned, data.offset as u32));
        }
        if question != 4 {
            self.range(data, memories)?;
        }
        Ok(Expect::Answers(probe))
    }

    /// Does what a successful `message` does.
    pub fn apply(&mut self, message: &Message, loaded: Option<(usize, Block)>) {
        match *message {
            Message::Map(map) => {
                let info = BufferInfo { size: map.size, read_only: map.flags == 1 };
                let memory = (map.fd.0 - FIRST_FD) as usize;
                self.buffers[map.buffer.0 as usize] = Some(Mapped { memory, info });
            }
            Message::Unmap(unmap) => self.buffers[unmap.buffer.0 as usize] = None,
            Message::Unload(unload) => self.programs[unload.program.0 as usize] = None,
            _ => {}
        }
        if let Some((id, block)) = loaded {
            self.programs[id] = Some(block);
        }
    }

    fn slot(&self, id: BufferId) -> Result<Option<Mapped>, Fault> {
        self.buffers.get(id.0 as usize).copied().ok_or(Fault::new(ErrorCode::UnknownBuffer, id.0))
    }

    fn range<'m>(&self, range: Range, memories: &'m [Guarded]) -> Result<&'m [u8], Fault> {
        let id = range.buffer;
        let mapped = self.slot(id)?.ok_or(Fault::new(ErrorCode::UnknownBuffer, id.0))?;
        let (start, end) = (u128::from(range.offset), u128::from(range.offset) + u128::from(range.len));
        if end > mapped.info.size.into() {
            return Err(Fault::new(ErrorCode::OutOfBounds, id.0));
        }
        Ok(&memories[mapped.memory].bytes()[start as usize..end as usize])
    }

    /// Registers that have halted need not make sense; those that a program advances must lie where it may
    /// write.
    fn runs(&self, block: Block, step: Step) -> Result<Expect, Fault> {
        let program = block.program()?;
        if !step.halted() {
            check_step(program.header, &step.blocks)?;
            let advances = program.ops.iter().any(|op| op.opcode == Op::Accept.wire());
            if advances && step.blocks.len() > 1 {
                return Err(Fault::new(ErrorCode::BadCount, step.blocks.len() as u32));
            }
            if advances && self.info(step.buffer).is_some_and(|info| info.read_only) {
                return Err(Fault::new(ErrorCode::WriteToConst, step.buffer.0));
            }
        }
        Ok(Expect::Runs(block, step))
    }

    fn registers(&self, range: Range, memories: &[Guarded]) -> Result<Step, Fault> {
        if !range.len.is_multiple_of(64) {
            return Err(Fault::new(ErrorCode::OutOfBounds, range.buffer.0));
        }
        if range.len == 0 || range.len > 64 * MAX_SLOTS {
            return Err(Fault::new(ErrorCode::BadCount, range.len / 64));
        }
        if !range.offset.is_multiple_of(4) {
            return Err(Fault::new(ErrorCode::Misaligned, range.offset as u32));
        }
        let blocks = self.range(range, memories)?.chunks_exact(64);
        let blocks = blocks.map(|block| StepRegisters::read_from_bytes(block).unwrap()).collect();
        let memory = self.slot(range.buffer)?.map_or(0, |mapped| mapped.memory);
        Ok(Step { blocks, memory, at: range.offset as usize, buffer: range.buffer })
    }

    fn sound(&self, bytes: &[u8]) -> Result<Block, Fault> {
        let block = Block::new(bytes);
        block.program()?.check(|id| self.info(id))?;
        Ok(block)
    }

    /// What the first ops of a sound program may write in these moments, per memory.
    pub fn may_write(&self, program: &Program<'_>, moments: &[Moment], memories: usize) -> Vec<Marks> {
        let mut marks = vec![Marks::default(); memories];
        for (op, moment) in program.ops.iter().zip(moments) {
            for t in written(program, op) {
                let id = program.buffers[t.buffer as usize].buffer;
                let mapped = self.buffers[id.0 as usize].expect("a sound program's buffers are mapped");
                assert!(!mapped.info.read_only);
                rows(t, moment.tokens, &mut marks[mapped.memory].0);
            }
        }
        marks
    }
}

/// The tensors that an op writes.
fn written<'a>(program: &Program<'a>, op: &OpDesc) -> Vec<&'a TensorDesc> {
    let spec = Op::parse(op.opcode).unwrap().spec();
    let src = op.src.iter().zip(spec.src);
    let dst = op.dst.iter().zip(spec.dst);
    src.chain(dst).filter(|(_, spec)| spec.written).filter_map(|(&i, _)| program.tensor(i)).collect()
}

/// Byte ranges of a tensor's rows (of its strips, if it is tiled), as far as a step reaches.
fn rows(t: &TensorDesc, n_tokens: u32, ranges: &mut Vec<(usize, usize)>) {
    let dtype = DType::parse(t.dtype).unwrap();
    let mut ne = t.ne.map(|n| n as usize);
    if t.token_axis < 4 {
        let n = &mut ne[t.token_axis as usize];
        *n = (*n).min(n_tokens as usize);
    }
    let bytes = match (dtype.tile_group(), dtype.row_block()) {
        (Some(group), _) => {
            ne[1] = ne[1].div_ceil(TILE_ROWS);
            group.strip_bytes(ne[0])
        }
        (None, Some(_)) => dtype.row_bytes(ne[0]),
        (None, None) => hexflash_abi::dtype::ActivationRow::new(ne[0]).bytes(),
    };
    let nb = t.nb.map(|n| n as usize);
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                let at = t.offset as usize + i1 * nb[1] + i2 * nb[2] + i3 * nb[3];
                ranges.push((at, at + bytes));
            }
        }
    }
}
