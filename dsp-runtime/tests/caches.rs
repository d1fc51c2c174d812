//! What a session does to caches, in which order: it drops what the host may have written before it looks, and writes
//! back what the host will read before it answers.

mod common;

use std::ptr::NonNull;
use std::sync::Mutex;

use common::*;
use hexflash_abi::accept::{HEAD, SLOTS};
use hexflash_abi::message::Message;
use hexflash_abi::op::params;
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::sync::AtomicU32;
use hexflash_abi::{DType, Fault, Fd, Op, Seq, TensorIndex};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::host::HostPlatform;
use hexflash_dsp::platform::{CacheOp, Platform};
use hexflash_dsp::pool::Pool;
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::IntoBytes;

/// This machine, whose caches need no care, noting what care is taken.
struct Noting {
    host: HostPlatform,
    noted: Mutex<Vec<Note>>,
}

impl Platform for Noting {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        self.host.futex_wait(word, expected);
    }

    fn futex_wake(&self, word: &AtomicU32) {
        self.host.futex_wake(word);
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        self.host.map(fd, size)
    }

    fn unmap(&self, fd: Fd, base: NonNull<u8>, size: u64) {
        self.host.unmap(fd, base, size);
    }

    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize) {
        self.noted.lock().unwrap().push((op, base.addr(), bytes));
    }
}

/// An operation on the caches: what, and the bytes of A.
type Note = (CacheOp, usize, usize);

/// A session with memory A; gives what it does to the caches of A while it answers each message, by offset.
fn with_notes(work: impl FnOnce(&Shared, &mut dyn FnMut(Message) -> Vec<Note>)) {
    let (memory, arena, vtcm) = (Shared::new(SIZE), Shared::new(ARENA), Shared::new(VTCM));
    let platform = Noting { host: HostPlatform::new(), noted: Mutex::default() };
    // SAFETY: aligned, and alive until the session is gone.
    unsafe { platform.host.share(Fd(1), memory.base(), SIZE as u64) };
    // SAFETY: aligned, alive, and the session's alone.
    let (scratchpad, programs) = unsafe { (Vtcm::new(vtcm.base(), VTCM), Arena::new(arena.base(), ARENA)) };
    let pool = Pool::new(&platform, Isa::detect(), scratchpad, 1, DmaMode::AtOnce);
    let mut session = Session::new(&platform, pool.dispatcher().unwrap(), programs, 0x73);
    let mut send = |message: Message| {
        platform.noted.lock().unwrap().clear();
        let response = session.handle(message.encode(Seq(1)).as_bytes());
        assert_eq!(response.outcome(), Ok(()));
        let base = memory.base().addr().get();
        let noted = platform.noted.lock().unwrap();
        noted.iter().map(|&(op, at, bytes)| (op, at - base, bytes)).collect()
    };
    send(map(A, 1, SIZE, 0));
    work(&memory, &mut send);
}

/// A program over A alone.
fn over_a(tensors: &[TensorDesc], ops: &[OpDesc]) -> Vec<u8> {
    let header = ProgramHeader::new(4, 10).with_counts([1, tensors.len(), ops.len()]).unwrap();
    let buffer = BufferRef { buffer: A, reserved: 0 };
    [header.as_bytes(), buffer.as_bytes(), tensors.as_bytes(), ops.as_bytes()].concat()
}

#[test]
fn old_lines_go_first_and_new_ones_before_the_answer() {
    use CacheOp::{Flush, Invalidate};
    with_notes(|memory, send| {
        let at = |offset, ne, flags: TensorFlags| TensorDesc {
            offset,
            flags: flags.bits(),
            ..TensorDesc::packed(DType::I32, [ne, 1, 1, 1]).unwrap()
        };
        let (reads, writes) = (TensorFlags::HOST_READS, TensorFlags::HOST_WRITES);
        let tensors = [at(4096, 8, writes), at(5120, 8, TensorFlags::empty()), at(6144, 8, reads)];
        let block = over_a(&tensors, &[op(Op::Cpy, &[0], 1), op(Op::Cpy, &[1], 2)]);
        memory.write(BLOCK, &block);
        let loaded = send(load(0, range(BLOCK, block.len())));
        assert_eq!(loaded, [(Invalidate, BLOCK, block.len())]);
        memory.write(0, StepRegisters::step(0, 1).as_bytes());
        // What stays on the DSP is left alone.
        assert_eq!(
            send(exec(0, registers())),
            [(Invalidate, 0, 64), (Invalidate, 4096, 32), (Flush, 6144, 32)]
        );
    });
}

/// Registers that the DSP has advanced are written back, too.
#[test]
fn advanced_registers_are_written_back() {
    with_notes(|memory, send| {
        let at = |offset, ne| TensorDesc { offset, ..TensorDesc::packed(DType::I32, ne).unwrap() };
        // Best tokens, tokens, stops; reports and the anchor.
        let tensors = [
            TensorDesc { token_axis: 0, ..at(4096, [4, 1, 1, 1]) },
            TensorDesc { token_axis: 0, ..at(4224, [4, 1, 1, 1]) },
            at(4352, [1; 4]),
            at(4480, [HEAD as u32 + 4, SLOTS as u32, 1, 1]),
            at(5120, [1; 4]),
        ];
        let mut accept = op(Op::Accept, &[0, 1, 2], 3);
        accept.dst[1] = TensorIndex(4);
        accept.set_params(&params::Accept { block: 4, n_ctx: 10 });
        let block = over_a(&tensors, &[accept]);
        memory.write(BLOCK, &block);
        send(load(0, range(BLOCK, block.len())));
        let registers_of_a_round = StepRegisters::step(0, 2)
            .with(Register::NDraft, 1)
            .with(Register::DraftMax, 1)
            .with(Register::NLeft, 5);
        memory.write(0, registers_of_a_round.as_bytes());
        let noted = send(exec(0, registers()));
        assert_eq!(noted, [(CacheOp::Invalidate, 0, 64), (CacheOp::Flush, 0, 64)]);
    });
}
