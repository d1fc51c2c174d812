//! A session and the memory that it shares, for tests that talk to it in messages.
#![allow(dead_code, reason = "each test crate uses its part")]

use std::ptr::NonNull;

use hexflash_abi::message::{Exec, Load, Map, Message, Range, Response, Unload, Unmap};
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{BufferId, DType, ErrorCode, Fault, Fd, Op, ProgramId, Seq, Status, TensorIndex};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::Platform;
use hexflash_dsp::platform::host::HostPlatform;
use hexflash_dsp::pool::Pool;
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::testing::guarded::Guarded;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::IntoBytes;

/// Bytes of each of the two shared memories, fds 1 and 2.
pub const SIZE: usize = 8192;
pub const ARENA: usize = 4096;
pub const VTCM: usize = 64 << 10;

/// Memory by address, as the two sides share it, between pages that neither may touch.
pub struct Shared(Guarded);

impl Shared {
    pub fn new(bytes: usize) -> Self {
        let mut memory = Guarded::new(bytes);
        memory.bytes_mut().fill(0);
        Self(memory)
    }

    pub fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.0.size());
        // SAFETY: `at + bytes.len()` is at most the memory's size, by the line above. The session runs only
        // while it answers, so that nobody else uses the memory now.
        unsafe { self.base().add(at).copy_from(NonNull::from(bytes).cast(), bytes.len()) };
    }

    pub fn word(&self, at: usize) -> u32 {
        assert!(at + 4 <= self.0.size());
        // SAFETY: `at + 4` is at most the memory's size, by the line above, and the read takes any address.
        // The session runs only while it answers, so that nobody else uses the memory now.
        unsafe { self.base().add(at).cast::<u32>().read_unaligned() }
    }
}

/// A session and the memory that it shares. Blocks lie at 1024 of memory 0, registers at 0.
pub struct Host<'a, 'd, 'p, P: Platform = HostPlatform> {
    pub session: &'a mut Session<'d, 'p, P>,
    pub memory: &'a [Shared; 2],
}

pub const A: BufferId = BufferId(4);
pub const B: BufferId = BufferId(63);
pub const BLOCK: usize = 1024;

pub fn with_host(work: impl FnOnce(&mut Host<'_, '_, '_>)) {
    let platform = HostPlatform::new();
    with_platform(&platform, &platform, work);
}

/// As [`with_host`], on a platform whose memory is that of `host`.
pub fn with_platform<P: Platform>(
    platform: &P,
    host: &HostPlatform,
    work: impl FnOnce(&mut Host<'_, '_, '_, P>),
) {
    let memory = [Shared::new(SIZE), Shared::new(SIZE)];
    let (arena, vtcm) = (Shared::new(ARENA), Shared::new(VTCM));
    for (fd, memory) in [(1, &memory[0]), (2, &memory[1])] {
        // SAFETY: `memory` begins at a multiple of 128, has SIZE bytes, and is dropped after the session.
        // Nobody makes references to its bytes meanwhile.
        unsafe { host.share(Fd(fd), memory.base(), SIZE as u64) };
    }
    // SAFETY: `Guarded` memory begins at a multiple of 128, has these bytes, written once, and is dropped
    // after the session. Nobody else uses it meanwhile.
    let (scratchpad, programs) = unsafe { (Vtcm::new(vtcm.base(), VTCM), Arena::new(arena.base(), ARENA)) };
    let pool = Pool::new(platform, Isa::detect(), scratchpad, 1, DmaMode::AtOnce);
    let mut session = Session::new(platform, pool.dispatcher().unwrap(), programs, 0x73);
    work(&mut Host { session: &mut session, memory: &memory });
    assert!([&memory[0], &memory[1], &arena, &vtcm].iter().all(|shared| shared.0.is_whole()));
}

/// As [`with_host`], with memory 0 mapped as A and memory 1 as B, both to be written.
pub fn with_maps(work: impl FnOnce(&mut Host<'_, '_, '_>)) {
    with_host(|host| {
        host.ok(map(A, 1, SIZE, 0));
        host.ok(map(B, 2, SIZE, 0));
        work(host);
    });
}

pub fn map(buffer: BufferId, fd: i32, size: usize, flags: u32) -> Message {
    Message::Map(Map { buffer, fd: Fd(fd), size: size as u64, flags, reserved: 0 })
}

pub fn unmap(buffer: BufferId) -> Message {
    Message::Unmap(Unmap { buffer })
}

pub fn range(offset: usize, len: usize) -> Range {
    Range { buffer: A, len: len as u32, offset: offset as u64 }
}

pub fn registers() -> Range {
    range(0, 64)
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

impl<P: Platform> Host<'_, '_, '_, P> {
    pub fn send(&mut self, message: Message) -> Response {
        let response = self.session.handle(message.encode(Seq(77)).as_bytes());
        assert_eq!(response.seq, Seq(77));
        response
    }

    #[track_caller]
    pub fn ok(&mut self, message: Message) {
        assert_eq!(self.send(message).outcome(), Ok(()));
    }

    #[track_caller]
    pub fn refused(&mut self, message: Message, code: ErrorCode, detail: u32) {
        assert_eq!(self.send(message).outcome(), Err((Status::Refused, Fault::new(code, detail))));
    }

    /// Writes a block where programs are expected.
    pub fn block(&mut self, block: &[u8]) -> Range {
        self.memory[0].write(BLOCK, block);
        range(BLOCK, block.len())
    }

    pub fn step(&mut self, n_past: u32, n_tokens: u32) {
        self.put(StepRegisters::step(n_past, n_tokens));
    }

    /// Writes a register block where it is expected.
    pub fn put(&mut self, values: StepRegisters) {
        self.memory[0].write(0, values.as_bytes());
    }

    /// The register block as it is now.
    pub fn values(&self) -> StepRegisters {
        StepRegisters { values: std::array::from_fn(|i| self.memory[0].word(4 * i)) }
    }

    /// Everything that both sides can see.
    pub fn everything(&self) -> Vec<u32> {
        self.memory.iter().flat_map(|m| (0..SIZE / 4).map(|i| m.word(4 * i))).collect()
    }
}

/// A word tensor at `offset` of buffer `buffer` (0: A, 1: B).
pub fn word(dtype: DType, buffer: u16, offset: u64) -> TensorDesc {
    TensorDesc { offset, buffer, ..TensorDesc::packed(dtype, [1; 4]).unwrap() }
}

pub fn op(op: Op, src: &[u16], dst: u16) -> OpDesc {
    let src: Vec<_> = src.iter().copied().map(TensorIndex).collect();
    OpDesc::new(op, &src, &[TensorIndex(dst)])
}

/// A block over A and B, for up to 4 tokens in a context of 10.
pub fn program(tensors: &[TensorDesc], ops: &[OpDesc]) -> Vec<u8> {
    let header = ProgramHeader::new(4, 10).with_counts([2, tensors.len(), ops.len()]).unwrap();
    let buffers = [A, B].map(|buffer| BufferRef { buffer, reserved: 0 });
    [header.as_bytes(), buffers.as_bytes(), tensors.as_bytes(), ops.as_bytes()].concat()
}

/// Copies the word at byte `from` of B to byte `to`.
pub fn copies(from: u64, to: u64) -> Vec<u8> {
    program(&[word(DType::I32, 1, from), word(DType::I32, 1, to)], &[op(Op::Cpy, &[0], 1)])
}
