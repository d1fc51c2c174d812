//! A device with two buffers, and words to say what must come of a request.

use std::collections::HashSet;
use std::time::Duration;

use hexflash::device::Buffer;
pub use hexflash::testing::Target;
use hexflash_abi::message::{Exec, Load, Message, Range, Response, Run, Unload};
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{BufferId, DType, ErrorCode, Fault, Op, ProgramId, Seq, Status, TensorIndex};
use zerocopy::IntoBytes;

/// Bytes of each of the two buffers.
pub const SIZE: usize = 2 << 20;
/// The buffers of a fresh session: A has registers at 0 and blocks at [`BLOCK`], B what ops work on.
pub const A: BufferId = BufferId(0);
pub const B: BufferId = BufferId(1);
/// Where blocks lie in A.
pub const BLOCK: usize = 1024;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A device, its two buffers, and the codes that have come back so far.
pub struct Bench {
    pub device: Box<dyn Target>,
    buffers: Vec<Buffer>,
    pub seen: HashSet<ErrorCode>,
}

impl Bench {
    /// A bench without a session: [`fresh`](Self::fresh) comes first.
    pub fn new(device: Box<dyn Target>) -> Self {
        Self { device, buffers: Vec::new(), seen: HashSet::new() }
    }

    /// A new session with A and B mapped, zeroed.
    pub fn fresh(&mut self) {
        self.buffers.clear();
        self.device.reset().unwrap();
        for id in [A, B] {
            let buffer = self.device.allocate(SIZE as u64).unwrap();
            assert_eq!(buffer.id, id);
            self.buffers.push(buffer);
        }
    }

    pub fn write(&self, buffer: BufferId, at: usize, bytes: &[u8]) {
        self.buffers[buffer.0 as usize].memory.write(at, bytes);
    }

    pub fn bytes(&self, buffer: BufferId, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffers[buffer.0 as usize].memory.read(at, &mut out);
        out
    }

    /// A word of B.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(B, at, 4).try_into().unwrap())
    }

    pub fn set_word(&self, at: usize, word: u32) {
        self.write(B, at, &word.to_le_bytes());
    }

    pub fn buffer(&self, id: BufferId) -> Buffer {
        self.buffers[id.0 as usize].clone()
    }

    /// Registers of a step, at 0 of A.
    pub fn step(&self, n_past: u32, n_tokens: u32) {
        self.write(A, 0, StepRegisters::step(n_past, n_tokens).as_bytes());
    }

    /// Writes a block where blocks lie.
    pub fn block(&self, block: &[u8]) -> Range {
        self.write(A, BLOCK, block);
        range(BLOCK, block.len())
    }

    fn answer(&mut self) -> Response {
        let response = self.device.wait(TIMEOUT).unwrap();
        if let Err((_, fault)) = response.outcome() {
            self.seen.insert(fault.code);
        }
        response
    }

    /// What a request ends in.
    pub fn send(&mut self, message: Message) -> Result<(), (Status, Fault)> {
        let seq = self.device.submit(&message).unwrap();
        let response = self.answer();
        assert_eq!(response.seq, seq);
        response.outcome()
    }

    /// What bytes end in, and the sequence number of the answer.
    pub fn send_bytes(&mut self, request: &[u8]) -> (Seq, Result<(), (Status, Fault)>) {
        self.device.submit_bytes(request).unwrap();
        let response = self.answer();
        (response.seq, response.outcome())
    }

    #[track_caller]
    pub fn ok(&mut self, message: Message) {
        assert_eq!(self.send(message), Ok(()), "{message:?}");
    }

    #[track_caller]
    pub fn refused(&mut self, message: Message, code: ErrorCode, detail: u32) {
        let want = Err((Status::Refused, Fault::new(code, detail)));
        assert_eq!(self.send(message), want, "{message:?}");
    }

    /// Refused with this code; the detail is the platform's own.
    #[track_caller]
    pub fn refused_for(&mut self, message: Message, code: ErrorCode) {
        let found = self.send(message).map_err(|(status, fault)| (status, fault.code));
        assert_eq!(found, Err((Status::Refused, code)), "{message:?}");
    }

    /// A block is refused by `Load` and by `Run`, with the same fault.
    #[track_caller]
    pub fn refuses_block(&mut self, what: &str, block: &[u8], fault: Fault) {
        let block = self.block(block);
        self.step(0, 1);
        for message in [load(0, block), run(block)] {
            assert_eq!(self.send(message), Err((Status::Refused, fault)), "{what}: {message:?}");
        }
    }

    /// A program runs and does what it should, whatever came before.
    #[track_caller]
    pub fn still_works(&mut self) {
        self.fresh_words();
        let block = self.block(&copies(0, 4));
        self.ok(run(block));
        assert_eq!(self.word(4), 5);
    }

    fn fresh_words(&self) {
        self.step(0, 1);
        self.set_word(0, 5);
        self.set_word(4, 0);
    }
}

/// A range of A.
pub fn range(offset: usize, len: usize) -> Range {
    Range { buffer: A, len: len as u32, offset: offset as u64 }
}

pub fn registers() -> Range {
    range(0, size_of::<StepRegisters>())
}

pub fn load(program: u32, block: Range) -> Message {
    Message::Load(Load { program: ProgramId(program), reserved: 0, block })
}

pub fn exec(program: u32, registers: Range) -> Message {
    Message::Exec(Exec { program: ProgramId(program), reserved: 0, registers })
}

pub fn unload(program: u32) -> Message {
    Message::Unload(Unload { program: ProgramId(program) })
}

pub fn run(block: Range) -> Message {
    Message::Run(Run { block, registers: registers() })
}

/// A packed tensor of words in B.
pub fn tensor(dtype: DType, offset: u64, ne: [u32; 4]) -> TensorDesc {
    let flags = (TensorFlags::HOST_WRITES | TensorFlags::HOST_READS).bits();
    TensorDesc { offset, buffer: B.0 as u16, flags, ..TensorDesc::packed(dtype, ne).unwrap() }
}

/// An op with these operands; tensors by index.
pub fn op(op: Op, src: &[u16], dst: u16, params: &[u32]) -> OpDesc {
    let src: Vec<_> = src.iter().copied().map(TensorIndex).collect();
    let mut desc = OpDesc::new(op, &src, &[TensorIndex(dst)]);
    desc.params[..params.len()].copy_from_slice(params);
    desc
}

/// The header of a program over A and B, for up to 4 tokens in a context of 10.
pub fn header(n_tensors: usize, n_ops: usize) -> ProgramHeader {
    ProgramHeader::new(4, 10).with_counts([2, n_tensors, n_ops]).unwrap()
}

/// The bytes of a program over A and B.
pub fn program(header: &ProgramHeader, tensors: &[TensorDesc], ops: &[OpDesc]) -> Vec<u8> {
    let buffers = [A, B].map(|buffer| BufferRef { buffer, reserved: 0 });
    [header.as_bytes(), buffers.as_bytes(), tensors.as_bytes(), ops.as_bytes()].concat()
}

/// Copies the word at byte `from` of B to byte `to`.
pub fn copies(from: u64, to: u64) -> Vec<u8> {
    let tensors = [from, to].map(|at| tensor(DType::I32, at, [1; 4]));
    program(&header(2, 1), &tensors, &[op(Op::Cpy, &[0], 1, &[])])
}
